"""Learning-rate schedules in PyTorch's form:

    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    for x, y in batches:
        …
        optimizer.step()
        scheduler.step()

A schedule of your own is a subclass with a `rate`, or a function for LambdaLR. Where a loop has no scheduler object, it
may set the rate by a function of the step: see schedule.py.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.missing import module_getattr
from .optimizer import Optimizer, Optimizers
from .schedule import half_cosine

__all__ = ["CosineAnnealingLR", "LRScheduler", "LambdaLR", "LinearLR", "SequentialLR", "StepLR"]

if not TYPE_CHECKING:  # names of PyTorch that are not here say what to write instead
    __getattr__ = module_getattr(__name__)


class LRScheduler:
    """Base class. It sets the 'lr' of each of the optimizer's groups to `rate(the group's first lr, steps so far)`.

    The first lr of a group stays in the group as 'initial_lr', so that a second scheduler starts from it too.
    last_epoch counts the calls of step()."""

    def __init__(self, optimizer: Optimizer | Optimizers) -> None:
        self.optimizer, self.last_epoch = optimizer, 0
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._set_rates()

    def rate(self, base: float, t: int) -> float:
        """Return the rate after t steps of a group whose first rate is `base`. A subclass defines this or rates."""
        raise NotImplementedError(f"{type(self).__name__} must define rate(base, t)")

    def rates(self, t: int) -> list[float]:
        """Return the rate of each group after t steps."""
        return [self.rate(base, t) for base in self.base_lrs]

    def step(self) -> None:
        """Set the rates for the next step of the optimizer."""
        self.last_epoch += 1
        self._set_rates()

    def get_last_lr(self) -> list[float]:
        """Return the rate that each group has now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return {'last_epoch': …, 'base_lrs': […]}: what changes, not the settings."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what state_dict() gave, and set the rates."""
        self.last_epoch, self.base_lrs = int(state_dict["last_epoch"]), list(state_dict["base_lrs"])
        self._set_rates()

    def _set_rates(self):
        for group, rate in zip(self.optimizer.param_groups, self.rates(self.last_epoch), strict=True):
            group["lr"] = rate


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(t), a function, or a list with a function for each group."""

    def __init__(
        self,
        optimizer: Optimizer | Optimizers,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"LambdaLR needs a function for each of {groups} groups, got {len(self.lr_lambdas)}")
        super().__init__(optimizer)

    def rates(self, t: int) -> list[float]:
        return [base * factor(t) for base, factor in zip(self.base_lrs, self.lr_lambdas)]


class StepLR(LRScheduler):
    """The first rate, times gamma after each step_size steps."""

    def __init__(self, optimizer: Optimizer | Optimizers, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to eta_min in T_max steps, and from there up again."""

    def __init__(self, optimizer: Optimizer | Optimizers, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        return half_cosine(base, self.eta_min, t / self.T_max)


class LinearLR(LRScheduler):
    """The first rate times a factor that goes from start_factor to end_factor in total_iters steps, and stays there."""

    def __init__(
        self, optimizer: Optimizer | Optimizers, start_factor: float = 1 / 3, end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:  # fmt: skip
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        done = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class SequentialLR(LRScheduler):
    """Several schedules, one after the other: schedulers[i + 1] starts at step milestones[i], with its own step 0."""

    def __init__(
        self, optimizer: Optimizer | Optimizers, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1 or any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError(
                f"SequentialLR needs schedulers of this optimizer, and a milestone between each two of them: got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def rates(self, t: int) -> list[float]:
        i = bisect.bisect_right(self.milestones, t)
        return self.schedulers[i].rates(t - (self.milestones[i - 1] if i else 0))
