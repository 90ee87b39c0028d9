"""What tensors of autograd engines other than minigrad have in common."""

import numbers
from typing import Any

import numpy as np


class _OfAnEngine(type):
    def __instancecheck__(cls, x):
        data = getattr(x, "data", None) if hasattr(type(x), "backward") and hasattr(x, "grad") else None
        return isinstance(data, (np.ndarray, numbers.Real))


class Own(metaclass=_OfAnEngine):
    """An instance is any object with `.data`, a number or a NumPy array, `.grad` and `.backward()`."""

    data: Any
    grad: Any


def parents_of(x: Any) -> list[Any]:
    """What an Own was made of: its `.parents`, or what micrograd calls `_prev`."""
    return list(getattr(x, "parents", None) or getattr(x, "_prev", None) or ())
