"""Stochastic gradient descent."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from .optimizer import Optimizer, hyperparameters, launches

if TYPE_CHECKING:
    from ..optim.optimizer import Params


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum.

        b = momentum · b + g;   p -= lr · b   (Nesterov: p -= lr · (g + momentum · b))

    b begins as zeros, and without momentum it is g. weight_decay · p is added to the gradient first. Source: Sutskever,
    Martens, Dahl and Hinton 2013, with lr outside of b, as in PyTorch.

    Raises ValueError for impossible options, and for parameters that are given twice or require no gradient."""

    buffers = ("momentum_buffer",)

    def __init__(
        self, params: "Params", lr: float = 1e-3, momentum: float = 0.0, *, weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:  # fmt: skip
        if nesterov and not momentum > 0:
            raise ValueError(f"SGD: nesterov=True needs a momentum, which is {momentum}; give momentum=0.9")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def update(self, p: Tensor, g: Tensor, state: MutableMapping[str, Any], group: MutableMapping[str, Any]) -> None:
        momentum, b = group["momentum"], state["momentum_buffer"]
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if momentum:
            b.mul_(momentum).add_(g)
            g = g + momentum * b if group["nesterov"] else b
        p -= group["lr"] * g

    def update_all(self, due: list[Any]) -> None:
        for (on, *shared), parameters in launches(due, lambda group: (group["momentum"], group["nesterov"])):
            numbers, options = hyperparameters(parameters, lambda _, group: (group["lr"], group["weight_decay"]))
            slots = [(p, g, state["momentum_buffer"].array, row) for (p, g, state, _), row in zip(parameters, numbers)]
            on.sgd_(slots, options, *shared)
