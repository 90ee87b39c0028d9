"""Helpers for loops of training and evaluation."""

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..autograd import no_grad
from ..dtypes import float64
from ..ops.public import cat, stack
from ..tensor import Tensor, from_backend, zeros

__all__ = ["evaluating", "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]

if TYPE_CHECKING:
    from .module import Module

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


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their joint norm is at most max_norm. Returns the norm before: a Tensor,
    () of float64, on the device of the first.

    norm_type: p of the p-norm, infinity for the largest magnitude. A norm that is NaN or infinite makes every gradient
    NaN or 0; with error_if_nonfinite it raises ArithmeticError. Without, nothing waits for the device. foreach is
    PyTorch's, and changes nothing."""
    grads = _own_grads(parameters)
    by_device: dict = {}
    for g in grads:
        by_device.setdefault(g.storage.backend, []).append(g.array)
    with no_grad():
        norm = _norm(grads, by_device, float(norm_type))
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise ArithmeticError(f"the norm of the gradients is {norm.item()}")
        for on, arrays in by_device.items():
            on.clip_(arrays, norm.to(on.device).array, float(max_norm))
    for g in grads:
        g.storage.changed()
    return norm


def _norm(grads, by_device, p):
    """The joint p-norm of gradients, float64, on the device of the first."""
    if not grads:
        return zeros((), dtype=float64)
    if not p > 0:
        raise ValueError(f"norm_type must be positive, got {p}")
    if p == 2:
        norms = [from_backend(on.global_norm(arrays), on) for on, arrays in by_device.items()]
        norm = norms[0]
        for other in norms[1:]:
            norm = (norm * norm + (other * other).to(norm.device)).sqrt()
        return norm
    device = grads[0].device
    sizes = [g.detach().double().abs().to(device) for g in grads if g.numel()]
    if math.isinf(p):
        return stack([zeros((), dtype=float64, device=device), *(size.max() for size in sizes)]).max()
    return stack([zeros((), dtype=float64, device=device), *((size**p).sum() for size in sizes)]).sum() ** (1 / p)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of every gradient to [-clip_value, clip_value], in place. Returns None. foreach changes
    nothing."""
    with no_grad():
        for g in _own_grads(parameters):
            g.clamp_(-float(clip_value), float(clip_value))


def _own_grads(parameters):
    """The gradients that there are, each in memory that can be written to."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in parameters:
        if p.grad is not None and not p.grad.storage.backend.is_writeable(p.grad.array):
            p.grad = p.grad.clone()  # an expanded gradient's element must not be scaled once for each of its positions
    return [p.grad for p in parameters if p.grad is not None]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All values of the parameters, one after the other: (n,), promoted, through which gradients flow. Raises TypeError
    for no parameters."""
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the parameters' values to those of a vector (n,), as parameters_to_vector gives it. Raises ValueError if it
    has another size."""
    parameters = list(parameters)
    n = sum(p.numel() for p in parameters)
    if vec.shape != (n,):
        raise ValueError(f"vector_to_parameters: {n} numbers are needed, got shape {vec.shape}")
    for p, part in zip(parameters, vec.detach().split([p.numel() for p in parameters])):
        p.detach().copy_(part.reshape(p.shape))
