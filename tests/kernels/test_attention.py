"""Attention's kernels against the NumPy reference in float64: natively, and on a GPU."""

import numpy as np
import pytest

from minigrad.backend import cpu_backend, reference
from minigrad.backend.launch.launcher import Launcher

from ..devices import NoGpu
from .calls import GPU, hosted

pytestmark = pytest.mark.needs("g++")
CASES = {  # B, nh, nkv, T, S, D, Dv, causal, mask, bias
    "one tile": (2, 2, 2, 64, 64, 32, 32, True, False, False),
    "one element": (1, 1, 1, 1, 1, 1, 1, False, False, False),
    "queries of a group": (1, 4, 2, 70, 37, 24, 40, False, True, False),
    "all masks": (1, 2, 1, 97, 97, 64, 64, True, True, True),
    "more queries than keys": (1, 1, 1, 130, 70, 8, 8, True, False, False),
    "more keys than queries": (1, 1, 1, 40, 130, 8, 5, True, False, False),
    "large heads": (1, 2, 2, 5, 33, 128, 7, False, False, True),
    "larger heads": (1, 2, 1, 35, 67, 256, 130, True, True, False),
    "heads that no chunk divides": (2, 2, 1, 66, 71, 61, 30, True, False, True),
}
EPS = {"float32": 2e-6, "float64": 2e-14}
ROUGH = {"high": 3e-3, "medium": 2.4e-2}  # where tensor cores multiply, of 11 bits, or of 8


def problem(case, dtype, seed=0):
    """Arguments for a case, by its name or as a tuple."""
    B, nh, nkv, T, S, D, Dv, causal, masked, biased = CASES.get(case, case)
    rng = np.random.default_rng(seed)
    shapes = (B, T, nh, D), (B, S, nkv, D), (B, S, nkv, Dv), (B, T, nh, Dv)
    q, k, v, do = (rng.standard_normal(s).astype(dtype).transpose(0, 2, 1, 3) for s in shapes)
    mask = np.broadcast_to(rng.random((1, 1, T, S)) > 0.3, (B, nh, T, S)) if masked else None
    if masked:
        mask = mask.copy()
        mask[:, :, T // 2] = False  # a query that sees nothing
    bias = np.broadcast_to(rng.standard_normal((nh, 1, S)).astype(dtype), (B, nh, T, S)) if biased else None
    return q, k, v, mask, bias, do, 0.3 if D <= 128 else 0.1, causal  # float32 has digits for scores of some tens


def wide(*arrays):
    return [x.astype(np.float64) if x is not None and x.dtype.kind == "f" else x for x in arrays]


def check(backend, case, dtype, eps=EPS, dropped=0.0):
    q, k, v, mask, bias, do, scale, causal = problem(case, dtype)
    dropout = ()
    if dropped:
        dropout = np.random.default_rng(1).random((*q.shape[:3], k.shape[2])) >= dropped, 1 / (1 - dropped)
    o, lse = backend.attention(q, k, v, mask, bias, scale, causal, *dropout)
    grads = backend.attention_backward(do, q, k, v, mask, bias, o, lse, scale, causal, *dropout)
    Q, K, V, BIAS, DO = wide(q, k, v, bias, do)
    rest = mask, BIAS, *reference.attention(Q, K, V, mask, BIAS, scale, causal, *dropout), scale, causal, *dropout
    expected_o, expected_lse = rest[2:4]
    expected = reference.attention_backward(DO, Q, K, V, *rest)
    for got, want in zip((o, lse, *grads), (expected_o, expected_lse, *expected), strict=True):
        kind = "float32" if want is expected_lse and dtype == "float16" else dtype
        assert got.shape == want.shape and got.dtype == np.dtype(kind)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, want))  # ∞ where nothing is seen
        scale_of = max(1, np.abs(want[finite]).max(initial=0))
        np.testing.assert_allclose(np.where(finite, got, 0), np.where(finite, want, 0), 0, eps[dtype] * scale_of)


