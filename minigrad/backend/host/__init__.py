"""Kernels compiled for the CPU by the system's C++ compiler: natively, to be fast, or emulated, to be proved.

A source is compiled once per machine; the result is kept in the user's cache folder.
"""

from .compiler import CompilerError, compiled, find_compiler
from .module import Module, address
from . import pool
