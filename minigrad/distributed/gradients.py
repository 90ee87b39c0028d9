"""Gradients and loss as one vector, so that one exchange sums them all."""

from .. import ops
from ..tensor import grad


def gathered(loss, parameters):
    """d loss / d parameters one after another, and the loss itself: (n + 1,), of the dtype that all of them have.

    No .grad changes. Raises ValueError for a parameter that the loss does not depend on, and for different dtypes."""
    found = grad(loss, parameters, allow_unused=True)
    for i, (p, g) in enumerate(zip(parameters, found)):
        if g is None:
            raise ValueError(f"the loss does not depend on parameter {i}, of shape {p.shape}: leave it out, or use it")
        if g.dtype != loss.dtype:
            raise ValueError(f"the loss is {loss.dtype}, and parameter {i}, of shape {p.shape}, {g.dtype}")
    return ops.cat([*(g.reshape(-1) for g in found), loss.detach().reshape(1)])


def scattered(vector, parameters):
    """Give each parameter its part of a vector as `gathered` makes it for .grad, a view. Returns the loss, ()."""
    at = 0
    for p in parameters:
        p.grad = vector[at : at + p.numel()].reshape(p.shape)
        at += p.numel()
    return vector[at]
