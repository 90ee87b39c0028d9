"""The primitives in plain NumPy. They define what a backend is: each primitive once, with its shapes and its meaning.

`launch/` has the same primitives as kernel launches; a family has a file of the same name in both. A test compares
their names.

- Arrays are np.ndarray, or cupy.ndarray on a GPU. The functions that users call have checked all arguments.
- A primitive returns a new array. Views, and names that end in an underscore, are the exceptions: the latter change
  their arguments.
- A sum of float16 or float32 numbers is right to its last digit. float16 is for storage: arithmetic on it happens in
  float32. NaN and Inf come without warnings.
- `wanted`, an argument of backwards, says which inputs need a gradient. The others get None.

The formulas are written to be read, except for three shortcuts: erf_float32, the chunks of random.py, and the order in
reduce.py. They stay because a training step of this backend would take over 10 % longer without them, or because
another backend relies on them.
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
    """Every primitive, on np.ndarray. It is also the type of a backend: mypy checks against it which primitives the ops
    call, and with how many arguments."""


NAMES = [
    name
    for family in Numpy.__mro__
    for name, value in vars(family).items()
    if callable(value) and not name.startswith("_") and not isinstance(value, type)
]
"""The names of the primitives."""
