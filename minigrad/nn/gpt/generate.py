"""Generation: each token is drawn from the model's prediction after the tokens before it."""

import math

import numpy as np

from ...autograd import no_grad
from ...autograd.arguments import check_arguments
from ...dtypes import float64
from ...random import Generator
from ...tensor import Tensor, as_tensor, rand, tensor
from ..utils import evaluating


@check_arguments
def choose(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw one token for each row of logits (B, V): int64 (B, 1).

    The token is drawn from softmax(logits / temperature). top_k keeps only the k likeliest tokens. top_p keeps the
    smallest number of likeliest tokens whose probabilities add up to at least top_p (Holtzman et al. 2019). temperature
    0 takes the likeliest token. Raises ValueError for impossible settings, and FloatingPointError if the largest logit
    of a row is NaN or infinite, from which no probabilities follow."""
    tokens = _choose(logits.detach().numpy(), temperature, top_k, top_p, generator)
    return tensor(tokens, device=logits.device)


def _choose(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """choose() for an array of logits (B, V). Return an array (B, 1) of tokens."""
    if (
        not 0 <= temperature < math.inf
        or (top_k is not None and top_k < 1)
        or (top_p is not None and not 0 < top_p <= 1)
    ):
        raise ValueError(f"needs temperature ≥ 0, top_k ≥ 1 and 0 < top_p ≤ 1, got {temperature}, {top_k} and {top_p}")
    largest = logits.max(-1, keepdims=True)  # (B, 1)
    if not np.isfinite(largest).all():
        wrong = next(x for x in largest.ravel() if not np.isfinite(x))
        raise FloatingPointError(f"no token can be chosen: the largest logit is {wrong}")
    if temperature == 0:
        return logits.argmax(-1)[:, None]
    tokens = None
    if top_k is not None or top_p is not None:  # the n likeliest (B, n), the likeliest first
        tokens = np.argsort(-logits, -1, kind="stable")[:, :top_k]
        logits = np.take_along_axis(logits, tokens, -1)
    # Float64 is precise enough for any temperature and top_p. Exponents are at most 0, so that none overflows.
    p = np.exp((logits.astype(np.float64) - largest) / temperature)
    p /= p.sum(-1, keepdims=True)
    if top_p is not None:
        p[p.cumsum(-1) - p >= top_p] = 0  # likelier tokens alone reach top_p
    cumulative = p.cumsum(-1)  # (B, n)
    u = rand(len(p), 1, dtype=float64, generator=generator).numpy()
    drawn = (cumulative <= u * cumulative[:, -1:]).sum(-1, keepdims=True)  # (B, 1): an index for each row
    return drawn if tokens is None else np.take_along_axis(tokens, drawn, -1)


@no_grad()
def generate(model, prompts, max_new_tokens, use_cache=True, each=None, **choice):
    """Continue prompts with a GPT: see GPT.generate."""
    if any(isinstance(prompt, str) for prompt in (prompts if isinstance(prompts, (list, tuple)) else [prompts])):
        raise TypeError("generate takes tokens, not text: vocab.encode(text)[None] of a CharVocab, or your tokenizer's")
    prompts = as_tensor(prompts).numpy()
    if prompts.ndim != 2 or prompts.size == 0 or prompts.dtype.kind not in "iu":
        raise ValueError(f"generate needs prompts (B, T) of ints, not empty; got {prompts.dtype} {prompts.shape}")
    if max_new_tokens < 0:
        raise ValueError(f"generate: max_new_tokens must not be negative, got {max_new_tokens}")
    B, T = prompts.shape
    tokens = np.concatenate([prompts.astype(np.int64), np.zeros((B, max_new_tokens), np.int64)], 1)
    device = next(model.parameters()).device
    with evaluating(model):
        for end in _fill_columns(model, tokens, T, use_cache, choice, device):
            if each is not None:
                each(tokens[:, end].copy())
    return tensor(tokens, device=device)


def _fill_columns(model, tokens, T, use_cache, choice, device):
    """Fill tokens, an array (B, n), from column T on, and yield the number of each column when it is filled.

    The model sees a window of up to block_size tokens, which begins at the first token. When the window is full, it
    moves on by half its size. The cache is then filled anew, since its keys and values belong to positions in the
    window."""
    (B, n), size = tokens.shape, model.config.block_size
    start = max(0, T - size)
    cache = model.new_cache(B, min(size, n - start)) if use_cache else None
    for end in range(T, n):
        if end - start > size:
            start = end - (size + 1) // 2
            for layer in cache or ():
                layer.clear()
        seen = 0 if cache is None else cache[0].length  # tokens of the window whose keys and values are known
        x = model.trunk(tensor(tokens[:, start + seen : end], device=device), cache)  # (B, T, C)
        logits = model.unembed(x[:, -1]).numpy()  # (B, V)
        tokens[:, end] = _choose(logits, **choice)[:, 0]
        yield end
