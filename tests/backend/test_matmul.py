"""Products by gemm.cpp: they are right for every layout, have the same bits however work is divided, and touch nothing
else."""

import hashlib
import platform
import threading
from pathlib import Path

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.runners.native import Native, NativeKernels, native

from .fenced import FENCED
from .test_native import run

pytestmark = pytest.mark.needs("g++")
SIZES = 0, 1, 2, 3, 7, 8, 9, 12, 13, 16, 17, 31, 33, 65, 100, 129
# n, k, m: each way to compute a product, and more than one part of k, block of rows and block of columns
CASES = [(1, 300, 70), (1, 300, 600), (5, 5000, 30), (40, 9000, 7), (65, 128, 65), (200, 600, 40), (230, 300, 300)]


def normal(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def laid_out(rng, batch, rows, columns, dtype):
    """A random array (*batch, rows, columns): compact, sliced, transposed, reversed, broadcast or with steps."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.standard_normal((*batch, rows + 2, columns + 3)).astype(dtype)[..., 1 : rows + 1, 2 : columns + 2]
    if kind == 1:
        return rng.standard_normal((*batch, columns, rows)).astype(dtype).mT
    if kind == 2:
        return rng.standard_normal((*batch, rows, columns)).astype(dtype)[..., ::-1, ::-1]
    if kind == 3:
        return np.broadcast_to(rng.standard_normal((*batch, rows, 1)).astype(dtype), (*batch, rows, columns))
    if kind == 4:
        return rng.standard_normal((*batch, 2 * rows, 3 * columns)).astype(dtype)[..., ::2, ::3]
    return rng.standard_normal((rows, *batch, columns)).astype(dtype).transpose(*range(1, len(batch) + 1), 0, -1)


def check(on, a, b, bias):
    """The error of each element is a few units in the last place of the sum of its terms' sizes."""
    y = on._matmul(a, b, bias)
    exact, size = a.astype("f8") @ b.astype("f8"), np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))
    if bias is not None:
        exact, size = exact + bias, size + np.abs(bias)
    assert y.shape == exact.shape and y.dtype == a.dtype and y.flags.c_contiguous
    bound = 4 if a.dtype == np.float32 else 16  # what it is compared with has errors of its own in float64
    assert (np.abs(y - exact) <= bound * np.finfo(a.dtype).eps * size).all(), (a.shape, a.strides, b.shape, b.strides)


def check_many(on, count):
    rng = np.random.default_rng(0)
    for i in range(count):
        dtype = ("float32", "float64")[i % 2]
        n, k, m = (int(x) for x in (rng.integers(1, 400, 3) if i % 5 == 0 else rng.choice(SIZES, 3)))
        batch = [int(x) for x in rng.integers(1, 4, rng.integers(0, 4))] if i % 5 else []
        left, right = ([1 if rng.integers(3) == 0 else size for size in batch] for _ in range(2))
        a = laid_out(rng, left, n, k, dtype)
        b = laid_out(rng, right[rng.integers(0, len(batch) + 1) :], k, m, dtype)
        check(on, a, b, rng.standard_normal(m).astype(dtype) if rng.integers(2) else None)


@pytest.mark.parametrize("threads", [1, 3])
def test_products_of_any_shape_and_layout(threads):
    on = NativeKernels()
    on.threads = threads  # what decides how a product is cut up
    check_many(on, 400)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names CPUs of x86")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
def test_products_with_shorter_vectors(cpu, monkeypatch):
    if cpu != "x86-64" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX2")
    flags = [f"-march={cpu}" if flag == "-march=native" else flag for flag in native.FLAGS]
    monkeypatch.setattr(native, "FLAGS", tuple(flags))
    check_many(NativeKernels(), 100)


BITS = """
import hashlib
import numpy as np
from minigrad.backend.runners.native import NativeKernels
on, digest = NativeKernels(), hashlib.sha256()
for n, k, m in {cases}:
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype("f4") for shape in ((n, k), (m, k), (m,)))
    for _ in range(3):
        digest.update(on.linear(a, b, bias))
        digest.update(on.matmul(a, b.T.copy()))
        digest.update(on.matmul(a.T.copy().T, b.T))
print(on.threads, digest.hexdigest())
"""


def test_the_bits_do_not_depend_on_the_number_of_threads():
    said = [run(BITS.format(cases=CASES), OMP_NUM_THREADS=str(threads))[0].split() for threads in (1, 2, 3, 7)]
    assert [threads for threads, _ in said] == ["1", "2", "3", "7"] and len({digest for _, digest in said}) == 1


@pytest.mark.parametrize("n, k, m", CASES)
def test_the_bits_do_not_depend_on_the_place_in_a_batch(n, k, m):
    on = NativeKernels()
    on.threads = 3
    a, b = normal(7, n, k), normal(7, m, k, seed=1).mT
    together = on.matmul(a, b)
    for i in range(7):
        np.testing.assert_array_equal(together[i], on.matmul(a[i], b[i]))


