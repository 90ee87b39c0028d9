"""Launches of matrix products on the CPU: see gemm.cpp."""

import functools
import math
from pathlib import Path
from typing import NamedTuple

from ...kernels import Struct, constant
from ...launch.launcher import Launcher
from ...launch.matmul import operands

SOURCE = Path(__file__).parent / "gemm.cpp"
PRODUCT = Struct(SOURCE, "Product")
FEW = constant(SOURCE, "FEW")  # products with at most so many rows or columns are computed as dot products
WIDTH = 128  # bytes of a row of a packed panel of b, on a CPU whose vectors have 64 bytes
BLOCK_WORTH = 1 << 17  # multiplications that are worth another block
READ_COST = 8  # reading a number takes as long as so many multiplications
MIN_TILE_ROWS = 64  # each tile packs the columns of b again, which pays for so many rows


class Gemm(Launcher):
    """The part of Native that launches matrix products."""

    threads: int

    def _matmul(self, a, b, bias):
        """a @ b + bias. bias: (m,) or None."""
        plan = block_plan(a.shape, a.strides, b.shape, b.strides, a.itemsize, bias is None, self.threads)
        y = self.empty(plan.shape, a.dtype)
        if plan.blocks:
            # a.mT has the address of a, and the address of a compact array is found much faster.
            a, b = a.mT if plan.transposes_a else a, b.mT if plan.transposes_b else b
            args = (y, b, a, bias, plan.numbers) if plan.is_swapped else (y, a, b, bias, plan.numbers)
            self._start("gemm", "gemm", y.dtype, (plan.blocks,), (1,), 0, args)
        return y


class BlockPlan(NamedTuple):
    """How a product is divided among blocks."""

    shape: tuple  # y's
    blocks: int
    is_swapped: bool  # True if yᵀ = bᵀ aᵀ is computed
    transposes_a: bool  # True if a.mT is compact, and a is not
    transposes_b: bool
    numbers: bytes  # the struct Product


@functools.lru_cache(4096)
def block_plan(a_shape, a_strides, b_shape, b_strides, itemsize, has_no_bias, threads):
    """Return the BlockPlan of a @ b. Strides are in bytes. has_no_bias: True if nothing is added.

    Few rows or columns that are contiguous along k are multiplied as dot products. The operands are swapped, to compute
    bᵀ @ aᵀ, if y has fewer columns than rows and either dot products are used or it has one column and no bias."""
    shape, n, k, m, a, b, dims = operands(a_shape, a_strides, b_shape, b_strides, itemsize)
    batches = math.prod(size for size, _, _ in dims)
    sizes, a_batch, b_batch = zip(*dims) if dims else ((), (), ())
    y, bias = (m, 1), (0, 1)
    dots = a[1] == b[1] == 1 and min(n, m) <= FEW
    is_swapped = m < n and (dots or (m == 1 and has_no_bias))
    if is_swapped:
        n, m, a, b, a_batch, b_batch, y, bias = m, n, b, a, b_batch, a_batch, y[::-1], bias[::-1]
    down, across, groups = divide_among_blocks(n, k, m, batches, WIDTH // itemsize, threads)
    numbers = PRODUCT(
        n=n, m=m, k=k, down=down, across=across, groups=groups, batches=batches, dots=dots, a=a, b=b, y=y, bias=bias,
        batch_dims=len(dims), batch=sizes, a_batch=a_batch, b_batch=b_batch,
    )  # fmt: skip
    return BlockPlan(
        shape=shape,
        blocks=down * across * groups if math.prod(shape) else 0,
        is_swapped=is_swapped,
        transposes_a=_is_transposed(a_shape, a_strides, itemsize),
        transposes_b=_is_transposed(b_shape, b_strides, itemsize),
        numbers=numbers,
    )


def _is_transposed(shape, strides, itemsize):
    """True if the transposed matrix is contiguous along its rows, and the matrix itself is not."""
    return strides[-1] != itemsize == strides[-2] and shape[-1] > 1


def divide_among_blocks(n, k, m, batches, width, threads):
    """Return (tiles down, tiles across, groups of batches): one block for each thread, if there is enough work.

    Rows are cut first, so that threads do not read the same parts of a. A tile packs all the columns of b that it
    needs, and so has MIN_TILE_ROWS rows or more."""
    pieces = min(threads, max(n * k * m, READ_COST * (n + m) * k) * batches // BLOCK_WORTH)
    if pieces < 2:
        return 1, 1, 1
    if batches >= pieces:
        return 1, 1, pieces
    pieces = -(-pieces // batches)
    down = max(rows for rows in range(1, pieces + 1) if pieces % rows == 0 and rows <= max(1, n // MIN_TILE_ROWS))
    return down, min(pieces // down, -(-m // width)), batches
