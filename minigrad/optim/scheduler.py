"""What all schedules of learning rates share: steps, parameter groups, and the state that is saved.

A schedule is a formula, `rate(base, t)`: the learning rate after t steps of a group that began with `base`. So rates
gather no rounding errors. Where somebody else has changed a group's rate since, be it the caller or another scheduler,
step() scales it by what the formula changes. So schedulers can be combined by stepping several.
"""

from collections.abc import Mapping
from typing import Any

from ..dtypes import is_number
from .optimizer import Optimizer


class LRScheduler:
    """Base class of schedules: a subclass with options as attributes, set before super().__init__(optimizer), and
    `rate(base, t)`, where base is a group's rate at the beginning and t counts the calls of step().

    Raises TypeError for an optimizer that is none, and ValueError for impossible options, and for a last_epoch other
    than -1 with an optimizer that has had no scheduler."""

    scales = True  # False: its rates are set whatever the group's rate was, as LambdaLR's and OneCycleLR's are

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} needs an Optimizer, got {type(optimizer).__name__}")
        for group in optimizer.param_groups:
            if last_epoch != -1 and "initial_lr" not in group:
                raise ValueError(f"{type(self).__name__}: last_epoch={last_epoch} is for an optimizer that had a "
                                 f"scheduler before; load its state first")  # fmt: skip
            group.setdefault("initial_lr", group["lr"])
        self.optimizer = optimizer
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, t: int) -> float:
        """The learning rate after t steps, a float, of a group that began with `base`."""
        raise NotImplementedError(f"{type(self).__name__} must define rate(base, t)")

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates for the next step, or for step number `epoch`."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            self._take_in(group)
        before = [None] * len(self.base_lrs)  # what the formula said, where this is the step after it
        if self.scales and epoch is None:
            before = self.base_lrs if self.last_epoch < 0 else self._rates(self.last_epoch)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, old, new in zip(self.optimizer.param_groups, before, self._rates(self.last_epoch)):
            changed = old is not None and group["lr"] != old  # by somebody else
            group["lr"] = self._followed(group["lr"], old, new) if changed else new
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _take_in(self, group):
        """A group that add_param_group has added since: its rate continues from its value, as the others' do."""
        self.base_lrs.append(group.setdefault("initial_lr", group["lr"]))

    def _followed(self, lr, old, new):
        """A rate that is not the formula's `old`, after a step in which the formula goes from old to new."""
        return lr * (new / old) if old else new  # nothing scales 0

    def _rates(self, t):
        return [self.rate(base, t) for base in self.base_lrs]

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group, as the last step() set it."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, and functions: numbers, lists and strings."""
        return {name: value for name, value in vars(self).items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up where a scheduler of the same kind stood. Raises ValueError if it was of another kind, or gives no
        rates for the optimizer's groups; the scheduler is then as it was."""
        name, expected = type(self).__name__, self.state_dict()
        if state_dict.keys() != expected.keys():
            raise ValueError(f"{name}: the state has {sorted(state_dict)}, where {sorted(expected)} belong")
        n, before = len(self.optimizer.param_groups), dict(vars(self))
        vars(self).update(state_dict)
        try:
            if type(self.last_epoch) is not int or self.last_epoch < 0:
                raise TypeError(f"last_epoch must be a count of steps, not {self.last_epoch!r}")
            if not len(self.base_lrs) == len(self._last_lr) == n or not all(map(is_number, self._last_lr)):
                raise TypeError(f"base_lrs and _last_lr need a number for each of {n} parameter groups")
            rates = self._rates(self.last_epoch)  # fails, or gives no numbers, where an option is impossible
            if not all(map(is_number, rates)):
                raise TypeError(f"it gives the rates {rates}")
        except Exception as error:
            vars(self).update(before)
            raise ValueError(f"{name}: the state does not fit: {error}") from error


def at_least_1(name, n):
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")
    return n


def refuse_group(scheduler, name):
    raise ValueError(
        f"{type(scheduler).__name__}: a parameter group was added after the scheduler was made, which has no {name} "
        f"for it; make the scheduler after add_param_group()"
    )


def for_each_group(optimizer, value, name):
    """`value` for each of the optimizer's groups, or the values in a list of as many."""
    n = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * n
    if len(values) != n:
        raise ValueError(f"{name}: {len(values)} values do not fit {n} parameter groups")
    return values
