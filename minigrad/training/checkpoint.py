"""save and load: tensors, modules, optimizers, numbers and strings, nested in dicts and lists, as a safetensors file.

    mg.save({"model": model, "optimizer": optimizer, "step": 100}, "run.safetensors")
    saved = mg.load("run.safetensors")
    model.load_state_dict(saved["model"])

The name of a tensor in the file is its path, such as "model.blocks.0.attn.out_proj.weight", so that any program that
reads safetensors finds the weights. Everything else is JSON in the file's header. A checksum covers both, since
safetensors has none. A file is replaced whole or not at all. It holds data only: unlike a pickle, loading it runs no
code.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from ..backend import device as device_name
from ..base.errors import CheckpointError
from ..base.files import atomic_write
from ..dtypes import as_dtype
from ..random import Generator
from ..tensor import Tensor, from_numpy
from ..typing import Array, FilePath

__all__ = ["CheckpointError", "load", "load_tensors", "save"]

FORMAT = "2"  # changes when other versions of minigrad cannot read new files
PLAIN = bool, int, float, str, type(None)


def save(obj: Any, path: FilePath) -> None:
    """Write `obj` to the file `path`.

    obj: a Tensor, an array, a number, a string or None; an object with a state_dict(), such as a module or an
    optimizer, or a Generator, whose state is written; or dicts, lists and tuples of all these.

    Raises TypeError for anything else, with its place in obj, before anything is written. Raises OSError if the file
    cannot be written; an old file is then as it was."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_encode(obj, (), arrays))
    # One entry of metadata: safetensors may reorder several, and the same state must give the same bytes.
    atomic_write(path, to_bytes(arrays, {"minigrad": f"{FORMAT} {_checksum(text, arrays)} {text}"}))


def load(path: FilePath, map_location: str | None = None, weights_only: bool = True) -> Any:
    """Return what save() wrote to `path`, where modules, optimizers and generators are their states; for any other
    safetensors file, {name: Tensor}.

    map_location: the device for the Tensors; None means "cpu". weights_only is ignored: no code is ever loaded. Raises
    CheckpointError if the file cannot be read, and ValueError for a map_location that is no device."""
    device = device_name(map_location or "cpu")
    arrays, metadata = _read(path)
    if "minigrad" not in metadata:
        if any(re.match(r"\d+ [0-9a-f]{8} ", value) for value in metadata.values()):
            raise CheckpointError(f"{path} is damaged: its header has no 'minigrad', but what belongs to it")
        return {name: from_numpy(x).to(device) for name, x in arrays.items()}
    version, checksum, text = [*metadata["minigrad"].split(" ", 2), "", ""][:3]
    if version != FORMAT:
        raise CheckpointError(f"{path} is of format {version}, and this version of minigrad reads format {FORMAT}: "
                              f"checkpoint.load_tensors reads its tensors")  # fmt: skip
    if checksum != _checksum(text, arrays):
        raise CheckpointError(f"{path} is damaged: its checksum is wrong")
    try:
        return _decode(json.loads(text), arrays, device)
    except (LookupError, TypeError, ValueError, RecursionError) as error:  # not by save()
        raise CheckpointError(f"{path} is not what minigrad.save writes: {error!r}") from error


def load_tensors(path: FilePath) -> dict[str, Array]:
    """Return {name: array} of any safetensors file, such as weights from elsewhere. Raises CheckpointError."""
    return _read(path)[0]


def _read(path: FilePath) -> tuple[dict[str, Array], dict[str, str]]:
    """Return ({name: array}, metadata) of a safetensors file. Raises CheckpointError if it cannot be read."""
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in sorted(file.keys())}, file.metadata() or {}
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}") from error
    except TypeError as error:
        raise CheckpointError(f"{path} has a dtype that NumPy lacks ({error}): convert it to float32") from error
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no safetensors file, or damaged ({error}). A pickle of torch.save may run any code, and is not "
            f"loaded: write its tensors with safetensors.torch.save_file"
        ) from error


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    """Return a CRC of the JSON and of the names, dtypes, shapes and contents of the arrays."""
    crc = zlib.crc32(text.encode())
    for name in sorted(arrays):
        x = arrays[name]
        crc = zlib.crc32(x.reshape(-1).view(np.uint8).data, zlib.crc32(f"{name} {x.dtype} {x.shape}".encode(), crc))
    return f"{crc:08x}"


def _encode(value: Any, path: tuple[str, ...], arrays: dict[str, Array]) -> Any:
    """Return `value` as JSON, and put its arrays into `arrays`. A list in the JSON begins with what it stands for:
    ["dict", [key, value], …], ["tuple", …], ["tensor", name]."""
    if isinstance(value, Tensor | np.ndarray):
        array = value._host() if isinstance(value, Tensor) else value  # not copied: a model may fill the memory
        as_dtype(array.dtype)  # raises TypeError for a dtype that is not ours
        name = ".".join(path) or "tensor"
        while name in arrays or name == "__metadata__":  # {"a.b": x, "a": {"b": y}} has two tensors at a.b
            name += "~"
        arrays[name] = np.asarray(array, order="C")
        return ["tensor" if isinstance(value, Tensor) else "array", name]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in PLAIN:
        return value
    if isinstance(value, Generator):
        value = value.state
    elif hasattr(value, "state_dict") and not isinstance(value, type):
        value = value.state_dict()
    where = ".".join(path) or "the object"
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in PLAIN:
                raise TypeError(f"save: {where} has the key {key!r}, which is no string and no number")
        return ["dict", *([key, _encode(v, (*path, str(key)), arrays)] for key, v in value.items())]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, *(_encode(v, (*path, str(i)), arrays) for i, v in enumerate(value))]
    raise TypeError(
        f"save: {where} is a {type(value).__name__}; save takes tensors, modules, optimizers, "
        f"numbers, strings, lists and tuples of them, and dicts whose keys are strings or numbers"
    )


def _decode(value: Any, arrays: Mapping[str, Array], device: str) -> Any:
    """Return what _encode was given. Raises LookupError, TypeError or ValueError for JSON that it does not write."""
    if type(value) in PLAIN:
        return value
    kind, *parts = value
    if kind == "tensor":
        return from_numpy(arrays[parts[0]]).to(device)
    if kind == "array":
        return arrays[parts[0]]
    if kind == "dict":
        return {key: _decode(v, arrays, device) for key, v in parts}
    return {"list": list, "tuple": tuple}[kind](_decode(v, arrays, device) for v in parts)
