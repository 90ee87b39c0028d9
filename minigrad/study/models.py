"""Small models for studying heads: one that learns, and some whose weights are set so that a head attends as wanted."""

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..base.errors import unknown
from ..nn import Embedding, Linear, Module, ModuleList, MultiheadAttention, init
from ..nn import functional as F
from ..tensor import Tensor, arange, tensor


class AttentionBlock(Module):
    """x + attention(x), causal: (B, T, C) -> (B, T, C)."""

    study_parts = {"attn": None}

    def __init__(self, n_embd, n_head, impl):
        self.attn = MultiheadAttention(n_embd, n_head, bias=False, impl=impl, batch_first=True)

    def forward(self, x):
        y, _ = self.attn(x, is_causal=True)  # (B, T, C)
        return x + y


class AttentionOnly(Module):
    """An attention-only transformer (Elhage et al. 2021): token and learned position embeddings, layers of causal
    attention that each add to the residual stream, and an untied head. Without norms, MLPs and biases, the logits are a
    sum over paths through heads. Attributes are named as in nn.GPT.

    The initial weights are normal. Their std is .19 for tokens, .375 for positions, 1/√C for Q, K, V and the
    unembedding, which keeps the size of numbers from layer to layer, and 1/√(2C) for O. At C = 64, where these are .125
    and .088, two layers learn induction within a few hundred steps (examples/induction_heads.py). They were found by
    trial. Positions are the larger part of the input because the first thing to learn is to look at the token before.
    impl defaults to the form that is fastest at small sizes and that head hooks use anyway."""

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

    if TYPE_CHECKING:  # there is a loss where there are targets

        @overload  # type: ignore[override]  # of Module, which knows only of one kind of call
        def __call__(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, idx: Tensor, targets: None = None) -> tuple[Tensor, None]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """idx (B, T) int -> logits (B, T, V), and the mean cross-entropy against targets (B, T), or None without.

        Targets of -100 do not count."""
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
        """(B, T, C) -> (B, T, V)."""
        return self.lm_head(x)


DESIGNS = "previous", "duplicate", "induction"


def designed_head(
    kind: str, vocab_size: int = 32, block_size: int = 32, sharpness: float = 20.0
) -> tuple[AttentionOnly, str, int]:
    """(model, path, head): an AttentionOnly with weights set by hand, and the place of the head that attends as `kind`
    says: to the "previous" token, to earlier copies of its token ("duplicate"), or to the tokens that followed such
    copies ("induction"). It is the only head of the last layer, and as wide as the residual stream x (T, C):

        scores = x W_QK xᵀ,  z W_O = pattern x W_OV,  W_QK = W_Q, W_OV = W_O, W_K = W_V = I, scale 1
        x = [token | position | written | read],  C = V + T + V + V

    token and position are one-hot, and the other two parts are 0 at first. "previous" copies the token that it attends
    to into `written`, and "induction" into `read`, which the unembedding, β times the identity, reads. β = sharpness:

        previous    score_ij = β [j = i - 1]
        duplicate   score_ij = β [t_j = t_i] - β [j = i]
        induction   score_ij = β [written_j = t_i] - β [j = 0], in the layer after "previous", which has written the
                    token before j at j; at position 0, which has none before it, it wrote token 0 itself, and the
                    second term makes up for that

    An unwanted position gets at most exp(-β) times the attention of a wanted one. Where no position is wanted, those of
    score 0 share the attention. Raises KeyError for an unknown kind."""
    if kind not in DESIGNS:
        raise KeyError(unknown("designed head", kind, DESIGNS))
    V, T = vocab_size, block_size
    C = 3 * V + T
    token, position, written, read = np.split(np.eye(C), [V, V + T, 2 * V + T])  # (V, C), (T, C), (V, C), (V, C)
    previous = position.T @ np.eye(T, k=-1) @ position, token.T @ written  # W_QK / β and W_OV
    duplicate = token.T @ token - position.T @ position, np.zeros((C, C))
    induction = token.T @ written - np.outer(position.sum(0), position[0]), token.T @ read
    layers = {"previous": [previous], "duplicate": [duplicate], "induction": [previous, induction]}[kind]

    with init.skipped():
        model = AttentionOnly(V, T, n_layer=len(layers), n_head=1, n_embd=C)
    for module, weight in (model.wte, token), (model.wpe, position), (model.lm_head, sharpness * read):
        module.weight.detach().copy_(tensor(weight))
    for block, (W_QK, W_OV) in zip(model.blocks, layers):
        block.attn.scale = 1.0
        block.attn.load_from_heads([sharpness * W_QK], [np.eye(C)], [np.eye(C)], W_OV)
    return model, f"blocks.{len(layers) - 1}.attn", 0
