"""Dtypes of arithmetic: float16 is computed in float32, and sums in 64 bits."""

import functools

import numpy as np


def is_float16(x):
    return type(x) is np.ndarray and x.dtype.char == "e"


def as_float32(x):
    """x, or an array of float16 as float32. float16 is for storage: arithmetic happens in float32."""
    return x.astype(np.float32) if is_float16(x) else x


def in_float32(function):
    """Decorate a primitive: it computes float16 in float32, and its results of float32 become float16."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if not any(map(is_float16, args)):
            return function(*args, **kwargs)
        y = function(*map(as_float32, args), **kwargs)
        return tuple(map(_as_float16, y)) if isinstance(y, tuple) else _as_float16(y)

    return wrapper


def _as_float16(x):
    return x.astype(np.float16) if x is not None and x.dtype == np.float32 else x


def sum_dtype(dtype):
    """The dtype in which arrays of a dtype are summed: int64 for integers and bools, float64 for floats. (A float32 sum
    loses digits as it grows: at 2^24, adding 1 no longer changes it.)"""
    return np.float64 if dtype.kind == "f" else np.int64


def cast_sum(x, dtype):
    """Cast a sum of an array of `dtype` to the dtype of the result: `dtype` for floats, int64 for the rest."""
    return x.astype(dtype, copy=False) if dtype.kind == "f" else x
