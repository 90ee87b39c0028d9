"""minigrad beside PyTorch: every op, in values, gradients and second derivatives; dtypes; float32."""

import inspect
import math
import zlib

import numpy as np
import pytest

import minigrad as mg
from minigrad import dtypes, ops

from .compare import name_of
from .opinfo import outcomes

pytestmark = pytest.mark.oracle


# ------------------------------------------------------------------------------------------------------------- every op


def test_every_op_on_pytorchs_own_samples(torch):
    said = list(outcomes())  # some names come twice
    assert [(name, word) for name, words in said for word in words if word.startswith("wrong")] == []
    assert sum(words.count("right") for _, words in said) > 1600
    public = {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))}
    assert public <= {name.rpartition(".")[2] for name, _ in said}


# --------------------------------------------------------------------------------------------------------------- dtypes

NAMES = [str(dtype) for dtype in dtypes.ALL]
PROMOTING = {
    "+": lambda m, x, y: x + y,
    "*": lambda m, x, y: x * y,
    "/": lambda m, x, y: x / y,
    "//": lambda m, x, y: x // y,
    "%": lambda m, x, y: x % y,
    "==": lambda m, x, y: x == y,
    "maximum": lambda m, x, y: m.maximum(x, y),
    "where": lambda m, x, y: m.where(x == y, x, y),
    "cat": lambda m, x, y: m.cat([x, y]),
    "stack": lambda m, x, y: m.stack([x, y]),
}
NUMBERS = {
    "+ True": lambda m, x: x + True,
    "+ 1": lambda m, x: x + 1,
    "+ 1.0": lambda m, x: x + 1.0,
    "* 2.5": lambda m, x: 2.5 * x,
    "/ 1": lambda m, x: x / 1,
    "// 1": lambda m, x: x // 1,
    "% 1.0": lambda m, x: x % 1.0,
    "1 /": lambda m, x: 1 / x,
    "** 2": lambda m, x: x**2,
    "** 2.0": lambda m, x: x**2.0,
    "2 **": lambda m, x: 2**x,
    "2.0 **": lambda m, x: 2.0**x,
    "< 1.5": lambda m, x: x < 1.5,
    "clamp int": lambda m, x: x.clamp(0, 1),
    "clamp float": lambda m, x: x.clamp(0.0, 1.0),
    "where int": lambda m, x: m.where(x == x, x, 1),
    "where float": lambda m, x: m.where(x == x, x, 1.0),
    "where of ints": lambda m, x: m.where(x == x, 1, 0),
    "where of floats": lambda m, x: m.where(x == x, 1.0, 0.0),
    "&": lambda m, x: x & x,
    "~": lambda m, x: ~x,
    "matmul": lambda m, x: x @ x,
    "cumsum": lambda m, x: m.cumsum(x, 0),
    "softmax": lambda m, x: m.softmax(x, 0),
    "pad": lambda m, x: m.nn.functional.pad(x, (1, 1)),
    "full_like": lambda m, x: m.full_like(x, 2),
} | {
    name: lambda m, x, name=name: getattr(m, name)(x)
    for name in (
        "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "erfc", "sigmoid", "abs", "neg", "sign", "floor",
        "clone", "sum", "mean", "var", "std", "max", "amax", "argmax", "any", "all", "isnan", "logical_not",
        "argsort", "square", "log1p", "nonzero",
    )
}  # fmt: skip
# Where we are stricter than torch or it than we, on purpose; and torch's old `any` and `all` of uint8, which are uint8.
APART = {
    *((name, "bool") for name in ("abs", "argmax", "floor", "sign")),
    *((name, dtype) for name in ("&", "~") for dtype in NAMES if dtype != "bool"),
    ("any", "uint8"),
    ("all", "uint8"),
}


def dtype_of(m, function, *names):
    """The dtype of the result on tensors of these dtypes, or 'raises'."""
    named = {"bool": mg.bool_} if m is mg else {}
    try:
        return name_of(function(m, *[m.tensor([1, 1], dtype=named.get(n) or getattr(m, n)) for n in names]).dtype)
    except (TypeError, RuntimeError):
        return "raises"


