"""What float16 and float32 have too few digits for."""

import functools

import numpy as np


def is_half(x):
    return type(x) is np.ndarray and x.dtype.char == "e"


def in_single(function):
    """float16 is for storage: the arithmetic of this primitive happens in float32."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        for x in args:
            if type(x) is np.ndarray and x.dtype.char == "e":  # is_half(x), but faster: most arrays are small
                return _in_single(function, args, kwargs)
        return function(*args, **kwargs)

    return wrapper


def wide(dtype):
    """What sums of a dtype grow in: int64 for integers and bools, and for floats float64: one that float32 numbers are
    added to one by one loses digits as it grows, and at 2^24 stays there when 1 is added."""
    return np.float64 if dtype.kind == "f" else np.int64


def rounded(x, dtype):
    """A sum in wide(dtype) as what it is a result of: dtype, but int64 for integers and bools."""
    return x.astype(dtype, copy=False) if dtype.kind == "f" else x


def _in_single(function, args, kwargs):
    y = function(*[x.astype(np.float32) if is_half(x) else x for x in args], **kwargs)
    halves = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in _as_tuple(y)]
    return tuple(halves) if isinstance(y, tuple) else halves[0]


def _as_tuple(y):
    return y if isinstance(y, tuple) else (y,)
