"""Scaled dot-product attention in one pass, forward and backward, without T × S scores."""

import struct

from .arrays import real
from .base import TOTAL, Launcher

PADDED = 32, 64, 128  # what head sizes are padded to; larger ones do not fit


class Attention(Launcher):
    whole_heads = False  # may one block have all keys of a head? It then computes dq too, 5 products and not 7
    shared_limit = 227 << 10  # bytes of shared memory that a block may have: this is an H100's
    tile_pad = 4  # NI of attention.cuh

    def attention(self, q, k, v, mask, bias, scale, is_causal):
        """softmax(scale q kᵀ + bias) v -> o (B, nh, T, Dv), lse (B, nh, T, 2). A row that sees nothing gives zeros.

        q (B, nh, T, D), k (B, nkv, S, D), v (B, nkv, S, Dv), nh a multiple of nkv, D and Dv ≤ 128. mask (bool, True:
        attend) and bias (the dtype of q) are (B, nh, T, S) with strides of 0 where broadcast, or None. o lies in
        memory as (B, T, nh, Dv), as the projection that follows wants it."""
        q, k, v = (self._rows_dense(x) for x in (q, k, v))
        B, nh, T = q.shape[:3]
        o = self._heads_last(B, nh, T, v.shape[3], q.dtype)
        lse = self.empty((B, nh, T, 2), real(q.dtype))
        tile, DP = self._shape(q.dtype, max(q.shape[3], v.shape[3]), forward_bytes)
        grid = -(-T // tile), B * nh
        self.launch(
            f"attention_forward TILE={tile} DP={DP}", "attention_forward", q.dtype, grid, tile * tile // 16,
            o, lse, q, k, v, mask, bias, heads(q, k, v, o, mask, bias), scale, is_causal,
            shared=forward_bytes(tile, DP, self.tile_pad, lse.itemsize),
        )  # fmt: skip
        return o, lse

    def attention_backward(self, do, q, k, v, mask, bias, o, lse, scale, is_causal):
        """dq, dk, dv of attention(), from its inputs and results. Each lies in memory as o does."""
        q, k, v, o = (self._rows_dense(x) for x in (q, k, v, o))
        if do.strides != o.strides:
            do, o = self._like_heads(do), self._like_heads(o)
        (B, nh, T, D), (nkv, S, Dv) = q.shape, v.shape[1:]
        dq, dk, dv = (self._heads_last(B, n, t, d, q.dtype) for n, t, d in ((nh, T, D), (nkv, S, D), (nkv, S, Dv)))
        tile, DP = self._shape(q.dtype, max(D, Dv), backward_bytes)
        file, shared = f"attention_backward TILE={tile} DP={DP}", backward_bytes(tile, DP, self.tile_pad, lse.itemsize)
        given = (do, o, lse, q, k, v, mask, bias, heads(q, k, v, o, mask, bias, dq, dk, dv), scale, is_causal)
        whole = self.whole_heads and S
        self.launch(file, "attention_dk_dv", q.dtype, (1 if whole else -(-S // tile), B * nkv), tile * 4,
                    dk, dv, dq if whole else None, *given, shared=shared)  # fmt: skip
        if not whole:
            self.launch(file, "attention_dq", q.dtype, (-(-T // tile), B * nh), tile * 4, dq, *given, shared=shared)
        return dq, dk, dv

    def _like_heads(self, x):
        """x, or a copy of it that lies in memory as (B, T, nh, D)."""
        y = x.transpose(0, 2, 1, 3)
        return x if y.flags.c_contiguous else self.copy(y).transpose(0, 2, 1, 3)

    def _rows_dense(self, x):
        return x if x.strides[3] == x.itemsize else self.copy(x)

    def _heads_last(self, B, nh, T, D, dtype):
        return self.empty((B, T, nh, D), dtype).transpose(0, 2, 1, 3)

    def attention_fits(self, dtype, D):
        """Can attention() and attention_backward() work on heads of this size?"""
        return self._shape(dtype, D, backward_bytes) is not None

    def _shape(self, dtype, D, needed):
        """(TILE, DP) for a head size: the largest tile of which two, or else one, fit in shared memory; or None."""
        DP = next((size for size in PADDED if size >= D), None)
        for at_once in (2, 1) if DP else ():
            for tile in (64, 32):
                if at_once * needed(tile, DP, self.tile_pad, real(dtype).itemsize) <= self.shared_limit:
                    return tile, DP
        return None


def forward_bytes(tile, DP, pad, itemsize):
    """Shared memory of a block, in bytes: see attention_forward.cu."""
    return itemsize * (tile * DP + DP * (tile + pad) + tile * tile + tile * DP + 2 * tile) + TOTAL * tile


def backward_bytes(tile, DP, pad, itemsize):
    """Likewise: see attention_backward.cu."""
    return itemsize * (2 * tile * DP + 2 * DP * (tile + pad) + 2 * tile * tile + 3 * tile + 3 * tile * DP)


def heads(q, k, v, o, mask, bias, *gradients):
    """The struct Heads of attention.cuh. gradients: dq, dk and dv, in the backward."""
    (nh, T, D), (nkv, S, Dv) = q.shape[1:], v.shape[1:]
    steps = [strides(x, 3) for x in (q, k, v, o)] + [strides(x, 4) for x in (mask, bias)]
    steps += [strides(x, 3) for x in gradients or (None, None, None)]
    return _HEADS.pack(nh, nh // max(nkv, 1), T, S, D, Dv, *(n for step in steps for n in step))


_HEADS = struct.Struct("35q")


def strides(x, n):
    """The first n strides of x in elements; 0 for None."""
    return (0,) * n if x is None else [step // x.itemsize for step in x.strides[:n]]
