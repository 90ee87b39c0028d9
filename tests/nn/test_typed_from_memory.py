"""What a user of PyTorch types around modules: containers, methods, arguments, initial values, helpers."""

from collections import OrderedDict

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim


def test_rows():
    named = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU(inplace=True)))
    assert named.a is named[0] and list(dict(named.named_parameters())) == ["a.weight", "a.bias"]
    named.append(nn.Linear(3, 1)).extend([nn.Tanh()])
    assert len(named) == 4 and named(mg.ones(5, 2)).shape == (5, 1)
    assert isinstance(named[1:], nn.Sequential) and len(named[1:]) == 3 and named[0]._name == "a"
    rows = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    first, last = rows[0], rows[2]
    rows.insert(1, nn.Tanh())
    rows += [nn.ReLU()]
    assert [type(m).__name__ for m in rows] == ["Linear", "Tanh", "Linear", "Linear", "ReLU"] and rows[3] is last
    assert isinstance(rows[:2], nn.ModuleList) and rows[:2][0] is first and first._name == "0"
    assert rows.pop(0) is first and list(dict(rows.named_children())) == ["0", "1", "2", "3"]
    rows[0] = nn.Identity()
    del rows[1:3]
    assert [type(m).__name__ for m in rows] == ["Identity", "ReLU"]


def test_dicts():
    parts = nn.ModuleDict({"a": nn.Linear(1, 1)})
    parts.update({"b": nn.Tanh()})
    assert list(parts.items())[1][0] == "b" and isinstance(parts.pop("b"), nn.Tanh) and list(parts) == ["a"]
    for name in ("keys", "a.b", ""):
        with pytest.raises(ValueError, match="name"):
            parts[name] = nn.Tanh()
    with pytest.raises(TypeError, match="must be a Module, got int"):
        parts["c"] = 3


def test_methods():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)))
    assert model.get_submodule("1.0") is model[1][0] and model.get_submodule("") is model
    assert model.get_parameter("1.0.bias") is model[1][0].bias
    with pytest.raises(AttributeError, match=r"no Module at '1.2'"):
        model.get_submodule("1.2")
    assert next(n for n, _ in model.named_parameters("net")) == "net.0.weight"
    assert list(model.parameters(recurse=False)) == [] and model.to("cpu", non_blocking=True) is model
    with pytest.raises(TypeError, match="must be a Tensor, got ndarray"):
        model.register_buffer("x", np.ones(2))
    keys = model.load_state_dict({"0.bias": mg.zeros(3), "y": mg.ones(1)}, strict=False)
    assert "1.0.weight" in keys.missing_keys and keys.unexpected_keys == ["y"]
    model(mg.ones(1, 2)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_arguments_that_change_nothing():
    for layer in (
        nn.Linear(2, 2, device="cpu", dtype=None), nn.LayerNorm(2, device=None), nn.Dropout(0.0, inplace=True),
        nn.Identity(54, unused=1), nn.SiLU(inplace=True),
    ):  # fmt: skip
        x = mg.randn(3, 2)
        before = x.clone()
        assert layer(x).shape == (3, 2) and (x == before).all()
    x = mg.tensor([-1.0, 1.0])
    assert nn.ReLU(inplace=True)(x).numpy().tolist() == [0, 1] and x[0].item() == -1
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask[0].numpy().tolist() == [0, -np.inf, -np.inf] and mask[2].numpy().tolist() == [0, 0, 0]
    weights = [mg.ones(2, requires_grad=True)]
    optim.AdamW(weights, fused=True, foreach=None, capturable=True)
    for options in ({"amsgrad": True}, {"maximize": True}, {"differentiable": True}):
        with pytest.raises(ValueError, match=f"has no {next(iter(options))}=True: "):
            optim.AdamW(weights, **options)
    with pytest.raises(ValueError, match=r"SGD has no dampening=0\.5"):
        optim.SGD(weights, 0.1, 0.9, 0.5)


def test_initial_values():
    mg.manual_seed(1)
    x = nn.init.trunc_normal_(mg.empty(20_000), std=0.5, a=-0.5, b=1.0)
    assert x.min().item() >= -0.5 and x.max().item() <= 1.0
    assert x.mean().item() == pytest.approx(0.1148, abs=0.01)  # 0.5 (φ(-1) - φ(2)) / (Φ(2) - Φ(-1))
    with pytest.raises(ValueError, match="next to none"):
        nn.init.trunc_normal_(x, mean=10.0)
    wide, tall = nn.init.orthogonal_(mg.empty(3, 5)), nn.init.orthogonal_(mg.empty(5, 2, 1), gain=2.0).reshape(5, 2)
    np.testing.assert_allclose((wide @ wide.T).numpy(), np.eye(3), atol=1e-6)
    np.testing.assert_allclose((tall.T @ tall).numpy(), 4 * np.eye(2), atol=1e-5)
    w = mg.empty(400, 100)
    assert nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu").std().item() == pytest.approx(
        (2 / 400) ** 0.5, rel=0.03
    )
    assert nn.init.kaiming_uniform_(w, a=5**0.5).abs().max().item() == pytest.approx(0.1, rel=0.01)
    assert nn.init.calculate_gain("tanh") == pytest.approx(5 / 3)
    with pytest.raises(ValueError, match="nonlinearity must be one of"):
        nn.init.kaiming_normal_(w, nonlinearity="sine")


