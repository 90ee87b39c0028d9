"""A small model for studying heads. examples/induction_heads.py trains one."""

from ..nn import Embedding, Linear, Module, ModuleList, MultiheadAttention, init
from ..nn import functional as F
from ..tensor import Tensor, arange


class AttentionBlock(Module):
    """x + attention(x), causal: (B, T, C) -> (B, T, C)."""

    study_parts = {"attn": None}

    def __init__(self, n_embd, n_head, impl):
        self.attn = MultiheadAttention(n_embd, n_head, bias=False, impl=impl, batch_first=True)

    def forward(self, x):
        y, _ = self.attn(x, is_causal=True)  # (B, T, C)
        return x + y


class AttentionOnly(Module):
    """An attention-only transformer (Elhage et al. 2021): token and position embeddings, layers of causal attention,
    and an untied unembedding. Without norms, MLPs and biases, the logits are a sum over paths through heads. Attributes
    have the names of nn.GPT.

    The initial weights are normal. Their std is .19 for tokens, .375 for positions, 1/√C for Q, K, V and the
    unembedding, which keeps the size of activations from layer to layer, and 1/√(2C) for O. These numbers were found by
    trial: with C = 64, two layers learn induction within a few hundred steps (examples/induction_heads.py). Positions
    get the larger std, since the model first learns to attend to the previous token. The default impl, "batched", is
    the fastest at small sizes, and the one that head hooks need."""

    def __init__(
        self, vocab_size: int, block_size: int, n_layer: int = 2, n_head: int = 4, n_embd: int = 64,
        impl: str = "batched",
    ) -> None:  # fmt: skip
        self.vocab_size, self.block_size = vocab_size, block_size
        self.wte = Embedding(vocab_size, n_embd)
        self.wpe = Embedding(block_size, n_embd)
        self.blocks = ModuleList(AttentionBlock(n_embd, n_head, impl) for _ in range(n_layer))
        self.lm_head = Linear(n_embd, vocab_size, bias=False)
        init.normal_(self.wte.weight, std=0.19)
        init.normal_(self.wpe.weight, std=0.375)
        init.normal_(self.lm_head.weight, std=n_embd**-0.5)
        for block in self.blocks:
            init.normal_(block.attn.in_proj_weight, std=n_embd**-0.5)
            init.normal_(block.attn.out_proj.weight, std=(2 * n_embd) ** -0.5)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, T, V) for idx (B, T) int, and the mean cross-entropy for targets (B, T), or None.

        Targets of -100 are ignored."""
        T = idx.shape[1]
        if self.block_size < T:
            raise ValueError(f"a sequence of {T} tokens is longer than block_size {self.block_size}")
        x = self.wte(idx) + self.wpe(arange(T, device=idx.device))  # (B, T, C)
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        logits = self.unembed(x)  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, self.vocab_size), targets.reshape(-1))

    def unembed(self, x: Tensor) -> Tensor:
        """Return the logits of the stream: (B, T, C) -> (B, T, V)."""
        return self.lm_head(x)
