"""base/missing.txt: one name, one answer, and where the answer is a formula, PyTorch's values."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.base import missing
from minigrad.base.missing import replacements
from minigrad.nn import functional as F

RNG = np.random.default_rng(0)
X, Y, P, T = (f(RNG.standard_normal((3, 5))) for f in (np.array, np.array, lambda x: np.exp(x) / 9, np.abs))
T[0, :2] = 0.0
SPECIAL = np.array([[math.nan, math.inf, -math.inf, -0.0, 2.5]])
INDEX = np.array([[1, 0, 2, 1, 0]])

EDGES = np.array([[0.0, -0.0, 1e-10, -1e-10, 0.5], [-0.5, 1, -1, 2.5, 40], [-40, 800, -800, 1e-300, 0]])
EDGES = np.concatenate([EDGES, [[math.inf, -math.inf, math.nan, 3, -3]]])
OTHER = np.where(np.arange(20).reshape(4, 5) % 3 == 0, EDGES[::-1], np.cos(np.arange(20)).reshape(4, 5))
ZEROS = X * (np.arange(3)[:, None] != 1)  # a row of zeros
BOTH = {"x": EDGES, "y": OTHER}

# {name: (how PyTorch is called on t, which stands for torch, what the formula's names stand for)}
FORMULAS: dict[str, tuple] = {
    "addmm": (lambda t, x, a, b: t.addmm(x, a, b), {"x": X[0], "a": X[:, :3], "b": Y}),
    "take": (lambda t, x, i: t.take(x, i), {"x": X, "i": INDEX}),
    "masked_select": (lambda t, x, mask: t.masked_select(x, mask), {"x": X, "mask": X > 0}),
    "argwhere": (lambda t, x: t.argwhere(x), {"x": EDGES}),
    "take_along_dim": (lambda t, x, i: t.take_along_dim(x, i, 0), {"x": X, "i": INDEX, "dim": 0}),
    "ravel": (lambda t, x: t.ravel(x), {"x": X}),
    "divide": (lambda t, x, y: t.divide(x, y), BOTH),
    "multiply": (lambda t, x, y: t.multiply(x, y), BOTH),
    "subtract": (lambda t, x, y: t.subtract(x, y), BOTH),
    "negative": (lambda t, x: t.negative(x), {"x": EDGES}),
    "greater": (lambda t, x, y: t.greater(x, y), BOTH),
    "greater_equal": (lambda t, x, y: t.greater_equal(x, y), BOTH),
    "less": (lambda t, x, y: t.less(x, y), BOTH),
    "less_equal": (lambda t, x, y: t.less_equal(x, y), BOTH),
    "not_equal": (lambda t, x, y: t.not_equal(x, y), BOTH),
    "logical_xor": (lambda t, x, y: t.logical_xor(x, y), BOTH),
    "swapaxes": (lambda t, x: t.swapaxes(x, 0, 1), {"x": X, "dim0": 0, "dim1": 1}),
    "reshape_as": (lambda t, x, y: x.reshape_as(y), {"x": X, "y": np.zeros((5, 3))}),
    "view_as": (lambda t, x, y: x.view_as(y), {"x": X, "y": np.zeros((5, 3))}),
    "broadcast_to": (lambda t, x: t.broadcast_to(x, (2, 5)), {"x": X[0], "shape": (2, 5)}),
    "fliplr": (lambda t, x: t.fliplr(x), {"x": X}),
    "flipud": (lambda t, x: t.flipud(x), {"x": X}),
    "trace": (lambda t, x: t.trace(x), {"x": X[:, :3]}),
    "diag_embed": (lambda t, x: t.diag_embed(x), {"x": EDGES, "n": 5}),
    "tan": (lambda t, x: t.tan(x), {"x": EDGES}),
    "sinh": (lambda t, x: t.sinh(x), {"x": EDGES}),
    "cosh": (lambda t, x: t.cosh(x), {"x": EDGES}),
    "exp2": (lambda t, x: t.exp2(x), {"x": EDGES}),
    "expm1": (lambda t, x: t.expm1(x), {"x": EDGES}),
    "logaddexp": (lambda t, x, y: t.logaddexp(x, y), BOTH),
    "logit": (lambda t, x: t.logit(x), {"x": EDGES}),
    "fix": (lambda t, x: t.fix(x), {"x": EDGES}),
    "fmod": (lambda t, x, y: t.fmod(x, y), BOTH),
    "median": (lambda t, x: t.median(x, 1, keepdim=True).values, {"x": X, "dim": 1, "n": 5}),
    "kthvalue": (lambda t, x: t.kthvalue(x, 2, 1, keepdim=True).values, {"x": X, "dim": 1, "k": 2}),
    "count_nonzero": (lambda t, x: t.count_nonzero(x), {"x": EDGES}),
    "nan_to_num": (lambda t, x: t.nan_to_num(x), {"x": EDGES}),
    "prelu": (lambda t, x, w: t.nn.functional.prelu(x, w), {"x": EDGES, "w": np.array([0.3])}),
    "glu": (lambda t, a, b: t.nn.functional.glu(t.cat([a, b], 1), 1), {"a": EDGES, "b": OTHER}),
    "logsigmoid": (lambda t, x: t.nn.functional.logsigmoid(x), {"x": EDGES}),
    "huber_loss": (lambda t, x, y: t.nn.functional.huber_loss(x, y, delta=0.4), {"x": X, "y": Y, "delta": 0.4}),
    "cosine_similarity": (lambda t, x, y: t.cosine_similarity(x, y, 1), {"x": ZEROS, "y": Y, "dim": 1}),
    "normalize": (lambda t, x: t.nn.functional.normalize(x, dim=1), {"x": ZEROS, "dim": 1}),
    "Softmin": (lambda t, x: t.nn.functional.softmin(x, 1), {"x": EDGES, "dim": 1}),
    "mish": (lambda t, x: t.nn.functional.mish(x), {"x": EDGES}),
}

# {name: (the answer, applied, PyTorch's call)}, for answers that name several cases or leave something out
APPLIED: dict[str, tuple] = {
    "MaxPool2d": (lambda x: x.reshape(1, 1, 2, 2, 2, 2).amax((3, 5)), lambda t, x: t.nn.MaxPool2d(2)(x)),
    "AvgPool2d": (lambda x: x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)), lambda t, x: t.nn.AvgPool2d(2)(x)),
    "select": (lambda x: x[:, :, 2], lambda t, x: x.select(2, 2)),
    "moveaxis": (lambda x: x.permute(0, 3, 1, 2), lambda t, x: t.moveaxis(x, 3, 1)),
    "tile": (lambda x: x.repeat(1, 1, 2, 3), lambda t, x: t.tile(x, (2, 3))),
    "unflatten": (lambda x: x.reshape(1, 1, 4, 2, 2), lambda t, x: x.unflatten(3, (2, 2))),
    "hstack": (lambda x: mg.cat([x, x], 1), lambda t, x: t.hstack([x, x])),
    "vstack": (lambda x: mg.stack([x[0, 0, 0], x[0, 0, 1]]), lambda t, x: t.vstack([x[0, 0, 0], x[0, 0, 1]])),
    "std_mean": (lambda x: mg.stack([x.std(2), x.mean(2)]), lambda t, x: t.stack(t.std_mean(x, 2))),
    "var_mean": (lambda x: mg.stack([x.var(2), x.mean(2)]), lambda t, x: t.stack(t.var_mean(x, 2))),
    "aminmax": (lambda x: mg.stack([x.amin(), x.amax()]), lambda t, x: t.stack([*t.aminmax(x)])),
    "diag": (
        lambda x: mg.where(mg.eye(4).bool(), x[0, 0, 0], 0.0) + x[0, 0].diagonal(),
        lambda t, x: t.diag(x[0, 0, 0]) + t.diag(x[0, 0]),
    ),
    "binary_cross_entropy": (
        lambda x: F.binary_cross_entropy_with_logits(x, x * 0 + 0.3),
        lambda t, x: t.nn.functional.binary_cross_entropy(x.sigmoid(), x * 0 + 0.3),
    ),
    "index_copy": (
        lambda x: x.scatter(3, mg.tensor([2, 0]).expand(1, 1, 4, 2), x[..., :2] * 9),
        lambda t, x: x.index_copy(3, t.tensor([2, 0]), x[..., :2] * 9),
    ),
    "scatter_reduce": (
        lambda x: x.scatter_add(3, (x * 0).long(), x),
        lambda t, x: x.scatter_reduce(3, (x * 0).long(), x, reduce="sum"),
    ),
}


def test_one_name_one_answer():
    lines = Path(missing.__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    names = [name for line in lines for name in line.partition(": ")[0].split()]
    assert len(names) == len(set(names)) == len(replacements())
    assert (replacements()["ravel"], replacements()["swapaxes"]) == ("x.flatten()", "x.transpose(dim0, dim1)")
    assert {*FORMULAS, *APPLIED} <= {*names}


def formula(name):
    """Return the code of an answer: the text before a condition such as ", for n elements"."""
    return re.split(r", (?:of|for|in|its|with|where)\b", replacements()[name])[0]


@pytest.mark.oracle
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_give_pytorchs_values(name):
    torch = pytest.importorskip("torch")
    call, values = FORMULAS[name]
    arrays = {key: torch.tensor(v) for key, v in values.items() if isinstance(v, np.ndarray)}
    wanted = call(torch, **arrays)
    found = eval(formula(name), {"mg": mg, "F": F, **values, **{key: mg.tensor(values[key]) for key in arrays}})
    assert str(wanted.dtype).removeprefix("torch.") == str(found.dtype)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-13, atol=1e-300)


@pytest.mark.oracle
@pytest.mark.parametrize("name", APPLIED)
def test_answers_in_words_give_pytorchs_values(name):
    torch = pytest.importorskip("torch")
    x = np.sin(np.arange(16)).reshape(1, 1, 4, 4)
    applied, call = APPLIED[name]
    np.testing.assert_allclose(applied(mg.tensor(x)).numpy(), call(torch, torch.tensor(x)).numpy(), rtol=1e-13)


def test_answers_that_draw():
    p = mg.tensor([0.0, 1.0, 0.3]).expand(4000, 3)
    drawn = eval(formula("bernoulli"), {"mg": mg, "x": p})
    assert drawn.dtype == p.dtype and drawn.mean(0)[:2].tolist() == [0, 1] and abs(drawn.mean(0)[2].item() - 0.3) < 0.05
    logits = mg.tensor([0.0, 1.0]).expand(4000, 2)
    drawn = eval(formula("gumbel_softmax"), {"mg": mg, "F": F, "logits": logits, "tau": 0.5})
    second = (drawn.argmax(1) == 1).float().mean().item()
    assert abs(drawn.sum(1) - 1).max().item() < 1e-5 and abs(second - 1 / (1 + math.exp(-1))) < 0.05


SAME = {  # what has PyTorch's name here: how it is called on t, either library; inputs are float64
    "index_add": lambda t, x, i, y: t.index_add(x, 0, i[0, :3], y, alpha=2),
    "index_fill": lambda t, x, i: t.index_fill(x, 1, i[0, :3], 7),
    "log2": lambda t, p: t.log2(p),
    "log10": lambda t, p: t.log10(p),
    "ceil": lambda t, x, s: t.ceil(t.cat([x * 3, s])),
    "trunc": lambda t, x, s: t.trunc(t.cat([x * 3, s])),
    "round": lambda t, x, s: t.round(t.cat([(x * 4).round() / 2, s])),
    "lerp": lambda t, x, y, p: t.lerp(x, y, p),
    "addcmul": lambda t, x, y, p: t.addcmul(x, y, p, value=0.3),
    "addcdiv": lambda t, x, y, p: t.addcdiv(x, y, p, value=0.3),
    "cumprod": lambda t, x, s, z: t.cumprod(t.cat([x, s, z]), 1),
    "cumprod of rows": lambda t, x, z: t.cumprod(t.cat([x, x, z]), 0),
    "div, trunc": lambda t, x, y: t.div(x * 9, y, rounding_mode="trunc"),
    "div, floor": lambda t, x, y: t.div(x * 9, y, rounding_mode="floor"),
    "kl_div": lambda t, x, q: t.nn.functional.kl_div(x, q, reduction="mean"),
    "kl_div, batchmean": lambda t, x, q: t.nn.functional.kl_div(x, q, reduction="batchmean"),
    "kl_div, logarithms": lambda t, x, y: t.nn.functional.kl_div(x, y, reduction="sum", log_target=True),
    "add, alpha": lambda t, x, y: t.add(x, y, alpha=-0.5),
    "mean, dtype": lambda t, i: t.mean(i, 1, dtype=t.float64),
    "meshgrid": lambda t, x, y: t.stack(t.meshgrid(x[0], y[1, :2], indexing="ij")),
    "meshgrid, xy": lambda t, x, y: t.stack(t.meshgrid([x[0], y[1, :2], x[0, :3]], indexing="xy")),
    "mv": lambda t, x, y: t.mv(x, y[0]),
    "dot": lambda t, x, y: t.dot(x[0], y[0]),
    "searchsorted": lambda t, x, y: t.searchsorted(t.sort(x, 1)[0], y),
    "searchsorted, right": lambda t, x: t.searchsorted(t.sort(x, 1)[0], x, right=True),
    "searchsorted of one row": lambda t, x, y: t.searchsorted(t.sort(x[0])[0], y),
    "bitwise_and": lambda t, i: i[0] & t.tensor([6, -3, 1, 255, 2]),
    "bitwise_or": lambda t, i: (i[0] | 8) ^ (i[0] > 1),
    "bitwise_xor of uint8": lambda t, i: i[0].to(t.uint8) ^ 255,
    "bitwise_not": lambda t, i: t.stack([~i[0], ~i[0].to(t.uint8), ~(i[0] > 0)]),
    "uint8 mask": lambda t, x, i: t.where(i[0].to(t.uint8), x, -x),
}


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:where received a uint8:UserWarning", "ignore:reduction. 'mean':UserWarning")
@pytest.mark.parametrize("name", SAME)
def test_functions_give_pytorchs_values(name):
    torch = pytest.importorskip("torch")
    zeros = X * (np.arange(5) != 2)
    arrays = {"x": X, "y": Y, "p": P, "s": SPECIAL, "z": zeros, "q": T, "i": INDEX}
    call = SAME[name]
    names = call.__code__.co_varnames[1 : call.__code__.co_argcount]
    wanted = call(torch, *[torch.tensor(arrays[k]) for k in names])
    found = call(mg, *[mg.tensor(arrays[k]) for k in names])
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-13, atol=1e-13)
    rounds = name in ("ceil", "trunc", "round")
    assert not rounds or (np.signbit(found.numpy()) == np.signbit(wanted.numpy()))[:, 3:].all()


@pytest.mark.parametrize("module, name", [("nn", "LSTM"), ("optim", "RMSprop"), ("utils.data", "random_split")])
def test_a_from_import_answers_too(module, name):
    line = f"from minigrad.{module} import {name}"
    with pytest.raises(ImportError, match=f"has no attribute '{name}'; instead: {re.escape(replacements()[name])}"):
        exec(line)


def test_other_ways_to_ask_for_a_missing_name():
    assert not hasattr(mg.nn, "LSTM") and getattr(mg.nn, "LSTM", 7) == 7
    with pytest.raises(AttributeError, match=r"instead: nn\.MultiheadAttention"):
        mg.nn.LSTM  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from minigrad.nn import nonsense")
