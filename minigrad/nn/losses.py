"""Losses as layers, called as loss(input, target). Each keeps the options of its function in `functional`, which
explains them, and raises what the function raises.

weight and pos_weight are buffers: they move with the layer and are part of its state."""

from typing import Any

from ..tensor import Tensor
from . import functional as F
from .module import Module


class _Loss(Module):
    """function(input, target, **options), with the options that the constructor was given."""

    function: Any = None
    buffered = "weight", "pos_weight"

    def __init__(self, **options):
        self._options = tuple(options)
        for name, value in options.items():
            if name in self.buffered:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return type(self).function(input, target, **{name: getattr(self, name) for name in self._options})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._options if name not in self.buffered)


class MSELoss(_Loss):
    """The mean of (input - target)², (), for two Tensors of one shape. Other reductions: see F.mse_loss."""

    function = staticmethod(F.mse_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class L1Loss(_Loss):
    """The mean of |input - target|, (), of two Tensors of one shape; other reductions: see F.l1_loss."""

    function = staticmethod(F.l1_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class SmoothL1Loss(_Loss):
    """F.smooth_l1_loss of two Tensors of one shape: their mean, (), by default."""

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction, beta=beta)


class KLDivLoss(_Loss):
    """F.kl_div of log-probabilities and probabilities of one shape: the mean of its terms, (), by default."""

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


class BCEWithLogitsLoss(_Loss):
    """F.binary_cross_entropy_with_logits for logits and target of one shape. The default is the mean, ()."""

    function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight=weight, pos_weight=pos_weight, reduction=reduction)


class NLLLoss(_Loss):
    """F.nll_loss for log-probabilities (N, V) and classes (N,). The default is the mean, ()."""

    function = staticmethod(F.nll_loss)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class CrossEntropyLoss(_Loss):
    """F.cross_entropy for logits (N, V) and classes (N,), or probabilities (N, V). The default is the mean, ()."""

    function = staticmethod(F.cross_entropy)

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        options = dict(ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        super().__init__(weight=weight, **options)
