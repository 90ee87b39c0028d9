"""Tensor, and the functions that make one.

core.py is the class, with a method for every op. Five parts of it stand in files of their own: more.py has the methods
that are composites, gradients.py has to do with the graph, inplace.py changes values, drawn.py makes them random,
interop.py faces other libraries.
creation.py makes tensors from data, filled, in sequence or at random.
"""

from .core import Tensor
from .creation import (
    arange, as_tensor, bernoulli, empty, empty_like, eye, from_backend, from_dlpack, from_numpy, full, full_like,
    linspace, multinomial, normal, one_hot, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm,
    tensor, tril_indices, triu_indices, zeros, zeros_like,
)  # fmt: skip
from .gradients import check_same_kind, grad

__all__ = [
    "Tensor", "arange", "as_tensor", "bernoulli", "empty", "empty_like", "eye", "from_dlpack", "from_numpy", "full",
    "full_like", "linspace", "multinomial", "normal", "one_hot", "ones", "ones_like", "rand", "rand_like", "randint",
    "randn", "randn_like", "randperm", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like", "grad",
]  # fmt: skip
