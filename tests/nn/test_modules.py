"""Modules: what they contain and in which order, state, modes, names; layers against NumPy."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


class Inner(nn.Module):
    def __init__(self):
        self.scale = nn.Parameter(mg.ones(2))
        self.register_buffer("steps", mg.tensor(0))
        self.register_buffer("scratch", mg.zeros(2), persistent=False)

    def forward(self, x):
        self.last = x * self.scale
        return self.last


class Outer(nn.Module):
    def __init__(self):
        self.first = nn.Linear(2, 2)
        self.offset = nn.Parameter(mg.zeros(2))
        self.inner = Inner()
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Sequential(Inner(), nn.Tanh())])
        self.names = nn.ModuleDict({"a": Inner(), "b": nn.Identity()})
        self.register_buffer("nothing", None)

    def forward(self, x):
        x = self.inner(self.first(x) + self.offset)
        for layer in self.layers:
            x = layer(x)
        return self.names["a"](x)


PARAMETERS = [
    "offset",
    "first.weight",
    "first.bias",
    "inner.scale",
    "layers.0.weight",
    "layers.1.0.scale",
    "names.a.scale",
]


# ------------------------------------------------------------------------------------------------------------- contents


def test_traversal_is_in_the_order_of_assignment():
    m = Outer()
    assert [name for name, _ in m.named_modules()] == [
        "", "first", "inner", "layers", "layers.0", "layers.1", "layers.1.0", "layers.1.1", "names",
        "names.a", "names.b",
    ]  # fmt: skip
    assert [name for name, _ in m.named_parameters()] == PARAMETERS
    assert [name for name, _ in m.named_children()] == ["first", "inner", "layers", "names"]
    assert [name for name, _ in m.named_buffers()] == [
        f"{path}.{name}" for path in ("inner", "layers.1.0", "names.a") for name in ("steps", "scratch")
    ]
    assert len(list(m.parameters())) == 7 and len(list(m.modules())) == 11
    assert m.num_parameters() == 4 + 2 + 2 + 2 + 4 + 2 + 2


def test_shared_parameters_and_modules_count_once():
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    m[1].weight = m[0].weight
    assert [name for name, _ in m.named_parameters()] == ["0.weight", "0.bias"] and m.num_parameters() == 6
    assert list(m.state_dict()) == ["0.weight", "0.bias", "1.weight"]
    m.load_state_dict({"0.weight": mg.ones(2, 2), "0.bias": mg.zeros(2), "1.weight": mg.ones(2, 2)})
    assert m[1].weight is m[0].weight and m[0].weight.sum().item() == 4
    layer = nn.Linear(1, 1)
    both = nn.Sequential(layer, layer)
    assert len(both) == 2 and len(list(both.modules())) == 2 and both.num_parameters() == 2


def test_parameters():
    x = mg.zeros(2, 3).T
    p = nn.Parameter(x)
    assert p.requires_grad and p.is_leaf and p.is_contiguous() and isinstance(p, mg.Tensor)
    assert not nn.Parameter(mg.zeros(2), requires_grad=False).requires_grad
    assert type(p * 1) is mg.Tensor and type(p.detach()) is mg.Tensor
    assert repr(nn.Parameter(mg.ones(1))) == "Parameter(tensor([1.], requires_grad=True))"


# ---------------------------------------------------------------------------------------------------------------- state


def test_loading_copies_and_is_strict():
    a, b = Outer(), Outer()
    a.inner.steps.fill_(7)
    before = b.first.weight
    assert b.load_state_dict({k: v.numpy() for k, v in a.state_dict().items()}) == ([], [])
    assert b.first.weight is before and b.inner.steps.item() == 7
    for (_, x), (_, y) in zip(a.named_parameters(), b.named_parameters()):
        np.testing.assert_array_equal(x.detach().numpy(), y.detach().numpy())
        assert not np.shares_memory(x.array, y.array)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda s: s.pop("offset"), "missing.*offset"),
        (lambda s: s.update(more=mg.zeros(1)), "unexpected.*more"),
        (lambda s: s.update(offset=mg.zeros(3)), r"offset has shape \(2,\) here but \(3,\)"),
    ],
)
def test_a_state_that_does_not_fit_loads_nothing(spoil, words):
    m = Outer()
    before = {name: p.detach().clone() for name, p in m.state_dict().items()}
    state = {name: p * 0 + 9 for name, p in before.items()}
    spoil(state)
    with pytest.raises(ValueError, match=words):
        m.load_state_dict(state)
    for name, p in m.state_dict().items():
        np.testing.assert_array_equal(p.numpy(), before[name].numpy())
    if "shape" not in words:
        missing, unexpected = m.load_state_dict(state, strict=False)
        assert missing + unexpected == ["offset"] or missing + unexpected == ["more"]
        assert m.inner.scale.tolist() == [9, 9]


def test_to_changes_floats_only_and_keeps_identity():
    m = Outer()
    p = m.offset
    m(mg.ones(1, 2)).sum().backward()
    assert m.double() is m and m.offset is p and p.dtype == mg.float64 and p.requires_grad
    assert p.grad.dtype == mg.float64 and p.grad.shape == p.shape
    assert m.inner.steps.dtype == mg.int64 and m.inner.scratch.dtype == mg.float64
    y = m(mg.ones(1, 2, dtype=mg.float64))
    y.sum().backward()
    assert y.dtype == p.grad.dtype == mg.float64
    assert m.to(mg.float32).half().float().offset.dtype == mg.float32
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    assert tied.double()[1].weight is tied[0].weight


def test_train_eval_apply_and_requires_grad():
    m = Outer()
    assert m.training and m.eval() is m and not any(x.training for x in m.modules())
    assert m.train() is m and all(x.training for x in m.modules())
    m.inner.eval()
    assert m.training and not m.inner.training
    seen = []
    assert m.apply(lambda x: seen.append(type(x).__name__)) is m
    assert seen[-1] == "Outer" and seen.index("Linear") < seen.index("ModuleList") and len(seen) == 11
    assert m.requires_grad_(False) is m and not any(p.requires_grad for p in m.parameters())
    assert not m(mg.ones(1, 2)).requires_grad
    m.requires_grad_()
    m(mg.ones(1, 2)).sum().backward()
    m.zero_grad()
    assert all(p.grad is None for p in m.parameters())


def test_repr():
    m = nn.Sequential(nn.Linear(2, 3), nn.ModuleList([nn.ReLU()]))
    assert repr(m) == ("Sequential(\n  (0): Linear(2, 3, bias=True)\n  (1): ModuleList(\n    (0): ReLU()\n  )\n)")
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1)"
    assert "num_heads=2" in repr(nn.MultiheadAttention(4, 2, batch_first=True))


def test_ops_know_the_path_of_their_module():
    m = Outer()
    y = m(mg.ones(1, 2))
    assert y.op.scope == "names.a"
    assert m.inner.last.op.scope == "inner" and m.layers[1][0].last.op.scope == "layers.1.0"
    assert (y * 1).op.scope == ""
    assert nn.Sequential(nn.Identity(), m)(mg.ones(1, 2)).op.scope == "1.names.a"
    holder = nn.Module()
    holder.nested = nn.ModuleList([nn.ModuleList([Inner()])])
    holder.nested[0].append(Inner())
    assert [holder.nested[0][i](mg.ones(2)).op.scope for i in (0, 1)] == ["nested.0.0", "nested.0.1"]
    gpt = nn.GPT(nn.GPTConfig(5, 4, 2, 1, 4))
    scopes, stack = set(), [gpt(mg.zeros(1, 2, dtype=mg.int64))[0].op]
    while stack:
        op = stack.pop()
        scopes.add(op.scope)
        stack.extend(p.op for p in op.parents if p is not None and p.op is not None)
    assert {"wte", "blocks.0.norm1", "blocks.1.attn", "blocks.1.attn.out_proj", "blocks.0.mlp.gelu", "norm"} <= scopes
    with pytest.raises(ValueError):
        m(mg.ones(1, 3))
    assert (mg.ones(1, requires_grad=True) * 1).op.scope == ""  # also after an exception within a module


# --------------------------------------------------------------------------------------------------------------- layers


def test_linear_and_embedding():
    layer, x = nn.Linear(3, 2).double(), data(4, 5, 3)
    W, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy(), x.numpy() @ W.T + b, rtol=1e-13)
    assert layer(data(3)).shape == (2,) and layer(data(0, 3)).shape == (0, 2)
    assert (
        abs(W).max() <= 1 / np.sqrt(3) and abs(b).max() <= 1 / np.sqrt(3) and nn.Linear(3, 2, bias=False).bias is None
    )
    table = nn.Embedding(4, 3)
    index = mg.tensor([[1, 1], [3, 0]])
    np.testing.assert_array_equal(table(index).detach().numpy(), table.weight.detach().numpy()[index.numpy()])
    table(index).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [1, 2, 0, 1]


def test_norms():
    x = data(2, 3, 4)
    layer = nn.LayerNorm((3, 4), eps=1e-3).double()
    layer.weight.data, layer.bias.data = data(3, 4), data(3, 4)
    a = x.numpy()
    centred = a - a.mean((1, 2), keepdims=True)
    expected = (
        centred / np.sqrt(a.var((1, 2), keepdims=True) + 1e-3) * layer.weight.detach().numpy()
        + layer.bias.detach().numpy()
    )
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-11)
    rms = nn.RMSNorm(4).double()
    expected = a / np.sqrt((a * a).mean(-1, keepdims=True) + np.finfo(float).eps)
    np.testing.assert_allclose(rms(x).detach().numpy(), expected, rtol=1e-12)
    assert nn.LayerNorm(4, bias=False).bias is None and nn.LayerNorm(4, elementwise_affine=False).weight is None


def test_activations_are_their_functions():
    x = data(5)
    pairs = [
        (nn.ReLU(), F.relu),
        (nn.GELU(), F.gelu),
        (nn.SiLU(), F.silu),
        (nn.Tanh(), F.tanh),
        (nn.Softmax(-1), F.softmax),
    ]
    pairs += [(nn.Sigmoid(), F.sigmoid), (nn.GELU("tanh"), lambda x: F.gelu(x, "tanh")), (nn.Identity(), lambda x: x)]
    pairs += [(nn.LogSoftmax(0), lambda x: F.log_softmax(x, 0))]
    for module, function in pairs:
        np.testing.assert_array_equal(module(x).numpy(), function(x).numpy())


def test_a_module_below_that_switches_by_itself_is_left_to_it():
    class Frozen(nn.Module):
        def __init__(self):
            self.body = nn.Sequential(nn.Dropout(0.5))

        def train(self, mode=True):
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, x):
            return self.body(x)

    m = nn.Sequential(nn.Dropout(0.5), Frozen(), nn.Dropout(0.5))
    for mode in (True, False, True):
        m.train(mode=mode)
        assert [m[0].training, m[1].training, m[2].training] == [mode] * 3
        assert not m[1].body.training and not m[1].body[0].training
