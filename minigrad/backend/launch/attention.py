"""Scaled dot-product attention: fused, without an array of T × S scores; and the attention pattern alone."""

import functools
from typing import NamedTuple

from ..kernels import Struct, constant
from .launcher import BOOL, layout, real
from .rules import KERNEL
from .softmax import Softmax

HEADS = Struct("heads.cuh", "Heads")
THREADS = constant("attention.cuh", "THREADS")
ROW_PADDING = 16  # bytes that a row of a tile is longer than a padded head
PATTERN_PADDING = 8  # elements that a row of the pattern may be longer than COLUMNS
PADDED = 32, 64, 128, 256  # padded head sizes; larger heads do not fit
TILES = (64, 64), (64, 32), (32, 32)  # ROWS and COLUMNS of attention.cuh
REGISTERS = 40 << 10  # the most bytes of dk (ROWS × DP) and p (ROWS × COLUMNS): dv and dp take as many registers again


@functools.cache
def _shape(dtype, D, needed, wanted, limit):
    """Return the largest Shape for head size D of which two blocks fit into `limit` bytes of shared memory. If there is
    none, return the largest of which one block fits; if there is none either, return None.

    needed(shape): the bytes of a block. wanted: the constant TENSOR; 0 is tried if that does not fit."""
    DP, itemsize = next((size for size in PADDED if size >= D), 0), real(dtype).itemsize
    for tensor in dict.fromkeys((wanted, 0)):
        for blocks in (2, 1) if DP else ():
            for rows, columns in TILES[: 2 if tensor else None]:
                bytes_each = (itemsize, dtype.itemsize, 2)[tensor]
                tiles = 1 if bytes_each > 2 else 4 if dtype.itemsize == 2 else 2
                shape = Shape(rows, columns, DP, tensor, bytes_each, tiles)
                if rows * (DP + columns) * itemsize <= REGISTERS and blocks * needed(shape) <= limit:
                    return shape
    return None


