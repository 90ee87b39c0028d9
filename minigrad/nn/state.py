"""What a module's load_state_dict is given, compared with what the module holds."""

from typing import NamedTuple

import numpy as np

from ..tensor import Tensor


class Keys(NamedTuple):
    """What load_state_dict returns: paths."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def compared(model, own, given, strict):
    """Keys of `given`, {path: Tensor or array}, beside `own`, {path: Tensor}. Raises ValueError, naming the model, if
    something does not fit, or, with strict, is missing or unexpected."""
    missing, unexpected = [k for k in own if k not in given], [k for k in given if k not in own]
    problems = [f"missing {_listed(missing)}"] if missing and strict else []
    problems += [f"unexpected {_listed(unexpected)}"] if unexpected and strict else []
    misfits = [_misfit(path, x, given[path]) for path, x in own.items() if path in given]
    misfits = [misfit for misfit in misfits if misfit]
    problems += misfits[:_SHOWN] + [f"and {len(misfits) - _SHOWN} more"] * (len(misfits) > _SHOWN)
    if problems:
        raise ValueError(f"load_state_dict into {model}: " + "; ".join(problems))
    return Keys(missing, unexpected)


_SHOWN = 5  # how many paths an error names, since a model may have hundreds
_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool"}


def _listed(paths):
    return f"{paths[:_SHOWN]}" + f" and {len(paths) - _SHOWN} more" * (len(paths) > _SHOWN)


def _misfit(path, x, given):
    """Why `given` cannot be loaded into the parameter or buffer x, or None if it can."""
    if not isinstance(given, Tensor | np.ndarray | np.generic):
        return f"{path} is no Tensor or array in the state, but a {type(given).__name__}"
    if tuple(given.shape) != x.shape:
        return f"{path} has shape {x.shape} here but {tuple(given.shape)} in the state"
    if _KINDS.get(given.dtype.kind) != _KINDS.get(x.dtype.kind):
        return f"{path} has dtype {x.dtype} here but {given.dtype} in the state"
    return None
