"""Adam, and AdamW."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from .optimizer import Optimizer, hyperparameters, launches

if TYPE_CHECKING:
    from ..optim.optimizer import Params


class Adam(Optimizer):
    """Steps in proportion to the mean of the gradients over the root of the mean of their squares.

        m = β₁ m + (1 - β₁) g;   v = β₂ v + (1 - β₂) g²;   p -= lr · m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + eps)

    m and v begin as zeros, and t counts the steps from 1. weight_decay · p is added to the gradient first. fused
    changes nothing: one launch updates all parameters in any case. Source: Kingma and Ba 2015, algorithm 1.

    Raises ValueError for impossible options, and for parameters that are given twice or require no gradient."""

    buffers = ("m", "v")
    decoupled = False

    def __init__(
        self, params: "Params", lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, p: Tensor, g: Tensor, state: MutableMapping[str, Any], group: MutableMapping[str, Any]) -> None:
        m, v, t, (beta1, beta2) = state["m"], state["v"], state["step"], group["betas"]
        if self.decoupled:
            p *= 1 - group["lr"] * group["weight_decay"]
        elif group["weight_decay"]:
            g = g + group["weight_decay"] * p
        m.mul_(beta1).add_((1 - beta1) * g)
        v.mul_(beta2).add_((1 - beta2) * g * g)
        p -= group["lr"] * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + group["eps"])

    def update_all(self, due: list[Any]) -> None:
        for (on, *shared), parameters in launches(due, lambda group: (*group["betas"], group["eps"])):
            numbers, options = hyperparameters(
                parameters, lambda s, group: (group["lr"], group["weight_decay"], s["step"])
            )
            slots = [
                (p, g, state["m"].array, state["v"].array, row) for (p, g, state, _), row in zip(parameters, numbers)
            ]
            on.adam_(slots, options, *shared, self.decoupled)


class AdamW(Adam):
    """Adam, but weight decay is apart from the gradient.

    Before the step,   p -= lr · weight_decay · p.   Options and errors are Adam's. Source: Loshchilov and Hutter 2019,
    algorithm 2."""

    decoupled = True

    def __init__(
        self, params: "Params", lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, *, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay)
