"""Generation: each token is drawn from the model's prediction after the tokens before it."""

import math

import numpy as np

from ...autograd import no_grad
from ...autograd.arguments import checked
from ...dtypes import float16, float64
from ...ops.index import Gather
from ...ops.public import where
from ...random import Generator
from ...replay.captured import capture
from ...tensor import Tensor, as_tensor, rand, tensor
from ..utils import evaluating


@checked
def choose(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """One token for each row of logits (B, V): int64 (B, 1).

    It is drawn from softmax(logits / temperature). top_k keeps only the k likeliest tokens. top_p keeps the smallest
    number of likeliest tokens whose probabilities add up to at least top_p (Holtzman et al. 2019). temperature 0 takes
    the likeliest token. Raises ValueError for impossible settings, and FloatingPointError if the largest logit of a row
    is NaN or infinite, from which no probabilities follow."""
    tokens, largest = _chosen(logits, temperature, top_k, top_p, generator)
    _check_finite(largest.numpy())
    return tokens


def _chosen(logits, temperature, top_k, top_p, generator):
    """(what choose() returns, the largest logit of each row (B, 1), which has to be finite): nothing is read on the
    host, so that a step can be captured."""
    if (
        not 0 <= temperature < math.inf
        or (top_k is not None and top_k < 1)
        or (top_p is not None and not 0 < top_p <= 1)
    ):
        raise ValueError(f"needs temperature ≥ 0, top_k ≥ 1 and 0 < top_p ≤ 1, got {temperature}, {top_k} and {top_p}")
    largest = logits.amax(-1, keepdim=True)
    if temperature == 0:
        return logits.argmax(-1, keepdim=True), largest
    tokens = None
    if top_k is not None or top_p is not None:  # the n likeliest (B, n), the first of them first
        logits, tokens = logits.topk(min(top_k or logits.shape[1], logits.shape[1]))
    # In float64, precise enough for any temperature and top_p; at most 0, so that a small one does not overflow.
    probabilities = ((logits.double() - largest) / temperature).softmax(-1)
    if tokens is None:
        return _drawn(probabilities, generator), largest
    if top_p is not None:
        above = probabilities.cumsum(-1) - probabilities  # (B, n): the sum over all likelier tokens
        probabilities = where(above < top_p, probabilities, 0.0)
    return Gather.apply(tokens, _drawn(probabilities, generator), dim=1), largest  # gather() would look at the indices


def _drawn(probabilities, generator):
    """An index for each row of probabilities (B, n), float64, drawn in proportion to them: (B, 1)."""
    cumulative = probabilities.cumsum(-1)  # (B, n)
    u = rand(len(probabilities), 1, dtype=float64, device=probabilities.device, generator=generator)
    below = (cumulative <= u * cumulative[:, -1:]).sum(-1, keepdim=True)
    return below.clamp(max=cumulative.shape[1] - 1)  # where logits are not finite, all sums may be 0


def _check_finite(largest):
    if not np.isfinite(largest).all():
        wrong = next(x for x in largest.ravel() if not np.isfinite(x))
        raise FloatingPointError(f"no token can be chosen: the largest logit is {wrong}")


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
        for end in _write(model, tokens, T, use_cache, choice, device):
            if each is not None:
                each(tokens[:, end].copy())
    return tensor(tokens, device=device)


def _write(model, tokens, T, use_cache, choice, device):
    """Fill tokens, an array (B, n), from column T on, and yield the number of each column that has been filled.

    The model looks through a window of block_size tokens. It begins at the first token; each time it is full, it moves
    on by half its size. So keys and values in a cache serve for half a window before they are computed anew."""

    (B, n), size = tokens.shape, model.config.block_size
    start = max(0, T - size)
    cache = model.new_cache(B, min(size, n - start)) if use_cache else None

    def step(idx):
        return _chosen(model.unembed(model.trunk(idx, cache)[:, -1]), **choice)  # (B, T) -> (B, 1), (B, 1)

    def single(last):
        return _chosen(model.unembed(model.decode(last, cache)[:, -1]), **choice)  # (B, 1) -> (B, 1), (B, 1)

    captured = capture(single) if cache is not None and _can_be_captured(model) else None
    last = again = None
    moved = True
    for end in range(T, n):
        if end - start > size:
            start, moved = end - (size + 1) // 2, True
        if moved:
            for layer in cache or ():
                layer.clear()
        if moved or cache is None:
            last, largest = step(tensor(tokens[:, start:end], device=device))
        elif captured is None:
            last, largest = step(last)
        elif again is None:
            (last, largest), again = captured.repeating(last)
        else:
            for layer in cache:
                layer.grow(1)
            last, largest = again(last)
        _check_finite(largest.numpy())
        tokens[:, end] = last.numpy()[:, 0]
        moved = False
        yield end


def _can_be_captured(model):
    """Not if hooks must be called each time, if attention needs masks, or without kernels, as for float16 on a CPU."""
    W, hooks = model.wte.weight, any(module.has_hooks for module in model.modules())
    kernels = W.storage.backend.captures and W.dtype != float16
    return kernels and not hooks and all(block.attn.decodes for block in model.blocks)
