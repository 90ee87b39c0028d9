"""Learning rates that follow a schedule: functions of the step, and schedulers under PyTorch's names.

    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)  # scheduler.step() after each optimizer.step()

Another schedule is a function for LambdaLR, or a subclass of LRScheduler with its formula.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dtypes import is_number
from .optimizer import Optimizer

__all__ = ["LRScheduler", "LambdaLR", "CosineAnnealingLR"]


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


class LRScheduler:
    """Base class of schedules: a subclass with options as attributes, set before super().__init__(optimizer), and
    `rate(base, t)`, where base is a group's rate at the beginning and t counts the calls of step().

    Each step sets the rates anew from the formula, so they gather no rounding errors. Raises TypeError for an optimizer
    that is none."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} needs an Optimizer, got {type(optimizer).__name__}")
        self.optimizer, self.last_epoch = optimizer, -1
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self.step()

    def rate(self, base: float, t: int) -> float:
        """The learning rate after t steps, a float, of a group that began with `base`."""
        raise NotImplementedError(f"{type(self).__name__} must define rate(base, t)")

    def rates(self, t: int) -> list[float]:
        """The learning rate of each group after t steps."""
        return [self.rate(base, t) for base in self.base_lrs]

    def step(self) -> None:
        """Set the learning rates for the next step. Raises ValueError where parameter groups were added."""
        self.last_epoch += 1
        groups, self._last_lr = self._groups(), self.rates(self.last_epoch)
        for group, rate in zip(groups, self._last_lr):
            group["lr"] = rate

    def _groups(self):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise ValueError(f"{type(self).__name__}: it was made for {len(self.base_lrs)} parameter groups, and there "
                             f"are {len(groups)}: make it after add_param_group()")  # fmt: skip
        return groups

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group, as the last step() set it."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, and functions: counts, rates and options."""
        return {name: value for name, value in vars(self).items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up where a scheduler of the same kind stood, with its options. Raises ValueError for a state that does
        not fit; the scheduler is then as it was."""
        before, n = dict(vars(self)), len(self._groups())
        try:
            if state_dict.keys() != self.state_dict().keys():
                raise ValueError(f"it has {sorted(state_dict)}, where {sorted(self.state_dict())} belong")
            vars(self).update(state_dict)
            if type(self.last_epoch) is not int or self.last_epoch < 0:
                raise ValueError(f"last_epoch {self.last_epoch!r} counts no steps")
            for rates in self.base_lrs, self._last_lr, self.rates(self.last_epoch):
                if len(rates) != n or not all(map(is_number, rates)):
                    raise ValueError(f"{rates} are not the rates of {n} parameter groups")
        except Exception as error:
            vars(self).update(before)
            raise ValueError(f"{type(self).__name__}: the state does not fit: {error}") from error


class LambdaLR(LRScheduler):
    """base · lr_lambda(t). lr_lambda: a function, or a list of one for each group. Raises ValueError for another
    number."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]
    ) -> None:
        n = len(getattr(optimizer, "param_groups", ()))
        self.lr_lambdas = [lr_lambda] * n if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != n:
            raise ValueError(f"lr_lambda: {len(self.lr_lambdas)} functions do not fit {n} parameter groups")
        super().__init__(optimizer)

    def rates(self, t: int) -> list[float]:
        return [base * function(t) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from base down to eta_min at step T_max, then up again, and so on. Raises ValueError for a T_max
    below 1.

    Source: Loshchilov and Hutter 2017, equation 5."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        if T_max < 1:
            raise ValueError(f"T_max must be at least 1, got {T_max}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2
