"""Kernels compiled for the CPU by the system's C++ compiler: natively, to be fast, or emulated, to be proved.

A source is compiled once per machine. The result is kept in the user's cache folder, and checked before it is used.
"""

from .command import CompilerError, find_compiler
from .compiler import compiled, load, opened
from .module import Module, address, modules