class Attention(Softmax):
    shared_limit = 227 << 10  # bytes of shared memory that a block may have; this is an H100's

    @KERNEL
    def attention(self, q, k, v, mask, bias, scale, is_causal, keep=None, kept=1.0):
        q, k, v, mask, bias, keep = self._operands(q, k, v, mask, bias, keep)
        B, nh, T = q.shape[:3]
        o = self._heads_last(B, nh, T, v.shape[3], q.dtype)
        lse = self.empty((B, nh, T, 2), real(q.dtype))
        sizes = heads(q, k, v, o, mask, bias)
        self._launch_attention(o, lse, q, k, v, mask, bias, keep, sizes, scale, is_causal, kept)
        return o, lse

    @KERNEL
    def attention_backward(self, do, q, k, v, mask, bias, o, lse, scale, is_causal, keep=None, kept=1.0):
        q, k, v, mask, bias, keep = self._operands(q, k, v, mask, bias, keep)
        lse = self.operand(lse, real(q.dtype), (*q.shape[:3], 2))
        do, o = (self.operand(x, q.dtype, (*q.shape[:3], v.shape[3]), compact=False) for x in (do, o))
        if not q.shape[1]:
            return self.zeros(q.shape, q.dtype), self.zeros(k.shape, q.dtype), self.zeros(v.shape, q.dtype)
        o = self._rows_dense(o)
        if do.strides != o.strides:
            do, o = self._like_heads(do), self._like_heads(o)
        (B, nh, T, D), (nkv, S, Dv) = q.shape, v.shape[1:]
        dq, dk, dv = (self._heads_last(B, n, t, d, q.dtype) for n, t, d in ((nh, T, D), (nkv, S, D), (nkv, S, Dv)))
        sizes = heads(q, k, v, o, mask, bias, dq, dk, dv)
        rest = mask, bias, keep, sizes, scale, is_causal, kept
        self._launch_attention_backward(dq, dk, dv, do, o, lse, q, k, v, *rest)
        return dq, dk, dv

    def _launch_attention(self, o, lse, q, k, v, mask, bias, keep, *rest):
        (B, nh, T, D), Dv = q.shape, v.shape[3]
        shape = self._shape(q.dtype, max(D, Dv), forward_bytes)
        file, shared = _file_with_constants("attention_forward", shape, keep), forward_bytes(shape)
        rest = mask, bias, keep, *rest
        grid = _blocks(T, shape) * B * nh
        self.launch(file, "attention_forward", q.dtype, grid, THREADS, o, lse, q, k, v, *rest, shared=shared)

    def _launch_attention_backward(self, dq, dk, dv, do, o, lse, q, k, v, mask, bias, keep, *rest):
        (B, nh, T, D), (nkv, S, Dv) = q.shape, dv.shape[1:]
        shape = self._shape(q.dtype, max(D, Dv), dk_dv_bytes)
        file, delta = _file_with_constants("attention_backward", shape, keep), self.empty((B, nh, T), lse.dtype)
        rest = k, v, mask, bias, keep, *rest
        grid, shared = _blocks(T, shape) * B * nh, dq_bytes(shape)
        self.launch(file, "attention_dq", q.dtype, grid, THREADS, dq, delta, do, o, lse, q, *rest, shared=shared)
        grid, shared = _blocks(S, shape) * B * nkv, dk_dv_bytes(shape)
        self.launch(file, "attention_dk_dv", q.dtype, grid, THREADS, dk, dv, delta, do, lse, q, *rest, shared=shared)

    def _operands(self, q, k, v, mask, bias, keep):
        """The arguments of attention() as the kernels take them. Raises ValueError if they do not fit each other."""
        (B, nh, T, D), (nkv, S) = q.shape, k.shape[1:3]
        if nh % max(nkv, 1) or (nh and not nkv):
            raise ValueError(f"attention: {nkv} heads of keys do not divide {nh} heads of queries")
        k = self.operand(k, q.dtype, (B, nkv, S, D), compact=False)
        v = self.operand(v, q.dtype, (B, nkv, S, v.shape[3]), compact=False)
        mask = self.operand(mask, BOOL, (B, nh, T, S), compact=False, optional=True)
        bias = self.operand(bias, q.dtype, (B, nh, T, S), compact=False, optional=True)
        keep = self.operand(keep, BOOL, (B, nh, T, S), optional=True)
        return *map(self._rows_dense, (q, k, v)), mask, bias, keep

    def _like_heads(self, x):
        """x (B, nh, T, D) if it lies in memory as (B, T, nh, D), otherwise a copy that does."""
        y = x.transpose(0, 2, 1, 3)
        return x if y.flags.c_contiguous else self.copy(y).transpose(0, 2, 1, 3)

    def _rows_dense(self, x):
        return x if x.strides[3] == x.itemsize else self.copy(x)

    def _heads_last(self, B, nh, T, D, dtype):
        return self.empty((B, T, nh, D), dtype).transpose(0, 2, 1, 3)

    def attention_fits(self, dtype, D, dropout=False):
        if dropout and (self.one_thread or (dtype.itemsize == 8 and D > 64)):  # float64 takes too many registers
            return False
        return self._largest_head(dtype) >= D

    def _largest_head(self, dtype):
        """The largest head size that the kernels can compute."""
        return max((D for D in PADDED if self._shape(dtype, D, dk_dv_bytes)), default=0)

    def _shape(self, dtype, D, needed):
        return _shape(dtype, D, needed, self.tensor_core_mode(dtype), self.shared_limit)

    @KERNEL
    def attention_pattern(self, scores, scale, mask, is_causal):
        scores = self.compact(scores)
        y = self.empty(scores.shape, scores.dtype)
        if not y.size:
            return y
        *outer, n = scores.shape
        mask = self.operand(mask, BOOL, compact=False, optional=True)
        steps = (0,) * scores.ndim if mask is None else self.expand(mask, scores.shape).strides
        _, rows = layout(tuple(outer), (scores.itemsize, 1), scores.strides[:-1], steps[:-1])
        args = y, scores, mask, rows, steps[-1], outer[-1], n, scale, is_causal
        self.launch_rows(y.size // n, n, "attention_pattern", "attention_pattern", scores.dtype, *args)
        return y

    @KERNEL
    def attention_pattern_backward(self, dy, y, scale):
        return self._softmax_backward(self.operand(dy, y.dtype, y.shape), self.compact(y), scale)


class Shape(NamedTuple):
    """The constants for which kernels/attention.cuh is compiled."""

    rows: int  # ROWS
    columns: int  # COLUMNS
    DP: int  # the padded head size
    tensor: int  # TENSOR
    itemsize: int  # bytes of an element of a tile
    tiles: int  # tiles of keys or values that shared memory holds at a time


def forward_bytes(shape):
    """Shared memory of a block, in bytes: see attention_forward.cu."""
    return _tiles(shape.rows + shape.columns * shape.tiles, shape)


def dq_bytes(shape):
    """Shared memory of a block of attention_dq (attention_backward.cu), in bytes."""
    return _tiles(2 * shape.rows + shape.columns * shape.tiles, shape)


def dk_dv_bytes(shape):
    """Shared memory of a block of attention_dk_dv (attention_backward.cu), in bytes: more than attention_dq's."""
    tiles = max(2, shape.tiles)
    numbers = 3 * tiles // 2 * shape.columns * max(4, shape.itemsize)
    return _tiles(2 * shape.rows + tiles * shape.columns, shape) + numbers


def _tiles(lines, shape):
    """Bytes of tiles with `lines` rows in all, and of the pattern, unless it stays in registers."""
    pattern = 0 if shape.tiles > 1 else shape.rows * (shape.columns + PATTERN_PADDING) * shape.itemsize
    return lines * (shape.DP * shape.itemsize + ROW_PADDING) + pattern


def _file_with_constants(file, shape, keep):
    """The name of a kernel file with the constants for which it is compiled."""
    drops = int(keep is not None)
    return f"{file} ROWS={shape.rows} COLUMNS={shape.columns} DP={shape.DP} TENSOR={shape.tensor} DROPS={drops}"


def _blocks(length, shape):
    """The number of blocks for `length` queries or keys."""
    return -(-length // shape.rows)


def heads(q, k, v, o, mask, bias, dq=None, dk=None, dv=None):
    """The struct Heads of heads.cuh, as bytes. dq, dk and dv are given in the backward only."""
    arrays = q, k, v, o, mask, bias, dq, dk, dv
    return _heads(q.shape, v.shape, *[x if x is None else (x.itemsize, x.strides) for x in arrays])


@functools.lru_cache(4096)
def _heads(shape, shape_of_v, *strides):
    (nh, T, D), (nkv, S, Dv) = shape[1:], shape_of_v[1:]
    steps = {}
    for name, of_x in zip(("q", "k", "v", "o", "mask", "bias", "dq", "dk", "dv"), strides):
        itemsize, in_bytes = of_x or (1, ())
        steps[name] = [step // itemsize for step in in_bytes[: HEADS.counts[name]]]
    return HEADS(nh=nh, group=nh // max(nkv, 1), T=T, S=S, D=D, Dv=Dv, **steps)
