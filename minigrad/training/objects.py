"""save and load: tensors, modules, optimizers and what belongs to them, in any nesting, as one safetensors file.

    mg.save({"model": model, "optimizer": optimizer, "step": 100}, "run.safetensors")
    saved = mg.load("run.safetensors")
    model.load_state_dict(saved["model"])

The file is a checkpoint as checkpoint.py writes it: whole or not at all, with a checksum. It holds data only, so that
loading runs no code of it, unlike a pickle. Tensors have their paths for names, such as "model.blocks.0.attn.weight".
"""

import os
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

import numpy as np

from ..backend import device as device_name
from ..base.errors import CheckpointError
from ..base.files import open_regular
from ..dtypes import as_dtype
from ..random import Generator
from ..tensor import Tensor, from_numpy
from . import checkpoint

__all__ = ["save", "load"]

_OBJECT = "object"  # where a checkpoint's metadata has what save() was given
_DEEPEST = 30  # each level takes two in the file, which may have 100
_PLAIN = bool, int, float, str, type(None)
_ZIP, _NPY = b"PK\x03\x04", b"\x93NUMPY"  # how files begin: torch.save's and NumPy's .npz; NumPy's .npy
_PICKLES = _ZIP, b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"  # torch.save's


def save(obj: Any, path: Any) -> None:
    """Write `obj` to the file `path`: a Tensor; a module, optimizer, scheduler or anything else with a state_dict(),
    which is what is written; a Generator, for its state; arrays, dtypes, numbers, strings, None; and dicts, lists and
    tuples of all these.

    Raises TypeError, naming the place in obj, for anything else, before anything is written; OSError if the file cannot
    be written: the old one is then as it was."""
    _check_path(path, "mg.save(obj, path)")
    tensors: dict[str, np.ndarray] = {}
    meta = {_OBJECT: _lifted(obj, (), tensors)}
    checkpoint.save(path, tensors, meta)


def load(path: Any, map_location: str | None = None, weights_only: bool = True) -> Any:
    """What save() wrote to `path`, with the states of modules, optimizers and generators; or {name: Tensor} of any
    other safetensors file. map_location: the device for the Tensors, "cpu" if None. weights_only, which is
    PyTorch's, changes nothing: no code is ever loaded.

    Raises CheckpointError, whatever is wrong with the file; TypeError or ValueError for a map_location that is no
    device."""
    _check_path(path, "mg.load(path)")
    if not isinstance(map_location, str | None):
        raise TypeError(f"mg.load: map_location is the name of one device, 'cpu' or 'cuda', for all Tensors, not a "
                        f"{type(map_location).__name__}")  # fmt: skip
    device = device_name("cpu" if map_location is None else map_location)
    try:
        tensors, meta = checkpoint.load(path)
    except checkpoint.ForeignError:
        tensors, meta = checkpoint.load_tensors(path), {}
    except CheckpointError as error:
        raise _pickled(path) or error from None
    if _OBJECT not in meta:
        return {name: from_numpy(x).to(device) for name, x in tensors.items()}
    try:
        return _lowered(meta[_OBJECT], tensors, device)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is a checkpoint, but not one that mg.save has written ({error})") from error


def _check_path(path: Any, call: str) -> None:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{call}: path must be a str or a Path, not a {type(path).__name__}; a file in memory needs a "
                        f"name on the disk first")  # fmt: skip


def _pickled(path: Any) -> CheckpointError | None:
    """The error for a file that could not be read, if it looks as torch.save's or NumPy's do."""
    try:
        with open_regular(path) as file:
            begin = file.read(1000)
    except OSError:
        return None
    first = begin[30 : 30 + int.from_bytes(begin[26:28], "little")]  # a zip file's first name
    if begin.startswith(_NPY) or (begin.startswith(_ZIP) and first.endswith(b".npy")):
        return CheckpointError(f"{path} is a file of NumPy's: read it with numpy.load, then mg.from_numpy(array)")
    if not begin.startswith(_PICKLES):
        return None
    return CheckpointError(
        f"{path} is a pickle, as torch.save writes it, and loading one may run any code: in PyTorch, write the tensors "
        f"with safetensors.torch.save_file, and load that"
    )


def _lifted(value: Any, path: tuple[str, ...], tensors: dict[str, np.ndarray]) -> Any:
    """`value` as JSON, whose arrays go to `tensors`. Each list begins with the kind of what follows, and so do all but
    plain numbers and strings: ["dict", [key, value], …], ["tensor", name]."""
    if len(path) > _DEEPEST:
        raise ValueError(f"save: {_place(path[:3])} is nested more than {_DEEPEST} deep, or holds itself")
    if isinstance(value, Tensor):
        return ["tensor", _put(value.detach().cpu().numpy(), path, tensors)]
    if isinstance(value, np.ndarray):
        return ["array", _put(value, path, tensors)]
    if isinstance(value, Generator):
        return _lifted(value.state, path, tensors)
    if isinstance(value, np.dtype):
        return ["dtype", str(as_dtype(value))]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, type):
        raise TypeError(f"save: {_place(path)} is the class {value.__name__}, not an object made of it")
    if hasattr(value, "state_dict"):
        return _lifted(value.state_dict(), path, tensors)
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in _PLAIN:
                raise TypeError(f"save: {_place(path)} has the key {shown(key)}; keys are strings and numbers")
        return ["dict", *([key, _lifted(v, (*path, str(key)), tensors)] for key, v in value.items())]
    if isinstance(value, list | tuple):
        parts = [_lifted(v, (*path, str(i)), tensors) for i, v in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", *parts]
    raise TypeError(
        f"save: {_place(path)} is of type {type(value).__name__}; it takes tensors, modules, optimizers, numbers, "
        f"strings, and dicts, lists and tuples of them (of a dataclass: dataclasses.asdict)"
    )


def _place(path: tuple[str, ...]) -> str:
    return "the object" + "".join(f"[{name!r}]" for name in path)


def _put(array: np.ndarray, path: tuple[str, ...], tensors: dict[str, np.ndarray]) -> str:
    """The name, unique and made of the path, under which an array is in `tensors` from now on."""
    try:
        as_dtype(array.dtype)
    except TypeError as error:
        raise TypeError(f"save: {_place(path)}: {error}") from None
    name = first = ".".join(path) or "tensor"
    n = 1
    while name in tensors:
        n += 1
        name = f"{first}~{n}"
    tensors[name] = array
    return name


def _lowered(value: Any, tensors: dict[str, np.ndarray], device: str) -> Any:
    """The inverse of `_lifted`."""
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise ValueError("a dict where a list belongs")
        return value
    kind, *parts = value
    if kind == "dict":
        return {key: _lowered(v, tensors, device) for key, v in parts}
    if kind == "list":
        return [_lowered(v, tensors, device) for v in parts]
    if kind == "tuple":
        return tuple(_lowered(v, tensors, device) for v in parts)
    (name,) = parts
    if kind == "dtype":
        return as_dtype(name)
    if kind == "tensor":
        return from_numpy(tensors[name]).to(device)
    if kind == "array":
        return tensors[name]
    raise ValueError(f"the unknown kind {shown(kind)}")
