"""Helpers for loops of training and evaluation."""

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..autograd import no_grad
from ..dtypes import float64
from ..recording import refuse
from ..tensor import Tensor, from_backend, zeros

if TYPE_CHECKING:
    from .module import Module

__all__ = ["evaluating", "clip_grad_norm_"]

_changing_mode = threading.RLock()
_evaluated: dict = {}  # {Module: (how many with-blocks it is in, {module: its mode before the first of them})}


@contextmanager
def evaluating(model: "Module") -> Iterator[None]:
    """Within a with-block a Module is in eval mode. After the last of them, if several threads are in one, every module
    is in the mode it had before the first."""
    with _changing_mode:
        users, before = _evaluated.get(model) or (0, {module: module.training for module in model.modules()})
        _evaluated[model] = users + 1, before
        model.eval()
    try:
        yield
    finally:
        with _changing_mode:
            users, _ = _evaluated.pop(model)
            if users > 1:  # other threads go on
                _evaluated[model] = users - 1, before
            else:
                for module, training in before.items():
                    module.training = training


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, error_if_nonfinite: bool = False) -> Tensor:
    """Scale all gradients in place so that their joint 2-norm is at most max_norm. Returns the norm before: a Tensor,
    () of float64, on the device of the first.

    A norm that is NaN or infinite makes every gradient NaN or 0; with error_if_nonfinite it raises ArithmeticError.
    Without, nothing waits for the device."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in parameters:
        if p.grad is not None and not p.grad.storage.backend.is_writeable(p.grad.array):
            p.grad = p.grad.clone()  # it was expanded, say: an element cannot be scaled for each place it stands in
    grads = [p.grad for p in parameters if p.grad is not None]
    by_device: dict = {}
    for g in grads:
        by_device.setdefault(g.storage.backend, []).append(g.array)
    with no_grad():
        norms = [from_backend(on.global_norm(arrays), on) for on, arrays in by_device.items()]
        norm = norms[0] if norms else zeros((), dtype=float64)
        for other in norms[1:]:
            norm = (norm * norm + (other * other).to(norm.device)).sqrt()
        if error_if_nonfinite:
            refuse("error_if_nonfinite=True, which reads the norm on the host,")
            if not math.isfinite(norm.item()):
                raise ArithmeticError(f"the norm of the gradients is {norm.item()}")
        factor = (max_norm / (norm + 1e-6)).minimum(1.0)  # NaN if the norm is
        for on, arrays in by_device.items():
            on.scale_(arrays, factor.to(on.device).array)
    for g in grads:
        g.storage.changed()
    return norm
