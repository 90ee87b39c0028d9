"""Checkpoints: one safetensors file each, so that it is written whole or not at all.

The arrays are the file's tensors, and everything else is JSON in its header. A checksum covers both, since safetensors
has none. Any program that reads safetensors can read the weights.

The checksum finds damage, but an intact file can still hold impossible values. So `unpack` and `runs.load_char_model`
check everything before they use it.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Mapping
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as numpy_save

from ..base.errors import CheckpointError
from ..base.files import atomic_write, check_regular
from ..dtypes import as_dtype
from ..random import Generator
from ..typing import Array, FilePath

if TYPE_CHECKING:
    from ..nn.module import Module
    from ..optim import Optimizer, Optimizers

__all__ = ["CheckpointError", "load", "load_tensors", "pack", "save", "unpack", "weights"]

FORMAT = "1"  # raised when older versions of minigrad can no longer read new files
_ENTRY = re.compile(r"\S* [0-9a-f]{8} [\[{]")  # how our metadata begins: a format, a checksum, and JSON


class ForeignError(CheckpointError):
    """A safetensors file that is not a minigrad checkpoint."""


def save(path: FilePath, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write {name: array} and a JSON-able dict to `path` as one file. A reader finds the old file or the whole new one.

    Arrays may have any shape, strides and minigrad dtype. What cannot be stored raises TypeError or ValueError before
    anything is written. What cannot be written raises OSError; `path` is then as it was."""
    arrays = {}
    for name, x in tensors.items():
        if not hasattr(x, "dtype"):
            raise TypeError(f"a checkpoint holds Tensors and arrays; {shown(name)} is a {type(x).__name__}")
        as_dtype(x.dtype)  # raises TypeError for a dtype that is not ours
        arrays[name] = np.asarray(x, order="C")  # the library takes others column by column
    if "__metadata__" in arrays:
        raise ValueError("a safetensors file cannot hold an array called __metadata__")
    if not isinstance(meta, dict):
        raise TypeError(f"a checkpoint's metadata must be a dict that JSON can hold, not {shown(meta)}")
    try:
        text = json.dumps(meta)
        once = json.dumps(json.loads(text)) == text
    except RecursionError:
        raise ValueError("a checkpoint's metadata must not be nested so deeply") from None
    if not once:
        raise ValueError("a checkpoint's metadata has a key twice: in JSON, 1 and '1' are the same")
    # One entry instead of three, whose order could differ: the same state must give the same bytes.
    atomic_write(path, numpy_save(arrays, {"minigrad": f"{FORMAT} {_checksum(text, arrays)} {text}"}))


def load(path: FilePath) -> tuple[dict[str, Array], dict[str, Any]]:
    """({name: array}, meta) as they were saved; meta has been through JSON. Raises CheckpointError, whatever is wrong
    with the file."""
    with _opened(path) as (arrays, metadata):
        if "minigrad" not in metadata:
            if any(map(_ENTRY.match, metadata.values())):  # the checksum does not cover its own name
                raise ValueError("it is a minigrad checkpoint but for the name of its metadata")
            raise ForeignError(f"{path} is a safetensors file, but not a minigrad checkpoint")
        version, checksum, text = [*metadata["minigrad"].split(" ", 2), "", ""][:3]
        if version != FORMAT:
            raise CheckpointError(
                f"{path} is of format {shown(version)}, and this minigrad reads format {FORMAT}: a newer minigrad has "
                f"written it, or it is damaged"
            )
        if checksum != _checksum(text, arrays):
            raise ValueError("its checksum is wrong")
        meta = json.loads(text)
        if not isinstance(meta, dict):
            raise ValueError(f"it has {shown(meta)} for its metadata, not a dict")
        return arrays, meta


def load_tensors(path: FilePath) -> dict[str, Array]:
    """{name: array} of any safetensors file, such as weights from elsewhere. Raises CheckpointError."""
    with _opened(path) as (arrays, _):
        return arrays


