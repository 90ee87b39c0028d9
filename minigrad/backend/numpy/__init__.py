"""The primitives in plain NumPy. They define what is right.

Where a formula is written with `out=`, that is speed: each temporary would be another trip through memory.
"""

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


class Numpy(Movement, Index, Elementwise, Reduce, Matmul, Softmax, Norm, CrossEntropy, Attention, Random, Optim):
    """Every primitive, on np.ndarray."""
