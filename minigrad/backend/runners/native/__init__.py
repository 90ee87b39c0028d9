"""The backend of the CPU: kernels with one thread per block, and the blocks spread over the cores."""

from .native import FLAGS, TRAINING, Native, NativeKernels, cores
