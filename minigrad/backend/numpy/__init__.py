"""The primitives in plain NumPy. They define what a backend is: each once, with its shapes and its meaning.

`launch/` has the same as launches of kernels; both have a file for each family, and a test compares their names.

Arrays are np.ndarray or cupy.ndarray. A primitive returns a new array. Exceptions are views, and names that end in an
underscore, which change their arguments. The functions that users call have checked all arguments. A sum of float16 or
float32 numbers loses no more than its last digit. float16 is for storage: arithmetic on it happens in float32. NaN and
Inf come without warnings. `wanted`, of a backward: which inputs need a gradient? The others get None.

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


class Numpy(Movement, Index, Elementwise, Matmul, Softmax, Norm, CrossEntropy, Attention, Random, Optim, Reduce):
    """Every primitive, on np.ndarray."""


NAMES = [
    name
    for family in Numpy.__mro__
    for name, value in vars(family).items()
    if callable(value) and not name.startswith("_") and not isinstance(value, type)
]
"""The names of the primitives."""
