"""Dtypes, which are NumPy's, and their promotion, which is PyTorch's: bool < integer < float, whatever the width.

A Python number does not widen a dtype of its kind: float32 * 2.0 is float32, and int64 * 2.0 is float32.
"""

import functools
import sys
from reprlib import repr as shown
from typing import Any

import numpy as np

float64, float32, float16 = np.dtype("float64"), np.dtype("float32"), np.dtype("float16")
int64, int32, int16, int8, uint8 = (np.dtype(n) for n in ("int64", "int32", "int16", "int8", "uint8"))
bool_ = np.dtype("bool")

dtype, finfo = np.dtype, np.finfo  # PyTorch has these names: finfo(x.dtype).eps, isinstance(d, dtype)

ALL = (float64, float32, float16, int64, int32, int16, int8, uint8, bool_)
DEFAULT_FLOAT = float32
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def as_dtype(dtype):
    """Return the dtype for a NumPy dtype, a name, or Python's bool, int or float; float and "float" mean float32.

    Raises TypeError for a dtype that minigrad lacks."""
    try:
        resolved = DEFAULT_FLOAT if dtype is float or (type(dtype) is str and dtype == "float") else np.dtype(dtype)
    except TypeError:  # a name that NumPy lacks too, such as bfloat16
        resolved = dtype
    if resolved not in ALL:
        raise TypeError(f"minigrad has no dtype {resolved}; it has {', '.join(str(d) for d in ALL)}")
    return resolved


def plain(name, data):
    """Return data, an array or anything that NumPy converts, as an ndarray that kernels can read.

    It is aligned and its strides are whole elements. Such an array is returned as it is. Raises TypeError for a masked
    array, whose mask would be lost, and for data that are not real numbers. name: the public function, for errors."""
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array would lose its mask; fill it first: array.filled(number)")
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: minigrad has no dtype {array.dtype}")
    return array if array.flags.aligned and not any(n % array.itemsize for n in array.strides) else array.copy()


def is_number(value: Any):
    """Return True if value is an int or float, Python's or NumPy's, finite, and within the range of float64. A bool is
    not."""
    if isinstance(value, np.floating):
        value = float(value)  # NumPy would round float64's largest to float32 to compare them
    numeric = isinstance(value, int | float | np.integer) and not isinstance(value, bool)
    return numeric and bool(abs(value) <= sys.float_info.max)


def check_holds(name, dtype, *numbers):
    """Raise OverflowError if an integer dtype does not hold one of the numbers; fractions of floats are ignored.

    NaN and infinities never fit. Arguments that are not numbers, and other dtypes, pass."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    for number in numbers:
        if isinstance(number, np.floating | np.integer):  # NumPy would round low and high to the number's dtype
            number = int(number) if isinstance(number, np.integer) else float(number)
        if isinstance(number, int | float) and not low - 1 < number < high + 1:
            raise OverflowError(f"{name}: {dtype} holds {low} to {high}, not {shown(number)}; .to() casts")


def check_data(name, dtype, array):
    """`check_holds` for all elements of an array made from Python's numbers."""
    if array.dtype == object and all(isinstance(number, int) for number in array.flat):  # too large for NumPy's dtypes
        check_holds(name, dtype, *array.flat)
    elif array.dtype.kind in "iuf" and dtype.kind in "iu" and array.size:
        check_holds(name, dtype, array.min(), array.max())


def modulo(name, dtype, number):
    """Return number wrapped to an integer dtype, modulo 2^bits, as PyTorch does in + - *."""
    if not -(2**63) <= number < 2**64:
        check_holds(name, dtype, number)
    limits = np.iinfo(dtype)
    return (number - int(limits.min)) % 2**limits.bits + int(limits.min)


@functools.cache
def promote(a, b):
    """Return the dtype of an operation on dtypes a and b."""
    ka, kb = _KINDS[a.kind], _KINDS[b.kind]
    return np.promote_types(a, b) if ka == kb else a if ka > kb else b


def promote_number(dtype, number):
    """Return the dtype of an operation on a tensor of `dtype` and a Python number."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return int64 if dtype == bool_ else dtype
    return dtype if dtype.kind == "f" else DEFAULT_FLOAT
