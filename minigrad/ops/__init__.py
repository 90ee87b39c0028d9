"""Every differentiable op, declared once, a file per family. The public functions are the ones to call.

Arguments have PyTorch's names; what a formula calls x is the argument input. What holds for all of them: shapes that do
not fit raise ValueError, Tensors on different devices RuntimeError, other dtypes and types than those named TypeError,
and a dim or an index out of range IndexError; a dim that is not an int is a TypeError. Dtypes are promoted as
PyTorch's, but Tensors of no dims count like others: floats over ints over bools, the wider over the narrower. Nothing
is changed in place."""

from . import norm, public  # the module norm, before the function of its name
from .public import *

__all__ = [name for name in vars(public) if not name.startswith("_")]
