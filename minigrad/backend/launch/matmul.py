"""Matrix products: a block computes a tile of the result, and long sums are split, so that the whole GPU has work.

On a CPU, runners/native/matmul.py replaces `_matmul`, since matmul.cu does not work with one thread per block.
"""

import enum
import functools
import math
from typing import NamedTuple

import numpy as np

from ..kernels import Struct, constant
from .launcher import Launcher, real
from .rules import KERNEL

PRODUCT = Struct("matmul.cuh", "Product")
MAX_BATCH_DIMS = PRODUCT.counts["batch"]  # dims that can be merged count as one
STEP = 16  # the length of a part of k is a multiple of this
STAGES = constant("matmul_tensor.cu", "STAGES")
RESERVED = 1024  # bytes of shared memory that the driver reserves for each block
MIN_PART = 128  # a part of k that has a block of its own is at least so long
# The cost model of choose_tiles(). Its unit is the time of one multiplication on one multiprocessor, without tensor
# cores. The costs are fitted to the times of GPT-2's products on an H200; for other GPUs they are a heuristic.
COST_OF_JOIN = 800_000  # launching the kernel that adds up the parts of k
COST_OF_NUMBER = 40  # reading or writing a number, if all multiprocessors do it together
STEPS_TO_START = 20  # filling a block's pipeline takes as long as so many multiplications for each element of the tile


class Tile(NamedTuple):
    """How fast tiles of one size are computed."""

    peak: float  # the part of the peak rate that blocks reach
    tensor_peak: float  # the same with tensor cores
    together: tuple  # the time of 1, 2, … blocks that share a multiprocessor, up to as many as it has room for


SIDES = {128: Tile(0.9, 0.9, (1.25, 2)), 64: Tile(0.78, 0.66, (1.9, 2.2, 2.9, 4))}
SPEED = {(2, 1): 6, (4, 1): 3, (4, 2): 5}  # {(bytes of an element, TENSOR): how many times faster tensor cores are}


class Matmul(Launcher):
    processors = 132  # multiprocessors of the GPU; these are an H100's
    shared_memory = 228 << 10  # bytes of shared memory of each

    @KERNEL
    def matmul(self, a, b):
        """(…, n, k) @ (…, k, m): (…, n, m), with batch dims broadcast. Any strides. Raises ValueError if the shapes do
        not fit."""
        return self._matmul(a, self.operand(b, a.dtype, compact=False), None)

    @KERNEL
    def linear(self, x, weight, bias):
        bias = self.operand(bias, x.dtype, weight.shape[:1], optional=True)
        weight = self.operand(weight, x.dtype, compact=False)
        if x.ndim == 1:
            return self._matmul(x[None], weight.T, bias)[0]
        return self._matmul(x, weight.T, bias)

    @KERNEL
    def linear_backward(self, dy, x, weight, wanted):
        weight = self.operand(weight, dy.dtype, compact=False, optional=not wanted[0])
        x = self.operand(x, dy.dtype, compact=False, optional=not wanted[1])
        rows = self._as_matrix(dy)
        dx = self._matmul(rows, weight, None).reshape(*dy.shape[:-1], weight.shape[1]) if wanted[0] else None
        dweight = self._matmul(rows.T, self._as_matrix(x), None) if wanted[1] else None
        return dx, dweight, self.sum(rows, (0,), False) if wanted[2] else None

    def _as_matrix(self, x):
        """x (…, n) as (N, n): a view where the layout allows one."""
        return self.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))

    def _matmul(self, a, b, bias):
        """a @ b + bias. bias: (m,) or None."""
        tensor = self.tensor_core_mode(a.dtype)
        aligned = tuple(self.pointer(x) % (elements_at_once(a.dtype, tensor) * a.itemsize) == 0 for x in (a, b))
        plan = tile_plan(
            a.shape, a.strides, b.shape, b.strides, aligned, a.dtype, self.processors, tensor, self.shared_memory
        )
        y = self.empty(plan.shape, a.dtype)
        if not y.size:
            return y
        is_split = plan.parts > 1
        partial = self.empty((plan.parts, *y.shape), real(a.dtype)) if is_split else None
        args = y, partial, a, b, None if is_split else bias, plan.numbers
        self.launch(plan.file, "matmul", a.dtype, plan.blocks, plan.threads, *args, shared=plan.shared)
        if is_split:
            args = y, partial, bias, plan.parts, y.size, y.shape[-1]
            self.launch_each(y.size, plan.file, "matmul_join", a.dtype, *args)
        return y


