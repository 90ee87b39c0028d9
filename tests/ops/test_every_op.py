"""Every declared op on each of its cases, and every layer: first and second derivatives, probes, rtol 1e-7."""

import pytest

import minigrad as mg
from minigrad import nn
from minigrad.autograd import registry
from minigrad.gradcheck import PASS, check_op, gradcheck
from minigrad.gradcheck.probes import CHEAP
from minigrad.nn import functional as F

DECLARED = {name: d for name, d in registry.items() if d.builtin}


def test_every_op_has_cases_and_a_formula():
    assert len(DECLARED) > 80
    for name, d in DECLARED.items():
        assert d.cases, f"{name} declares no cases"
        assert d.source.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("name", DECLARED)
def test_op(name, thorough, monkeypatch):
    """CI runs all probes at both orders. By default, an op has the cheap probes at the first order, other points in its
    first case, and directions with create_graph at the second. A composite, whose ops have been through all that, has
    directions, and the probes of what it may do itself. `minigrad check` draws the inputs of seed 0."""
    if thorough:
        rows = check_op(name, seed=1)
    elif isinstance(DECLARED[name].source, type):
        derivative = name.endswith("_backward")  # smooth where its op is, and of many inputs
        rows = check_op(name, orders=(1,), seed=1, probes=CHEAP, mode="directional" if derivative else "auto")
        rows += check_op(name, orders=(2,), seed=1, probes=("modes",), mode="directional")
        monkeypatch.setattr(DECLARED[name], "cases", DECLARED[name].cases[:1])
        rows += [] if derivative else check_op(name, orders=(1,), seed=1, probes=("values",), mode="directional")
    else:
        rows = check_op(name, orders=(1,), seed=1, probes=("float32", "layouts", "modes"), mode="directional")
    assert all(row.verdict == PASS for row in rows), "\n".join(row.message for row in rows)
    if not rows:  # its inputs are bools, or it has no gradient
        bools = {"any", "all", "logical_and", "logical_or", "logical_not"}
        assert name in bools or not DECLARED[name].source.differentiable


def x(*shape):
    return mg.randn(*shape)


LAYERS = {
    "Identity": (nn.Identity(), (2, 3)),
    "Linear": (nn.Linear(3, 4), (2, 3)),
    "Linear, no bias": (nn.Linear(3, 4, bias=False), (2, 5, 3)),
    "LayerNorm": (nn.LayerNorm(4), (2, 3, 4)),
    "LayerNorm, no bias": (nn.LayerNorm(4, bias=False), (2, 4)),
    "LayerNorm, plain": (nn.LayerNorm(4, elementwise_affine=False), (2, 4)),
    "RMSNorm": (nn.RMSNorm(4), (2, 3, 4)),
    "RMSNorm, plain": (nn.RMSNorm(4, elementwise_affine=False), (2, 4)),
    "Dropout": (nn.Dropout(0.3), (3, 4)),
    "Dropout, eval": (nn.Dropout(0.3).eval(), (3, 4)),
    "ReLU": (nn.ReLU(), (3, 4)),
    "GELU": (nn.GELU(), (3, 4)),
    "GELU, tanh": (nn.GELU(approximate="tanh"), (3, 4)),
    "SiLU": (nn.SiLU(), (3, 4)),
    "LeakyReLU": (nn.LeakyReLU(0.2, inplace=True), (3, 4)),
    "ELU": (nn.ELU(0.5), (3, 4)),
    "Softplus": (nn.Softplus(2.0), (3, 4)),
    "Flatten": (nn.Flatten(), (2, 3, 4)),
    "Tanh": (nn.Tanh(), (3, 4)),
    "Sigmoid": (nn.Sigmoid(), (3, 4)),
    "Softmax": (nn.Softmax(dim=0), (3, 4)),
    "LogSoftmax": (nn.LogSoftmax(dim=0), (3, 4)),
    "Sequential": (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), (5, 3)),
    "MLP": (nn.MLP(nn.GPTConfig(vocab_size=5, block_size=4, n_layer=1, n_head=2, n_embd=4)), (2, 4)),
    "Block": (nn.Block(nn.GPTConfig(vocab_size=5, block_size=4, n_layer=1, n_head=2, n_embd=4)), (1, 3, 4)),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, order):
    layer, shape = LAYERS[name]
    report = gradcheck(layer, x(*shape), order=order, mode="directional", probes=())
    assert report.verdict == PASS
    checked = {leaf for leaf, *_ in report.leaves}
    assert {path for path, _ in layer.named_parameters()} <= checked  # the parameters too


