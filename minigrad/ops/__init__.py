"""Every differentiable op, declared once, a file per family. The public functions are the ones to call.

Arguments have PyTorch's names; what a formula calls x is the argument input. What holds for all of them: shapes that do
not fit raise ValueError, Tensors on different devices RuntimeError, other dtypes and types than those named TypeError,
and a dim or an index out of range IndexError; a dim that is no int is a TypeError. Dtypes are promoted as PyTorch's,
but Tensors of no dims count like others: floats over ints over bools, the wider over the narrower. Nothing is changed
in place."""

# isort: off
from . import norm  # the module, before the function of its name
from .elementwise import *
from .index import *
from .matmul import *
from .movement import *
from .reduce import *
from .select import *
from .softmax import *
from .composites.functions import *
from .composites.rounding import *
from .composites.compare import *
from .composites.index import *
from .composites.matmul import *
from .composites.movement import *
from .composites.product import *
from .composites.reduce import *

__all__ = [name for name, value in globals().items() if callable(value)]  # minigrad's; below is what nn.functional has

from .activation import *
from .attention import *
from .dropout import *
from .loss import *
from .norm import *
from .composites.activation import *
from .composites.movement import pad, select
from .elementwise import Cast, Transfer
from .index import embedding, getitem, parsed_index
from .matmul import linear
from .movement import alias, contiguous, expand, repeat, view
from .reduce import ValuesIndices
