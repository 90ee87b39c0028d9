"""The CPU reference: every primitive in plain NumPy. It defines what is right.

Arrays are np.ndarray. A primitive takes arrays (Python numbers where NumPy does) and returns a new array, except the
movement primitives, which return views where NumPy can, and those named with a trailing underscore, which change their
first argument. Shapes and arguments were checked by the public functions; here only the arithmetic remains.

Where a formula is written with `out=`, that is speed: each temporary would be another trip through memory.
"""

from .arrays import *
from .attention import attention, attention_backward, attention_fits
from .elementwise import *
from .random import dropout, random_normal, random_uniform, random_words
from .reduce import *
from .rows import *
from .updates import *
