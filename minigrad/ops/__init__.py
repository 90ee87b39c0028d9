"""Every differentiable op, declared once, a file per family. Users call the public functions.

Arguments have PyTorch's names; where a docstring or a formula says x, the argument is `input`. For all functions:

- Shapes that do not fit raise ValueError, Tensors on different devices RuntimeError, other types and dtypes than those
  named TypeError. A dim or an index out of range raises IndexError.
- Dtypes are promoted: floats over integers over bools, then the wider over the narrower. Unlike in PyTorch, Tensors
  without dims count like others.
- No argument is changed in place."""

from . import norm as _module, public  # the module must be imported before a function takes its name
from .public import *

__all__ = [name for name in vars(public) if not name.startswith("_")]
