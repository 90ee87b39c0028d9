"""GPT, the decoder-only transformer, after GPT-2 and nanoGPT: sizes, model, weights from elsewhere."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import Any

from ..creation import arange, as_tensor
from ..dtypes import DEFAULT_FLOAT, float64
from . import cost, init
from . import functional as F
from .attention import MultiheadAttention, known_heads
from .generate import generate
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ModuleList
from .module import Module
from .positions import sinusoidal
from .recompute import recompute

_GPT2: dict[str, Any] = dict(vocab_size=50257, block_size=1024, dropout=0.1, bias=True, init_std=0.02)
PRESETS: dict[str, dict[str, Any]] = {
    "nanogpt-cpu": dict(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128),
    "nanogpt-gpu": dict(vocab_size=65, block_size=256, n_layer=6, n_head=6, n_embd=384, dropout=0.2),
    "gpt2": _GPT2 | dict(n_layer=12, n_head=12, n_embd=768),
    "gpt2-medium": _GPT2 | dict(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": _GPT2 | dict(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": _GPT2 | dict(n_layer=48, n_head=25, n_embd=1600),
}
"""Arguments of GPTConfig: nanoGPT's two, for Shakespeare's characters, and GPT-2's four."""


@dataclass
class GPTConfig:
    """Sizes of a GPT. `bias`: in Linear and LayerNorm. n_kv_head, impl: see MultiheadAttention.

    positions: "learned", "sinusoidal", "rotary", "alibi" or "none", see nn.positions. tied: the token embedding is the
    head as well. init_std: of the initial weights; None: 0.02 · √(768 / n_embd), so that activations keep GPT-2's size
    at any width. recompute: blocks keep only their input for backward. pruned: {layer: [heads removed]}."""

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
    recompute: bool = False
    pruned: dict = field(default_factory=dict)

    def __post_init__(self):
        sizes = {name: getattr(self, name) for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if self.positions not in ("learned", "sinusoidal", "rotary", "alibi", "none"):
            raise ValueError(f"positions must be learned, sinusoidal, rotary, alibi or none, got {self.positions!r}")
        pruned = {int(layer): sorted(set(heads)) for layer, heads in self.pruned.items()}  # JSON's keys are str
        for layer, heads in pruned.items():
            if layer not in range(self.n_layer) or not set(heads) <= set(range(self.n_head)):
                raise ValueError(f"pruned: {self.n_layer} layers of {self.n_head} heads have no {{{layer}: {heads}}}")
        self.pruned = {layer: heads for layer, heads in pruned.items() if heads}

    @classmethod
    def preset(cls, name, **changes):
        """The sizes of a known model, with changes: "nanogpt-cpu", "nanogpt-gpu", "gpt2", "gpt2-medium", …"""
        if name not in PRESETS:
            raise ValueError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**PRESETS[name] | changes)

    def cost(self, T=None, batch=1, dtype=DEFAULT_FLOAT):
        """The Cost of a forward over `batch` sequences of T tokens (None: block_size), before a model is made."""
        T, C, hs, bias = self.block_size if T is None else T, self.n_embd, self.n_embd // self.n_head, self.bias
        norm, rows = cost.Cost(C * (1 + bias)), batch * T
        mlp = cost.linear(C, 4 * C, rows, bias) + cost.linear(4 * C, C, rows, bias)
        head = cost.linear(C, self.vocab_size, rows, False)
        embeddings = (self.vocab_size if self.tied else 2 * self.vocab_size) * C
        embeddings += self.block_size * C if self.positions == "learned" else 0
        total = norm + cost.Cost(embeddings, head.flops)
        for layer in range(self.n_layer):
            nh, nkv = self.heads_left(layer)
            total += cost.attention(C, nh, nkv, hs, hs, T, None, batch, bias=bias, dtype=dtype) + mlp + norm + norm
        return total

    def heads_left(self, layer):
        """(nh, nkv) of a layer, without those pruned."""
        nkv = self.n_kv_head or self.n_head
        left = [h for h in range(self.n_head) if h not in self.pruned.get(layer, ())]
        return len(left), len({h * nkv // self.n_head for h in left})


class MLP(Module):
    """(…, C) -> (…, 4C) -> (…, C), a GELU in between."""

    def __init__(self, config):
        C = config.n_embd
        self.fc = Linear(C, 4 * C, bias=config.bias)
        self.gelu = GELU("tanh")
        self.proj = Linear(4 * C, C, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.proj(self.gelu(self.fc(x))))


class Block(Module):
    """x + attention(norm x), then x + mlp(norm x), causal: (B, T, C) -> (B, T, C)."""

    def __init__(self, config):
        positions = config.positions if config.positions in ("rotary", "alibi") else None
        self.norm1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = MultiheadAttention(
            config.n_embd, config.n_head, num_kv_heads=config.n_kv_head, bias=config.bias, dropout=config.dropout,
            impl=config.impl, positions=positions,
        )  # fmt: skip
        self.dropout = Dropout(config.dropout)
        self.norm2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x, key_padding_mask=None, cache=None):
        z, _ = self.attn(self.norm1(x), key_padding_mask=key_padding_mask, is_causal=True, cache=cache)
        x = x + self.dropout(z)
        return x + self.mlp(self.norm2(x))


class GPT(Module):
    """Token and position embeddings, blocks, a norm, and a head: the token embedding again, if config.tied.

    Initialised as GPT-2: matrices normal of std config.init_std, those that project into the residual stream divided
    by √(2 n_layer); biases 0."""

    def __init__(self, config):
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
        self.config = dataclasses.replace(config, pruned={})
        self.prune_heads(config.pruned)

    def forward(self, idx, targets=None, cache=None):
        """idx (B, T) int -> logits (B, T, V), and the mean cross-entropy against targets (B, T), or None without.

        cache: of new_cache; idx then continues what is in it."""
        logits = self.head(self.trunk(idx, cache))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def trunk(self, idx, cache=None, left_padding=None):
        """All but the head: idx (B, T) -> (B, T, C). left_padding (B,): how many of the first tokens are none."""
        start = 0 if cache is None else cache[0].length
        T = idx.shape[1]
        if self.config.block_size < start + T:
            raise ValueError(f"a sequence of {start + T} tokens is longer than block_size {self.config.block_size}")
        at, hidden = arange(start, start + T, device=idx.device), None  # (T,)
        if left_padding is not None:
            hidden = arange(start + T, device=idx.device) < left_padding.unsqueeze(1)  # (B, start + T)
            at = (at - left_padding.unsqueeze(1)).clamp(min=0)  # (B, T)
        x = self.wte(idx)  # (B, T, C)
        if self.wpe is not None:
            x = x + self.wpe(at)
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal(at, self.config.n_embd, x.dtype)
        x = self.dropout(x)
        for i, block in enumerate(self.blocks):
            if self.config.recompute and cache is None:
                x = recompute(block, x, hidden)  # (B, T, C)
            else:
                x = block(x, hidden, None if cache is None else cache[i])  # (B, T, C)
        return self.norm(x)

    def head(self, x):
        """(B, T, C) -> (B, T, V)."""
        return F.linear(x, self.wte.weight) if self.lm_head is None else self.lm_head(x)

    def generate(
        self, prompts, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None, use_cache=True
    ):
        """prompts (B, T) int and max_new_tokens after each, (B, T + max_new_tokens); or a list of prompts of any
        lengths (Tensors or lists of int), and a list of Tensors. Dropout is off.

        Tokens are drawn as `nn.choose` says. The model sees up to block_size tokens: when these are used up, it
        goes on from the newer half of them, all prompts together, when the longest has used them up. use_cache keeps
        keys and values, and changes nothing but the time."""
        choice = dict(temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        return generate(self, prompts, max_new_tokens, use_cache, **choice)

    def new_cache(self, batch, capacity=None):
        """An empty KVCache for each layer, for `batch` sequences of up to capacity (None: block_size) tokens."""
        capacity = self.config.block_size if capacity is None else capacity
        return [block.attn.new_cache(batch, capacity) for block in self.blocks]

    def parameter_groups(self, weight_decay):
        """Two groups for an optimizer: matrices with weight decay, vectors (norms, biases) without."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def prune_heads(self, heads):
        """Remove heads, {layer: numbers of heads}, for good; config.pruned adds them up, in the numbers that they had
        at first, so that GPT(config) has the right sizes for load_state_dict. Returns self."""
        heads, gone = {layer: set(numbers) for layer, numbers in heads.items()}, dict(self.config.pruned)
        for layer, numbers in heads.items():
            if layer not in range(self.config.n_layer):
                raise ValueError(f"there is no layer {layer}: this model has {self.config.n_layer}, from 0 on")
            left = [h for h in range(self.config.n_head) if h not in gone.get(layer, ())]
            gone[layer] = [*gone.get(layer, ()), *(left[h] for h in known_heads(numbers, len(left)))]
        for layer, numbers in heads.items():
            self.blocks[layer].attn.prune_heads(numbers)
        self.config = dataclasses.replace(self.config, pruned=gone)
        return self

    def cost(self, T=None, batch=1, dtype=None):
        """The Cost of a forward over `batch` sequences of T tokens (None: block_size)."""
        return self.config.cost(T, batch, dtype or self.wte.weight.dtype)

    @classmethod
    def from_state_dict(cls, state, n_head=None, **changes):
        """A GPT with GPT-2's weights: state is {name: Tensor or array} in the names of Hugging Face's GPT2LMHeadModel
        or GPT2Model, as checkpoint.load_tensors("model.safetensors") gives it. Sizes are read off the shapes; n_head
        cannot be (None: heads of 64). changes: to the GPTConfig, such as dropout=0.1."""
        own = {}
        for name, x in state.items():
            name = name.removeprefix("transformer.")
            if not _CAUSAL_MASK.fullmatch(name):
                x = as_tensor(x).detach()
                transposed = name.endswith(_TRANSPOSED)  # of their Conv1D, which holds (in, out)
                own[_renamed(name)] = x.T if transposed else x
        if not {"wte.weight", "wpe.weight", "blocks.0.attn.in_proj_weight"} <= own.keys():
            raise ValueError(f"these are not GPT-2's weights: {', '.join(list(state)[:5])}, …")
        wte, wpe, head = own["wte.weight"], own["wpe.weight"], own.get("lm_head.weight")
        tied = head is None or (head.shape == wte.shape and bool((head == wte).all()))
        if tied:
            own.pop("lm_head.weight", None)
        (V, C), block_size = wte.shape, wpe.shape[0]
        n_layer = 1 + max(int(name.split(".")[1]) for name in own if name.startswith("blocks."))
        sizes = dict(vocab_size=V, block_size=block_size, n_layer=n_layer, n_head=n_head or max(1, C // 64), n_embd=C)
        with init.skipped():
            model = cls(GPTConfig(**sizes | dict(bias=True, tied=tied, init_std=0.02) | changes))
        model = model.double() if wte.dtype == float64 else model
        model.load_state_dict(own)
        return model


_CAUSAL_MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
_TRANSPOSED = "attn.c_attn.weight", "c_proj.weight", "mlp.c_fc.weight"
_NAMES = {
    "ln_1": "norm1", "ln_2": "norm2", "ln_f": "norm", "attn.c_attn.": "attn.in_proj_", "attn.c_proj": "attn.out_proj",
    "mlp.c_fc": "mlp.fc", "mlp.c_proj": "mlp.proj",
}  # fmt: skip


def _renamed(name):
    """Hugging Face's name of a parameter in ours."""
    name = re.sub(r"^h\.", "blocks.", name)
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name
