"""Functions of other frameworks: PyTorch, JAX, HIPS autograd, and pairs of NumPy functions.

None of them is needed: an adapter is imported only where the framework itself has been. Each is a `Framework` (see
foreign.py), and `adapted` picks the one that the user's inputs belong to."""

import importlib
import sys
from functools import partial
from types import FunctionType, ModuleType

import numpy as np

from ...nn import Module
from ...tensor import Tensor
from ..subject import flat, owner_of


def framework_of(fn, inputs, vjp=None):
    """The Framework whose function fn is, or None if it is one of Tensors. Raises TypeError where that is unclear."""
    if flat((inputs, owner_of(fn)), of=(Tensor, Module)):
        _no_vjp(vjp, "Tensors")
        return None
    for name in ("torch", "jax"):
        if name in sys.modules and (torch_or_jax := _adapter(name)) is not None:
            kinds = tuple(kind for kind in torch_or_jax.kinds if kind is not np.ndarray)
            if flat((inputs, owner_of(fn)), of=kinds):
                _no_vjp(vjp, f"{torch_or_jax.array}s")
                return torch_or_jax
    if not any(x.dtype.kind in "fc" for x in flat(inputs, of=np.ndarray)):
        return None
    if vjp is not None:
        from .numpy import Pair

        return Pair(vjp)
    written_for = [name for name in ("jax", "autograd") if name in sys.modules and (_adapter(name) is not None)]
    if len(written_for) > 1:
        written_for = [name for name in written_for if _mentions(fn, name)]
    if len(written_for) != 1:
        raise TypeError(
            "gradcheck: NumPy arrays have no gradient. Pass vjp=, a function (dy, *inputs) -> gradients; or a function "
            "written with autograd.numpy or jax.numpy; or minigrad's Tensors (mg.tensor(x)), torch tensors "
            "(torch.from_numpy(x)) or JAX arrays (jnp.asarray(x)) to a function of those"
        )
    return _adapter(written_for[0])


def _adapter(name):
    """The adapter of a framework that has been imported; None if it is there in part only."""
    try:
        return importlib.import_module(f"{__name__}.{name}").framework
    except (ImportError, AttributeError):
        return None


def _no_vjp(vjp, kind):
    if vjp is not None:
        raise TypeError(
            f"gradcheck: vjp is for functions of NumPy arrays; those of {kind} have gradients of their own. "
            "expected_vjp is compared with those"
        )


def _mentions(fn, name):
    """Does fn use something of the framework, as far as its globals and its closure tell?"""
    while hasattr(fn, "__wrapped__") or isinstance(fn, partial):
        fn = fn.func if isinstance(fn, partial) else fn.__wrapped__
    values = [fn]
    if isinstance(fn, FunctionType):
        values += [fn.__globals__.get(key) for key in fn.__code__.co_names]
        values += [cell.cell_contents for cell in fn.__closure__ or ()]
    modules = [x.__name__ if isinstance(x, ModuleType) else getattr(x, "__module__", None) or "" for x in values]
    return any(module.split(".")[0] == name for module in modules)
