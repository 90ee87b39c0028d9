"""scaled_dot_product_attention and the primitives under it: sizes, groups, masks and blocks against a formula."""

import importlib
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference
from minigrad.backend.launch import KernelBackend
from minigrad.backend.launch.attention import Shape, dk_dv_bytes, dq_bytes, forward_bytes
from minigrad.nn import functional as F

blockwise = importlib.import_module("minigrad.backend.numpy.attention")  # the name is the function's, too


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def formula(q, k, v, seen=None, bias=0.0, scale=None):
    """Return softmax(scale q kᵀ + bias) v, computed in NumPy with k and v repeated for each head of q."""
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    scores = np.where(np.broadcast_to(True if seen is None else seen, scores.shape), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


# ------------------------------------------------------------------------------------------------- the public function


@pytest.mark.parametrize(
    "query, key, value",
    [
        ((3, 4), (5, 4), (5, 2)),
        ((2, 3, 4), (2, 5, 4), (2, 5, 2)),
        ((2, 3, 3, 4), (2, 3, 5, 4), (2, 3, 5, 2)),
        ((2, 1, 2, 3, 4), (2, 1, 2, 5, 4), (2, 1, 2, 5, 2)),
        ((2, 3, 3, 4), (5, 4), (3, 5, 2)),  # batch dims broadcast
        ((3, 4), (2, 3, 5, 4), (5, 2)),
        ((2, 3, 0), (2, 5, 0), (2, 5, 2)),  # scores of 0: the mean of the values
        ((2, 0, 4), (2, 5, 4), (2, 5, 2)),
        ((2, 3, 4), (2, 0, 4), (2, 0, 2)),
        ((1, 1), (1, 1), (1, 1)),
    ],
    ids=str,
)
def test_shapes(query, key, value):
    q, k, v = (normal(*shape, seed=i) for i, shape in enumerate((query, key, value)))
    T, S = q.shape[-2], k.shape[-2]
    tensors = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    for causal in (False, True):
        seen = np.tri(T, S, dtype=bool) if causal else None
        z = F.scaled_dot_product_attention(*tensors, is_causal=causal)
        want = formula(q, k, v, seen, scale=None if q.shape[-1] else 1.0)
        np.testing.assert_allclose(z.detach().numpy(), want, rtol=1e-11, atol=1e-13)
        mask = mg.tensor(np.tri(T, S, dtype=bool))
        gradients = mg.grad(z.sum(), tensors)
        if causal:
            by_mask = mg.grad(F.scaled_dot_product_attention(*tensors, mask).sum(), tensors)
            for a, b in zip(gradients, by_mask, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("n", [4, 60])  # for NumPy; for kernels
@pytest.mark.parametrize("d_k, d_v", [(8, 260), (260, 8), (128, 128), (8, 8)])
def test_heads_of_any_size(n, d_k, d_v):
    """Kernels take heads of at most 256. Larger ones are computed by the formula, with the same results."""
    q, k, v = normal(1, 2, n, d_k), normal(1, 2, n, d_k, seed=1), normal(1, 2, n, d_v, seed=2)
    for dtype, rtol in ((np.float64, 1e-11), (np.float32, 2e-4)):
        z = F.scaled_dot_product_attention(*(mg.tensor(x.astype(dtype)) for x in (q, k, v)), is_causal=True)
        assert z.dtype == dtype
        np.testing.assert_allclose(z.numpy(), formula(q, k, v, np.tri(n, dtype=bool)), rtol, rtol)


def test_kernels_say_what_fits():
    """The tile is the largest of which two blocks fit into the shared memory of a multiprocessor, or else one."""
    on = KernelBackend()
    sizes = 1, 32, 33, 64, 65, 128, 129, 256, 257
    found = {D: [on._shape(np.dtype(t), D, dk_dv_bytes) for t in ("float16", "float32", "float64")] for D in sizes}
    assert [found[D][0].tensor for D in sizes[:-1]] == [True] * 6 + [False] * 2  # float16, up to 128
    shapes = {D: [shape and shape[:3] for shape in of] for D, of in found.items()}
    assert shapes[1] == shapes[32] and shapes[33] == shapes[64] and shapes[65] == shapes[128]
    assert shapes[32] == [(64, 64, 32), (64, 64, 32), (64, 32, 32)]
    assert shapes[64] == [(64, 64, 64), (64, 64, 64), (32, 32, 64)]
    assert shapes[128] == [(64, 32, 128), (64, 32, 128), (32, 32, 128)]
    assert shapes[129] == shapes[256] == [(32, 32, 256), (32, 32, 256), None] and shapes[257] == [None] * 3
    assert on.attention_fits(np.dtype("float32"), 256) and not on.attention_fits(np.dtype("float64"), 129)
    for shape in ((64, 64, 64), (64, 32, 128)):  # float64 takes twice as much, but for the 16 bytes that end a row
        for how, rows in ((forward_bytes, 1), (dq_bytes, 2), (dk_dv_bytes, 2)):
            columns = 2 if how is dk_dv_bytes else 1
            ends = 16 * (rows * shape[0] + columns * shape[1])
            assert how(Shape(*shape, 0, 8, 1)) - ends == 2 * (how(Shape(*shape, 0, 4, 1)) - ends)
    assert forward_bytes(Shape(64, 64, 32, 0, 4, 1)) == 4 * (64 * 36 + 64 * 36 + 64 * 72)
    assert dq_bytes(Shape(64, 32, 32, 0, 4, 1)) == 4 * (2 * 64 * 36 + 32 * 36 + 64 * 40)
    assert dk_dv_bytes(Shape(64, 32, 32, 0, 4, 1)) == 4 * (2 * 64 * 36 + 2 * 32 * 36 + 64 * 40 + 3 * 32)
    assert forward_bytes(Shape(64, 32, 32, 1, 2, 4)) == 2 * (64 * 40 + 4 * 32 * 40)
    assert forward_bytes(Shape(64, 64, 32, 2, 2, 2)) == 2 * (64 * 40 + 2 * 64 * 40)
    assert dk_dv_bytes(Shape(64, 32, 32, 1, 2, 4)) == 2 * (2 * 64 * 40 + 4 * 32 * 40) + 4 * 6 * 32


@pytest.mark.parametrize("needs", ["mask", "query", "both"])
def test_a_float_mask_has_a_gradient_if_it_asks_for_one(needs):
    q, k, v, mask = normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 2, seed=2), normal(3, 5, seed=3)

    def loss(q, mask):
        z = F.scaled_dot_product_attention(q, mg.tensor(k), mg.tensor(v), mask, scale=0.3)
        return (z * mg.tensor(normal(2, 3, 2, seed=4))).sum()

    wanted = [needs in ("query", "both"), needs in ("mask", "both")]
    points = [mg.tensor(x, requires_grad=need) for x, need in zip((q, mask), wanted)]
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(points[0], mg.tensor(k), mg.tensor(v), points[1], scale=0.3).detach().numpy(),
        formula(q, k, v, bias=mask, scale=0.3),
        rtol=1e-11,
    )
    loss(*points).backward()
    for i, x in enumerate((q, mask)):
        if not wanted[i]:
            assert points[i].grad is None
            continue
        u, h = normal(*x.shape, seed=9), 1e-6
        up, down = (
            [mg.tensor(y + s * h * u) if j == i else mg.tensor(y) for j, y in enumerate((q, mask))] for s in (1, -1)
        )
        slope = (loss(*up) - loss(*down)).item() / (2 * h)
        assert (points[i].grad.numpy() * u).sum() == pytest.approx(slope, rel=1e-6)


