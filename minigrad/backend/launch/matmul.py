"""Matrix products: tiles of the result to blocks, and long sums cut into parts, so that the whole GPU has work.

Natively, runners/native/matmul.py replaces `_matmul`, since matmul.cu does not work with one thread per block.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from ..kernels import Struct, constant
from .launcher import Launcher, real
from .rules import KERNEL

PRODUCT = Struct("matmul.cuh", "Product")
MAX_BATCH_DIMS = PRODUCT.counts["batch"]  # dims that can be merged count as one
STEP = 16  # parts of k are multiples of it
STAGES = constant("matmul_tensor.cu", "STAGES")
RESERVED = 1024  # bytes of shared memory that each block takes besides
SHORTEST = 128  # the smallest k worth a block of its own
# The cost model of choose(). Its unit is the time of one multiplication on one multiprocessor, without tensor cores.
# The costs are fitted to the times of GPT-2's products on an H200.
JOIN = 800_000  # launching the kernel that adds up the parts of k
TRAFFIC = 40  # reading or writing a number, shared by all multiprocessors
START = 20  # filling a block's pipeline, in steps along k


class Tile(NamedTuple):
    """What is known of tiles of one size."""

    peak: float  # share of the peak rate that one reaches
    tensor_peak: float  # the same with tensor cores
    together: tuple  # time that 1, 2, … blocks take on one multiprocessor, in units of a block's when it is full


SIDES = {128: Tile(0.9, 0.9, (1.25, 2)), 64: Tile(0.78, 0.66, (1.9, 2.2, 2.9, 4))}
SPEED = {(2, 1): 6, (4, 1): 3, (4, 2): 5}  # how much faster tensor cores multiply, by an element's bytes and TENSOR


class Matmul(Launcher):
    processors = 132  # multiprocessors of the GPU; elsewhere those of an H100
    shared_memory = 228 << 10  # bytes that each has

    @KERNEL
    def matmul(self, a, b):
        """(…, n, k) @ (…, k, m) -> (…, n, m), batch dims broadcast, any strides. ValueError if shapes do not fit."""
        return self._matmul(a, self.operand(b, a.dtype, compact=False), None)

    @KERNEL
    def linear(self, x, weight, bias):
        bias = self.operand(bias, x.dtype, weight.shape[:1])
        weight = self.operand(weight, x.dtype, compact=False)
        if x.ndim == 1:
            return self._matmul(x[None], weight.T, bias)[0]
        return self._matmul(x, weight.T, bias)

    @KERNEL
    def linear_backward(self, dy, x, weight, wanted):
        x, weight = (self.operand(a, dy.dtype, compact=False) for a in (x, weight))
        rows = self._as_matrix(dy)
        dx = self._matmul(rows, weight, None).reshape(*dy.shape[:-1], weight.shape[1]) if wanted[0] else None
        dweight = self._matmul(rows.T, self._as_matrix(x), None) if wanted[1] else None
        return dx, dweight, self.sum(rows, (0,), False) if wanted[2] else None

    def _as_matrix(self, x):
        """(…, n) as (N, n); a view where the layout allows."""
        return self.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))

    def _matmul(self, a, b, bias):
        """a @ b + bias, (m,) or None."""
        tensor = self.tensor(a.dtype)
        at = tuple(self.pointer(x) % (whole(a.dtype, tensor) * a.itemsize) == 0 for x in (a, b))
        todo = tiling(a.shape, a.strides, b.shape, b.strides, at, a.dtype, self.processors, tensor, self.shared_memory)
        y = self.empty(todo.shape, a.dtype)
        if not y.size:
            return y
        joined = todo.parts > 1
        partial = self.empty((todo.parts, *y.shape), real(a.dtype)) if joined else None
        args = y, partial, a, b, None if joined else bias, todo.numbers
        self.launch(todo.file, "matmul", a.dtype, todo.blocks, todo.threads, *args, shared=todo.shared)
        if joined:
            args = y, partial, bias, todo.parts, y.size, y.shape[-1]
            self.launch_each(y.size, todo.file, "matmul_join", a.dtype, *args)
        return y


class Tiling(NamedTuple):
    shape: tuple  # y's
    file: str  # the kernel file, and the constants that it is compiled for
    threads: int
    blocks: int
    parts: int  # k is cut into so many
    numbers: bytes  # the struct Product
    shared: int  # bytes of dynamic shared memory


@functools.lru_cache(4096)
def tiling(a_shape, a_strides, b_shape, b_strides, aligned, dtype, processors, tensor=0, shared_memory=0):
    """How a @ b is computed, from shapes, strides in bytes, whether the addresses of a and b are aligned, TENSOR of
    tensor.cuh, and what a multiprocessor has of shared memory."""
    shape, rows, k, m, a, b, dims = operands(a_shape, a_strides, b_shape, b_strides, dtype.itemsize)
    batches = math.prod(size for size, _, _ in dims)
    count = whole(dtype, tensor)
    read_a = _reading(a, rows, k, [step for _, step, _ in dims], count if aligned[0] else 0)
    read_b = _reading(b, m, k, [step for _, _, step in dims], count if aligned[1] else 0)
    large = tensor or (count > 2 and max(read_a, read_b) < 2)  # larger tiles need more registers than there are
    side, parts = choose(rows, m, k, batches, large, processors, SPEED[dtype.itemsize, tensor] if tensor else 0)
    part = -(-k // (parts * STEP)) * STEP
    parts = -(-k // part) if k else 1
    long = read_a == 1 and (read_b == 1 or (read_b == 0 and dtype.itemsize == 2))  # where that takes less time
    line = 128 if long and shared_memory >= 2 * (stages(128, 128) + RESERVED) else 64
    sizes, a_batch, b_batch = zip(*dims) if dims else ((), (), ())
    return Tiling(
        shape=shape,
        file=f"matmul{f'_tensor TENSOR={tensor} LINE_BYTES={line}' * bool(tensor)} SIDE={side} "
        f"READ_A={read_a} READ_B={read_b}",
        threads=256 if side == 128 and not tensor else 128,
        blocks=_tiles(rows, m, side) * batches * parts,
        parts=parts,
        numbers=PRODUCT(
            n=rows, m=m, k=k, part=part, a=a, b=b, batch_dims=len(dims), batch=sizes, a_batch=a_batch, b_batch=b_batch
        ),
        shared=stages(side, line) if tensor else 0,
    )


def stages(side, line):
    """Bytes of the stages of matmul_tensor.cu."""
    return STAGES * 2 * side * line


class Operands(NamedTuple):
    """a @ b as products of matrices (n, k) @ (k, m), one for each place of the batch dims."""

    shape: tuple  # y's
    n: int
    k: int
    m: int
    a: tuple  # strides in elements, across k and along k
    b: tuple
    dims: list  # (size, step of a, step of b) of each dim of the batch


def operands(a_shape, a_strides, b_shape, b_strides, itemsize):
    """What a @ b has to multiply, as few products as the strides, in bytes, allow. ValueError if shapes do not fit."""
    (n, k), m = a_shape[-2:], b_shape[-1]
    if k != b_shape[-2]:
        raise ValueError(f"matmul: inner sizes of {a_shape} and {b_shape} differ, {k} and {b_shape[-2]}")
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    a_steps, b_steps = (_steps(*x, itemsize, batch) for x in ((a_shape, a_strides), (b_shape, b_strides)))
    dims = _merged(batch, a_steps, b_steps)
    a, b = a_steps[-2:], (b_steps[-1], b_steps[-2])
    rows = n
    while dims and dims[-1][2] == 0 and (rows == 1 or dims[-1][1] == rows * a[0]):  # a's batches are rows of one matrix
        size, step, _ = dims.pop()
        a = (step if rows == 1 else a[0]), a[1]
        rows *= size
    if len(dims) > MAX_BATCH_DIMS:
        raise ValueError(f"matmul: more than {MAX_BATCH_DIMS} batch dims cannot be merged in {a_shape} @ {b_shape}")
    return Operands((*batch, n, m), rows, k, m, a, b, dims)


def _steps(shape, strides, itemsize, batch):
    """Strides in elements of an operand whose batch dims are broadcast; 0 for a dim of size 1."""
    steps = tuple(0 if size == 1 else stride // itemsize for size, stride in zip(shape, strides))
    return (0,) * (len(batch) + 2 - len(shape)) + steps


def _merged(shape, a, b):
    """[(size, step of a, step of b)] of batch dims, without those of size 1; neighbours merged where both allow it."""
    dims: list = []
    for size, *steps in zip(shape, a, b):
        if dims and size != 1 and all(outer == step * size for outer, step in zip(dims[-1][1:], steps)):
            dims[-1] = (dims[-1][0] * size, *steps)
        elif size != 1:
            dims.append((size, *steps))
    return dims


@functools.cache
def whole(dtype, tensor=0):
    """The number of elements that the kernel moves at once: its V."""
    if tensor:
        return 16 // dtype.itemsize
    return 2 if real(dtype).itemsize == 8 else 4


def _reading(steps, side, k, batch_steps, count):
    """How the kernel reads an operand: its READ. count elements can be read at once from its address, if not 0."""
    across, along = steps
    direction = 1 if along == 1 else 0 if across == 1 else 3
    if direction < 2 and count:
        others = (across, k) if direction else (along, side)
        if all(number % count == 0 for number in (*others, *batch_steps)):
            return direction
    return 2 if direction == 0 else 3


def _tiles(n, m, side):
    return -(-n // side) * -(-m // side)


def choose(n, m, k, batches, large, processors, tensor=0):
    """(side of the tiles, parts of k) for what takes least time.

    large: may tiles be 128 × 128? They reuse more of what is read, but there are fewer of them. A multiprocessor's
    blocks share it, so those of the busiest one count; one alone keeps it less busy. tensor: how much faster tensor
    cores multiply, or 0 without them."""
    best: tuple = ()
    for side, tile in SIDES.items():
        if side == 128 and not large:
            continue
        tiles = max(1, _tiles(n, m, side) * batches)
        for parts in range(1, max(1, min(8 * processors // tiles, k // SHORTEST)) + 1):
            full, rest = divmod(-(-tiles * parts // processors), len(tile.together))
            turns = full * tile.together[-1] + (tile.together[rest - 1] if rest else 0)
            speed = tensor or 1
            time = turns * (k / parts + START * speed) * side * side / (tile.tensor_peak if tensor else tile.peak)
            if parts > 1:
                time += speed * (JOIN + TRAFFIC * 2 * parts * n * m * batches / processors)
            best = min(best or (time, side, parts), (time, side, parts))
    return best[1:]
