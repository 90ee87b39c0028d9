"""ReduceLROnPlateau: a learning rate that falls when a loss no longer does."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .optimizer import Optimizer
from .scheduler import LRScheduler, for_each_group


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the learning rates by `factor` when a metric, given to step(metric), has not improved for more than
    `patience` steps; then it waits for `cooldown` steps before it counts again.

    mode: 'min' where less is better, 'max' where more is. An improvement is one by more than threshold: a share of the
    best metric so far (threshold_mode 'rel', for metrics that are not negative) or an amount ('abs'). No rate goes
    below min_lr, a number or one for each group, or changes by eps or less. A NaN is no improvement."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"ReduceLROnPlateau needs an Optimizer, got {type(optimizer).__name__}")
        if not 0 < factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor must lie between 0 and 1, got {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and "
                f"{threshold_mode!r}"
            )
        for_each_group(optimizer, min_lr, "min_lr")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps = min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric, a number or a Tensor of one, and set the learning rates for the next step."""
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._improves(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            least = for_each_group(self.optimizer, self.min_lr, "min_lr")
            for group, floor in zip(self.optimizer.param_groups, least):
                lr = max(group["lr"] * self.factor, floor)
                if group["lr"] - lr > self.eps:
                    group["lr"] = lr
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _improves(self, metric):
        by = 0 if math.isinf(self.best) else self.threshold
        if by and self.threshold_mode == "rel":
            by *= self.best
        return (self.best - metric if self.mode == "min" else metric - self.best) > by

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up where another ReduceLROnPlateau stood. Raises ValueError for the state of another kind."""
        expected = self.state_dict()
        if state_dict.keys() != expected.keys():
            raise ValueError(f"ReduceLROnPlateau: the state has {sorted(state_dict)}, where {sorted(expected)} belong")
        n = len(self.optimizer.param_groups)
        for name, value in state_dict.items():
            kind = str if name in ("mode", "threshold_mode") else int | float
            values = list(value) if isinstance(value, list | tuple) else [value]
            counts = {"_last_lr": [n], "min_lr": [1, n]}.get(name, [1])
            if len(values) not in counts or not all(isinstance(x, kind) for x in values):
                raise ValueError(f"ReduceLROnPlateau: the state does not fit: {name} is {value!r}")
        vars(self).update(state_dict)
