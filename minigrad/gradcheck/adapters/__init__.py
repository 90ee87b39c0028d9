"""Functions of PyTorch, of an engine of one's own, and pairs of NumPy functions.

PyTorch's adapter is imported only if PyTorch has been. Each is a `Framework` (see foreign.py)."""

import sys

import numpy as np

from ...nn import Module
from ...tensor import Tensor
from ..subject import flat, owner_of


def framework_of(fn, inputs, vjp=None):
    """The Framework whose function fn is, or None if it is one of Tensors. Raises TypeError where that is unclear."""
    if flat((inputs, owner_of(fn)), of=(Tensor, Module)):
        _no_vjp(vjp, "Tensors")
        return None
    if hasattr(sys.modules.get("torch"), "autograd"):  # not, if it is there in part only
        from .torch import framework

        if flat((inputs, owner_of(fn)), of=framework.kinds):
            _no_vjp(vjp, "torch.Tensors")
            return framework
    from ...base.engines import Own
    from .engine import Engine

    if found := flat((inputs, owner_of(fn)), of=Own):
        _no_vjp(vjp, "an engine's own tensors")
        return Engine(found[0])
    if not any(x.dtype.kind in "fc" for x in flat(inputs, of=np.ndarray)):
        return None
    if vjp is None:
        raise TypeError(
            "gradcheck: NumPy arrays have no gradient. Pass vjp=, a function (dy, *inputs) -> gradients; or minigrad's "
            "Tensors (mg.tensor(x)) or torch tensors (torch.from_numpy(x)) to a function of those"
        )
    from .numpy import Pair

    return Pair(vjp)


def _no_vjp(vjp, kind):
    if vjp is not None:
        raise TypeError(
            f"gradcheck: vjp is for functions of NumPy arrays; those of {kind} have gradients of their own. "
            "expected_vjp is compared with those"
        )
