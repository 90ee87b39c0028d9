"""Stochastic gradient descent."""

from typing import TYPE_CHECKING

from ..autograd.keywords import accepts_keywords_of_pytorch
from .optimizer import Optimizer, is_not_negative

if TYPE_CHECKING:
    from .optimizer import Params


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum.

        b = momentum · b + g;   p -= lr · b   (Nesterov: p -= lr · (g + momentum · b))

    b begins as zeros. Without momentum p -= lr · g. weight_decay · p is added to the gradient first. Source: Sutskever,
    Martens, Dahl and Hinton 2013, with lr outside of b, as in PyTorch.

    Raises ValueError for impossible options, and for parameters that are given twice or require no gradient."""

    primitive, buffers = "sgd_", ("momentum_buffer",)
    allowed = {"lr": is_not_negative, "momentum": is_not_negative, "weight_decay": is_not_negative}

    @accepts_keywords_of_pytorch
    def __init__(
        self, params: "Params", lr: float = 1e-3, momentum: float = 0.0, *, weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:  # fmt: skip
        if nesterov and not momentum > 0:
            raise ValueError(f"SGD: nesterov=True needs a momentum, which is {momentum}; give momentum=0.9")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def _launch_options(self, group):
        return group["momentum"], group["nesterov"]

    def _step_options(self, state, group):
        return group["lr"], group["weight_decay"]