def test_groups_share_keys_and_values():
    q, k, v = normal(2, 6, 3, 4), normal(2, 2, 5, 4, seed=1), normal(2, 2, 5, 3, seed=2)
    want = formula(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1))
    tensors = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    z = F.scaled_dot_product_attention(*tensors, enable_gqa=True)
    np.testing.assert_allclose(z.detach().numpy(), want, rtol=1e-11)
    wide = [tensors[0], *(x.repeat_interleave(3, 1) for x in tensors[1:])]
    expected = mg.grad(F.scaled_dot_product_attention(*wide).sum(), tensors)
    for a, b in zip(mg.grad(z.sum(), tensors), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-13)
    q, k, v = tensors
    for given, grouped in (
        ((q, k, v), False),
        ((q, v, k), True),
        ((q, k[:, :1], v), True),
        ((q, k, v[:, :, 1:]), True),
        ((q[0, 0], k[0, 0], v[0, 0]), True),
    ):
        with pytest.raises(ValueError, match=r"attention: query .* are not .*d_k") as caught:
            F.scaled_dot_product_attention(*given, enable_gqa=grouped)
        assert ("heads in dim -3" in str(caught.value)) == grouped


# ------------------------------------------------------------------------------------------------- blocks of queries


@pytest.mark.parametrize("block", [1, 7, 21, 42, 84, 200, 1 << 22])
@pytest.mark.parametrize("masks", ["none", "causal", "mask", "bias", "all"])
def test_blocks_of_queries_and_batches_change_nothing(block, masks, monkeypatch):
    """7 queries of 7 keys, 2 heads, 3 batches. BLOCK is from less than a row of scores to more than all of them."""
    q, k, v, do = (normal(3, 2, 7, d, seed=i) for i, d in enumerate((4, 4, 5, 5)))
    mask = np.random.default_rng(5).random((3, 2, 7, 7)) < 0.7 if masks in ("mask", "all") else None
    bias = normal(3, 2, 7, 7, seed=6) if masks in ("bias", "all") else None
    causal = masks in ("causal", "all")
    seen = (True if mask is None else mask) & (np.tri(7, dtype=bool) if causal else True)
    whole = reference.attention(q, k, v, mask, bias, 0.4, causal)
    gradients = reference.attention_backward(do, q, k, v, mask, bias, *whole, 0.4, causal)
    np.testing.assert_allclose(whole[0], formula(q, k, v, seen, 0.0 if bias is None else bias, 0.4), rtol=1e-11)
    monkeypatch.setattr(blockwise, "BLOCK", block)
    parts = reference.attention(q, k, v, mask, bias, 0.4, causal)
    got = reference.attention_backward(do, q, k, v, mask, bias, *parts, 0.4, causal)
    for a, b in zip((*parts, *got), (*whole, *gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def test_no_more_scores_than_a_block_are_held(monkeypatch):
    sizes = []
    scores = blockwise._scores
    monkeypatch.setattr(blockwise, "_scores", lambda *args: sizes.append(scores(*args).size) or scores(*args))
    q = normal(3, 2, 7, 4)
    for block, most, count in ((1, 14, 21), (14, 14, 21), (42, 42, 9), (98, 98, 3), (196, 196, 2), (294, 294, 1)):
        monkeypatch.setattr(blockwise, "BLOCK", block)
        sizes.clear()
        reference.attention(q, q, q, None, None, 0.4, True)
        assert max(sizes) == most and len(sizes) == count and sum(sizes) == 3 * 2 * 7 * 7


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_attention_of_halves_is_computed_in_single(dtype):
    q, k, v, do = (normal(2, 2, 6, 4, seed=i).astype(dtype) for i in range(4))
    o, lse = reference.attention(q, k, v, None, None, 0.5, True)
    assert o.dtype == dtype and lse.dtype == np.float32
    wide = [x.astype(np.float64) for x in (q, k, v)]
    atol = 2e-3 if dtype == np.float16 else 1e-6
    np.testing.assert_allclose(o, formula(*wide, np.tri(6, dtype=bool), scale=0.5), atol=atol)
    gradients = reference.attention_backward(do, q, k, v, None, None, o, lse, 0.5, True)
    assert all(g.dtype == dtype for g in gradients)
    whole = reference.attention(*wide, None, None, 0.5, True)
    exact = reference.attention_backward(do.astype(np.float64), *wide, None, None, *whole, 0.5, True)
    for a, b in zip(gradients, exact, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-2 if dtype == np.float16 else 1e-5)


def test_dropout_in_one_pass():
    """attention of the NumPy backend, which kernels are compared with, against the formula."""
    q, k, v, do = (normal(2, n, t, 3, seed=i) for i, (n, t) in enumerate([(4, 5), (2, 6), (2, 6), (4, 5)]))
    keep, kept, scale = np.random.default_rng(4).random((2, 4, 5, 6)) > 0.3, 1 / 0.7, 0.5
    o, lse = reference.attention(q, k, v, None, None, scale, True, keep, kept)
    gradients = reference.attention_backward(do, q, k, v, None, None, o, lse, scale, True, keep, kept)
    Q, K, V = (mg.tensor(x, requires_grad=True) for x in (q, k, v))
    heads = (x.repeat_interleave(2, 1) for x in (K, V))
    pattern = F.attention_pattern(Q @ next(heads).mT, None, True, scale) * (mg.tensor(keep).double() * kept)
    z = pattern @ next(heads)
    z.backward(mg.tensor(do))
    for got, want in zip((o, *gradients), (z.detach(), Q.grad, K.grad, V.grad), strict=True):
        np.testing.assert_allclose(got, want.numpy(), 0, 1e-13)


@pytest.mark.gpu
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_a_gpu_drops_what_a_cpu_does(p):
    """Dropout in the kernels and dropout of the stored pattern give the same results and first and second
    derivatives."""

    def results(device):
        mg.manual_seed(3)
        sizes = (4, 5), (2, 6), (2, 6)
        leaves = [
            mg.tensor(normal(2, n, t, 3, seed=i), device=device, requires_grad=True) for i, (n, t) in enumerate(sizes)
        ]
        z = F.scaled_dot_product_attention(*leaves, dropout_p=p, is_causal=True, enable_gqa=True)
        first = mg.grad((z**2).sum(), leaves, create_graph=True)
        return [z, *first, *mg.grad(sum((dx**2).sum() for dx in first), leaves)]

    for got, want in zip(results("cuda"), results("cpu"), strict=True):
        np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), 0, 1e-12)


def test_a_large_head_is_scaled_by_its_root():
    x = mg.tensor(normal(1, 3, 16))
    got = F.scaled_dot_product_attention(x, x, x).numpy()
    np.testing.assert_allclose(got, formula(*[x.numpy()] * 3, scale=1 / math.sqrt(16)), rtol=1e-11)