@pytest.fixture(params=[GPU])
def on(request):
    return hosted(request.param)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("case", CASES)
def test_native(case, dtype):
    check(type(cpu_backend("native"))(any_size=True), case, dtype)


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_threads(on, case):
    check(on, case, "float32")


@pytest.mark.parametrize("dtype, precision", [("float16", "high"), ("float32", "high"), ("float32", "medium")])
@pytest.mark.parametrize("case", CASES)
def test_tensor_cores(on, monkeypatch, case, dtype, precision):
    if not on.tensor_cores:
        pytest.skip("no GPU with tensor cores")
    monkeypatch.setattr(Launcher, "precision", precision)
    check(on, case, dtype, {dtype: ROUGH[precision]})


@pytest.mark.parametrize("kind", [*EPS, "float16", "high", "medium"])
@pytest.mark.parametrize("case", ["queries of a group", "all masks", "heads that no chunk divides"])
def test_dropout(on, monkeypatch, case, kind):
    """In a dtype, or in float32 as tensor cores multiply it with a precision."""
    if kind not in EPS and not on.tensor_cores:
        pytest.skip("no GPU with tensor cores")
    monkeypatch.setattr(Launcher, "precision", kind if kind in ROUGH else "highest")
    dtype = "float32" if kind in ROUGH else kind
    check(on, case, dtype, EPS if kind in EPS else {dtype: 1.5 * ROUGH.get(kind, ROUGH["high"])}, 0.3)


@pytest.mark.parametrize("limit, dtype, D", [(99, "float32", 64), (64, "float32", 64), (227, "float64", 128)])
def test_smaller_tiles(on, limit, dtype, D):
    """The shapes that are chosen for a limit of shared memory in KiB, or for numbers of 8 bytes."""
    before, on.shared_limit = on.shared_limit, limit << 10
    try:
        check(on, (1, 2, 1, 70, 69, D, D, True, True, True), dtype)
    finally:
        on.shared_limit = before


def laid_out(x, how):
    """A copy of x in memory where `how` says which of its address, rows and heads are multiples of 16 bytes."""
    B, n, t, d = x.shape
    first, gap, order = {
        "one element in": (1, 0, (0, 1, 2, 3)),
        "rows apart": (0, 1, (0, 2, 1, 3)),
        "one element in, rows apart": (4, 3, (2, 1, 0, 3)),
        "heads last": (0, 4, (0, 2, 1, 3)),
        "backwards": (0, 0, (0, 1, 2, 3)),
    }[how]
    shape = [(B, n, t)[axis] for axis in order[:3]]
    rows = np.full(first + np.prod(shape) * (d + gap), np.nan, x.dtype)[first:].reshape(*shape, d + gap)
    y = rows[..., :d].transpose(np.argsort(order))
    if how == "backwards":
        y = y[:, :, ::-1]
    y[...] = x
    return y


LAYOUTS = "one element in", "rows apart", "one element in, rows apart", "heads last", "backwards"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("how", LAYOUTS)
def test_rows_that_do_not_begin_at_a_chunk(on, how, dtype):
    """The bits are those for dense arrays, which are moved in chunks. Each of q, k, v and do is tried alone, then
    all."""
    q, k, v, mask, bias, do, scale, causal = problem((2, 2, 1, 19, 37, 64, 32, True, True, True), dtype)
    dense = [np.ascontiguousarray(x) for x in (q, k, v, do)]

    def results(q, k, v, do):
        o, lse = on.attention(q, k, v, mask, bias, scale, causal)
        return o, lse, *on.attention_backward(do, q, k, v, mask, bias, o, lse, scale, causal)

    expected = results(*dense)
    for moved in ({0}, {1}, {2}, {3}, {0, 1, 2, 3}):
        arrays = [laid_out(x, how) if i in moved else x for i, x in enumerate(dense)]
        for got, want in zip(results(*arrays), expected, strict=True):
            np.testing.assert_array_equal(got, want)


