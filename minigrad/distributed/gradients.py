"""Gradients and loss as one vector, so that one exchange sums them all."""

from collections.abc import Sequence

from ..ops import public as ops
from ..tensor import Tensor, grad


def gathered(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """d loss / d parameters one after another, and the loss itself: (n + 1,), of the dtype that all of them have.

    No .grad changes. Raises ValueError for a parameter that the loss does not depend on, and for different dtypes."""
    found = []
    for i, (p, g) in enumerate(zip(parameters, grad(loss, parameters, allow_unused=True))):
        if g is None:
            raise ValueError(f"the loss does not depend on parameter {i}, of shape {p.shape}: leave it out, or use it")
        if g.dtype != loss.dtype:
            raise ValueError(f"the loss is {loss.dtype}, and parameter {i}, of shape {p.shape}, {g.dtype}")
        found.append(g.reshape(-1))
    return ops.cat([*found, loss.detach().reshape(1)])


def scattered(vector: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Give each parameter its part of a vector as `gathered` makes it for .grad, a view. Returns the loss, ()."""
    at = 0
    for p in parameters:
        p.grad = vector[at : at + p.numel()].reshape(p.shape)
        at += p.numel()
    return vector[at]
