"""The same program run by minigrad and by PyTorch on the same arrays, and its results compared."""

import numpy as np

import minigrad as mg


def flat(ys):
    return list(ys) if isinstance(ys, (tuple, list)) else [ys]


def wrapped(m, x, leaves):
    """An array as a tensor of m, and a leaf if it is one of floats; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    x = m.tensor(x, requires_grad=x.dtype.kind == "f")
    if x.requires_grad:
        leaves.append(x)
    return x


def results(m, function, arrays, seed, orders=("gradient", "second derivative")):
    """{what: array} of the outputs, of the gradients for random cotangents, and of a random projection's gradients."""
    grad = mg.grad if m is mg else m.autograd.grad
    rng = np.random.default_rng(seed + 1)

    def weighted(tensors):
        return sum((t * m.tensor(rng.standard_normal(tuple(t.shape)).astype(name_of(t.dtype)))).sum() for t in tensors)

    leaves: list = []
    ys = flat(function(m, *[wrapped(m, x, leaves) for x in arrays]))
    found = {f"output {i}": y for i, y in enumerate(ys)}
    tensors = [y for y in ys if y.requires_grad]
    for order in orders:
        if tensors:
            gradients = grad(weighted(tensors), leaves, create_graph=True, allow_unused=True)
            found |= {f"{order} of input {i}": g for i, g in enumerate(gradients) if g is not None}
            tensors = [g for g in gradients if g is not None and g.requires_grad]
    force = {} if m is mg else {"force": True}  # torch may answer with a lazy zero
    return {what: y.detach().numpy(**force) for what, y in found.items()}


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def assert_same(ours, theirs, rtol=1e-12):
    """Equal names, dtypes and shapes; equal values, to rtol of each or of the largest. A missing gradient is zeros."""
    for what in ours.keys() | theirs.keys():
        a, b = ours.get(what), theirs.get(what)
        assert (a is not None and b is not None) or "of input" in what, f"{what} is only in one of the two"
        a, b = np.zeros_like(b) if a is None else a, np.zeros_like(a) if b is None else b
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        largest = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * largest, err_msg=what)


def twins(torch, make, theirs=None):
    """The same layer in both, in float64, with torch's weights loaded into ours under torch's names."""
    torch.manual_seed(0)
    theirs = (theirs or make)(torch)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape) * 0.5)  # torch starts some of them as zeros or ones
    ours = make(mg)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    return ours, theirs


def assert_layers_agree(torch, ours, theirs, call, arrays):
    """Outputs, gradients of the inputs and of the parameters."""

    def found(m, layer):
        leaves: list = []
        ys = flat(call(layer, m, *[wrapped(m, x, leaves) for x in arrays]))
        rng = np.random.default_rng(1)
        sum((y * m.tensor(rng.standard_normal(tuple(y.shape)))).sum() for y in ys if y is not None).backward()
        found = {f"output {i}": y for i, y in enumerate(ys) if y is not None}
        found |= {f"gradient of input {i}": x.grad for i, x in enumerate(leaves)}
        found |= {name: p.grad for name, p in layer.named_parameters()}
        return {what: y.detach().numpy() for what, y in found.items() if y is not None}

    ours, theirs = found(mg, ours), found(torch, theirs)
    assert ours.keys() == theirs.keys()
    assert_same(ours, theirs)
