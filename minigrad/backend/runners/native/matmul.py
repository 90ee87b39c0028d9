"""Matrix products on the CPU: see gemm.cpp."""

import functools
import math
from pathlib import Path
from typing import NamedTuple

from ...kernels import Struct, constant
from ...launch.launcher import Launcher
from ...launch.matmul import operands

SOURCE = Path(__file__).parent / "gemm.cpp"
PRODUCT = Struct(SOURCE, "Product")
FEW = constant(SOURCE, "FEW")  # rows or columns that are computed as dot products
WIDTH = 128  # bytes of a row of a panel; fewer where vectors are shorter than 64 bytes
WORTH = 1 << 17  # multiplications worth a block of its own
READ = 8  # multiplications that take as long as reading a number
TALL = 64  # rows of a tile, at least


class Gemm(Launcher):
    """Products by the native kernel, for a Launcher whose kernels have one thread per block."""

    threads: int

    def _matmul(self, a, b, bias):
        """a @ b + bias, (m,) or None."""
        todo = blocking(a.shape, a.strides, b.shape, b.strides, a.itemsize, bias is None, self.threads)
        y = self.empty(todo.shape, a.dtype)
        if todo.blocks:
            # The address of a compact array is found much faster, and a.mT has the same one.
            a, b = a.mT if todo.turn_a else a, b.mT if todo.turn_b else b
            args = (y, b, a, bias, todo.numbers) if todo.swapped else (y, a, b, bias, todo.numbers)
            self._start_or_capture("gemm", "gemm", y.dtype, (todo.blocks,), (1,), 0, args)
        return y


class Blocking(NamedTuple):
    shape: tuple  # y's
    blocks: int
    swapped: bool  # is it yᵀ = bᵀ aᵀ?
    turn_a: bool  # is a.mT compact, and a is not?
    turn_b: bool
    numbers: bytes  # the struct Product


@functools.lru_cache(4096)
def blocking(a_shape, a_strides, b_shape, b_strides, itemsize, plain, threads):
    """How a @ b is computed, from shapes and strides in bytes, and whether it is plain, without a bias."""
    shape, n, k, m, a, b, dims = operands(a_shape, a_strides, b_shape, b_strides, itemsize)
    batches = math.prod(size for size, _, _ in dims)
    sizes, a_batch, b_batch = zip(*dims) if dims else ((), (), ())
    y, bias = (m, 1), (0, 1)
    dots = a[1] == b[1] == 1 and min(n, m) <= FEW
    swapped = m < n and (dots or (m == 1 and plain))
    if swapped:
        n, m, a, b, a_batch, b_batch, y, bias = m, n, b, a, b_batch, a_batch, y[::-1], bias[::-1]
    down, across, groups = cut(n, k, m, batches, WIDTH // itemsize, threads)
    numbers = PRODUCT(
        n=n, m=m, k=k, down=down, across=across, groups=groups, batches=batches, dots=dots, a=a, b=b, y=y, bias=bias,
        batch_dims=len(dims), batch=sizes, a_batch=a_batch, b_batch=b_batch,
    )  # fmt: skip
    return Blocking(
        shape=shape,
        blocks=down * across * groups if math.prod(shape) else 0,
        swapped=swapped,
        turn_a=_turned(a_shape, a_strides, itemsize),
        turn_b=_turned(b_shape, b_strides, itemsize),
        numbers=numbers,
    )


def _turned(shape, strides, itemsize):
    return strides[-1] != itemsize == strides[-2] and shape[-1] > 1


def cut(n, k, m, batches, width, threads):
    """(tiles down, tiles across, groups of batches): a block of the same size for each thread, if the work is worth it.

    Rows are cut first: then threads do not read the same parts of a. A tile packs all of b that it needs, and so is
    at least TALL high."""
    pieces = min(threads, max(n * k * m, READ * (n + m) * k) * batches // WORTH)
    if pieces < 2:
        return 1, 1, 1
    if batches >= pieces:
        return 1, 1, pieces
    pieces = -(-pieces // batches)
    down = max(rows for rows in range(1, pieces + 1) if pieces % rows == 0 and rows <= max(1, n // TALL))
    return down, min(pieces // down, -(-m // width)), batches
