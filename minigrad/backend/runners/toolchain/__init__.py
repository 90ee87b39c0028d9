"""Kernels compiled for the CPU by the system's C++ compiler.

A source is compiled once per machine. The result is kept in the user's cache folder, and checked before it is used.
"""

from ....base.errors import CompilerError
from .compiler import compiled, find_compiler, load, opened
from .module import Module, address, modules
