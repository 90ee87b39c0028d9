"""Searching results for NaN and Inf, under detect_anomaly."""

import sys
from collections.abc import Sequence
from typing import Any

from ..base.recording import PACKAGE
from .graph import Recorded, Value
from .modes import mode


class AnomalyError(ArithmeticError):
    """A NaN or Inf was found under `detect_anomaly`."""


class _Inside(dict[str, bool]):
    def __missing__(self, filename: str) -> bool:
        self[filename] = filename.startswith(PACKAGE)
        return self[filename]


_inside = _Inside()  # is this file minigrad's?


def user_line() -> tuple[str, int]:
    """('file.py', 12) of the innermost caller outside minigrad. Cheap enough to be called for every recorded op."""
    frame = sys._getframe(2)  # apply's caller
    while _inside[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _nonfinite(x: Any) -> str | None:
    """'NaN', 'Inf' or None for a Tensor or a Python number."""
    if not isinstance(x, Value):
        return "NaN" if x != x else "Inf" if x in (float("inf"), -float("inf")) else None
    array = x.storage.backend.to_numpy(x.array)
    if array.dtype.kind != "f":
        return None
    if (array != array).any():
        return "NaN"
    return "Inf" if (abs(array) == float("inf")).any() else None


def check_forward(op: Recorded, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise AnomalyError if a result has NaN, or Inf that no input had."""
    for y in results:
        if y is None:
            continue
        found = _nonfinite(y)
        if found is None:
            continue
        already = [_nonfinite(x) for x in inputs if x is not None]
        if found == "Inf" and any(already):
            continue
        if not op.line[1]:
            op.scope, op.line = mode.scope, user_line()
        source = f"; input {already.index('NaN')} held NaN already" if "NaN" in already else ""
        raise AnomalyError(f"{found} in the output of {op.describe()}{source}")


def check_backward(op: Recorded, i: int, g: Value, dys: Sequence[Any]) -> None:
    """Raise AnomalyError if g, the gradient for input i, has NaN, or Inf that no gradient of an output had."""
    found = _nonfinite(g)
    if found is None or (found == "Inf" and any(_nonfinite(dy) for dy in dys if dy is not None)):
        return
    raise AnomalyError(f"{found} in the gradient for input {i} of {op.describe()}")
