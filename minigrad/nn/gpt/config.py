"""The sizes of a GPT, checked; the sizes of known models."""

import contextlib
import operator
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, Self

from ...dtypes import is_number
from ..attention import FORMS

POSITIONS = "learned", "rotary", "none"

_GPT2: dict[str, Any] = dict(vocab_size=50257, block_size=1024, dropout=0.1, bias=True, init_std=0.02)
PRESETS: dict[str, dict[str, Any]] = {
    "nanogpt-cpu": dict(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128),
    "nanogpt-gpu": dict(vocab_size=65, block_size=256, n_layer=6, n_head=6, n_embd=384, dropout=0.2),
    "gpt2": _GPT2 | dict(n_layer=12, n_head=12, n_embd=768),
    "gpt2-medium": _GPT2 | dict(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": _GPT2 | dict(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": _GPT2 | dict(n_layer=48, n_head=25, n_embd=1600),
}
"""Arguments of GPTConfig: nanoGPT's two configurations for Shakespeare's characters, and GPT-2's four."""


@dataclass
class GPTConfig:
    """Sizes of a GPT. `bias`: in Linear and LayerNorm. n_kv_head, impl: see MultiheadAttention.

    positions: "learned", "rotary" (see nn.positions) or "none". tied: the token embedding is also the head. init_std:
    std of the initial weights; None means 0.02 · √(768 / n_embd), so that activations keep GPT-2's
    size at any width.

    Raises ValueError for values that no GPT can have, of any type, since a config may come from a file."""

    vocab_size: int
    block_size: int
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = False
    n_kv_head: int | None = None
    positions: str = "learned"
    tied: bool = True
    impl: str = "fused"
    init_std: float | None = None

    def __post_init__(self):
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            setattr(self, name, _size(name, getattr(self, name)))
        if self.n_kv_head is not None:
            self.n_kv_head = _size("n_kv_head", self.n_kv_head)
        for name in ("bias", "tied"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {shown(getattr(self, name))}")
        for name, names in {"positions": POSITIONS, "impl": FORMS}.items():
            if getattr(self, name) not in names:
                known = f"{', '.join(names[:-1])} or {names[-1]}"
                raise ValueError(f"{name} must be {known}, got {shown(getattr(self, name))}")
        if not (is_number(self.dropout) and 0 <= self.dropout <= 1):
            raise ValueError(f"dropout must be a number from 0 to 1, got {shown(self.dropout)}")
        if not (self.init_std is None or (is_number(self.init_std) and self.init_std >= 0)):
            raise ValueError(f"init_std must be None or a number, at least 0, got {shown(self.init_std)}")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}")
        if self.n_head % (self.n_kv_head or 1):
            raise ValueError(f"n_head {self.n_head} is not divisible by n_kv_head {self.n_kv_head}")
        if self.positions == "rotary" and self.n_embd // self.n_head % 2:
            raise ValueError(f"rotary positions need an even head size, got {self.n_embd // self.n_head}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The sizes of a known model, with changes: "nanogpt-cpu", "nanogpt-gpu", "gpt2", "gpt2-medium", …"""
        if name not in PRESETS:
            raise ValueError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**PRESETS[name] | changes)


def _size(name, value):
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and (size := operator.index(value)) >= 1:
            return size
    raise ValueError(f"{name} must be an int, at least 1, got {shown(value)}")
