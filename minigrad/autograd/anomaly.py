"""The search for NaN and Inf in results and gradients, under detect_anomaly."""

from collections.abc import Sequence
from typing import Any

from ..base.capturing import user_place
from .graph import Value
from .modes import current_modes


class AnomalyError(ArithmeticError):
    """A NaN or Inf was found under `detect_anomaly`."""


def _nonfinite(x: Any) -> str | None:
    """Return 'NaN' if x, a Tensor or a Python number, holds one, else 'Inf' if it holds an infinity, else None."""
    if not isinstance(x, Value):
        return "NaN" if x != x else "Inf" if x in (float("inf"), -float("inf")) else None
    array = x.storage.backend.to_numpy(x.array)
    if array.dtype.kind != "f":
        return None
    if (array != array).any():
        return "NaN"
    return "Inf" if (abs(array) == float("inf")).any() else None


def check_forward(op: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise AnomalyError if a result has NaN, or if one has Inf and all inputs are finite."""
    for y in results:
        if y is None:
            continue
        kind = _nonfinite(y)
        if kind is None:
            continue
        found_in_inputs = [_nonfinite(x) for x in inputs if x is not None]
        if kind == "Inf" and any(found_in_inputs):
            continue
        if not op.line[1]:  # the op was not recorded, and does not know where it was made
            op.scope, op.line = current_modes()["scope"], user_place()
        source = f"; input {found_in_inputs.index('NaN')} held NaN already" if "NaN" in found_in_inputs else ""
        raise AnomalyError(f"{kind} in the output of {op.describe()}{source}")


def check_backward(op: Any, i: int, g: Value, dys: Sequence[Any]) -> None:
    """Raise AnomalyError if g, the gradient for input i, has NaN, or if it has Inf and all of dys are finite."""
    kind = _nonfinite(g)
    if kind is None or (kind == "Inf" and any(_nonfinite(dy) for dy in dys if dy is not None)):
        return
    raise AnomalyError(f"{kind} in the gradient for input {i} of {op.describe()}")
