"""Tensor, and the functions that make one.

- core.py: the class. Its place in the graph, ops as methods and operators, other dtypes and devices.
- attributes.py (shape, dtype, strides), inplace.py (changes of values) and interop.py (NumPy, Python, copies): the
  classes that it is built on.
- creation.py makes tensors from data, filled or in sequence, and sampling.py at random. gradients.py has grad().
"""

from .core import Tensor, check_same_kind
from .creation import (
    arange, as_tensor, empty, eye, from_backend, from_numpy, full, full_like, linspace, one_hot, ones,
    ones_like, tensor, zeros, zeros_like,
)  # fmt: skip
from .sampling import multinomial, rand, randint, randn, randn_like, randperm
from .gradients import grad

__all__ = [
    "Tensor", "arange", "as_tensor", "empty", "eye", "from_numpy", "full", "full_like", "linspace",
    "multinomial", "ones", "ones_like", "rand", "randint", "randn", "randn_like", "randperm", "tensor", "zeros",
    "zeros_like", "grad",
]  # fmt: skip
