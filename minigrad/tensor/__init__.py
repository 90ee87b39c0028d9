"""Tensor, and the functions that make one.

- core.py: the class. Its place in the graph, ops as methods and operators, other dtypes and devices.
- attributes.py (shape, dtype, strides), inplace.py (changes of values) and interop.py (NumPy, Python, copies): the
  classes that it is built on.
- creation.py makes tensors from data, filled or in sequence, and sampling.py at random. gradients.py has grad().
"""

from .core import Tensor, check_same_kind
from .creation import (
    BoolTensor, ByteTensor, DoubleTensor, FloatTensor, HalfTensor, IntTensor, LongTensor, arange, as_tensor, empty,
    empty_like, eye, from_backend, from_numpy, full, full_like, linspace, one_hot, ones, ones_like, tensor, zeros,
    zeros_like,
)  # fmt: skip
from .sampling import multinomial, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from .gradients import grad

__all__ = [
    "BoolTensor", "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "Tensor",
    "arange", "as_tensor", "empty", "empty_like", "eye", "from_numpy", "full", "full_like", "grad", "linspace",
    "multinomial", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "tensor", "zeros", "zeros_like",
]  # fmt: skip
