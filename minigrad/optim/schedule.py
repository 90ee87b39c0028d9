"""Learning rates as functions of the step."""

import math


def warmup_cosine(step: int, *, lr: float, min_lr: float, warmup: int, total: int) -> float:
    """The learning rate at a step, counted from 0: linear up to lr over `warmup` steps, then half a cosine down to
    min_lr at `total`, and min_lr from there on. A float, to be put into optimizer.param_groups."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    done = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (lr - min_lr)
