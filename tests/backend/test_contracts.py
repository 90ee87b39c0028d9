"""The contracts of kernels: each argument of each entry point is made wrong in every way, and must be refused."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend
from minigrad.backend.kernels import StructArray, entry_points, find_kernels
from minigrad.backend.launch.reduce import SUMMED
from minigrad.backend.numpy import NAMES
from minigrad.backend.philox import Draw
from minigrad.backend.runners.checks import NONE_WRONG, WORD
from minigrad.backend.runners.native import NativeKernels
from minigrad.replay.cuda_graph import PARAMETER_COPY

from ..devices import NoGpu
from .contract import Contract, ContractError, contract
from .test_devices import DECLARED, losses, results

pytestmark = pytest.mark.needs("g++")
F32 = np.dtype("float32")


def spoilt(x, a):
    """(how, an array that must be refused in place of x), for each way in which x can violate its declaration."""
    yield "a list", x.tolist()
    if not a.null:
        yield "null", None
    yield "another dtype", np.zeros(x.shape, "f4" if x.itemsize == 8 else "f8")
    if a.written:
        y = x.view()
        y.flags.writeable = False
        yield "read-only", y
    needed = [d for d, n in enumerate(x.shape) if n > 1 and x.strides[d]]
    if needed and (not a.any_rows or x.shape[-1] > 1):
        d = needed[0 if a.steps else -1]
        y = x[tuple(slice(-1 if k == d else None) for k in range(x.ndim))]
        if not a.any_rows or y.size % x.shape[-1]:  # else it is right, with fewer rows
            yield "smaller", y if a.steps else np.ascontiguousarray(y)
    if x.size > 1 and x.flags.c_contiguous and not a.steps:
        yield "not compact", np.zeros((*x.shape, 2), x.dtype)[..., 0]


def spoilt_launches(declared, args):
    """(argument, how, arguments that must be refused)."""

    def replaced(i, x):
        return [*args[:i], x, *args[i + 1 :]]

    yield "all", "one too few", args[:-1]
    yield "all", "one too many", [*args, 3]
    place = {p.name: i for i, p in enumerate(declared.parameters)}
    for name, i in place.items():
        x = args[i]
        if isinstance(x, np.ndarray):
            yield from ((name, how, replaced(i, y)) for how, y in spoilt(x, declared.arrays[name]))
        elif type(x) is StructArray:
            yield name, "a row too few", replaced(i, StructArray(x.struct, x.rows[:-1]))
            yield name, "null", replaced(i, None)
            *rows, last = x.rows
            for field, a in declared.tables[name][1].items():
                for how, y in spoilt(last[field], a) if last[field] is not None else ():
                    yield f"{name}.{field}", how, replaced(i, StructArray(x.struct, [*rows, {**last, field: y}]))
            if "options" in place:
                yield name, "row", replaced(i, StructArray(x.struct, [*rows, {**last, "row": 99}]))
        elif isinstance(x, bytes):
            yield name, "a shorter struct", replaced(i, x[:-8])
            yield name, "no struct", replaced(i, 3)
        elif x is not None:
            yield name, "no number", replaced(i, "3")


class Spoiling:
    """A runner that tries all wrong forms of a launch before it launches, for a few launches of each entry point."""

    def prepare(self):
        self.seen, self.tried, self.missed = {}, 0, []
        return self

    def _start(self, file, entry, dtype, grid, block, shared, args):
        kinds = self.seen.setdefault((file.split()[0], entry), set())
        kind = tuple(x is None for x in args)
        if kind not in kinds and len(kinds) < 4:
            kinds.add(kind)
            kernel = self.kernel(file, entry, dtype)
            self.spoil(contract(kernel.name, kernel.text), grid, list(args))
        super()._start(file, entry, dtype, grid, block, shared, args)

    def spoil(self, declared, grid, args):
        for name, how, wrong in spoilt_launches(declared, args):
            self.tried += 1
            try:
                declared.check(grid, wrong)
            except (ContractError, TypeError):
                continue
            self.missed.append((declared.name, name, how))


class SpoilingNative(Spoiling, NativeKernels):
    pass


class SpoilingGpu(Spoiling, NoGpu):
    pass


# --------------------------------------------------------------------------------------------- one launch of each entry


def every_primitive(on):
    """The launches that ops, training and their cases do not need on small arrays."""
    x, long, draw = np.ones((3, 4), F32), np.ones((2, 40, 70), F32), Draw(3, 5)
    for name in "max", "min", "any", "all", "sum":
        for dims in (1,), (1, 2), (0,):
            getattr(on, name)(long, dims, False)
    for dtype in "bool", "float16", "int64", "int32", "int16", "int8", "uint8", "float64":
        on.cast(x, np.dtype(dtype))
    on.dot(x[0], x[1])
    on.random_words(draw, 6)
    keep = on.dropout_mask((2, 4, 1, 1), 0.3, draw)
    for dtype in "f4", "f8":
        on.random_uniform(draw, (3,), np.dtype(dtype))
    on.setitem(x, (np.array([0, 2]),), 2.0)
    on.scatter_add((2, 4), 0, np.zeros((20, 4), np.int64), np.ones((20, 4), F32))
    long = np.zeros((1, SUMMED + 1), F32)
    on.argsort(long, 1, False), on.cumsum(long, 1, False), on.flatnonzero(long == 0)
    on.take_add(5, np.arange(1500) % 5, np.ones((1500, 2), F32))
    on.sgd_([(x, x + 1, x + 2, 0)], lambda: [(0.1, 0.2)], 0.9, True)
    on.muon_([(x, x + 1, x + 2, 0, 3, 1.0)], lambda: [(0.1, 0.2, 0.9)], True, ((3.0, -4.0, 2.0),), 1e-7)
    for k in 20, 40_000:
        on.matmul(np.ones((4, k), F32), np.ones((k, 5), F32))
    words, turn = np.zeros(8, WORD), np.array([0])
    copies = [dict(to=words[:4], start=0, size=4), dict(to=words[4:].view("f8"), start=4, size=4)]
    args = StructArray(PARAMETER_COPY, copies), 2, words, 8, 1, turn
    on.launch("captured", "copy_parameters", WORD, 1, 1 if on.one_thread else 32, *args)
    index, found = np.array([1, 2]), np.array(NONE_WRONG)
    if not on.one_thread:
        half = np.ones((16, 16), np.float16)
        on.matmul(half, half)
        heads = np.ones((2, 4, 1, 8), F32)
        on.attention(heads, heads, heads, None, None, 1.0, True, keep, 2.0)
    on.launch_each(2, "captured", "check", WORD, index.copy(), index, 2, 9, False, False, 0, found, turn.copy())


def work(on, monkeypatch):
    """Let a runner launch every kernel."""
    monkeypatch.setattr(backend, "cpu", lambda: on)
    for declaration in DECLARED.values() if isinstance(on, NativeKernels) else ():  # whose checks look at values
        for case in declaration.cases[:4]:
            results(on, declaration, case, np.float32)
    losses(on, mg.float32, steps=1)
    every_primitive(on)


@pytest.mark.slow  # 2 to 3 CPU-seconds
def test_each_argument_spoilt_in_each_way_is_refused(monkeypatch):
    seen = set()
    for kind in SpoilingNative, SpoilingGpu:
        on = kind().prepare()
        work(on, monkeypatch)
        seen |= on.seen.keys()
        assert not on.missed and on.tried > 1000
    all_of_them = {(path.stem, e) for path in find_kernels().glob("*.cu") for e in entry_points(path.read_text())}
    assert not all_of_them - seen


def other_operands(x):
    """Arrays of another dtype or shape than an array x, and None; other ints than a tuple of them; else nothing."""
    if isinstance(x, tuple) and all(type(n) is int for n in x):
        for d, n in enumerate(x):
            yield (*x[:d], n + 1, *x[d + 1 :])
            yield (*x[:d], max(0, n - 1), *x[d + 1 :])
    if not isinstance(x, np.ndarray):
        return
    yield None
    yield x.astype("f8" if x.itemsize == 4 else "f4")
    for d, n in enumerate(x.shape):
        yield np.concatenate([x, x], d)
        yield np.take(x, range(n - 1), d)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NativeKernels, NoGpu])
def test_a_primitive_launches_only_what_its_kernel_declares(kind, monkeypatch):
    """A primitive converts whatever an op of the user's passes to it, or raises before it launches."""
    calls: dict = {}

    def asked(name, primitive):
        def run(self, *args, **options):
            key = name, *(x.ndim if isinstance(x, np.ndarray) else x is None for x in args)
            calls.setdefault(key, ([x.copy() if isinstance(x, np.ndarray) else x for x in args], options))
            return primitive(self, *args, **options)

        return run

    on = type("Asked", (kind,), {name: asked(name, getattr(kind, name)) for name in NAMES})()
    work(on, monkeypatch)
    on, tried = kind(), 0
    for (name, *_), (args, options) in calls.items():
        for i, x in enumerate(args):
            for y in other_operands(x):
                given = [a.copy() if isinstance(a, np.ndarray) else a for a in (*args[:i], y, *args[i + 1 :])]
                try:
                    getattr(on, name)(*given, **options)
                except ContractError as error:
                    was, is_now = (f"{z.dtype} {z.shape}" if isinstance(z, np.ndarray) else z for z in (x, y))
                    raise AssertionError(f"{name}, argument {i}: {is_now} for {was}") from error
                except Exception:  # whatever NumPy or launch/ says
                    pass
                tried += 1
    assert tried > 500


