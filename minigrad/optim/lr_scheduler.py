"""Learning rates that follow a schedule, under PyTorch's names: `scheduler.step()` after each `optimizer.step()`.

    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

Each schedule is only a formula; scheduler.py has what they share. For another one, use LambdaLR, or a subclass of
LRScheduler with its formula.
"""

import math
from collections.abc import Callable, Sequence

from .optimizer import Optimizer
from .scheduler import LRScheduler, at_least_1, for_each_group, refuse_group

__all__ = ["LRScheduler", "LambdaLR", "StepLR", "CosineAnnealingLR", "OneCycleLR"]


class LambdaLR(LRScheduler):
    """base · lr_lambda(t). lr_lambda: a function, or a list of one for each group. Raises ValueError for another
    number."""

    scales = False

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = for_each_group(optimizer, lr_lambda, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def _take_in(self, group):
        refuse_group(self, "lr_lambda")

    def _rates(self, t):
        return [base * function(t) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class StepLR(LRScheduler):
    """base · gamma^⌊t / step_size⌋, where t counts the steps. Raises ValueError for a step_size below 1."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = at_least_1("step_size", step_size), gamma
        super().__init__(optimizer, last_epoch)

    def _followed(self, lr, old, new):
        return lr * (self.gamma if self.last_epoch % self.step_size == 0 else 1)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from base down to eta_min at step T_max, then up again, and so on. Raises ValueError for a T_max
    below 1.

    Source: Loshchilov and Hutter 2017, equation 5."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = at_least_1("T_max", T_max), eta_min
        super().__init__(optimizer, last_epoch)

    def _followed(self, lr, old, new):
        if old == self.eta_min:  # the lowest point, from which nothing can be scaled
            return lr + (new - old)
        return self.eta_min + (lr - self.eta_min) * ((new - self.eta_min) / (old - self.eta_min))

    def rate(self, base: float, t: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr over the share pct_start of total_steps, then down to the first rate over
    final_div_factor; with three_phase by way of the first rate.

    total_steps, or epochs and steps_per_epoch. anneal_strategy: 'cos' or 'linear'. cycle_momentum: momentum, or the
    first beta, goes from max_momentum to base_momentum and back. Raises ValueError for options that do not fit. Source:
    Smith and Topin 2019."""

    scales = False

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start must lie in [0, 1], got {pct_start}")
        self.total_steps = total_steps
        self.max_lrs = for_each_group(optimizer, max_lr, "max_lr")
        self.pct_start, self.anneal_strategy, self.three_phase = pct_start, anneal_strategy, three_phase
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        self.momentums = (base_momentum, max_momentum) if cycle_momentum else None
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, self.max_lrs):
                group["lr"] = group["initial_lr"] = most / div_factor
        super().__init__(optimizer, last_epoch)

    def _along(self, t, first, top, last):
        """A value at step t that goes from `first` to `top`, and on to `last`."""
        end, peak = self.total_steps - 1, self.pct_start * self.total_steps - 1
        if self.three_phase:
            places = [0, peak, 2 * peak, end]
            values = [first, top, first, last]
        else:
            places, values = [0, peak, end], [first, top, last]
        for begin, stop, start, goal in zip(places, places[1:], values, values[1:]):
            if t <= stop or stop == end:
                done = min((t - begin) / (stop - begin), 1.0) if stop != begin else 1.0
                if self.anneal_strategy == "linear":
                    return start + (goal - start) * done
                return goal + (start - goal) * (1 + math.cos(math.pi * done)) / 2

    def _take_in(self, group):
        refuse_group(self, "max_lr")

    def _rates(self, t):
        if t > self.total_steps:  # a loop's last step() is at total_steps, and its rate is unused
            raise ValueError(f"OneCycleLR: it was made for {self.total_steps} steps, and this would be one more")
        if self.momentums is not None:
            base, most = self.momentums
            for group in self.optimizer.param_groups:
                momentum = self._along(t, most, base, most)
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return [
            self._along(t, base, most, base / self.final_div_factor) for base, most in zip(self.base_lrs, self.max_lrs)
        ]
