"""attention.cpp: right for every layout and size of heads, the same bits for any number of threads, nothing touched
beside its arrays."""

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.runners.native import Native, NativeKernels

from .fenced import FENCED
from .test_native import run

pytestmark = pytest.mark.needs("g++")
SIZES = 1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 130
HEADS = 1, 3, 8, 15, 16, 17, 20, 31, 32, 33, 40, 48, 64, 100, 129, 200
EPS = {"float32": 4e-6, "float64": 4e-14}


def lay_out(rng, B, n, T, D, dtype):
    """A random array (B, n, T, D): heads last, heads first, a part of a wider one, expanded, or with steps."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.standard_normal((B, n, T, D)).astype(dtype)
    if kind == 1:
        return rng.standard_normal((B, T, 3, n, D)).astype(dtype)[:, :, 1].transpose(0, 2, 1, 3)
    if kind == 2:
        return np.broadcast_to(rng.standard_normal((1, 1, T, D)).astype(dtype), (B, n, T, D))
    if kind == 3:
        return np.broadcast_to(rng.standard_normal((B, n, 1, D)).astype(dtype), (B, n, T, D))
    if kind == 4:
        return rng.standard_normal((B, n, D, T)).astype(dtype).mT
    return rng.standard_normal((B, T, n, D)).astype(dtype).transpose(0, 2, 1, 3)


def problem(seed, dtype):
    rng = np.random.default_rng(seed)
    B, nkv, group = (int(x) for x in rng.integers(1, 4, 3))
    T, S = (int(x) for x in rng.choice(SIZES, 2))
    D, Dv = (int(x) for x in rng.choice(HEADS, 2))
    nh, causal = nkv * group, bool(rng.integers(2))
    q, k, v, do = (lay_out(rng, B, *s, dtype) for s in ((nh, T, D), (nkv, S, D), (nkv, S, Dv), (nh, T, Dv)))
    mask = bias = None
    if rng.integers(2):
        mask = np.broadcast_to(rng.random((B, 1, T, S) if rng.integers(2) else (1, nh, 1, S)) > 0.3, (B, nh, T, S))
    if rng.integers(2):
        bias = rng.standard_normal((nh, T, S) if rng.integers(2) else (nh, 1, S)).astype(dtype)
        bias = np.broadcast_to(np.where(rng.random(bias.shape) < 0.1, -np.inf, bias).astype(dtype), (B, nh, T, S))
    return q, k, v, mask, bias, do, float(D**-0.5), causal


def results(on, q, k, v, mask, bias, do, scale, causal):
    o, lse = on.attention(q, k, v, mask, bias, scale, causal)
    return [o, lse, *on.attention_backward(do, q, k, v, mask, bias, o, lse, scale, causal)]


def wide(x):
    return x.astype("f8") if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("start", range(0, 120, 20))
def test_against_the_reference(start, dtype):
    for seed in range(start, start + 20):
        args = problem(seed, dtype)
        q, k, v, _, _, do, scale, _ = map(wide, args)
        dp = do @ v.repeat(q.shape[1] // k.shape[1], 1).mT  # dq and dk are sums of its differences
        terms = scale * np.abs(dp).max() * max(np.abs(q).max(), np.abs(k).max())
        for got, want in zip(results(Native(), *args), results(reference, *map(wide, args)), strict=True):
            assert got.shape == want.shape and got.dtype == np.dtype(dtype)
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite], want[~finite])  # lse where nothing is seen
            largest = max(1, terms, np.abs(want[finite]).max(initial=0))
            np.testing.assert_allclose(got[finite], want[finite], 0, EPS[dtype] * largest, err_msg=str(seed))


def test_one_key_with_most_of_the_weight_leaves_no_more_rounding_than_numpys():
    """With delta = do · o, which is rounded differently from dp, the error would be 1.8 times as large."""
    errors = {Native(): [], reference: []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        q, do = (rng.standard_normal((1, 1, 48, 48)).astype("f4") for _ in range(2))
        args = q, q, q, None, None, do, 48**-0.5, True  # a query has most in common with its own key
        exact = results(reference, *map(wide, args))[2:4]  # dq, dk
        for on, squares in errors.items():
            squares += [np.mean((got - want) ** 2) for got, want in zip(results(on, *args)[2:4], exact)]
    ours, numpys = (np.sqrt(np.mean(squares)) for squares in errors.values())
    assert ours < 1.2 * numpys


def test_queries_that_see_nothing_have_no_gradient():
    rng, on = np.random.default_rng(0), Native()
    for S in (70, 0):  # what the first leaves in memory is not the second's
        q, k, v, do = (rng.standard_normal((1, 1, n, 16)).astype("f4") for n in (40, S, S, 40))
        o, _, dq, dk, dv = results(on, q, k, v, None, None, do, 0.25, False)
    assert not o.any() and not dq.any() and dk.shape == dv.shape == (1, 1, 0, 16)


@pytest.mark.parametrize("dtype, far", [("float32", 85.0), ("float64", 705.0)])
def test_a_weight_is_0_only_where_it_would_be_subnormal(dtype, far):
    q, k, v, do = (np.array(x, dtype).reshape(1, 1, -1, 1) for x in ([1], [0, -far], [0, 1], [1]))
    o, _, _, dk, dv = results(Native(), q, k, v, None, None, do, 1.0, False)
    np.testing.assert_allclose([o.item(), dv[0, 0, 1, 0], dk[0, 0, 1, 0]], np.exp(-far), 1e-4)


def test_dropout_is_refused():
    on, x = Native(), np.ones((1, 1, 2, 3), np.float32)
    assert not on.attention_fits(np.dtype("f4"), 3, dropout=True)
    with pytest.raises(ValueError, match="takes no dropout"):
        on.attention(x, x, x, None, None, 1.0, True, np.ones((1, 1, 2, 2), bool), 2.0)


def test_heads_as_large_as_they_may_be():
    on, rng = Native(), np.random.default_rng(0)
    assert on.attention_fits(np.dtype("f4"), 512) and not on.attention_fits(np.dtype("f4"), 513)
    for D, Dv in ((512, 512), (511, 511), (1, 512)):
        for dtype in EPS:
            q, k, v, do = (rng.standard_normal((1, 1, 40, n)).astype(dtype) for n in (D, D, Dv, Dv))
            args = q, k, v, None, None, do, D**-0.5, True
            for got, want in zip(results(on, *args), results(reference, *map(wide, args))):
                np.testing.assert_allclose(got, want, 0, 10 * EPS[dtype] * max(1, np.abs(want).max()))


THREADS = """
import hashlib
import numpy as np
from minigrad.backend.runners.native import NativeKernels
rng, on, all = np.random.default_rng(0), NativeKernels(), hashlib.sha256()
for B, nh, nkv, T, D in ((1, 3, 3, 300, 20), (5, 4, 2, 64, 32)):
    q, k, v, do = (rng.standard_normal((B, T, n, D)).astype("f4").transpose(0, 2, 1, 3) for n in (nh, nkv, nkv, nh))
    o, lse = on.attention(q, k, v, None, None, 0.2, True)
    for x in (o, lse, *on.attention_backward(do, q, k, v, None, None, o, lse, 0.2, True)):
        all.update(x.tobytes())
