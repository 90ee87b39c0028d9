"""Writing: tokens one after the other, each drawn from what the model says after those before it."""

import math

import numpy as np

from ..autograd import inference, quiet
from ..ops import cat, where
from ..tensor import as_tensor, multinomial, tensor


def choose(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """One token for each row of logits (B, V): int64 (B, 1).

    They are drawn from softmax(logits / temperature), of which top_k keeps the k likeliest tokens, and top_p (Holtzman
    et al. 2019) the fewest likeliest that together have at least this probability. temperature 0: the likeliest.
    Raises FloatingPointError where a row's largest logit is NaN or infinite: no probabilities follow from that."""
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
    logits = logits.double()  # for which no temperature and no top_p are too small
    logits = (logits - largest) / temperature  # near 0, e^(l/t) would overflow
    if top_k is None and top_p is None:
        return multinomial(logits.softmax(-1), 1, generator=generator)
    logits, tokens = logits.sort(-1, descending=True)  # (B, V), (B, V)
    probabilities = logits[:, :top_k].softmax(-1)
    if top_p is not None:
        above = probabilities.cumsum(-1) - probabilities  # of those before
        probabilities = where(above < top_p, probabilities, 0.0)
    return tokens.gather(-1, multinomial(probabilities, 1, generator=generator))


@inference()
@quiet()
def generate(model, prompts, max_new_tokens, use_cache=True, **choice):
    """Continue prompts with a GPT: see GPT.generate."""
    several = isinstance(prompts, (list, tuple))
    rows = [as_tensor(prompt).numpy() for prompt in prompts] if several else list(as_tensor(prompts).numpy())
    if not rows or any(row.ndim != 1 or len(row) == 0 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError("generate needs prompts (B, T) of ints, or a list of such of any lengths, T at least 1")
    T = max(len(row) for row in rows)
    padding = np.array([T - len(row) for row in rows])
    padded = np.stack([np.pad(row, (n, 0)) for row, n in zip(rows, padding)]).astype(np.int64)  # on the left
    idx = tensor(padded, device=next(model.parameters()).device)
    idx = _generate(model, idx, padding if padding.any() else None, max_new_tokens, use_cache, choice)
    return [row[int(n) :] for row, n in zip(idx.unbind(0), padding)] if several else idx


def _generate(model, idx, padding, max_new_tokens, use_cache, choice):
    """idx (B, T) and max_new_tokens after it. padding: how many tokens at the beginning of each row are none, or None.

    The model looks through a window: while it has room, from the first token on, and each time that it is full, from
    its own middle on. So a cache serves for half a window before keys and values have to be computed anew."""
    size, training = model.config.block_size, [(module, module.training) for module in model.modules()]
    start, seen, cache = max(0, idx.shape[1] - size), None, None
    model.eval()
    try:
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
            seen = T  # without a cache, `start` again
            idx = cat([idx, following], dim=1)
    finally:
        for module, was in training:
            module.training = was
    return idx
