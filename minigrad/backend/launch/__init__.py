"""Primitives as launches of kernels: shapes, strides, grids and arguments, the same on a GPU, natively and emulated.

`Launched` has every primitive that the NumPy reference has, under the same name and with the same arguments.
"""

from .arrays import Arrays
from .attention import Attention
from .elementwise import Elementwise
from .matmul import MatrixProducts
from .random import Random
from .reduce import Reduce
from .rows import Rows
from .updates import Updates


class Launched(Arrays, Elementwise, Random, Reduce, Rows, Attention, MatrixProducts, Updates):
    """Every primitive, for a backend that can run kernels."""