# -------------------------------------------------------------------------------------------------- what is declared

KERNEL = """typedef half T;
typedef float R;
constexpr int SIDE = 4;
struct Places {
  long long n, at[2];
};
// Some words.
// args  ROWS
extern "C" __global__ void k(T* y, const R* x, long long rows, Places p) {
"""
RIGHT = "size = p.n * SIDE; y (up(rows, SIDE),\n//       size); x? (rows, 2) at p.at; where rows < 9"


def places(n=1, at=(3, 1)):
    return np.array([n, *at]).tobytes()


def test_declarations_are_read():
    k = Contract("k", KERNEL.replace("ROWS", RIGHT))
    y, x = np.zeros((2, 4), "f2"), np.zeros((5, 3), "f4")
    k.check((1,), [y, x[:, :2], 5, places()])
    k.check((1,), [y, None, 5, places()])
    for args, message in [
        ((y.astype("f4"), x, 5, places()), r"kernel k: T\* y .*: it is of float32, and must be of float16"),
        ((y, x, 4, places()), r"y .*, rows = 4, size = 4: it has shape \(2, 4\), and must have 4 elements"),
        ((y, x, 6, places()), "x .* at p.at, rows = 6: .* but is used from element 0 to 16"),
        ((y, x, 5, places(at=(-3, 1))), "is used from element -12 to 1"),
        ((y, x, 5, b""), "p must be 24 bytes, of a Places"),
        ((np.zeros((3, 4), "f2"), None, 9, places()), "rows < 9 must be so"),
    ]:
        with pytest.raises(ContractError, match=message):
            k.check((1,), args)


@pytest.mark.parametrize(
    "declared, message",
    [("y (rows)", "no `// args` says how large x must be"), ("y, x [rows]", r"cannot be read: y, x \[rows\]")],
)
def test_a_kernel_that_does_not_say_what_it_needs_is_refused(declared, message):
    with pytest.raises(ContractError, match=f"kernel k: .*{message}"):
        Contract("k", KERNEL.replace("ROWS", declared))


def test_inputs_may_be_read_only_arrays():
    x = np.full((3, 4), 2, F32)
    x.flags.writeable = False
    assert NativeKernels().global_norm([x, x]) == pytest.approx(96**0.5)
