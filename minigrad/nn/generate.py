"""Generation: tokens one after the other, each drawn from what the model predicts after those before it."""

import math

import numpy as np

from ..autograd import inference
from ..ops import cat, where
from ..quiet import quiet
from ..tensor import as_tensor, multinomial, tensor
from .utils import evaluating


def choose(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """One token for each row of logits (B, V): int64 (B, 1).

    It is drawn from softmax(logits / temperature). top_k keeps only the k likeliest tokens. top_p keeps the smallest
    number of likeliest tokens whose probabilities add up to at least top_p (Holtzman et al. 2019). temperature 0 takes
    the likeliest token. Raises ValueError for impossible settings, and FloatingPointError if the largest logit of a row
    is NaN or infinite, from which no probabilities follow."""
    if (
        not 0 <= temperature < math.inf
        or (top_k is not None and top_k < 1)
        or (top_p is not None and not 0 < top_p <= 1)
    ):
        raise ValueError(f"needs temperature ≥ 0, top_k ≥ 1 and 0 < top_p ≤ 1, got {temperature}, {top_k} and {top_p}")
    largest = logits.amax(-1, keepdim=True)
    if not largest.isfinite().all():
        wrong = next(x for x in largest.numpy().ravel() if not np.isfinite(x))
        raise FloatingPointError(f"no token can be chosen: the largest logit is {wrong}")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits.double()  # precise enough for any temperature and top_p
    logits = (logits - largest) / temperature  # at most 0, so that a small temperature does not overflow
    if top_k is None and top_p is None:
        return multinomial(logits.softmax(-1), 1, generator=generator)
    logits, tokens = logits.sort(-1, descending=True)  # (B, V), (B, V)
    probabilities = logits[:, :top_k].softmax(-1)
    if top_p is not None:
        above = probabilities.cumsum(-1) - probabilities  # (B, V): the sum over all likelier tokens
        probabilities = where(above < top_p, probabilities, 0.0)
    return tokens.gather(-1, multinomial(probabilities, 1, generator=generator))


@inference()
@quiet()
def generate(model, prompts, max_new_tokens, use_cache=True, **choice):
    """Continue prompts with a GPT: see GPT.generate."""
    several = isinstance(prompts, (list, tuple))
    rows = [as_tensor(prompt).numpy() for prompt in prompts] if several else list(as_tensor(prompts).numpy())
    if not rows or any(row.ndim != 1 or len(row) == 0 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError("generate needs prompts (B, T) of ints, or a list of prompts of any lengths, and none empty")
    T = max(len(row) for row in rows)
    padding = np.array([T - len(row) for row in rows])
    padded = np.stack([np.pad(row, (n, 0)) for row, n in zip(rows, padding)]).astype(np.int64)  # on the left
    idx = tensor(padded, device=next(model.parameters()).device)
    idx = _generate(model, idx, padding if padding.any() else None, max_new_tokens, use_cache, choice)
    return [row[int(n) :] for row, n in zip(idx.unbind(0), padding)] if several else idx


def _generate(model, idx, padding, max_new_tokens, use_cache, choice):
    """idx (B, T) with max_new_tokens after it. padding (B,): how many tokens at the start of each row are padding.

    The model looks through a window of block_size tokens. It begins at the first token; each time it is full, it moves
    on by half its size. So keys and values in a cache serve for half a window before they are computed anew."""
    size = model.config.block_size
    start, seen, cache = max(0, idx.shape[1] - size), None, None
    with evaluating(model):
        for left in range(max_new_tokens, 0, -1):
            T = idx.shape[1]
            if T - start > size:
                start, cache = T - (size + 1) // 2, None
            if cache is None:
                seen = start
                cache = model.new_cache(idx.shape[0], min(size, T - start + left)) if use_cache else None
            pads = None if padding is None else tensor(np.maximum(padding - start, 0), device=idx.device)
            hidden = model.trunk(idx[:, seen:], cache, pads)  # (B, T - seen, C)
            following = choose(model.head(hidden[:, -1]), **choice)  # (B, V) -> (B, 1)
            seen = T  # without a cache this is reset to `start`
            idx = cat([idx, following], dim=1)  # (B, T + 1)
    return idx