def test_layers_is_complete():
    """Layers without a test here: Embedding takes ints; attention, GPT and losses have tests of their own."""
    layers = {name for name in nn.__all__ if isinstance(vars(nn)[name], type) and issubclass(vars(nn)[name], nn.Module)}
    others = {"Embedding", "MultiheadAttention", "GPT", "Module", "ModuleList", "ModuleDict"}
    others |= {name for name in layers if name.endswith("Loss")}
    assert layers - others == {name.partition(",")[0] for name in LAYERS}


@pytest.mark.parametrize("order", [1, 2])
def test_embedding(order):
    gradcheck(nn.Embedding(5, 3), mg.tensor([[0, 2, 2], [4, 0, 1]]), order=order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"label_smoothing": 0.1}, {"ignore_index": 2}], ids=repr)
@pytest.mark.parametrize("weight", [None, mg.tensor([0.5, 1.0, 2.0])], ids=["even", "weighted"])
def test_cross_entropy_loss(weight, options, order, thorough):
    loss, probes = nn.CrossEntropyLoss(weight, **options), "all" if thorough else ()
    gradcheck(loss, x(4, 3), mg.tensor([0, 2, 1, 1]), order=order, probes=probes)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("options", [{}, {"weight": mg.tensor([0.5, 1.0, 2.0]), "label_smoothing": 0.1}], ids=repr)
def test_cross_entropy_of_probabilities(options, order, thorough):
    probes = "all" if thorough else ()
    gradcheck(nn.CrossEntropyLoss(**options), x(2, 3, 2), x(2, 3, 2).softmax(1), order=order, probes=probes)


@pytest.fixture
def transformer():
    model = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8))
    tokens, targets = mg.randint(0, 11, (2, 8)), mg.randint(0, 11, (2, 8))
    return model, lambda model: model(tokens, targets)[1]


@pytest.mark.parametrize("order", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_transformer_loss(transformer, order):
    model, loss = transformer
    before = {name: (p, p.array, p.dtype) for name, p in model.named_parameters()}
    gradcheck(loss, model, order=order, mode="directional", probes="all" if order == 1 else ())
    for name, p in model.named_parameters():  # float32, and the very same arrays
        assert p is before[name][0] and p.array is before[name][1] and p.dtype == before[name][2]


def test_transformer_loss_to_nine_digits(transformer):
    model, loss = transformer
    report = gradcheck(loss, model, mode="directional", directions=4, probes=())
    directions = [f for f in report.findings if f.check.startswith("direction ") and not f.leaf]
    assert len(directions) >= 4
    assert max(f.error for f in directions[:4]) <= 1e-9


def test_a_loss_of_several_parts_and_inputs():
    def loss(batch, weight):
        hidden = F.gelu(batch["x"] @ weight[0])
        return {"fit": F.cross_entropy(hidden @ weight[1], batch["y"]), "size": sum((w * w).sum() for w in weight)}

    batch = {"x": x(4, 3), "y": mg.tensor([0, 1, 1, 0])}
    report = gradcheck(loss, batch, (x(3, 5), x(5, 2)))
    assert [leaf for leaf, *_ in report.leaves] == ["batch['x']", "weight[0]", "weight[1]"]
