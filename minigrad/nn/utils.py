"""Helpers for loops of training and evaluation."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..autograd import no_grad
from ..dtypes import float64
from ..tensor import Tensor, from_backend, zeros

__all__ = ["evaluating", "clip_grad_norm_"]

if TYPE_CHECKING:
    from .module import Module


@contextmanager
def evaluating(model: "Module") -> Iterator[None]:
    """Within a with-block a Module is in eval mode; afterwards every module is in the mode it had before."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, error_if_nonfinite: bool = False) -> Tensor:
    """Scale all gradients in place so that their joint norm is at most max_norm. Returns the norm before: a Tensor,
    () of float64, on the device of the first.

    A norm that is NaN or infinite makes every gradient NaN or 0; with error_if_nonfinite it raises ArithmeticError.
    Without, nothing waits for the device."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    by_device: dict = {}
    for p in parameters:
        if p.grad is not None:
            if not p.grad.storage.backend.is_writeable(p.grad.array):
                p.grad = p.grad.clone()  # an expanded gradient's element must not be scaled once for each position
            by_device.setdefault(p.grad.storage.backend, []).append(p.grad)
    if not by_device:
        return zeros((), dtype=float64)
    with no_grad():
        norms = [from_backend(on.global_norm([g.array for g in grads]), on) for on, grads in by_device.items()]
        norm = norms[0]
        for other in norms[1:]:
            norm = (norm * norm + (other * other).to(norm.device)).sqrt()
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise ArithmeticError(f"the norm of the gradients is {norm.item()}")
        for on, grads in by_device.items():
            on.clip_([g.array for g in grads], norm.to(on.device).array, float(max_norm))
            for g in grads:
                g.storage.changed()
    return norm