class Grids(NoGpu):
    """Keeps the shapes of the grids."""

    def __init__(self):
        super().__init__()
        self.grids = []

    def _start(self, file, entry, dtype, grid, *rest):
        self.grids.append((entry, grid))


def test_heads_beyond_the_second_dim_of_a_grid():
    """On a GPU the second and third dims of a grid are at most 65,535, so B and B nh must not be there."""
    on, heads = Grids(), 70_000
    for nh in (1, heads):  # all in the batch, or all in one
        q = np.zeros((heads // nh, nh, 1, 4), np.float32)
        o, lse = on.attention(q, q, q, None, None, 1.0, True)
        on.attention_backward(o, q, q, q, None, None, o, lse, 1.0, True)
    assert len(on.grids) == 6
    for entry, grid in on.grids:
        assert len(grid) == 1 and grid[0] >= heads, entry


@pytest.mark.gpu
def test_many_heads_on_a_gpu():
    on = hosted("cuda")
    q, k, v, do = (np.random.default_rng(i).standard_normal((70_000, 1, 1, 2)).astype(np.float32) for i in range(4))
    o, lse = on.attention(q, k, v, None, None, 1.0, True)
    np.testing.assert_array_equal(o, v)  # each query sees one key
    dq, dk, dv = on.attention_backward(do, q, k, v, None, None, o, lse, 1.0, True)
    np.testing.assert_array_equal(dv, do)
    assert not dq.any() and not dk.any()


def test_float64_takes_smaller_tiles(on):
    check(on, "queries of a group", "float64")


def test_scores_far_from_zero_cost_no_digits(on):
    """Equal keys: dq is exactly 0, and scores are 281, of which float32 holds no more than 3e-5. lse in one number
    would make the pattern, computed again, sum to as much less or more than 1."""
    x = np.full((1, 1, 8, 33), 7, np.float32)
    do = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    for backend in (type(cpu_backend("native"))(any_size=True), on, reference):
        o, lse = backend.attention(x, x, x, None, None, 33**-0.5, True)
        dq, dk, dv = backend.attention_backward(do, x, x, x, None, None, o, lse, 33**-0.5, True)
        assert np.abs(dq).max() < 2e-5 and np.abs(dk).max() < 2e-5
        np.testing.assert_allclose(dv.sum(2), do.sum(2), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_one_key_alone_has_no_gradient(on, causal):
    """Scores are thousands apart, so a query's own key has all of the weight, dp = delta, and dq and dk are exactly 0.
    Were delta not rounded as dp is, what that leaves would grow with v and k: here to 0.02."""
    rng = np.random.default_rng(0)
    q, v, do = (rng.standard_normal((1, 2, 70, 33)).astype(np.float32) for _ in range(3))
    q, v = 30 * q, v + 1000
    for backend in (type(cpu_backend("native"))(any_size=True), on, reference):
        o, lse = backend.attention(q, q, v, None, None, 33**-0.5, causal)
        dq, dk, dv = backend.attention_backward(do, q, q, v, None, None, o, lse, 33**-0.5, causal)
        np.testing.assert_array_equal(o, v)
        assert not dq.any() and not dk.any()
        np.testing.assert_array_equal(dv, do)


def test_nothing_to_attend_to(on):
    q, k, v = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 0, 4), np.float32), np.ones((1, 2, 0, 5), np.float32)
    for backend in (type(cpu_backend("native"))(any_size=True), on, reference):
        o, lse = backend.attention(q, k, v, None, None, 1.0, False)
        assert o.shape == (1, 2, 3, 5) and not o.any() and (lse[..., 1] == np.inf).all()
        dq, dk, dv = backend.attention_backward(o, q, k, v, None, None, o, lse, 1.0, False)
        assert not dq.any() and dk.shape == k.shape and dv.shape == v.shape
