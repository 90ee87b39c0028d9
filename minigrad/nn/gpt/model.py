"""GPT, the decoder-only transformer, after GPT-2 and nanoGPT."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, overload

from ...autograd.arguments import check_arguments
from ...dtypes import float64
from ...random import Generator
from ...tensor import Tensor, arange
from ...typing import Array
from .. import functional as F
from .. import init
from ..activations import GELU
from ..attention import MultiheadAttention
from ..cache import KVCache
from ..containers import ModuleList
from ..layers import Dropout, Embedding, LayerNorm, Linear
from ..module import Module
from .config import GPTConfig
from .generate import generate
from .gpt2 import translate_gpt2


class MLP(Module):
    """Two linear layers with a GELU in between: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        C = config.n_embd
        self.fc = Linear(C, 4 * C, bias=config.bias)
        self.gelu = GELU("tanh")
        self.proj = Linear(4 * C, C, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.gelu(self.fc(x))  # (B, T, 4C)
        return self.dropout(self.proj(x))  # (B, T, C)


class Block(Module):
    """x = x + attention(norm x), causal; then x + mlp(norm x): (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        self.norm1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = MultiheadAttention(
            config.n_embd, config.n_head, num_kv_heads=config.n_kv_head, bias=config.bias, dropout=config.dropout,
            impl=config.impl, positions="rotary" if config.positions == "rotary" else None, batch_first=True,
        )  # fmt: skip
        self.dropout = Dropout(config.dropout)
        self.norm2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: "KVCache | None" = None) -> Tensor:
        y, _ = self.attn(self.norm1(x), is_causal=True, cache=cache)  # (B, T, C)
        x = x + self.dropout(y)  # (B, T, C)
        return x + self.mlp(self.norm2(x))  # (B, T, C)


class GPT(Module):
    """Token and position embeddings, blocks, a norm, and an unembedding, the token embedding again if config.tied.

    Initialised as GPT-2 is: matrices are normal with std config.init_std, which is divided by √(2 n_layer) for those
    that project into the residual stream; biases are 0."""

    def __init__(self, config: GPTConfig | None = None, **sizes: Any) -> None:
        if not isinstance(config, GPTConfig) or sizes:
            raise TypeError("GPT takes a GPTConfig: nn.GPT(nn.GPTConfig(vocab_size=…, block_size=…))")
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.block_size, config.n_embd) if config.positions == "learned" else None
        self.dropout = Dropout(config.dropout)
        self.blocks = ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, bias=config.bias)
        self.lm_head = None if config.tied else Linear(config.n_embd, config.vocab_size, bias=False)
        std = 0.02 * math.sqrt(768 / config.n_embd) if config.init_std is None else config.init_std
        for name, p in self.named_parameters():
            if p.ndim == 2:
                into_residual = name.endswith(("attn.out_proj.weight", "mlp.proj.weight"))
                init.normal_(p, std=std / math.sqrt(2 * config.n_layer) if into_residual else std)
            elif name.endswith("bias"):
                init.zeros_(p)
        self.config = dataclasses.replace(config)

    if TYPE_CHECKING:  # a call with targets returns a loss

        @overload  # type: ignore[override]  # Module declares a single kind of call
        def __call__(
            self, idx: Tensor, targets: Tensor, cache: list[KVCache] | None = None
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(
            self, idx: Tensor, targets: None = None, cache: list[KVCache] | None = None
        ) -> tuple[Tensor, None]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, cache: list[KVCache] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return (logits (B, T, V), loss) of tokens idx (B, T). The loss, (), is the mean cross-entropy against targets
        (B, T), or None without targets.

        cache: from new_cache; idx then continues the sequences in it. Raises ValueError for more than block_size
        tokens, IndexError for tokens outside of [0, V), and TypeError for an idx that is not an int Tensor."""
        logits = self.unembed(self.trunk(idx, cache))  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def trunk(self, idx: Tensor, cache: list[KVCache] | None = None) -> Tensor:
        """Return the last norm's output (B, T, C) for tokens idx (B, T): everything but the unembedding."""
        if idx.ndim != 2:
            raise ValueError(f"GPT takes tokens (B, T), got shape {idx.shape}; idx[None] is a batch of one sequence")
        start = 0 if cache is None else cache[0].length
        end = start + idx.shape[1]
        if end > self.config.block_size:
            raise ValueError(f"a sequence of {end} tokens is longer than block_size {self.config.block_size}")
        x = self.wte(idx)  # (B, T, C)
        if self.wpe is not None:
            x = x + self.wpe(arange(start, end, device=idx.device))  # (B, T, C)
        x = self.dropout(x)
        for i, block in enumerate(self.blocks):
            x = block(x, None if cache is None else cache[i])  # (B, T, C)
        return self.norm(x)  # (B, T, C)

    def unembed(self, x: Tensor) -> Tensor:
        """Return logits (B, T, V) for the trunk's output x (B, T, C)."""
        return F.linear(x, self.wte.weight) if self.lm_head is None else self.lm_head(x)

    @check_arguments
    def generate(self, prompts: Any, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None,
                 top_p: float | None = None, generator: Generator | None = None, use_cache: bool = True,
                 each: Callable[[Array], object] | None = None) -> Any:  # fmt: skip
        """Continue prompts (B, T) of ints by max_new_tokens each, without dropout: (B, T + max_new_tokens).

        Tokens are drawn as nn.choose says. The model sees at most block_size tokens: when there are more, the older
        half is dropped. use_cache keeps keys and values from step to step, which saves time and changes nothing else.
        each(drawn) is called at each step with the new tokens, an int64 array (B,), to show them at once."""
        choice = dict(temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        return generate(self, prompts, max_new_tokens, use_cache, each, **choice)

    def new_cache(self, batch: int, capacity: int | None = None) -> list[KVCache]:
        """Return an empty KVCache for each layer, for `batch` sequences of up to capacity (None: block_size) tokens."""
        capacity = self.config.block_size if capacity is None else capacity
        return [block.attn.new_cache(batch, capacity) for block in self.blocks]

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return two groups for an optimizer, [{"params": […], "weight_decay": …}, …]: matrices with weight decay, and
        vectors (norms, biases) without."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def muon_groups(self, weight_decay: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return (groups for optim.Muon, groups for AdamW): the matrices within the blocks, and everything else.

        Muon takes an in_proj_weight as three matrices, W_q, W_k and W_v, or as one matrix for each head where heads
        share keys and values."""
        inside = dict.fromkeys(p for p in self.blocks.parameters() if p.ndim == 2)
        groups: dict[int, list[Any]] = {}
        for block in self.blocks:
            nh, nkv = block.attn.num_heads, block.attn.num_kv_heads
            groups.setdefault(3 if nh == nkv else nh + 2 * nkv, []).append(block.attn.in_proj_weight)
        packed = {p for ps in groups.values() for p in ps}
        groups[1] = [p for p in inside if p not in packed]
        rest = self.parameter_groups(weight_decay)
        for group in rest:
            group["params"] = [p for p in group["params"] if p not in inside]
        return [{"params": ps, "matrices": n, "weight_decay": weight_decay} for n, ps in groups.items()], rest

    @classmethod
    def with_weights(cls, config: GPTConfig, state: Mapping[str, Tensor | Array]) -> Self:
        """Return a GPT of this config with these weights, {path: Tensor or array}. It is float64 if the token embedding
        is. No random numbers are drawn. Raises ValueError if the weights do not fit. If they are too few, no model is
        built, since a wrong config may ask for a huge one."""
        held, needed = sum(math.prod(x.shape) for x in state.values()), config.fewest_parameters()
        if needed > held:
            raise ValueError(f"{config} has {needed:,} parameters or more, but the weights hold {held:,} numbers")
        with init.skipped():
            model = cls(config)
        model = model.double() if getattr(state.get("wte.weight"), "dtype", None) == float64 else model
        model.load_state_dict(state)
        return model

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor | Array], n_head: int | None = None, **changes: Any) -> Self:
        """Return a GPT with GPT-2's weights: {name: Tensor or array}, with the names of Hugging Face's GPT2LMHeadModel
        or GPT2Model, as checkpoint.load_tensors("model.safetensors") gives them.

        Sizes are read off the shapes, except n_head (None: heads of size 64). changes: options of the GPTConfig, such
        as dropout=0.1. Raises ValueError if these are not GPT-2's weights."""
        return cls.with_weights(*translate_gpt2(state, n_head, **changes))