@pytest.mark.parametrize("name", PROMOTING)
def test_promotion_of_two_tensors(torch, name):
    pairs = [(a, b) for a in NAMES for b in NAMES]
    ours, theirs = ({p: dtype_of(m, PROMOTING[name], *p) for p in pairs} for m in (mg, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", NUMBERS)
def test_result_dtype(torch, name):
    asked = [n for n in NAMES if (name, n) not in APART]
    ours, theirs = ({n: dtype_of(m, NUMBERS[name], n) for n in asked} for m in (mg, torch))
    assert ours == theirs


# --------------------------------------------------------------------------------------------- float32, hard to compute

ELEMENTWISE = {  # name: (low, high, ulp): the error of each value relative to itself
    "exp": (-87, 88, 2), "log": (1e-30, 100, 2), "tanh": (-20, 20, 2), "erf": (-10, 10, 4), "erfc": (-9, 9, 4),
    "sin": (-100, 100, 2), "cos": (-100, 100, 2), "sigmoid": (-80, 80, 4), "silu": (-80, 80, 4),
    "rsqrt": (1e-30, 100, 2),
}  # fmt: skip
ROWWISE = {
    "softmax": lambda m, x: m.softmax(x, -1),
    "log_softmax": lambda m, x: m.log_softmax(x, -1),
    "logsumexp": lambda m, x: m.logsumexp(x, -1),
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(x, m.arange(8) * 4),
    "cross_entropy smoothed": lambda m, x: m.nn.functional.cross_entropy(x, m.arange(8), label_smoothing=0.2),
    "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, (33,)),
    "rms_norm": lambda m, x: m.nn.functional.rms_norm(x, (33,), None, 1e-5),
    "var": lambda m, x: m.var(x, -1),
    "attention": lambda m, x: m.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "gelu": lambda m, x: m.nn.functional.gelu(x),
    "gelu tanh": lambda m, x: m.nn.functional.gelu(x, approximate="tanh"),
}
INPUTS = {  # (scale, offset) of normal numbers
    "normal": (1, 0),
    "large": (30, 0),
    "tiny": (1e-5, 0),
    "far above 0": (1, 1e4),
    "far below 0": (1, -3e3),
    "equal": (0, 7),
}


def elementwise(m, name):
    return getattr(m, name, None) or getattr(m.nn.functional, name)


def errors(got, exact):
    return np.abs(got.astype(np.float64) - exact)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_float32_elementwise(torch, name):
    low, high, ulp = ELEMENTWISE[name]
    x = np.linspace(low, high, 20001, dtype=np.float32)
    exact = elementwise(torch, name)(torch.tensor(x).double()).numpy()
    y = elementwise(mg, name)(mg.tensor(x)).numpy()
    normal = np.abs(exact) > np.finfo(np.float32).tiny  # below, float32 has fewer digits
    worst = (errors(y, exact)[normal] / np.abs(exact[normal])).max() / np.finfo(np.float32).eps
    assert worst <= ulp


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ROWWISE)
def test_float32_rowwise(torch, name, kind):
    """Against float64 on the same numbers: to 16 ulp of the largest, or 4 times as far off as torch's float32."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {kind}".encode()))
    scale, offset = INPUTS[kind]
    x = (rng.standard_normal((8, 33)) * scale + offset).astype(np.float32)
    found = {}
    for m, dtype in ((mg, np.float32), (torch, np.float32), (torch, np.float64)):
        leaf = m.tensor(x.astype(dtype), requires_grad=True)
        y = ROWWISE[name](m, leaf)
        cotangent = m.tensor(np.random.default_rng(1).standard_normal(tuple(y.shape)).astype(dtype))
        y.backward(cotangent)
        found[m.__name__, dtype] = y.detach().numpy(), leaf.grad.numpy()
    for ours, torchs, exact in zip(*found.values()):
        allowed = max(16 * np.finfo(np.float32).eps * np.abs(exact).max(), 4 * errors(torchs, exact).max())
        assert errors(ours, exact).max() <= allowed


NONFINITE = [[math.nan, 1.0, 2.0], [math.inf, 0.0, 1.0], [-math.inf, 0.0, 1.0], [3e38, 3e38, 3e38], [1e-40, 0.0, 0.0]]


NONFINITE_OF = {
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(x, m.tensor([0, 1, 1, 2, 0]), reduction="none"),
    "layer_norm": lambda m, x: m.nn.functional.layer_norm(x[:3], (3,)),
}
for _name in ("softmax", "log_softmax", "logsumexp", "sum", "mean", "amax", "amin", "cumsum"):
    NONFINITE_OF[_name] = lambda m, x, name=_name: getattr(m, name)(x, -1)
ALONE = "relu", "tanh", "sigmoid", "exp", "silu", "gelu"
for _name in ALONE:
    NONFINITE_OF[_name] = lambda m, x, name=_name: elementwise(m, name)(x)


@pytest.mark.parametrize("name", NONFINITE_OF)
def test_float32_nonfinite(torch, name):
    """NaN and infinities come out where torch has them, and nowhere else.

    Elementwise functions are torch's of float64, rounded. In float32 it leaves gelu to oneDNN, whose code for AVX-512
    gives NaN at ∞ and ∞ at 3e38, unlike its code for AVX2 and torch's own."""
    x = np.array(NONFINITE, np.float32)
    with np.errstate(all="ignore"):
        ours = NONFINITE_OF[name](mg, mg.tensor(x)).numpy()
        given = torch.tensor(x).double() if name in ALONE else torch.tensor(x)
        theirs = NONFINITE_OF[name](torch, given).numpy().astype(np.float32)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_what_sees_nothing_gives_zeros():
    """Where torch's softmax makes NaN of a row of -inf, ours gives zeros and zero gradients: R12 of the design."""
    for function in (mg.softmax, lambda x, dim: mg.logsumexp(x, dim).exp()):
        x = mg.tensor([[-math.inf] * 3, [0.0, 1.0, -math.inf]], requires_grad=True)
        y = function(x, 1)
        (y * y).sum().backward()
        assert not y.detach().numpy()[0].any() and not x.grad.numpy()[0].any()
        assert np.isfinite(x.grad.numpy()).all()
