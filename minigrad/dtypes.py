"""Dtypes are NumPy's; promotion is PyTorch's: bool < integer < float, and the higher kind wins whatever its width.

Python numbers are weak: only their kind counts, so float32 * 2.0 is float32 and int64 * 2.0 is float32.
"""

import functools
import sys
from reprlib import repr as shown
from typing import Any

import numpy as np

float64, float32, float16 = np.dtype("float64"), np.dtype("float32"), np.dtype("float16")
int64, int32, int16, int8, uint8 = (np.dtype(n) for n in ("int64", "int32", "int16", "int8", "uint8"))
bool_ = np.dtype("bool")

dtype, finfo = np.dtype, np.finfo  # where PyTorch has them: finfo(x.dtype).eps, isinstance(d, dtype)

ALL = (float64, float32, float16, int64, int32, int16, int8, uint8, bool_)
DEFAULT_FLOAT = float32
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def as_dtype(dtype):
    """minigrad's dtype for a NumPy dtype, a name, or Python's bool, int or float (also "float"), which is float32.
    Raises TypeError."""
    try:
        found = DEFAULT_FLOAT if dtype is float or (type(dtype) is str and dtype == "float") else np.dtype(dtype)
    except TypeError:  # a name that NumPy lacks too, such as bfloat16
        found = dtype
    if found not in ALL:
        raise TypeError(f"minigrad has no dtype {found}; it has {', '.join(str(d) for d in ALL)}")
    return found


def plain(name, data):
    """data (an array, or anything NumPy converts) as an ndarray that kernels can read: aligned, with strides of whole
    elements. An array that already is one shares its memory.

    Raises TypeError for a masked array, whose mask would be lost, and for data that are not real numbers."""
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array would lose its mask; fill it first: array.filled(number)")
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: minigrad has no dtype {array.dtype}")
    return array if array.flags.aligned and not any(n % array.itemsize for n in array.strides) else array.copy()


def is_number(value: Any):
    """Is value a finite int or float, Python's or NumPy's, within float64's range? A bool is not."""
    if isinstance(value, np.floating):
        value = float(value)  # beside a float32, NumPy would make float64's largest a float32
    numeric = isinstance(value, int | float | np.integer) and not isinstance(value, bool)
    return numeric and bool(abs(value) <= sys.float_info.max)


def check_holds(name, dtype, *numbers):
    """Raise OverflowError if one of the numbers (ints, or floats without their fraction) does not fit an integer dtype.
    NaN and infinities never fit; non-numbers pass."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    for number in numbers:
        if isinstance(number, np.floating | np.integer):  # NumPy would round low and high to a float's dtype
            number = int(number) if isinstance(number, np.integer) else float(number)
        if isinstance(number, int | float) and not low - 1 < number < high + 1:
            raise OverflowError(f"{name}: {dtype} holds {low} to {high}, not {shown(number)}; .to() casts")


def check_data(name, dtype, array):
    """`check_holds` for all elements of an array that NumPy made from Python numbers."""
    if array.dtype == object and all(isinstance(number, int) for number in array.flat):  # too large for NumPy's dtypes
        check_holds(name, dtype, *array.flat)
    elif array.dtype.kind in "iuf" and dtype.kind in "iu" and array.size:
        check_holds(name, dtype, array.min(), array.max())


def modulo(name, dtype, number):
    """number modulo 2^bits of an integer dtype, as PyTorch wraps it in + - *."""
    if not -(2**63) <= number < 2**64:
        check_holds(name, dtype, number)
    limits = np.iinfo(dtype)
    return (number - int(limits.min)) % 2**limits.bits + int(limits.min)


@functools.cache
def promote(a, b):
    """The dtype of an operation on dtypes a and b."""
    ka, kb = _KINDS[a.kind], _KINDS[b.kind]
    return np.promote_types(a, b) if ka == kb else a if ka > kb else b


def promote_number(dtype, number):
    """The dtype of an operation on a tensor of `dtype` and a Python number."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return int64 if dtype == bool_ else dtype
    return dtype if dtype.kind == "f" else DEFAULT_FLOAT