@contextlib.contextmanager
def _opened(path):
    """({name: array}, metadata) of a safetensors file. What goes wrong in the with-block is a CheckpointError."""
    try:
        check_regular(path)
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
            metadata = file.metadata() or {}
        yield arrays, metadata
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise CheckpointError(f"there is not enough memory for checkpoint {path}: {error}") from error
    except TypeError as error:
        raise CheckpointError(f"{path} has a dtype that NumPy lacks ({error}): convert it to float32") from error
    except (SafetensorError, RecursionError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged, cut short or no checkpoint at all ({error})") from error


def pack(
    model: "Module",
    optimizer: "Optimizer | Optimizers | None" = None,
    generators: Mapping[str, Generator] | None = None,
    **meta: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors, meta) for `save`: parameters and buffers, optimizer state, the states of {name: Generator}, and `meta`.

    Leave out the optimizer and the generators to keep the model alone. Nothing is copied: save before the next step.
    """
    tensors = {f"model.{name}": t.numpy() for name, t in model.state_dict().items()}
    if optimizer is not None:
        meta["optimizer"] = _lift(optimizer.state_dict(), "optimizer", tensors)
    if generators is not None:
        meta["generators"] = {name: generator.state for name, generator in generators.items()}
    return tensors, meta


def unpack(
    tensors: Mapping[str, Any],
    meta: Mapping[str, Any],
    model: "Module",
    optimizer: "Optimizer | Optimizers | None" = None,
    generators: Mapping[str, Generator] | None = None,
) -> None:
    """Restore in place what `pack` saved; leave out the optimizer and the generators to restore the model alone.

    Raises CheckpointError if something is missing, or does not fit the model, the optimizer or a generator. None of
    them has changed then.
    """
    state = weights(tensors)
    try:
        model.check_state_dict(state)
        states = _states(meta, generators or {})
        if optimizer is not None:
            if "optimizer" not in meta:
                raise ValueError("it holds no optimizer state")
            optimizer.load_state_dict(_lower(meta["optimizer"], tensors))
    except (RecursionError, ValueError) as error:
        raise CheckpointError(f"the checkpoint does not fit: {error}") from error
    model.load_state_dict(state)
    for name, generator in (generators or {}).items():
        generator.state = states[name]


def weights(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The model's state_dict, {path: array}, among a checkpoint's tensors."""
    return {name.removeprefix("model."): x for name, x in tensors.items() if name.startswith("model.")}


def _states(meta, generators):
    """The generators' states, checked."""
    saved = meta.get("generators", {})
    for name, generator in generators.items():
        if not isinstance(saved, dict) or name not in saved:
            raise ValueError(f"it holds no random state {name!r}")
        type(generator)().state = saved[name]  # raises ValueError
    return saved


def _checksum(text, arrays):
    """A CRC of the metadata's text, and of the names, dtypes, shapes and contents of arrays."""
    crc = zlib.crc32(text.encode())
    for name in sorted(arrays):
        x = arrays[name]
        crc = zlib.crc32(as_bytes(x), zlib.crc32(f"{name} {x.dtype} {x.shape}".encode(), crc))
    return f"{crc:08x}"


def as_bytes(x):
    """The contents of an array, row by row, as a flat uint8 array: a view if x is contiguous, else of a copy."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def _lift(value, path, tensors):
    """`value` as JSON: each array in it goes to `tensors` under its path and is replaced by {"tensor": path}."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {str(key): _lift(v, f"{path}.{key}", tensors) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_lift(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _lower(value, tensors):
    """The inverse of `_lift`, except for what JSON lacks: keys have become strings, and tuples lists."""
    if isinstance(value, dict):
        if value.keys() == {"tensor"}:
            name = value["tensor"]
            if not isinstance(name, str) or name not in tensors:
                raise ValueError(f"it holds no tensor {shown(name)}")
            return tensors[name]
        return {key: _lower(v, tensors) for key, v in value.items()}
    return [_lower(v, tensors) for v in value] if isinstance(value, list) else value
