"""Helpers of the training loop."""

import math

from ..tensor import Tensor


def clip_grad_norm_(parameters, max_norm, error_if_nonfinite=False):
    """Scale all gradients in place so that their joint 2-norm is at most max_norm; returns the norm before, a float.

    A NaN or Inf norm makes every gradient NaN or 0; error_if_nonfinite raises ArithmeticError instead."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad.detach() for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(g.storage.backend.dot(g.array, g.array) for g in grads))
    if error_if_nonfinite and not math.isfinite(norm):
        raise ArithmeticError(f"the norm of the gradients is {norm}")
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:
        for g in grads:
            g.mul_(scale)
    return norm
