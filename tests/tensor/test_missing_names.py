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

# {name: how PyTorch is called on t, which stands for torch; inputs are float64}
TORCH = {
    "take_along_dim": lambda t, x, i: t.take_along_dim(x, i, 0),
    "ravel": lambda t, x: t.ravel(x),
    "swapaxes": lambda t, x: t.swapaxes(x, 0, 1),
    "fliplr": lambda t, x: t.fliplr(x),
    "flipud": lambda t, x: t.flipud(x),
    "trace": lambda t, x: t.trace(x),
    "tan": lambda t, x: t.tan(x),
    "sinh": lambda t, x: t.sinh(x),
    "cosh": lambda t, x: t.cosh(x),
    "exp2": lambda t, x: t.exp2(x),
    "expm1": lambda t, x: t.expm1(x),
    "logaddexp": lambda t, x, y: t.logaddexp(x, y),
    "logit": lambda t, p: t.logit(p),
    "fmod": lambda t, x, y: t.fmod(x * 9, y),
    "median": lambda t, x: t.median(x, 1, keepdim=True).values,
    "kthvalue": lambda t, x: t.kthvalue(x, 2, 1, keepdim=True).values,
    "count_nonzero": lambda t, x: t.count_nonzero(x),
    "nan_to_num": lambda t, s: t.nan_to_num(s),
    "huber_loss": lambda t, x, y: t.nn.functional.huber_loss(x, y, delta=0.4),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x),
    "prelu": lambda t, x: t.nn.functional.prelu(x, t.tensor([0.3], dtype=t.float64)),
    "cosine_similarity": lambda t, x, y: t.cosine_similarity(x, y, 1),
    "normalize": lambda t, z: t.nn.functional.normalize(z, dim=1),
}
SCALED = {"fmod": 9}  # so that there are integers to round to


def test_one_name_one_answer():
    lines = Path(missing.__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    names = [name for line in lines for name in line.partition(": ")[0].split()]
    assert len(names) == len(set(names)) == len(replacements())
    assert (replacements()["ravel"], replacements()["swapaxes"]) == ("x.flatten()", "x.transpose(dim0, dim1)")
    assert {*TORCH} <= {*names}


def formula(name):
    """Return the code of an answer: the text before a condition such as ", for n elements"."""
    return re.split(r", (?:of|for|in|its|with|where)\b", replacements()[name])[0]


@pytest.mark.oracle
@pytest.mark.parametrize("name", TORCH)
def test_formulas_give_pytorchs_values(name):
    torch = pytest.importorskip("torch")
    zeros = X * (np.arange(3)[:, None] != 1)  # a row of zeros
    arrays = {"x": X, "y": Y, "p": P, "s": SPECIAL, "z": zeros, "q": T, "i": INDEX}
    if name in ("normalize", "cosine_similarity"):
        arrays |= {"x": zeros}
    if name == "trace":
        arrays |= {"x": X[:, :3]}
    call = TORCH[name]
    wanted = call(torch, *[torch.tensor(arrays[k]) for k in call.__code__.co_varnames[1 : call.__code__.co_argcount]])
    values = {k: mg.tensor(v) for k, v in arrays.items()}
    values |= {"mg": mg, "F": F, "math": math, "dim": 1, "n": 5, "k": 2, "dim0": 0, "dim1": 1, "w": 0.3, "delta": 0.4}
    values |= {"x": mg.tensor(arrays["x"] * SCALED.get(name, 1))}
    if name == "logit":
        values["x"] = values["p"]
    if name == "nan_to_num":
        values["x"] = values["s"]
    if name == "normalize":
        values["x"] = values["z"]
    if name == "take_along_dim":
        values["dim"] = 0
    found = eval(formula(name), values)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-13, atol=1e-13)


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
