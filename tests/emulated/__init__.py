"""Kernels on the CPU with real blocks of threads: slow, and made to prove that they are right where there is no GPU."""

from .emulated import Emulated, EmulationError