def grads(*values):
    found = [mg.zeros(len(v), requires_grad=True) for v in values]
    for p, v in zip(found, values):
        p.grad = mg.tensor(v)
    return found


@pytest.mark.parametrize("p, norm", [(1, 10.0), (2, 30**0.5), (3.0, 100 ** (1 / 3)), (float("inf"), 4.0)])
def test_norms_of_gradients(p, norm):
    parameters = grads([1.0, -2.0], [3.0, -4.0])
    assert nn.utils.clip_grad_norm_(parameters, 1.0, norm_type=p).item() == pytest.approx(norm, rel=1e-6)
    np.testing.assert_allclose(parameters[0].grad.numpy(), np.array([1, -2]) / norm, rtol=1e-5)


def test_helpers():
    parameters = grads([1.0, -2.0], [3.0])
    nn.utils.clip_grad_value_(parameters, 1.5)
    assert [p.grad.numpy().tolist() for p in parameters] == [[1, -1.5], [1.5]]
    model = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (9,) and vector.requires_grad
    nn.utils.vector_to_parameters(mg.arange(9).float(), model.parameters())
    assert model.bias.detach().numpy().tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match="9 numbers are needed"):
        nn.utils.vector_to_parameters(mg.ones(8), model.parameters())


def test_closures_and_groups():
    a, b = mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)
    optimizer = optim.SGD([a], lr=0.1)
    optimizer.add_param_group({"params": b, "lr": 1.0})

    def closure():
        optimizer.zero_grad()
        loss = a.sum() + b.sum()
        loss.backward()
        return loss

    with mg.no_grad():
        assert optimizer.step(closure).item() == 5
    assert a.detach().numpy() == pytest.approx(0.9) and not b.any()
    for wrong in ({"params": a}, {"params": mg.ones(1)}, {"params": [mg.ones(1, requires_grad=True)], "speed": 1}):
        with pytest.raises(ValueError, match="SGD"):
            optimizer.add_param_group(wrong)
    assert len(optimizer.param_groups) == 2


def test_what_is_missing_says_so():
    with pytest.raises(AttributeError, match=r"'minigrad.nn' has no attribute 'Conv2d': there are no convolutions"):
        nn.Conv2d  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'minigrad' has no attribute 'nonsense'$"):
        mg.nonsense  # noqa: B018
    assert not hasattr(nn, "LSTM") and not hasattr(mg, "compile")


def test_initial_seed():
    mg.manual_seed(5)
    mg.rand(3)
    assert mg.initial_seed() == 5
