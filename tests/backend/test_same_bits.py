"""NumPy gives the same bits as the kernel wherever it takes the kernel's place on the CPU, as launch/rules.py says.

A captured step rests on it: captured, each of its primitives is a kernel, and it equals the step that was not.
"""

import contextlib
import itertools

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch import KernelBackend
from minigrad.backend.launch.rules import KERNEL, MANY
from minigrad.backend.numpy import NAMES
from minigrad.backend.philox import Draw
from minigrad.backend.runners.native import Native, NativeKernels
from minigrad.base.capturing import CaptureError, thread
from minigrad.replay.call import CapturedCall
from minigrad.replay.recording import recording_for
from minigrad.replay.trace import TraceEntry, TraceTree

pytestmark = pytest.mark.needs("g++")
FLOATS, WHOLE = ["float32", "float64"], ["int64", "int32", "uint8", "bool"]
CASTS = [*FLOATS, *WHOLE, "float16", "int16", "int8"]
UNARY = [
    "bitwise_not", "neg", "abs", "sign", "floor", "round", "sqrt", "rsqrt", "relu",
    "logical_not", "isnan", "isinf", "isfinite",
]  # fmt: skip
OF_BITS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
BINARY = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor",
]  # fmt: skip
LOGICAL = {*BINARY[8:], *UNARY[-4:], "add", "mul", "maximum", "minimum", "abs", "floor", "round"}  # of bools too
OF_REALS = {"sqrt", "rsqrt", "div"}
# Of floats these are kernels too.
OF_FLOATS = {"random_uniform", "sum", "cumsum", "max", "min", "clamp", "pow", "getitem_add", "scatter_add", "take_add"}


def numbers(shape, dtype, seed=0):
    """Numbers of all sizes; half of them are special: NaN, ±∞, ±0, subnormal, the largest, equal ones."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)).astype(dtype)
        about = np.finfo(dtype)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, about.tiny / 4, -about.tiny / 8, about.max, about.min]
        special += [1, -1, 0.5, -0.5, 2.5, -3, 300, -70_000, 3e9, 1e19]
    else:
        about = np.iinfo(dtype)
        x = rng.integers(about.min, about.max, shape, dtype, endpoint=True)
        special = [about.min, about.max, 0, 1, 2, 3]
    return np.where(rng.integers(0, 2, shape) > 0, x, np.array(special, dtype)[rng.integers(0, len(special), shape)])


def arrays(dtype, seed):
    """Arrays of sizes that fill vectors or leave a rest, in NumPy and in a compiler's loops. All are small: for large
    ones the CPU's backend would use the kernels that it is compared with."""
    for n in (0, 1, 3, 31, 203, MANY - 1):
        yield numbers((n,), dtype, seed + n)
    yield numbers((7, 90), dtype, seed)[:, ::3]
    yield numbers((40, 30), dtype, seed).T
    yield numbers((2, 3, 5), dtype, seed).transpose(1, 2, 0)
    yield numbers((), dtype, seed)


def elementwise(dtype):
    kind = np.dtype(dtype).kind
    one = np.dtype(dtype).type(1)
    for x, y in zip(arrays(dtype, 1), arrays(dtype, 2)):
        for name in (*UNARY, *BINARY):
            if (kind == "b" and name not in LOGICAL) or name in (OF_BITS if kind == "f" else OF_REALS):
                continue
            many = [(x,)] if name in UNARY else [(x, y), (x, 1), (0, y), (x, one)]
            yield from ((name, *args) for args in many)
        yield from (("where", np.asarray(y > 0), *args) for args in ((x, y), (x, 1), (0, y)))
        yield from (("cast", x, np.dtype(to)) for to in CASTS)
        if kind == "f":
            yield from (("dropout", x, p, Draw(3, 5)) for p in (0.0, 0.3, 1.0))
        elif kind == "i":
            yield from (("clamp", x, *bounds) for bounds in ((None, 2), (-1, None), (1, 1)))
            yield from (("pow", x, p) for p in (0, 1, 2, 5))
    yield "add", numbers((5, 1, 8), dtype), numbers((4, 1), dtype)
    yield "where", numbers((5, 1), "bool"), numbers((5, 8), dtype), numbers((1, 8), dtype)


def moving(dtype):
    x, rows = numbers((7, 29), dtype), np.array([3, 0, 3, 6, 2])
    every = np.random.default_rng(0).integers(0, 7, (5, 29))
    indices = (slice(1, 6), slice(None, None, -2)), (2,), (rows,), (slice(None), rows), (rows, rows), (x > 0,)
    for index in indices:
        yield "getitem", x, index
        yield "setitem", x, index, 1
        yield "setitem", x, index, numbers(x[index].shape, dtype, 9)
    yield from (("getitem_add", x.shape, index, x[index]) for index in (indices[0], (2,), (x > 0,)))
    yield from (("cat", [x, x.T.copy().T], dim) for dim in (0, 1))
    yield from (("cat", [x.T, x.T], dim) for dim in (0, 1))
    yield from (("stack", [y, y], dim) for dim in (0, 1, 2) for y in (x, x.T))
    yield from (("copy", view) for view in (x, x.T, x[::-2, ::3], x[:, :0]))
    yield from (("full", shape, 1, np.dtype(dtype)) for shape in ((), (3, 4), (0, 2)))
    yield "zeros", (3, 4), np.dtype(dtype)
    yield "pad", x, [(1, 0), (0, 2)], 1
    yield "gather", x, 0, every
    yield "take", x, rows
    yield "take", x.T, rows
    yield "gather", x.T, 1, every.T.copy()
    yield from (("argsort", x, 1, True, k) for k in (None, 0, 2, 7))
    yield from (("flatnonzero", mask) for mask in (x > 0, (x > 0).T, x[:0] > 0))
    for d in (0, 1):
        yield from ((name, x, d, False) for name in ("argmax", "argmin"))
    for dims in ((0,), (1,), (0, 1), ()):
        yield from ((name, x, dims, False) for name in ("any", "all"))
    if np.dtype(dtype).kind != "f":  # sums and extremes of floats are kernels, for the order of terms and of ±0
        for dims in ((0,), (1,), (0, 1), ()):
            yield from ((name, x, dims, True) for name in ("sum", "max", "min"))
        yield from (("cumsum", x, d, back) for d in (0, 1) for back in (False, True))
        yield "scatter_add", (7, 29), 0, every, numbers((5, 29), dtype)
        yield "take_add", 7, rows, numbers((5, 29), dtype)
        yield "getitem_add", x.shape, (rows,), numbers((5, 29), dtype)


