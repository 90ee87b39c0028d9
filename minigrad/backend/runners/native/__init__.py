"""Kernels on the CPU, fast: one thread per block, the blocks spread over the cores."""

from .native import FLAGS, TRAINING, Native, NativeKernels, cores
