"""Adam, and AdamW."""

from typing import TYPE_CHECKING, Any

from ..autograd.keywords import accepts_keywords_of_pytorch
from ..dtypes import is_number
from .optimizer import Optimizer, is_not_negative

if TYPE_CHECKING:
    from .optimizer import Params


def are_betas(value: Any) -> bool:
    """True for two numbers in [0, 1): Adam divides by 1 - beta."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(is_number(v) and 0 <= v < 1 for v in value)


class Adam(Optimizer):
    """Step along the running mean of the gradient, divided by the root of the running mean of its square.

        m = β₁ m + (1 - β₁) g;   v = β₂ v + (1 - β₂) g²;   p -= lr · m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + eps)

    m and v begin as zeros, and t counts the steps from 1. weight_decay · p is added to the gradient first. Source:
    Kingma and Ba 2015, algorithm 1.

    Raises ValueError for impossible options, and for parameters that are given twice or require no gradient."""

    primitive, buffers = "adam_", ("m", "v")
    allowed = {"lr": is_not_negative, "betas": are_betas, "eps": is_not_negative, "weight_decay": is_not_negative}
    decoupled = False

    @accepts_keywords_of_pytorch
    def __init__(
        self, params: "Params", lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _launch_options(self, group):
        return *group["betas"], group["eps"], self.decoupled

    def _step_options(self, state, group):
        return group["lr"], group["weight_decay"], state["step"]


class AdamW(Adam):
    """Adam with decoupled weight decay: p -= lr · weight_decay · p before the step, and nothing is added to g.

    Options and errors are Adam's. Source: Loshchilov and Hutter 2019, algorithm 2."""

    decoupled = True

    @accepts_keywords_of_pytorch
    def __init__(
        self, params: "Params", lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay)
