"""Every op on every kind of device, and a small transformer trained there, against the NumPy reference."""

import zlib

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim
from minigrad.autograd import Storage, registry
from minigrad.backend import reference
from minigrad.gradcheck.subject import tensors_in
from minigrad.tensor import Tensor

DECLARED = {name: d for name, d in registry.items() if d.builtin and name != "transfer"}
SLACK = {np.float64: 3e-13, np.float32: 2e-4}  # of each result's largest element: derivatives cancel a few digits


def on_device(on, x):
    if isinstance(x, list):
        return [on_device(on, part) for part in x]
    if not isinstance(x, np.ndarray):
        return x
    tensor = Tensor._wrap(on.from_numpy(x.copy()), Storage(on))
    return tensor.requires_grad_() if x.dtype.kind == "f" else tensor


def results(on, declaration, case, dtype):
    """Outputs, gradients and second derivatives of a case, as NumPy arrays."""
    mg.manual_seed(0)
    rng = np.random.default_rng(zlib.crc32(f"{declaration.name} {case!r}".encode()))
    inputs = [on_device(on, x) for x in case.draw(rng, dtype)]
    outputs = tensors_in(declaration.call(*inputs, **case.params))
    found = list(outputs)
    for _ in range(2):  # first and second derivatives
        roots = [y for y in outputs if y.requires_grad]
        leaves = [x for x in tensors_in(inputs) if x.requires_grad]
        if not roots:
            break
        weights = [on_device(on, rng.standard_normal(y.shape).astype(y.dtype)).detach() for y in roots]
        grads = mg.grad(roots, leaves, weights, create_graph=True, allow_unused=True)
        outputs = [g for g in grads if g is not None]
        found += outputs
    assert all(y.storage.backend is on for y in found)
    return [y.detach().numpy() if on.device == "cpu" else y.detach().cpu().numpy() for y in found]


@pytest.mark.parametrize("dtype", SLACK)
@pytest.mark.parametrize("family", sorted({d.module for d in DECLARED.values()}))
def test_ops(family, dtype, device, monkeypatch):
    """The ops of a module of minigrad.ops."""
    for declaration, case in ((d, case) for d in DECLARED.values() if d.module == family for case in d.cases):
        about = f"{declaration.name} {case!r}"
        got = results(device, declaration, case, dtype)
        monkeypatch.setattr(backend, "cpu", lambda: reference)
        want = results(reference, declaration, case, dtype)
        monkeypatch.setattr(backend, "cpu", lambda: device)
        assert len(got) == len(want), about
        for a, b in zip(got, want):
            assert a.shape == b.shape and a.dtype == b.dtype, about
            size = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind == "f" else 0
            np.testing.assert_allclose(a, b, 0, SLACK[dtype] * size, err_msg=about)


def losses(on, dtype, steps=4):
    """The losses and weights of a transformer with dropout, from one seed."""
    mg.manual_seed(1)
    config = nn.GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1)
    model = nn.GPT(config).to(dtype)
    if on.device != "cpu":
        model.to(on.device)
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=1e-2)
    tokens = np.random.default_rng(0).integers(0, 11, (steps, 3, 9))
    found = []
    for batch in tokens:
        x, y = (mg.tensor(part, device=on.device) for part in (batch[:, :-1], batch[:, 1:]))
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        found += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()]
        optimizer.step()
    return found


@pytest.mark.parametrize("dtype, slack", [(mg.float64, 1e-12), (mg.float32, 1e-4)])
def test_training(dtype, slack, device, monkeypatch):
    got = losses(device, dtype)
    monkeypatch.setattr(backend, "cpu", lambda: reference)
    np.testing.assert_allclose(got, losses(reference, dtype), slack)
