"""Helpers for loops of training and evaluation."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..autograd import no_grad, switched
from ..autograd.arguments import check_arguments
from ..dtypes import float64
from ..tensor import Tensor, from_backend, zeros

__all__ = ["evaluating", "clip_grad_norm_"]

if TYPE_CHECKING:
    from .module import Module


class evaluating(switched):
    """Within a with-block, a Module and all modules below it are in eval mode. Other threads are not affected."""

    def __init__(self, model: "Module") -> None:
        super().__init__()
        self.model = model

    def settings(self, modes: dict[str, Any]) -> dict[str, Any]:
        return {"evaluating": modes["evaluating"].union(self.model.modules())}


@check_arguments
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, error_if_nonfinite: bool = False) -> Tensor:
    """Scale all gradients in place so that their joint norm is at most max_norm. They must be on one device. Return the
    norm before scaling: a Tensor, () of float64.

    If the norm is NaN or infinite, every gradient becomes NaN or 0. With error_if_nonfinite it raises ArithmeticError
    instead, for which the host waits for the device."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = []
    for p in parameters:
        if p.grad is not None:
            if not p.grad.storage.backend.is_writeable(p.grad.array):
                p.grad = p.grad.clone()  # an expanded gradient has one element at many positions: scale it once
            grads.append(p.grad)
    if not grads:
        return zeros((), dtype=float64)
    backend = grads[0].storage.backend
    with no_grad():
        norm = from_backend(backend.global_norm([g.array for g in grads]), backend)
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise ArithmeticError(f"the norm of the gradients is {norm.item()}")
        backend.clip_([g.array for g in grads], norm.array, float(max_norm))
        for g in grads:
            g.storage.changed()
    return norm
