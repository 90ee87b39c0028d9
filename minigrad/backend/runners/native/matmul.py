"""Matrix products on the CPU: see gemm.cpp."""

import functools
import math
from pathlib import Path

from ...kernels import C_TYPES, Struct, text
from ...launch.launcher import Launcher
from ...launch.matmul import operands
from ...launch.source import source as source_of_kernel

SOURCE = Path(__file__).parent / "gemm.cpp"
PRODUCT = Struct(SOURCE, "Product")
MAX_BATCH_DIMS = PRODUCT.counts["batch"]
FEW = 8  # gemm.cpp's
WORTH = 1 << 19  # multiplications worth handing to another core
WORTH_READING = 1 << 16  # numbers worth reading on another core


class Gemm(Launcher):
    """Products by the native kernel, for a Launcher whose kernels have one thread per block."""

    threads: int

    def _matmul(self, a, b, bias):
        """a @ b + bias, (m,) or None."""
        shape, swapped, blocks, numbers = plan(
            a.shape, a.strides, b.shape, b.strides, a.itemsize, bias is None, self.threads
        )
        y = self.empty(shape, a.dtype)
        bias = None if bias is None else self.compact(bias)
        if swapped:
            a, b = b, a
        self.launch("gemm", "gemm", a.dtype, blocks, 1, y, a, b, bias, numbers)
        return y


def source(file, dtype):
    """What to compile natively: gemm.cpp, or a file of kernels/."""
    if file != "gemm":
        return source_of_kernel(file, dtype)
    return f'typedef {C_TYPES[dtype]} T;\ntypedef {C_TYPES[dtype]} R;\n#line 1 "gemm.cpp"\n{text(SOURCE)}\n'


@functools.lru_cache(4096)
def plan(a_shape, a_strides, b_shape, b_strides, itemsize, plain, threads):
    """How a @ b is computed, from shapes and strides in bytes -> (shape of y, blocks, the struct Product).

    plain: is there no bias?"""
    shape, n, k, m, a, b, dims = operands(a_shape, a_strides, b_shape, b_strides, itemsize)
    if len(dims) > MAX_BATCH_DIMS:
        raise ValueError(
            f"matmul: at most {MAX_BATCH_DIMS} batch dims that cannot be merged, got {a_shape} @ {b_shape}"
        )
    batches = math.prod(size for size, _, _ in dims)
    sizes, a_batch, b_batch = (
        ([*column, *[0] * (MAX_BATCH_DIMS - len(dims))] for column in zip(*dims, strict=True))
        if dims
        else [[0] * MAX_BATCH_DIMS] * 3
    )
    y, bias = (m, 1), (0, 1)
    dots = a[1] == b[1] == 1 and min(n, m) <= FEW
    swapped = m < n and (dots or (m == 1 and plain))  # yᵀ = bᵀ aᵀ
    if swapped:
        n, m, a, b, y, bias, a_batch, b_batch = m, n, b, a, y[::-1], bias[::-1], b_batch, a_batch
    down, across, groups = cut(n, k, m, batches, dots, threads)
    numbers = PRODUCT(
        n=n,
        m=m,
        k=k,
        down=down,
        across=across,
        groups=groups,
        batches=batches,
        dots=dots,
        a=a,
        b=b,
        y=y,
        bias=bias,
        batch_dims=len(dims),
        batch=sizes,
        a_batch=a_batch,
        b_batch=b_batch,
    )
    return shape, swapped, down * across * groups if math.prod(shape) else 0, numbers


def cut(n, k, m, batches, dots, threads):
    """(tiles down, tiles across, groups of batches)"""
    work = n * k * m * batches
    blocks = min(4 * threads, work // WORTH)
    if threads == 1 or blocks < 2:
        return 1, 1, 1
    if batches >= blocks:
        return 1, 1, blocks
    panels = -(-m // 32)
    across = max(1, min(blocks, panels))
    down = max(1, min(blocks // across, n // 48))
    return down, across, 1
