"""Dropout."""

from ..autograd import Op, Value
from ..autograd.arguments import check_arguments
from ..autograd.cases import case
from ..random import Generator, default_generator
from ..typing import T
from .args import require_float

__all__ = ["dropout"]


class Dropout(Op):
    """y = mask x, mask = 1 / (1 - p) with probability 1 - p, else 0;   dx = mask dy

    The random bits come from the generator's Philox stream: they are the same on every device."""

    cases = [case((3, 4), p=0.3), case((3, 4), p=1.0)]

    def forward(self, x, p, draw=None):
        y, mask = self.backend.dropout(x, p, draw or default_generator.reserve(x.size))
        self.save(mask)
        return y

    def backward(self, dy: Value):
        (mask,) = self.saved()
        return dy * mask


def check_probability(p):
    """Return p. Raises ValueError unless it lies in [0, 1]."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p must lie in [0, 1], got {p}")
    return p


@check_arguments
def dropout(input: T, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> T:
    """Return input with each element 0 with probability p, else divided by 1 - p; input itself if not training or p =
    0.

    Of any shape and float dtype. Draws from `generator`, by default the one that manual_seed seeds. Raises TypeError
    for other dtypes, and ValueError unless p lies in [0, 1]. Source: Srivastava et al. 2014."""
    require_float("dropout", input)
    check_probability(p)
    if not training or p == 0:
        return input
    return Dropout.apply(input, p=p, draw=(generator or default_generator).reserve(input.numel()))
