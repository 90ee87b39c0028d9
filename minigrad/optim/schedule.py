"""Learning rates as functions of the step, which a loop sets:

    for group in optimizer.param_groups:
        group["lr"] = warmup_cosine(step, lr=1e-3, min_lr=1e-4, warmup=100, total=5000)

A rate of your own is a function of yours in their place."""

import math


def warmup_cosine(step: int, *, lr: float, min_lr: float, warmup: int, total: int) -> float:
    """Linear up to lr over `warmup` steps, then half a cosine down to min_lr at `total`, and min_lr from there on."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    done = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (lr - min_lr)


def warmup_linear(step: int, *, lr: float, min_lr: float, warmup: int, total: int, fall: float = 1.0) -> float:
    """Linear up to lr over `warmup` steps, then lr, and over the last share `fall` of the steps along a line down to
    min_lr at `total`; min_lr from there on."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    left = (total - step) / (fall * total) if fall else 1.0
    return min_lr + min(1.0, left) * (lr - min_lr)
