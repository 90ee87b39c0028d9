"""The sizes of a GPT, and the sizes of known models."""

import contextlib
import operator
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, Self

POSITIONS = "learned", "rotary", "none"

_GPT2: dict[str, Any] = dict(vocab_size=50257, block_size=1024, dropout=0.1, bias=True, init_std=0.02)
SIZES: dict[str, dict[str, Any]] = {
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
    """Sizes and options of a GPT.

    bias: whether Linear and LayerNorm have one. n_kv_head, impl: see MultiheadAttention. positions: "learned", "rotary"
    (see nn.positions) or "none". tied: the token embedding is also the unembedding. init_std: std of the initial
    weights. None means 0.02 · √(768 / n_embd), which keeps activations at GPT-2's size at any width.

    Raises ValueError for sizes that are not whole numbers from 1 on or do not fit, and for other positions. Everything
    else is checked by the layers, when a GPT is made."""

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
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "n_kv_head"):
            value = getattr(self, name)
            if (name, value) != ("n_kv_head", None):
                setattr(self, name, _check_size(name, value))
        if self.positions not in POSITIONS:
            raise ValueError(f"positions must be {', '.join(POSITIONS)}, got {shown(self.positions)}")
        if self.n_embd % self.n_head:  # the layer would call them embed_dim and num_heads
            raise ValueError(f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return the config of a known model, such as "nanogpt-cpu", "nanogpt-gpu" or "gpt2", with changes. Raises
        ValueError for other names."""
        if name not in SIZES:
            raise ValueError(f"there is no preset {name!r}; there are {', '.join(SIZES)}")
        return cls(**SIZES[name] | changes)

    def fewest_parameters(self) -> int:
        """Return a number that the parameters of a GPT of this config cannot be fewer than: those of the embeddings and
        of the MLPs."""
        embeddings = self.vocab_size + (self.block_size if self.positions == "learned" else 0)
        return self.n_embd * (embeddings + 8 * self.n_layer * self.n_embd)


def _check_size(name, value):
    """Return a size as an int. Raises ValueError for anything but a whole number from 1 on."""
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and (size := operator.index(value)) >= 1:
            return size
    raise ValueError(f"{name} must be an int, at least 1, got {shown(value)}")
