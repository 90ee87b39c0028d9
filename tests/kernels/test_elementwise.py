"""Elementwise kernels and casts against NumPy in float64: every row of the table, dtype and layout."""

import functools
import math
import operator

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch.elementwise import POWERS, plan_for
from minigrad.backend.launch.source import TABLE, dtype_kind

from .calls import DTYPES, FLOATS, call, kernels, on_each

pytestmark = [pytest.mark.needs("g++"), pytest.mark.usefixtures("quiet")]
INF, NAN = math.inf, math.nan

# ------------------------------------------------------------------------------------------------------------- values

SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1e-3, -1e-6, 7.25, -20.0, 60000.0]
BEYOND = {
    "float16": [6e-8, -6e-5],
    "float32": [1e-40, -1e-38, 3e38, -1e20, 88.8, -90.0],
    "float64": [5e-324, -1e-308, 1e308, -1e200, 709.9, -720.0],
}


def values(dtype, n=64, special=True):
    """n values of a dtype: the special ones, limits included, and random ones of ordinary size."""
    rng = np.random.default_rng(dtype.num)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind == "i":
        return np.concatenate([[0, 1, -1, 2, 3, -7, 2**40, -(2**40)], rng.integers(-50, 50, n - 8)]).astype(dtype)
    first = SPECIAL + BEYOND[dtype.name] if special else []
    return np.concatenate([first, rng.normal(size=n - len(first)) * 3]).astype(dtype)


# |error| ≤ ulps · (the distance of numbers near y) + eps · scale · (the largest operand); 0.5 is what rounding y costs.
# Natively float32 has polynomials of its own; doubles are libm's, and so is what they are compared with.
ULPS = dict(exp=2, tanh=3, sigmoid=4, silu=5, sin=1.5, cos=1.5, log=1.5, pow=2, rsqrt=2, erfc=4, gelu_tanh=5,
            log1p=1, reciprocal=0.51, cube=1.1)  # fmt: skip
SCALE = dict(erf=2, gelu_none=2, gelu_backward_none=8, gelu_backward_tanh=8)


def check(name, y, want, dtype, operands=()):
    """want: the true result, in float64; for integers and bools in its own dtype."""
    row = TABLE[name]
    assert y.dtype == (bool if row.bools else dtype) and y.shape == want.shape
    if y.dtype.kind != "f":
        np.testing.assert_array_equal(y, want)
        return
    rounded = want.astype(dtype)
    finite = np.isfinite(rounded) & np.isfinite(y)
    limit = float(np.finfo(dtype).max) * (1 - 1e-3)
    other = np.where(np.abs(want) > limit, np.sign(want) * INF, rounded)  # near the limit either may have overflowed
    np.testing.assert_array_equal(
        np.where(finite, 0, np.where(np.abs(y) > limit, np.sign(y) * INF, y)), np.where(finite, 0, other)
    )
    exact, got = want[finite], y[finite].astype(np.float64)
    half = dtype == np.float16
    eps = 2.0**-24 if half else np.finfo(dtype).eps  # of the arithmetic
    spacing = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    allowed = (0.51 if half else max(0.501, ULPS.get(name, 0.501))) * spacing
    x = np.abs(operands[0][finite].astype(np.float64)) if operands else 0
    if name == "gelu_tanh":  # rounding u costs e^u as many units as u is large
        allowed = allowed + spacing * np.minimum(1.6 * x + 0.08 * x**3, 800)
    if name == "silu":  # e^x may have few bits left
        allowed = allowed + x * np.finfo(dtype).smallest_subnormal
    if name in SCALE:
        size = functools.reduce(operator.mul, (np.maximum(1, np.abs(x[finite].astype(np.float64))) for x in operands))
        allowed = allowed + SCALE[name] * eps * size
    error = np.abs(got - exact)
    worst = np.argmax(error - allowed) if error.size else 0
    assert (error <= allowed).all(), (
        f"{name}({[x[finite][worst] for x in operands]}) = {got[worst]}, not {exact[worst]}"
    )