class TilePlan(NamedTuple):
    """How the blocks of a launch share a product."""

    shape: tuple  # the shape of y
    file: str  # the kernel file, and the constants for which it is compiled
    threads: int
    blocks: int
    parts: int  # the number of parts that k is split into
    numbers: bytes  # the struct Product
    shared: int  # bytes of dynamic shared memory


@functools.lru_cache(4096)
def tile_plan(a_shape, a_strides, b_shape, b_strides, aligned, dtype, processors, tensor=0, shared_memory=0):
    """The TilePlan of a @ b. Strides are in bytes.

    aligned: for a and b, True if elements_at_once() can be read from the address. processors: multiprocessors. tensor:
    the constant TENSOR of tensor.cuh, 0 without tensor cores. shared_memory: bytes that a multiprocessor has."""
    shape, rows, k, m, a, b, dims = operands(a_shape, a_strides, b_shape, b_strides, dtype.itemsize)
    batches = math.prod(size for size, _, _ in dims)
    count = elements_at_once(dtype, tensor)
    read_a = _way_to_read(a, rows, k, [step for _, step, _ in dims], count if aligned[0] else 0)
    read_b = _way_to_read(b, m, k, [step for _, _, step in dims], count if aligned[1] else 0)
    reads_vectors = {read_a, read_b} <= {Read.ACROSS, Read.ALONG}
    may_be_large = tensor or (count > 2 and reads_vectors)  # otherwise large tiles need too many registers
    speed = SPEED[dtype.itemsize, tensor] if tensor else 0
    side, parts = choose_tiles(rows, m, k, batches, may_be_large, processors, speed)
    part = -(-k // (parts * STEP)) * STEP
    parts = -(-k // part) if k else 1
    line = _line_bytes(read_a, read_b, dtype.itemsize, shared_memory)
    kernel = f"matmul_tensor TENSOR={tensor} LINE_BYTES={line}" if tensor else "matmul"
    sizes, a_batch, b_batch = zip(*dims) if dims else ((), (), ())
    return TilePlan(
        shape=shape,
        file=f"{kernel} SIDE={side} READ_A={read_a.value} READ_B={read_b.value}",
        threads=256 if side == 128 and not tensor else 128,
        blocks=_tiles(rows, m, side) * batches * parts,
        parts=parts,
        numbers=PRODUCT(
            n=rows, m=m, k=k, part=part, a=a, b=b, batch_dims=len(dims), batch=sizes, a_batch=a_batch, b_batch=b_batch
        ),
        shared=stages(side, line) if tensor else 0,
    )


def _line_bytes(read_a, read_b, itemsize, shared_memory):
    """LINE_BYTES of matmul_tensor.cu, the bytes along k of a step. 128 is faster where both operands are read along k,
    or b of float16 across it, and where shared memory has room for two blocks."""
    is_faster = read_a is Read.ALONG and (read_b is Read.ALONG or (read_b is Read.ACROSS and itemsize == 2))
    return 128 if is_faster and shared_memory >= 2 * (stages(128, 128) + RESERVED) else 64


def stages(side, line):
    """Bytes of shared memory that the stages of matmul_tensor.cu take."""
    return STAGES * 2 * side * line


class Operands(NamedTuple):
    """a @ b as matrix products (n, k) @ (k, m), one for each position of the batch dims."""

    shape: tuple  # y's
    n: int
    k: int
    m: int
    a: tuple  # strides in elements, across k and along k
    b: tuple
    dims: list  # (size, step of a, step of b) of each dim of the batch


def operands(a_shape, a_strides, b_shape, b_strides, itemsize):
    """Return the Operands of a @ b, with as few matrix products as the strides (in bytes) allow. Raises ValueError if
    the shapes do not fit."""
    (n, k), m = a_shape[-2:], b_shape[-1]
    if k != b_shape[-2]:
        raise ValueError(f"matmul: inner sizes of {a_shape} and {b_shape} differ, {k} and {b_shape[-2]}")
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    a_steps, b_steps = (_steps(*x, itemsize, batch) for x in ((a_shape, a_strides), (b_shape, b_strides)))
    dims = _merged(batch, a_steps, b_steps)
    a, b = a_steps[-2:], (b_steps[-1], b_steps[-2])
    rows = n
    # Where all matrices of a batch dim of `a` meet the same b, they are more rows of one matrix, if the strides allow.
    while dims:
        size, a_step, b_step = dims[-1]
        if b_step != 0 or (rows > 1 and a_step != rows * a[0]):
            break
        a = (a_step if rows == 1 else a[0]), a[1]
        rows *= size
        dims.pop()
    if len(dims) > MAX_BATCH_DIMS:
        raise ValueError(f"matmul: more than {MAX_BATCH_DIMS} batch dims cannot be merged in {a_shape} @ {b_shape}")
    return Operands((*batch, n, m), rows, k, m, a, b, dims)


def _steps(shape, strides, itemsize, batch):
    """The strides, in elements, of an operand with its batch dims broadcast to `batch`; 0 for a dim of size 1."""
    steps = tuple(0 if size == 1 else stride // itemsize for size, stride in zip(shape, strides))
    return (0,) * (len(batch) + 2 - len(shape)) + steps


def _merged(shape, a, b):
    """Return [(size, step of a, step of b), …] for the batch dims. Dims of size 1 are left out, and neighbours become
    one where both strides allow it."""
    dims: list = []
    for size, *steps in zip(shape, a, b):
        if dims and size != 1 and all(outer == step * size for outer, step in zip(dims[-1][1:], steps)):
            dims[-1] = (dims[-1][0] * size, *steps)
        elif size != 1:
            dims.append((size, *steps))
    return dims


@functools.cache
def elements_at_once(dtype, tensor=0):
    """The constant V of the kernels: the number of elements that a thread moves at once."""
    if tensor:
        return 16 // dtype.itemsize
    return 2 if real(dtype).itemsize == 8 else 4


class Read(enum.Enum):
    """The constants READ_A and READ_B of matmul.cu: how the threads of a block read an operand."""

    ACROSS = 0  # neighbouring threads read across k, elements_at_once() each
    ALONG = 1  # along k, elements_at_once() each
    ACROSS_SINGLY = 2  # across k, an element each
    ALONG_SINGLY = 3  # along k, an element each; the strides may be any


def _way_to_read(steps, side, k, batch_steps, count):
    """The fastest Read that an operand allows. steps: its strides across and along k, in elements. side: its size
    across k. count: the number of elements that can be read at once from its address, or 0."""
    across, along = steps

    def has_vectors(other_step, size):  # every vector begins at a multiple of count, and is complete
        return count and all(number % count == 0 for number in (other_step, size, *batch_steps))

    if along == 1:
        return Read.ALONG if has_vectors(across, k) else Read.ALONG_SINGLY
    if across == 1:
        return Read.ACROSS if has_vectors(along, side) else Read.ACROSS_SINGLY
    return Read.ALONG_SINGLY


def _tiles(n, m, side):
    """The number of tiles of side × side that cover n × m."""
    return -(-n // side) * -(-m // side)


def choose_tiles(n, m, k, batches, may_be_large, processors, tensor=0):
    """Return (side of the tiles, parts of k) with the least estimated time.

    Large tiles use each number that they read more often, but there are fewer of them. The blocks on one multiprocessor
    share it, so the busiest multiprocessor decides; a single block cannot keep one busy. may_be_large: True if tiles of
    128 × 128 may be used. tensor: how many times faster tensor cores multiply, or 0 without them."""
    best: tuple = ()
    for side, tile in SIDES.items():
        if side == 128 and not may_be_large:
            continue
        tiles = max(1, _tiles(n, m, side) * batches)
        for parts in range(1, max(1, min(8 * processors // tiles, k // MIN_PART)) + 1):
            full, rest = divmod(-(-tiles * parts // processors), len(tile.together))
            turns = full * tile.together[-1] + (tile.together[rest - 1] if rest else 0)
            speed, peak = (tensor, tile.tensor_peak) if tensor else (1, tile.peak)
            time = turns * (k / parts + STEPS_TO_START * speed) * side * side / peak
            if parts > 1:
                time += speed * (COST_OF_JOIN + COST_OF_NUMBER * 2 * parts * n * m * batches / processors)
            best = min(best or (time, side, parts), (time, side, parts))
    return best[1:]