def test_nothing_to_add_up_is_zero_or_the_bias():
    on, bias = Native(), np.array([1, np.nan, 3], "f4")
    for n in (1, 2, 20):
        np.testing.assert_array_equal(on.matmul(normal(n, 0), normal(0, 3)), np.zeros((n, 3)))
        np.testing.assert_array_equal(on.linear(normal(n, 0), normal(3, 0), bias), np.tile(bias, (n, 1)))
    for a, b in (((0, 4), (4, 3)), ((2, 4), (4, 0)), ((0, 2, 4), (4, 3)), ((5, 1, 2, 4), (0, 4, 3))):
        assert on.matmul(normal(*a), normal(*b)).shape == np.matmul(normal(*a), normal(*b)).shape
    with pytest.raises(ValueError, match=r"inner sizes of .* differ, 4 and 3"):
        on.matmul(normal(2, 4), normal(3, 2))


@pytest.mark.parametrize("n, k, m", CASES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_go_where_they_belong(n, k, m, value):
    on, a, b = NativeKernels(), normal(n, k), normal(k, m, seed=1)
    a[n // 2, k - 1] = value
    b[k // 2, m - 1] = value
    for x, w in ((a, b), (a, b.T.copy().T), (a.T.copy().T, b)):
        with np.errstate(all="ignore"):
            want = x.astype("f8") @ w.astype("f8")
        got = on.matmul(x, w)
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(got), kind(want))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 16, 9), (33, 9), (9,), (0, 9), (1, 1, 9)])
def test_linear_and_its_backward(shape, dtype):
    on = Native()
    x, w, bias = normal(*shape, dtype=dtype), normal(5, 9, seed=1, dtype=dtype), normal(5, seed=2, dtype=dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    y = on.linear(x, w, bias)
    assert y.shape == (*shape[:-1], 5)
    np.testing.assert_allclose(y, reference.linear(x, w, bias), tolerance, tolerance)
    dy = normal(*y.shape, seed=3, dtype=dtype)
    for wanted in ((True, True, True), (True, False, False), (False, True, True)):
        got, want = (which.linear_backward(dy, x, w, wanted) for which in (on, reference))
        for g, r in zip(got, want):
            assert (g is None) == (r is None)
            if g is not None:
                np.testing.assert_allclose(g, r, tolerance, tolerance)


@pytest.mark.parametrize("n, m", [(1, 1), (4, 4), (64, 64)])
def test_long_sums_lose_few_digits(n, m):
    """Rounding errors of positive terms all have one sign: added up one by one, they would be 1000 times as large."""
    k = 300_000
    a, b = np.full((n, k), 0.1, "f4"), np.full((k, m), 1 / 3, "f4")
    exact = k * float(a[0, 0]) * float(b[0, 0])
    for x, w in ((a, b), (a, np.full((m, k), 1 / 3, "f4").T)):
        assert np.abs(NativeKernels().matmul(x, w) / exact - 1).max() < 1e-5


def test_numpy_multiplies_dtypes_other_than_float32_and_float64(monkeypatch):
    on = Native()
    monkeypatch.setattr(on, "_start", lambda *args: pytest.fail("a kernel ran"))
    for dtype in ("float16", "int64", "bool"):
        a = normal(30, 30).astype(dtype)
        np.testing.assert_array_equal(on.matmul(a, a), reference.matmul(a, a))


def test_products_of_many_threads_at_once():
    on, differ = NativeKernels(), []
    pairs = [(normal(n, k), normal(k, m, seed=1)) for n, k, m in CASES]
    want = [hashlib.sha256(on.matmul(*pair)).digest() for pair in pairs]

    def work(first):
        for i in range(5 * len(pairs)):
            i = (first + i) % len(pairs)
            if hashlib.sha256(on.matmul(*pairs[i])).digest() != want[i]:
                differ.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differ


PRODUCTS = """
on = NativeKernels()
on.empty = fenced
for fenced.at_end in (True, False):
    for n, k, m in ((1, 19, 1), (1, 19, 40), (3, 19, 5), (13, 19, 9), (13, 300, 33), (90, 19, 200), (91, 33, 31)):
        for a_shape in ((n, k), (k, n)):
            for b_shape in ((k, m), (m, k)):
                a, b, bias = fenced(a_shape), fenced(b_shape), fenced((m,))
                a[:], b[:], bias[:] = 1, 2, 3
                y = on._matmul(a if a_shape == (n, k) else a.T, b if b_shape == (k, m) else b.T, bias)
                assert (y == 2 * k + 3).all(), (n, k, m)
print("inside")
"""


def test_nothing_outside_the_arrays_is_touched():
    assert run(FENCED + PRODUCTS)[0] == "inside"
