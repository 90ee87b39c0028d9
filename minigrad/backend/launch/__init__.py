"""Primitives as launches of kernels: shapes, strides, grids and arguments, the same on a GPU and on a CPU."""

from .attention import Attention
from .cross_entropy import CrossEntropy
from .elementwise import Elementwise
from .index import Index
from .matmul import Matmul
from .movement import Movement
from .norm import Norm
from .optim import Optim
from .random import Random
from .reduce import Reduce
from .softmax import Softmax


class KernelBackend(
    Index, Movement, Elementwise, Reduce, Matmul, Attention, Softmax, Norm, CrossEntropy, Random, Optim
):
    """Every primitive, without the memory and the `_start` that a subclass of runners/ adds."""
