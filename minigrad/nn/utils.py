"""Helpers for loops of training and evaluation."""

import math
from contextlib import contextmanager

from ..tensor import Tensor


@contextmanager
def evaluating(model):
    """Within a with-block a Module is in eval mode; afterwards every module is in the mode it had before."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def clip_grad_norm_(parameters, max_norm, error_if_nonfinite=False):
    """Scale all gradients in place so that their joint 2-norm is at most max_norm; returns the norm before, a float.

    A norm that is NaN or infinite makes every gradient NaN or 0; with error_if_nonfinite it raises ArithmeticError."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    by_device: dict = {}
    for g in grads:
        by_device.setdefault(g.storage.backend, []).append(g.array)
    norm = math.hypot(*(on.global_norm(arrays) for on, arrays in by_device.items()))
    if error_if_nonfinite and not math.isfinite(norm):
        raise ArithmeticError(f"the norm of the gradients is {norm}")
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:
        for on, arrays in by_device.items():
            on.scale_(arrays, scale)
        for g in grads:
            g.storage.changed()
    return norm
