"""What kind of head is it? Scores on random tokens that repeat, where only the context says what comes next."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import no_grad
from ..base.errors import unknown
from ..nn import LayerNorm
from ..random import Generator
from ..tensor import Tensor, eye, tensor, zeros
from ..typing import Array
from . import stats
from .layers import as_float64, attention_layers, head_weights, several, undisturbed
from .stats import HeadTable

if TYPE_CHECKING:
    from ..nn.module import Module

_OF_PATTERN = {
    "previous": lambda pattern, tokens: stats.previous(pattern).mean(0),
    "duplicate": stats.duplicate,
    "induction": stats.induction,
}
KINDS = *_OF_PATTERN, "copying"
_NUMBERS = 2**24  # how many numbers of a layer's patterns, or of its logits, are held at a time


def repeated_tokens(periods: Array | Sequence[int], vocab_size: int, length: int, generator: Generator) -> Tensor:
    """For each period p, p distinct random tokens, over and over: periods (B,) ints -> (B, length) int64."""
    order = generator.uniform((len(periods), vocab_size)).argsort(-1)  # (B, V): each row a permutation of all tokens
    at = np.arange(length) % np.reshape(periods, (-1, 1))  # (B, length)
    return tensor(np.take_along_axis(order, at, -1))


def head_scores(
    model: "Module", kinds: Sequence[str] = KINDS, periods: Sequence[int] = (9, 16), n: int = 64, seed: int = 0
) -> HeadTable:
    """A HeadTable of what each head of a language model does on repeated random tokens, numbers from 0 to 1:

        previous    attention to the token before
        duplicate   attention to earlier copies of the current token
        induction   prefix matching: attention to what followed these copies
        copying     of all logits that its output raises, the part which belongs to the tokens that it attends to

    The first three are means over the queries to which they apply (study.stats). The last two define an induction
    head for Olsson et al. 2022. Copying uses the token at each position, t_j, and the direct logits of its value,
    ℓ_j = v_j W_O W_U, (V,), where W_U is unembedding(model) (the divisor of the final norm cancels):

        r_j = ReLU(ℓ_j - mean ℓ_j),   share_j = r_j[t_j] / Σ_v r_j[v],   copying = Σ_ij P_ij share_j / Σ_ij P_ij.

    The output at i, Σ_j P_ij v_j W_O, is split by attended token, so a head that spreads its attention can count as
    copying too. 1 means that each token raises its own logit only, and chance is about 1/V. A head that raises no logit
    at all gets 0.

    Each period gives n sequences of block_size tokens; scores are means over the periods. At least one of them should
    not occur in training: on a single period, looking back by a fixed distance is as good as induction.

    The model is called as model(idx), in eval mode and without gradients. vocab_size and block_size are attributes of
    it or of model.config. Copying also needs model.unembed(x), and n nh T V d_v multiplications per layer: where
    V and T are large, take fewer sequences. Raises KeyError for an unknown kind, and ValueError for a period that does
    not fit twice into block_size or needs more tokens than there are, and for a model without those sizes or without
    attention."""
    kinds, periods = several(kinds), several(periods)
    if n < 1 or not periods:
        raise ValueError(f"scores need sequences and periods, got n={n} and {len(periods)} periods")
    if strange := [kind for kind in kinds if kind not in KINDS]:
        raise KeyError(unknown("kind of score", strange[0], KINDS))
    V, T = _size(model, "vocab_size"), _size(model, "block_size")
    for p in periods:
        if not 1 <= p <= min(V, T // 2):
            raise ValueError(
                f"no period {p}: it takes {p} different tokens, and there are {V}; and {2 * p} positions for two "
                f"repetitions, and there are {T} in block_size"
            )
    layers = attention_layers(model)
    W_U = unembedding(model) if "copying" in kinds else None
    largest = max([V * T if "copying" in kinds else 0, *(layer.num_heads * T * T for layer in layers.values())])
    sums = {kind: {path: np.zeros(layer.num_heads) for path, layer in layers.items()} for kind in kinds}
    generator, device = Generator(seed), next(model.parameters()).device
    with undisturbed(model):
        for p in periods:
            for idx in repeated_tokens([p] * n, V, T, generator).split(max(1, _NUMBERS // largest)):
                for path, scores in _scores(model, idx.to(device), layers, kinds, W_U).items():
                    for kind, each in scores.items():
                        sums[kind][path] += each * len(idx) / (n * len(periods))
    return HeadTable(sums)


def _scores(model, idx, layers, kinds, W_U):
    """{path: {kind: (nh,)}} of a batch idx (B, T)."""
    tokens, values, found = idx.numpy(), {}, {}

    def keep_v(path, layer, v):
        values[path] = v.cpu().numpy()  # (B, nh, T, d_v)

    def score(path, layer, pattern):
        v, pattern = values.pop(path, None), pattern.cpu().numpy()  # (B, nh, T, T)
        found[path] = {kind: _OF_PATTERN[kind](pattern, tokens) for kind in kinds if kind in _OF_PATTERN}
        if v is not None:
            found[path]["copying"] = _copying(layer, pattern, tokens, v, W_U)

    handles = []
    for path, layer in layers.items():
        handles.append(layer.register_head_hook("pattern", partial(score, path), last=True))
        if W_U is not None:
            handles.append(layer.register_head_hook("v", partial(keep_v, path), last=True))
    try:
        model(idx)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _copying(layer, pattern, tokens, v, W_U):
    """(nh,) of pattern (B, nh, T, T), tokens (B, T) and v (B, nh, T, d_v)."""
    attention, scores = pattern.sum(-2), []  # (B, nh, T): the attention that each token gets from all queries
    for h in range(layer.num_heads):
        logits = v[:, h] @ (head_weights(layer, h)[-1] @ W_U).astype(v.dtype)  # (B, T, V)
        raised = np.maximum(logits - logits.mean(-1, keepdims=True), 0)
        own, of_all = np.take_along_axis(raised, tokens[..., None], -1)[..., 0], raised.sum(-1)  # (B, T)
        share = own / np.where(of_all > 0, of_all, 1)  # 0 for a head that raises nothing
        scores.append((attention[:, h] * share).sum() / attention[:, h].sum())
    return np.array(scores)


def _size(model, name):
    """An attribute of the model's config or, if it has none, of the model."""
    size = getattr(getattr(model, "config", model), name, None)
    if size is None:
        raise ValueError(f"{type(model).__name__} must have {name}, or a config with it")
    return size


def unembedding(model: "Module") -> Array:
    """W_U (C, V), float64, of a model with unembed(x), and perhaps `norm` before it.

    A part y of the residual stream adds y W_U / σ to the logits, where σ is what the norm divides by at that position,
    or 1 without a norm. The centering and the weight of a LayerNorm are part of W_U, which is (I - 11ᵀ/C) diag(weight)
    (matrix of the head); biases are not. Raises TypeError for a model without unembed(x)."""
    unembed: Any = getattr(model, "unembed", None)
    norm: Any = getattr(model, "norm", None)
    if unembed is None:
        raise TypeError(f"{type(model).__name__} has no unembed(x), which takes (B, T, C) to logits")
    like = next(iter(attention_layers(model).values())).out_proj.weight  # (C, ·)
    about: Any = dict(dtype=like.dtype, device=like.device)
    with no_grad():
        W_U = as_float64(unembed(eye(len(like), **about)[None]))[0] - as_float64(
            unembed(zeros(1, 1, len(like), **about))
        ).reshape(-1)
    if getattr(norm, "weight", None) is not None:
        W_U = as_float64(norm.weight)[:, None] * W_U
    return W_U - W_U.mean(0) if isinstance(norm, LayerNorm) else W_U