def reduced(dtype):
    """Reductions along each dim of arrays with many memory layouts."""
    x = numbers((4, 5, 6), dtype)
    for y in (x, *(x.transpose(order) for order in itertools.permutations(range(3))), x[:, ::-1], x[::2]):
        for d in range(3):
            yield from ((name, y, d, False) for name in ("argmax", "argmin", "argsort", "cumsum"))
            yield from (
                (name, y, dims, keep) for name in ("any", "all") for dims in ((d,), ()) for keep in (False, True)
            )
            if dtype != "bool":
                yield from ((name, y, (d,), keep) for name in ("sum", "max", "min") for keep in (False, True))
        yield "clamp", y, 0, 1
        yield "pow", y, 2


def drawn(dtype):
    yield from (("random_words", Draw(7, 9), n) for n in (0, 1, 6, 300))
    yield from (("dropout_mask", (7, 29), p, Draw(7, 9)) for p in (0.0, 0.3, 1.0))
    yield from (("random_uniform", Draw(7, 9), shape, np.dtype(dtype)) for shape in ((0,), (1,), (7, 29)))


def scaled(dtype):
    arrays = [numbers((7, 30), dtype), numbers((7, 30), dtype, 1).T, numbers((2000,), dtype)]
    yield from (("clip_", arrays, np.array(norm), 0.3) for norm in (0.1, 0.9, np.inf, np.nan))


CASES = [
    *[(family, dtype) for family in (elementwise, moving) for dtype in [*FLOATS, *WHOLE]],
    *[(family, dtype) for family in (drawn, scaled) for dtype in FLOATS],
]


def bits(y):
    """(dtype, shape, bytes) of an array. Any NaN equals any other."""
    y = np.asarray(y)
    return (
        y.dtype,
        y.shape,
        np.where(y != y, np.nan, y).astype(y.dtype).tobytes() if y.dtype.kind == "f" else y.tobytes(),
    )


def results(on, name, args):
    """The result of a primitive, or its argument afterwards if it returns nothing."""
    args = [x.copy("K") if name == "setitem" and isinstance(x, np.ndarray) else x for x in args]
    if name == "clip_":
        args[0] = [x.copy("K") for x in args[0]]
    with reference.quietly():
        y = getattr(on, name)(*args)
    y = args[0] if y is None else y
    return [bits(part) for part in (y if isinstance(y, tuple | list) else (y,))]


@pytest.mark.parametrize("family, dtype", CASES)
def test_numpy_in_place_of_a_kernel_gives_the_same_bits(family, dtype):
    chosen, kernels = Native(), NativeKernels()
    wrong = [
        f"{name}({', '.join(f'{x.dtype}{x.shape}' if isinstance(x, np.ndarray) else repr(x)[:40] for x in args)})"
        for name, *args in family(dtype)
        if results(chosen, name, args) != results(kernels, name, args)
    ]
    assert not wrong, wrong[:20]


def layouts(y):
    """The strides of arrays, on which the order of later sums depends."""
    parts = y if isinstance(y, tuple | list) else (y,)
    return [[step for step, n in zip(part.strides, part.shape) if n > 1 and part.size] for part in parts]


def captured(on, name, args):
    """The result of a primitive that is captured: arrays without memory."""
    thread.session = call = CapturedCall(TraceTree(on), None)
    call.capturing = recording_for(on, call.space, TraceEntry(name))
    try:
        return getattr(on, name)(*args)
    finally:
        thread.session = None


@pytest.mark.parametrize("family", [elementwise, moving, reduced])
@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE])
def test_results_lie_in_memory_alike_captured_or_not(family, dtype):
    on, wrong = Native(), []
    for name, *args in family(dtype):
        if name == "setitem":
            continue
        with reference.quietly(), contextlib.suppress(CaptureError):  # what a step cannot hold is refused
            if layouts(captured(on, name, args)) != layouts(getattr(on, name)(*args)):
                wrong.append((name, *((x.dtype, x.shape, x.strides) if isinstance(x, np.ndarray) else x for x in args)))
    assert not wrong, (len(wrong), wrong[:5])


def test_every_primitive_that_numpy_may_take_is_tried():
    rules = {name: getattr(getattr(KernelBackend, name), "rule", None) for name in NAMES}
    tried = {name for family, dtype in CASES for name, *_ in family(dtype)}
    others = {name for name in NAMES if rules[name] in (None, KERNEL)}
    assert set(NAMES) - others == tried - OF_FLOATS
    assert all(rules[name] is KERNEL for name in OF_FLOATS)


def test_the_bits_that_are_compared():
    assert bits(np.array([0.0])) != bits(np.array([-0.0])) and bits(np.float32(1)) != bits(np.float64(1))
    assert bits(np.array([np.nan])) == bits(-np.array([np.nan])) and bits(np.zeros(2)) != bits(np.zeros((2, 1)))
