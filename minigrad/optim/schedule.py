"""Learning rates as functions of the step, which a loop sets:

    for group in optimizer.param_groups:
        group["lr"] = warmup_cosine(step, lr=1e-3, min_lr=1e-4, warmup=100, total=5000)

lr_scheduler.py has schedules in PyTorch's form."""

import math


def half_cosine(high: float, low: float, done: float) -> float:
    """Return the rate on half a cosine from `high`, where done is 0, to `low`, where done is 1."""
    return low + 0.5 * (1 + math.cos(math.pi * done)) * (high - low)


def warmup_cosine(step: int, *, lr: float, min_lr: float, warmup: int, total: int) -> float:
    """Return the rate of a step: a line up to lr over `warmup` steps, then half a cosine down to min_lr at `total`, and
    min_lr from there on."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    return half_cosine(lr, min_lr, (step - warmup) / (total - warmup))


def warmup_linear(step: int, *, lr: float, min_lr: float, warmup: int, total: int, fall: float = 1.0) -> float:
    """Return the learning rate of a step. It rises linearly to lr over `warmup` steps, stays at lr, and falls linearly
    to min_lr over the last `fall` (a share) of the `total` steps. From `total` on it is min_lr."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    left = (total - step) / (fall * total) if fall else 1.0
    return min_lr + min(1.0, left) * (lr - min_lr)
