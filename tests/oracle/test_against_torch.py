"""minigrad beside PyTorch: every op, in values, gradients and second derivatives; dtypes; float32."""

import inspect
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
    assert sum(words.count("right") for _, words in said) > 1590
    public = {getattr(ops, name).__name__ for name in ops.__all__ if inspect.isfunction(getattr(ops, name))}
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


def errors(got, exact):
    return np.abs(got.astype(np.float64) - exact)


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