print(on.threads, all.hexdigest())
"""


def test_the_bits_do_not_depend_on_the_threads():
    said = [run(THREADS, OMP_NUM_THREADS=n)[0].split() for n in ("1", "2", "3", "7")]
    assert [threads for threads, _ in said] == ["1", "2", "3", "7"] and len({digest for _, digest in said}) == 1


def test_the_bits_do_not_depend_on_the_place_in_a_batch():
    on, rng = NativeKernels(), np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((4, 70, 3, 24)).astype("f4").transpose(0, 2, 1, 3) for _ in range(4))
    together = results(on, q, k, v, None, None, do, 0.2, True)
    for i in range(4):
        alone = results(on, *(x[i : i + 1] for x in (q, k, v)), None, None, do[i : i + 1], 0.2, True)
        for all_of_them, one in zip(together, alone):
            np.testing.assert_array_equal(all_of_them[i : i + 1], one)


@pytest.mark.parametrize("dtype", EPS)
def test_a_value_that_is_not_finite_reaches_those_who_see_it(dtype):
    rng = np.random.default_rng(0)
    for bad in (np.nan, np.inf):
        for which in range(3):
            qkv = [rng.standard_normal((1, 1, 70, 8)).astype(dtype) for _ in range(3)]
            qkv[which][0, 0, 40, 3] = bad
            with np.errstate(all="ignore"):
                o, _ = Native().attention(*qkv, None, None, 0.3, True)
                want, _ = reference.attention(*map(wide, qkv), None, None, 0.3, True)
            assert np.isnan(o[:, :, 40:])[np.isnan(want[:, :, 40:])].all(), f"{bad} in {'qkv'[which]}"
            assert np.isfinite(o[:, :, :32]).all()  # of tiles that have nothing to do with it


ATTENTION = """
on = NativeKernels()
on.empty = fenced
for fenced.at_end in (True, False):
    for dtype in ("f4", "f8"):
        for T, S, D, Dv in ((1, 1, 1, 1), (33, 65, 5, 3), (64, 64, 32, 32), (7, 70, 20, 33), (40, 31, 16, 47)):
            q, k, v, do = (fenced((1, 2, *shape), dtype) for shape in ((T, D), (S, D), (S, Dv), (T, Dv)))
            mask, bias = fenced((1, 2, T, S), bool), fenced((1, 2, T, S), dtype)
            for x in (q, k, v, do, bias):
                x[...] = 0.5
            mask[...] = True
            for causal in (False, True):
                o, lse = on.attention(q, k, v, mask, bias, 0.3, causal)
                for x in on.attention_backward(do, q, k, v, mask, bias, o, lse, 0.3, causal):
                    assert np.isfinite(x).all()
print("inside")
"""


def test_nothing_beside_the_arrays_is_touched():
    assert run(FENCED + ATTENTION)[0] == "inside"
