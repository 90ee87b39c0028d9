"""Reading back what `minigrad train` has saved: a model, or a whole run to continue.

A checkpoint's checksum proves that the file is intact, not that its contents make sense. So they are compared with the
tensors in the file before a model is made, and no file can allocate more than its own size.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import nn
from ..base.errors import CheckpointError
from ..dtypes import is_number
from ..typing import Array, FilePath
from . import checkpoint, text

if TYPE_CHECKING:
    from ..nn.gpt.model import GPT
    from .text import CharVocab

__all__ = ["FOLDER", "load_char_model", "load_run", "model_file"]

LAST, BEST = "last.safetensors", "best.safetensors"  # of the folder of a run
FOLDER = Path("runs/char_lm")  # the run that is trained or read by default
SIZES = "block_size", "n_layer", "n_head", "n_embd", "dropout"  # a run's settings that describe its model


def model_file(path: FilePath, train: str = "minigrad train") -> Path:
    """The checkpoint at a path: a file itself, or of a run's folder best.safetensors, or last.safetensors before the
    first validation. Raises CheckpointError, which names the command `train`, if a folder has neither, and if there is
    no FOLDER."""
    path = Path(path)
    if not path.is_dir() and path != FOLDER:
        return path
    for file in (path / name for name in (BEST, LAST)):
        if file.exists():
            return file
    raise CheckpointError(f"there is no checkpoint in {path}: train a model first, with: {train}")


def load_char_model(path: FilePath, device: str = "cpu") -> "tuple[GPT, CharVocab, dict[str, Any]]":
    """(GPT, CharVocab, meta) from a checkpoint of `minigrad train`, or a run's folder: see model_file. meta has its
    "chars" and its "config".

    Raises CheckpointError for a file that cannot be read, holds something else, or describes something impossible."""
    tensors, meta = checkpoint.load(path := model_file(path))
    with _wrong("holds no character model", path):
        vocab, config = _char_model(tensors, meta)
        model = nn.GPT.with_weights(config, checkpoint.weights(tensors))
        meta["config"] = dataclasses.asdict(config)
    return model.to(device), vocab, meta


def load_run(path: FilePath, settings: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """(tensors, meta) of a run of `minigrad train`, to continue it. settings: {name: default}, those of runner.py.

    meta has been checked: "chars" and "settings" fit the model's weights, each setting is of its default's kind, and
    "step", "best_loss" and "crc" are possible. checkpoint.unpack checks the rest. Raises CheckpointError."""
    tensors, meta = checkpoint.load(path)
    with _wrong("holds no run to go on with", path):
        saved, best = _entry(meta, "settings", dict), meta.get("best_loss")
        for name, default in settings.items():
            _check_setting(name, saved.get(name, default), default)
        if not 0 <= _entry(meta, "step", int) < 2**53:
            raise ValueError(f"its step is {shown(meta['step'])}")
        if not (best is None or is_number(best) or best == math.inf):
            raise ValueError(f"its best_loss is {shown(best)}")
        if not 0 <= _entry(meta, "crc", int, 0) < 2**32:
            raise ValueError(f"its crc is {shown(meta['crc'])}")
        _, config = _char_model(tensors, meta)
        wrong = [name for name in SIZES if _entry(saved, name, object) != getattr(config, name)]
        if wrong:
            raise ValueError(f"its settings and its config say different things about {', '.join(wrong)}")
        if not all(np.isfinite(x).all() for x in tensors.values()):
            raise ValueError("some of its numbers are not finite")
    return tensors, meta


@contextlib.contextmanager
def _wrong(how, path):
    try:
        yield
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} {how}: {error}") from error


def _char_model(tensors, meta):
    """(CharVocab, GPTConfig), once they fit each other and the weights."""
    chars = _entry(meta, "chars", str)
    vocab = text.CharVocab(chars)
    if vocab.chars != chars:
        raise ValueError(f"its chars {shown(chars)} are not in order")
    if "config" in meta:
        fields = {k: x for k, x in _entry(meta, "config", dict).items() if k != "recompute"}  # of older versions
    else:  # a run from before the config was saved
        settings = _entry(meta, "settings", dict)
        fields = dict(vocab_size=len(vocab), **{name: _entry(settings, name, object) for name in SIZES})
    try:
        config = nn.GPTConfig(**fields)
    except TypeError as error:  # an unknown field, or a missing one
        raise ValueError(f"its config is not a GPT's ({error})") from error
    if config.vocab_size != len(vocab):
        raise ValueError(f"its vocab_size is {shown(config.vocab_size)}, but it has {len(vocab)} chars")
    weights = checkpoint.weights(tensors)
    config.check_sizes({path: x.shape for path, x in weights.items()})
    for path, x in weights.items():
        if not np.isfinite(x).all():
            raise ValueError(f"some numbers of {shown(path)} are not finite")
    return vocab, config


def _entry(entries, name, kind, default=None):
    """entries[name], of this type."""
    value = entries.get(name, default)
    if value is None:
        raise ValueError(f"it has no {name!r}")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):  # True is an int too
        raise ValueError(f"its {name} is {shown(value)}")
    return value


def _can_be_a_path(value):
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _check_setting(name, value, default):
    if isinstance(default, list):
        right = isinstance(value, list) and all(map(_can_be_a_path, value))
    else:
        right = is_number(value) and isinstance(value, int | type(default))
    if not right:
        raise ValueError(f"its setting {name} is {shown(value)}")
