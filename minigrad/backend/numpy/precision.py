"""What float16 and float32 have too few digits for."""

import functools

import numpy as np


def is_half(x):
    return type(x) is np.ndarray and x.dtype.char == "e"


def as_single(x):
    """x, or an array of float16 as float32. float16 is for storage: arithmetic happens in float32."""
    return x.astype(np.float32) if is_half(x) else x


def in_single(function):
    """Decorate a primitive: it computes float16 in float32, and its results of float32 become float16."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if not any(map(is_half, args)):
            return function(*args, **kwargs)
        y = function(*map(as_single, args), **kwargs)
        return tuple(map(_as_half, y)) if isinstance(y, tuple) else _as_half(y)

    return wrapper


def _as_half(x):
    return x.astype(np.float16) if x is not None and x.dtype == np.float32 else x


def wide(dtype):
    """The dtype that sums of a dtype grow in: int64 for integers and bools, and float64 for floats. A float32 sum loses
    digits as it grows, and at 2^24 adding 1 no longer changes it."""
    return np.float64 if dtype.kind == "f" else np.int64


def rounded(x, dtype):
    """A sum in wide(dtype) as the result: in dtype if that is a float, else in int64."""
    return x.astype(dtype, copy=False) if dtype.kind == "f" else x
