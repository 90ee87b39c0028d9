"""Scores that identify previous-token, duplicate-token and induction heads.

They are measured on random tokens that repeat, where the next token can only be predicted from the context."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import unknown
from ..random import Generator
from ..tensor import Tensor, tensor
from ..typing import Array
from . import stats
from .layers import alone, as_list, attention_layers, undisturbed
from .stats import HeadTable

if TYPE_CHECKING:
    from ..nn.module import Module

KINDS = {
    "previous": lambda pattern, tokens: stats.previous(pattern).mean(0),
    "duplicate": stats.duplicate,
    "induction": stats.induction,
}
MAX_PATTERN_SIZE = 2**24  # elements of a layer's patterns in one forward: more sequences are split


def repeated_tokens(periods: Array | Sequence[int], vocab_size: int, length: int, generator: Generator) -> Tensor:
    """Return a sequence for each period p that repeats p distinct random tokens: periods (B,) ints -> (B, length)
    int64."""
    permutations = generator.uniform((len(periods), vocab_size)).argsort(-1)  # (B, V), of all tokens
    columns = np.arange(length) % np.reshape(periods, (-1, 1))  # (B, length)
    return tensor(np.take_along_axis(permutations, columns, -1))


def head_scores(
    model: "Module", kinds: Sequence[str] = tuple(KINDS), periods: Sequence[int] = (9, 16), n: int = 64, seed: int = 0
) -> HeadTable:
    """Return a HeadTable of scores from 0 to 1 for each head of a language model, on repeated random tokens:

        previous    attention to the previous token
        duplicate   attention to earlier copies of the current token
        induction   prefix matching (Olsson et al. 2022): attention to the tokens after these copies

    Each score is a mean over the queries to which it applies (see stats.py), over n sequences of block_size tokens for
    each period, and over the periods. Choose at least one period that does not occur in training: on a single period, a
    head that always looks back by the same distance scores like an induction head.

    The model is called as model(idx), in eval mode and without gradients. It, or its config, has the attributes
    vocab_size and block_size. Raises KeyError for an unknown kind. Raises ValueError for a period that does not fit
    twice into block_size, or needs more tokens than the vocabulary has, and for a model without these sizes or without
    attention."""
    kinds, periods = as_list(kinds), as_list(periods)
    if n < 1 or not periods:
        raise ValueError(f"scores need sequences and periods, got n={n} and {len(periods)} periods")
    for kind in kinds:
        if kind not in KINDS:
            raise KeyError(unknown("kind of score", kind, KINDS))
    V, T = _size(model, "vocab_size"), _size(model, "block_size")
    for p in periods:
        if not 1 <= p <= largest_period(model):
            raise ValueError(
                f"no period {p}: it takes {p} different tokens, and there are {V}; it takes {2 * p} positions for two "
                f"repetitions, and there are {T} in block_size"
            )
    layers = attention_layers(model)
    sums = {kind: {path: np.zeros(layer.num_heads) for path, layer in layers.items()} for kind in kinds}
    at_once = max(1, MAX_PATTERN_SIZE // max(layer.num_heads * T * T for layer in layers.values()))
    generator, device = Generator(seed), next(model.parameters()).device
    with alone(model), undisturbed(model), ExitStack() as stack:
        for path, layer in layers.items():

            def add_scores(layer, pattern, path=path):
                for kind in kinds:
                    scores = KINDS[kind](pattern.numpy(), idx.numpy())  # idx: of the loop below
                    sums[kind][path] += scores * len(idx) / (n * len(periods))

            stack.callback(layer.register_head_hook("pattern", add_scores, last=True).remove)
        for p in periods:
            for idx in repeated_tokens([p] * n, V, T, generator).split(at_once):
                model(idx.to(device))
    return HeadTable(sums)


def largest_period(model):
    """Return the largest period of random tokens that fits twice into a model's block_size and once into its
    vocabulary. Raises ValueError for a model without these sizes."""
    return min(_size(model, "vocab_size"), _size(model, "block_size") // 2)


def _size(model, name):
    """An attribute of the model's config, or of the model if it has no config. Raises ValueError without one."""
    size = getattr(getattr(model, "config", model), name, None)
    if size is None:
        raise ValueError(f"{type(model).__name__} must have {name}, or a config with it")
    return size
