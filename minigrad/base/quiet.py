"""Silences NumPy's warnings of NaN and Inf; detect_anomaly finds their cause."""

import contextvars
import threading
from typing import Any

import numpy as np


class _Silence(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.quiet = False  # is this thread within call_quietly()?
        self.context = contextvars.copy_context()  # NumPy asks a context variable, and gives no warnings in here
        self.context.run(np.seterr, all="ignore")


silence = _Silence()


def call_quietly(function: Any, args: Any, kwargs: Any) -> Any:
    """function(*args, **kwargs) without NumPy's warnings: ten times as fast as np.errstate around a single call."""
    if silence.quiet:
        return function(*args, **kwargs)
    silence.quiet = True  # a context cannot be entered again from within
    try:
        return silence.context.run(function, *args, **kwargs)
    finally:
        silence.quiet = False
