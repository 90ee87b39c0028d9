"""A pre-norm transformer block and GPT, after GPT-2 and nanoGPT."""

import math
from dataclasses import dataclass

from ..autograd import inference
from ..creation import arange, multinomial
from ..ops import cat
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ModuleList
from .module import Module


@dataclass
class GPTConfig:
    """Sizes of a GPT. `bias`: in Linear and LayerNorm."""

    vocab_size: int
    block_size: int
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = False


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
        self.norm1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = MultiheadAttention(config.n_embd, config.n_head, config.dropout, config.bias)
        self.dropout = Dropout(config.dropout)
        self.norm2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        z, _ = self.attn(self.norm1(x), is_causal=True)
        x = x + self.dropout(z)
        return x + self.mlp(self.norm2(x))


class GPT(Module):
    """A decoder-only transformer: token and position embeddings, blocks, a norm, and the token embedding again as head.

    Initialised as GPT-2 at its width of 768: matrices normal of std 0.02 · √(768 / n_embd), so that activations keep
    their size at any width; the projections into the residual stream divided by √(2 n_layer)."""

    def __init__(self, config):
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.block_size, config.n_embd)
        self.dropout = Dropout(config.dropout)
        self.blocks = ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, bias=config.bias)
        std = 0.02 * math.sqrt(768 / config.n_embd)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                into_residual = name.endswith(("attn.out_proj.weight", "mlp.proj.weight"))
                init.normal_(p, std=std / math.sqrt(2 * config.n_layer) if into_residual else std)
            elif name.endswith("bias"):
                init.zeros_(p)

    def forward(self, idx, targets=None):
        """idx (B, T) int -> logits (B, T, V), and the mean cross-entropy against targets (B, T), or None without."""
        logits = self._head(self._trunk(idx))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def _trunk(self, idx):
        T = idx.shape[1]
        if self.config.block_size < T:
            raise ValueError(f"a sequence of {T} tokens is longer than block_size {self.config.block_size}")
        positions = arange(T, device=idx.device)
        x = self.dropout(self.wte(idx) + self.wpe(positions))  # (B, T, C)
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        return self.norm(x)

    def _head(self, x):
        return F.linear(x, self.wte.weight)  # (B, T, C) -> (B, T, V)

    def parameter_groups(self, weight_decay):
        """Two groups for an optimizer: matrices with weight decay, vectors (norms, biases) without."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    @inference()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None, generator=None):
        """idx (B, T) and max_new_tokens sampled after it, (B, T + max_new_tokens). Sees the last block_size tokens.

        temperature 0 takes the likeliest token; top_k samples among the k likeliest. Dropout is off."""
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(f"generate needs temperature ≥ 0 and top_k ≥ 1, got {temperature} and {top_k}")
        training = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            for _ in range(max_new_tokens):
                hidden = self._trunk(idx[:, -self.config.block_size :])  # (B, T, C)
                logits = self._head(hidden[:, -1])  # (B, V)
                if temperature == 0:
                    following = logits.argmax(-1, keepdim=True)
                else:
                    if top_k is not None:
                        kth = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                        logits = logits.masked_fill(logits < kth, -math.inf)
                    logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # near 0, e^(l/t) would overflow
                    following = multinomial(logits.softmax(-1), 1, generator=generator)
                idx = cat([idx, following], dim=1)
        finally:
            for module, was in training:
                module.training = was
        return idx
