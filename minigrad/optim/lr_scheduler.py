"""Learning rates that follow a schedule, under PyTorch's names: `scheduler.step()` after each `optimizer.step()`.

    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

A schedule is a formula, which is all that is here; what they share is in scheduler.py. ReduceLROnPlateau, which follows
a loss, is in plateau.py.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .optimizer import Optimizer
from .plateau import ReduceLROnPlateau
from .scheduler import LRScheduler, at_least_1, for_each_group, refuse_group

__all__ = [
    "LRScheduler", "LambdaLR", "StepLR", "MultiStepLR", "ExponentialLR", "ConstantLR", "LinearLR", "PolynomialLR",
    "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "SequentialLR", "ReduceLROnPlateau",
]  # fmt: skip


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

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class MultiStepLR(LRScheduler):
    """base · gamma^(the number of milestones up to t), where t counts the steps"""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, t)


class ExponentialLR(LRScheduler):
    """base · gamma^t, where t counts the steps"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma**t


class ConstantLR(LRScheduler):
    """base · factor before step total_iters, then base: from the beginning if total_iters is 0, where PyTorch's stays
    at the factor for ever."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * (self.factor if t < self.total_iters else 1)


class LinearLR(LRScheduler):
    """base times a factor that goes from start_factor to end_factor in a straight line over total_iters steps, and
    stays there: a warmup."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(
                f"LinearLR: start_factor must lie in (0, 1] and end_factor in [0, 1], got {start_factor}, {end_factor}"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        done = min(t, self.total_iters) / self.total_iters if self.total_iters else 1
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class PolynomialLR(LRScheduler):
    """base · (1 - t / total_iters)^power, 0 from total_iters on. Raises ValueError for a total_iters below 1."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = at_least_1("total_iters", total_iters), power
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * (1 - min(t, self.total_iters) / self.total_iters) ** self.power


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


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from base to eta_min over T_0 steps, then again from base over T_mult times as many, and so on.

    Raises ValueError for a T_0 or T_mult below 1. Source: Loshchilov and Hutter 2017."""

    scales = False

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_0, self.T_mult, self.eta_min = at_least_1("T_0", T_0), at_least_1("T_mult", T_mult), eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        T = self.T_0
        if self.T_mult == 1:
            t %= T
        while t >= T:
            t, T = t - T, T * self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / T)) / 2


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
        if t > self.total_steps:  # at total_steps a loop makes its last step(), whose rate nobody uses
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


class SequentialLR(LRScheduler):
    """Schedulers of one optimizer, one after the other: the next one begins, from its first step, at each milestone.

    Raises ValueError unless milestones, in order, are one fewer than schedulers."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Iterable[LRScheduler], milestones: Iterable[int], last_epoch: int = -1
    ) -> None:
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if len(self.schedulers) != len(self.milestones) + 1 or self.milestones != sorted(self.milestones):
            raise ValueError(
                f"SequentialLR: {len(self.schedulers)} schedulers need one milestone fewer, in order; got {milestones}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in self.schedulers):
            raise ValueError("SequentialLR: all schedulers must be of the optimizer that is given")
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        if last_epoch == -1:  # each of them has had its first step, when it was made
            self.schedulers[0].step(0)

    def step(self) -> None:  # type: ignore[override]
        """Set the learning rates for the next step."""
        self.last_epoch += 1
        now = bisect_right(self.milestones, self.last_epoch)
        begins = now > 0 and self.milestones[now - 1] == self.last_epoch
        self.schedulers[now].step(0 if begins else None)

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group, as the last step() set it."""
        return self.schedulers[bisect_right(self.milestones, self.last_epoch)].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Its step, and the state of each scheduler."""
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return {"last_epoch": self.last_epoch, "milestones": self.milestones, "schedulers": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up where a scheduler of the same kinds stood. Raises ValueError for the state of another."""
        expected = self.state_dict()
        if state_dict.keys() != expected.keys():
            raise ValueError(f"SequentialLR: the state has {sorted(state_dict)}, where {sorted(expected)} belong")
        states, epoch, milestones = (state_dict[name] for name in ("schedulers", "last_epoch", "milestones"))
        if len(states) != len(self.schedulers):
            raise ValueError(f"SequentialLR: the state is of {len(states)} schedulers, not of {len(self.schedulers)}")
        whole = all(type(n) is int and n >= 0 for n in (epoch, *milestones))
        if not whole or len(milestones) != len(self.milestones):
            raise ValueError(f"SequentialLR: the state does not fit: last_epoch {epoch!r}, milestones {milestones!r}")
        try:
            for scheduler, state in zip(self.schedulers, states):
                scheduler.load_state_dict(state)
        except ValueError:
            for scheduler, state in zip(self.schedulers, expected["schedulers"]):
                scheduler.load_state_dict(state)
            raise
        self.last_epoch, self.milestones = epoch, list(milestones)