def truth(name, dtype, *operands):
    """The row on operands that are arrays of a dtype, computed in float64 (integers and bools in their own dtype)."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in operands]
    if name.startswith("gelu_backward"):
        dy, x, *y = wide  # 'tanh' needs no y
        return _gelu_slope(x, y[0] if y else None, name.rpartition("_")[2]) * dy
    if name == "gelu_none":
        return wide[0] * (0.5 * _erfc(wide[0] * -math.sqrt(0.5)))
    if name == "gelu_tanh":
        return reference.gelu(*wide, "tanh")
    exact = {"erf": np.vectorize(math.erf, otypes="d"), "erfc": _erfc}
    function = exact.get(name) or FORMS.get(name) or getattr(reference, name)
    y = np.asarray(function(*wide))
    return y if dtype.kind != "f" or y.dtype == bool else y.astype(np.float64)


FORMS = {
    form: functools.partial(lambda exponent, x: reference.pow(x, exponent), exponent)
    for exponent, form in POWERS.items()
}
_erfc = np.vectorize(math.erfc, otypes="d")


def _gelu_slope(x, y, approximate):
    return reference.gelu_backward(np.ones_like(x), x, y, approximate)


def operands_of(row, dtype):
    """Arrays (8, 8) for a row, in which each special value meets each other one."""
    if row.name.startswith("gelu_backward"):
        x = values(dtype, special=False)
        y = reference.gelu(x.astype(np.float64), row.name.rpartition("_")[2]).astype(dtype)
        return [v.reshape(8, 8) for v in (values(dtype)[::-1] % 5, x, y)][: row.arity]
    rng = np.random.default_rng(1)
    arrays = [rng.permutation(values(dtype)).reshape(8, 8) for _ in range(row.arity)]
    if row.name == "where":
        arrays[0] = rng.integers(0, 2, (8, 8)).astype(bool)
    if row.name == "pow" and dtype.kind == "i":
        arrays[1] = np.abs(arrays[1]) % 9
    return arrays


ROWS = [(row, dtype) for row in TABLE.values() for dtype in DTYPES if dtype_kind(dtype) in row.kinds]


def run(on, row, *operands):
    return on.to_numpy(on._map(row.name, [on.from_numpy(x) if isinstance(x, np.ndarray) else x for x in operands]))


# -------------------------------------------------------------------------------------------------------------- tests


@on_each(["row", "dtype"], ROWS)
def test_values_and_layouts(on, row, dtype):
    operands = operands_of(row, dtype)
    forms = {
        "same shape": lambda x: x,
        "transposed": lambda x: x.T,
        "reversed": lambda x: x[::-1, ::-2],
        "0-d": lambda x: x[3, 4],
        "empty": lambda x: x[:0],
        "one dim of two": lambda x: x[:, 1],
    }
    for form, view in forms.items():
        xs = [np.asarray(view(x)) for x in operands]
        if row.name == "clamp":
            low, high = (dtype.type(v) for v in (-2, 3))
            want = truth("clamp", dtype, xs[0], np.asarray(low), np.asarray(high))
            check(row.name, run(on, row, xs[0], low.item(), high.item()), want, dtype, xs)
        else:
            check(row.name, run(on, row, *xs), truth(row.name, dtype, *xs), dtype, xs), form


BINARY = [(row, dtype) for row, dtype in ROWS if row.arity == 2 or row.name == "where"]


@on_each(["row", "dtype"], BINARY)
def test_broadcasts_and_numbers(on, row, dtype):
    *condition, a, b = operands_of(row, dtype)
    pairs = [
        (a, b[0]),
        (a, b[:, :1]),
        (a[:1], b),
        (a[:, :1], b[:1]),
        (a[0], b[None, :, :, None][..., 0]),
        (a.T, b[0, 0]),
    ]
    for left, right in pairs:
        whole = np.broadcast_arrays(left, right)
        for mask in [[c[..., :1]] for c in condition] + [[c] for c in condition] or [[]]:
            xs = np.broadcast_arrays(*mask, *whole)
            check(row.name, run(on, row, *mask, left, right), truth(row.name, dtype, *xs), dtype, xs)
    kind = {"f": float, "i": int, "b": bool}[dtype.kind]
    for number in {"f": (2.0, -0.25, INF, NAN), "i": (3, 0), "b": (True, False)}[dtype.kind]:
        full = np.full_like(a, number)
        y = run(on, row, *condition, a, number)
        check(row.name, y, truth(row.name, dtype, *condition, a, full), dtype, [*condition, a, full])
        if not (row.name == "pow" and dtype.kind == "i"):
            y = run(on, row, *condition, kind(number), b)
            check(row.name, y, truth(row.name, dtype, *condition, full, b), dtype, [*condition, full, b])
    if condition:
        y = run(on, row, *condition, *np.array([1, 0], dtype).tolist())
        np.testing.assert_array_equal(y, condition[0])


@on_each(["name", "dtype"], [(name, dtype) for name in ("add", "sub", "mul", "div") for dtype in FLOATS])
def test_out(on, name, dtype):
    a, b = operands_of(TABLE[name], dtype)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[1::2, ::-1]):
        for other in (b, b[0], b[:, :1], 2.0):
            whole, full = on.from_numpy(a.copy()), np.full_like(a, other) if isinstance(other, float) else other + 0 * b
            right = other if isinstance(other, float) else on.from_numpy(other)
            target = view(whole)
            if not isinstance(other, float):
                full = np.broadcast_to(other, a.shape)
                right = view(on.from_numpy(full.copy()))
            y = getattr(on, name)(target, right, out=target)
            assert y is target
            check(name, on.to_numpy(target), truth(name, dtype, view(a), view(full)), dtype)
            untouched = a.copy()
            view(untouched)[...] = 0
            changed = on.to_numpy(whole).copy()
            view(changed)[...] = 0
            np.testing.assert_array_equal(changed, untouched)


def test_out_that_overlaps_is_as_if_operands_were_read_first(on):
    x = on.from_numpy(np.arange(10.0))
    on.add(x[1:], x[:-1], out=x[1:])
    assert on.to_numpy(x).tolist() == [0, *range(1, 18, 2)]
    x = on.from_numpy(np.arange(10.0))
    on.add(x, x[::-1], out=x)
    assert on.to_numpy(x).tolist() == [9] * 10


def test_out_takes_other_dtypes_as_numpy_does(on):
    x = on.from_numpy(np.ones((2, 3), np.float32))
    on.add(x, on.from_numpy(np.arange(3)), out=x)
    on.mul(x, on.from_numpy(np.full((2, 1), 0.5)), out=x)
    assert on.to_numpy(x).tolist() == [[0.5, 1, 1.5]] * 2
    n = on.from_numpy(np.ones(3, np.int64))
    for bad in (0.5, on.from_numpy(np.ones(3))):
        with pytest.raises(TypeError):
            on.add(n, bad, out=n)
    with pytest.raises(TypeError):
        on.div(n, 2, out=n)
    for shape in ((4,), (3, 1), (2, 3)):
        with pytest.raises(ValueError):
            on.add(n, on.from_numpy(np.ones(shape, np.int64)), out=n)


def test_results_lie_in_memory_as_operands_do(on):
    x = np.arange(24.0).reshape(2, 3, 4)
    for view in (x, x.transpose(2, 0, 1), x.transpose(1, 0, 2), x[:, ::-1], x[:, None].swapaxes(0, 3), x[:, :, 1:2]):
        for y in (call(on, "neg", view), call(on, "add", view, 1.0), call(on, "cast", view, np.dtype(np.float32))):
            want = np.negative(view).astype(y.dtype)
            assert [s for s, n in zip(y.strides, y.shape) if n > 1] == [
                s for s, n in zip(want.strides, y.shape) if n > 1
            ]
    assert call(on, "add", np.broadcast_to(x[0, 0], (3, 4)), 0.0).flags.c_contiguous
    y = on.from_numpy(np.zeros((2, 3)))
    on.add(on.from_numpy(np.arange(3.0)), 1.0, out=y)
    assert on.to_numpy(y).tolist() == [[1, 2, 3]] * 2


def test_types_are_resolved_as_numpy_does(on):
    arrays = [values(dtype, 16, special=False) for dtype in DTYPES] + [np.arange(16, dtype=np.uint8)]
    for a in arrays:
        for b in [*arrays, 2, 2.0, True, np.float32(3), np.int64(2), np.bool_(True)]:
            for name in ("add", "ge", "maximum"):
                want = getattr(reference, name)(a, b)
                y = call(on, name, a, b)
                assert y.dtype == want.dtype, (name, a.dtype, b)
                np.testing.assert_allclose(y, want, rtol=1e-3)
    assert call(on, "exp", np.arange(3)).dtype == np.float64
    assert call(on, "where", np.array([True, False]), np.float32(1), np.zeros(2, np.float32)).tolist() == [1, 0]
    for name, a in (("sub", arrays[4]), ("neg", arrays[4]), ("silu", arrays[3])):
        with pytest.raises(TypeError):
            call(on, name, *[a] * TABLE[name].arity)
    with pytest.raises(OverflowError):
        call(on, "add", arrays[5], 300)
    with pytest.raises(TypeError):
        call(on, "add", arrays[0], None)


def test_comparing_with_numbers_beyond_the_dtype(on):
    words = np.array([0, 5, 2**32 - 1], np.uint32)
    for number in (-1, 0, 5, 2**32 - 1, 2**32):
        assert call(on, "ge", words, number).tolist() == (words >= number).tolist()
        assert call(on, "ne", words, number).tolist() == (words != number).tolist()
    assert call(on, "lt", np.array([1, -128], np.int8), 1000).all()


@on_each(["dtype"], [(dtype,) for dtype in DTYPES[:4]])
def test_powers_and_clamps(on, dtype):
    x = values(dtype)
    if dtype.kind == "f":
        for exponent, form in POWERS.items():
            check(form, call(on, "pow", x, exponent), truth(form, dtype, x), dtype, [x])
    else:
        np.testing.assert_array_equal(call(on, "pow", x, 5), x**5)
        with pytest.raises(ValueError):
            on.pow(x, -1)
        assert call(on, "pow", np.array([2, 1, -1, -1]), np.array([-1, -5, -2, -3])).tolist() == [0, 1, 1, -1]
    for low, high in ((-2, None), (None, 3), (-2, 3), (3, -2)):
        y = call(on, "clamp", x, low, high)
        np.testing.assert_array_equal(y, np.clip(x, low, high))
        assert y.dtype == dtype


def test_bounds_beyond_the_dtype_bind_nothing(on):
    assert call(on, "clamp", np.array([1, -2], np.int8), -1000, 1000).tolist() == [1, -2]


@on_each(["approximate", "dtype"], [(form, dtype) for form in ("none", "tanh") for dtype in FLOATS])
def test_gelu_chooses_its_form(on, approximate, dtype):
    dy, x, *y = operands_of(TABLE[f"gelu_backward_{approximate}"], dtype)
    form = f"gelu_{approximate}"
    np.testing.assert_array_equal(call(on, "gelu", x, approximate), run(on, TABLE[form], x))
    got = call(on, "gelu_backward", dy, x, y[0] if y else None, approximate)
    np.testing.assert_array_equal(got, run(on, TABLE[f"gelu_backward_{approximate}"], dy, x, *y))


@on_each(["dtype"], [(DTYPES[1],)])
def test_tails_are_as_accurate_as_the_reference(on, dtype):
    x = np.linspace(0, 27, 500)
    np.testing.assert_allclose(call(on, "erfc", x), reference.erfc(x), rtol=1e-13)
    np.testing.assert_allclose(call(on, "gelu", -x, "none"), reference.gelu(-x, "none"), rtol=2e-13)
    few = x[x < 9].astype(np.float32)  # beyond, erfc is below float32's normal numbers
    np.testing.assert_allclose(call(on, "erfc", few), reference.erfc(few), rtol=1e-6)


@pytest.mark.parametrize("source", ["float32", "float16", "float64", "int64", "uint8", "bool"])
def test_cast(on, source):
    x = values(np.dtype(source), 48, special=False) if source != "uint8" else np.arange(48, dtype=np.uint8)
    x = np.clip(x, -100, 100) if x.dtype.kind in "fi" else x
    for dtype in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"):
        given = np.abs(x) if dtype == "uint8" and x.dtype.kind != "b" else x
        for view in (given, given.reshape(6, 8).T, given[::-3], given[:0], given[5:6].reshape(())):
            y = call(on, "cast", view, np.dtype(dtype))
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, view.astype(dtype))
    if x.dtype.kind == "f":
        special = np.array([NAN, INF, 0.0, -0.0, 1e-7], source)
        assert call(on, "cast", special, np.dtype(bool)).tolist() == [True, True, False, False, True]
        np.testing.assert_array_equal(call(on, "cast", special, np.dtype(np.float32)), special.astype(np.float32))


@on_each(["dtype"], [(DTYPES[0],)])
def test_more_elements_than_one_block_has(on, dtype):
    x = np.random.default_rng(0).normal(size=(257, 300)).astype(dtype)
    for a, b in ((x, x), (x, x[0]), (x[:, :1], x), (x[:, ::2], x[:, 1::2]), (x.T, x[:, 0])):
        np.testing.assert_array_equal(call(on, "add", a, b), a + b)


def test_plans_are_made_once():
    on, x = kernels("native"), np.ones((3, 5), np.float32)
    on.add(x, x)
    before = plan_for.cache_info().misses
    for _ in range(3):
        on.add(x, x)
    assert plan_for.cache_info().misses == before
