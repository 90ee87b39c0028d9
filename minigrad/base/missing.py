"""Attributes that are imported at their first use, and hints for the ten names of PyTorch that are missed most;
minigrad/coming_from_pytorch.md has the others."""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_CONVOLUTIONS = "there are no convolutions: cut a picture into patches with reshape and permute, then nn.Linear"
_RECURRENT = "there are no recurrent layers: see nn.MultiheadAttention and nn.GPT"
_BATCHES = "use LayerNorm or RMSNorm, which need no statistics over a batch"
INSTEAD = {
    "minigrad": {"compile": "capture records a training step and replays it", "view": "it is a method of Tensor"},
    "minigrad.nn": {
        **dict.fromkeys(("Conv1d", "Conv2d", "MaxPool2d"), _CONVOLUTIONS),
        **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
        **dict.fromkeys(("BatchNorm1d", "BatchNorm2d"), _BATCHES),
    },
}


def attributes(module: str, later: Mapping[str, str | None] = MappingProxyType({})) -> Callable[[str], Any]:
    """A __getattr__ for the module of that name.

    later: {name: the module that has it}, None for a submodule; each is imported at its first use."""

    def missing(name: str) -> Any:
        if name in later:
            found = importlib.import_module(later[name] or f".{name}", module)
            if later[name]:
                setattr(sys.modules[module], name, found := getattr(found, name))
            return found
        why, message = INSTEAD.get(module, {}).get(name), f"module {module!r} has no attribute {name!r}"
        if why is not None:
            raise AttributeError(f"{message}: {why}")
        raise AttributeError(message, name=name, obj=sys.modules[module])  # Python may suggest a name like it

    return missing
