"""Silencing NumPy's warnings of NaN and Inf. (detect_anomaly finds their cause.)"""

import contextvars
from typing import Any

import numpy as np

# NumPy keeps what np.seterr sets in a context variable. In an empty context it is the only one.
_context = contextvars.Context()
_context.run(np.seterr, all="ignore")
((_error_state, _ignore_all),) = _context.items()


def call_quietly(function: Any, args: Any, kwargs: Any) -> Any:
    """The result of function(*args, **kwargs), without NumPy's warnings. This takes a quarter of the time of
    np.errstate."""
    before = _error_state.set(_ignore_all)
    try:
        return function(*args, **kwargs)
    finally:
        _error_state.reset(before)
