"""Muon: momentum, made orthogonal."""

import math
from typing import TYPE_CHECKING, Any

from ..autograd.keywords import accepts_keywords_of_pytorch
from ..dtypes import is_number
from .optimizer import Optimizer, is_not_negative

if TYPE_CHECKING:
    from .optimizer import Params

JORDAN = (3.4445, -4.775, 2.0315)  # Jordan 2024: steep at 0, so five steps suffice for singular values above 0.002
SCALES = {  # {name: factor of the learning rate for a matrix of n rows and m columns}
    "original": lambda n, k: math.sqrt(max(1, n / k)),
    "match_rms_adamw": lambda n, k: 0.2 * math.sqrt(max(n, k)),
}


def are_coefficients(value: Any) -> bool:
    """True for three numbers."""
    return isinstance(value, list | tuple) and len(value) == 3 and all(map(is_number, value))


class Muon(Optimizer):
    """Step along the orthogonalized momentum: a matrix moves equally far in each of its singular directions.

        m = μ m + (1 - μ) g;   x = orthogonal(μ m + (1 - μ) g);   p -= lr · weight_decay · p;   p -= lr · scale · x

    Without nesterov, x = orthogonal(m). m begins as zeros. For n rows and k columns the scale is √max(1, n / k) with
    adjust_lr_fn "original" or None. With "match_rms_adamw" it is 0.2 √max(n, k), so that AdamW's rates fit.

    orthogonal() keeps the singular vectors and brings the singular values near 1. First x = x / max(‖x‖, eps), where
    ‖x‖ is the Frobenius norm. Then, ns_steps times, x = a x + b A x + c A² x with A = x xᵀ and (a, b, c) =
    ns_coefficients: each singular value σ becomes a σ + b σ³ + c σ⁵. Source: Jordan 2024, "Muon: An optimizer for
    hidden layers in neural networks". Options and defaults are PyTorch's.

    Muon is for the matrices within a model, of shape (…, n, k). Embeddings, unembeddings and vectors are for AdamW;
    nn.GPT.muon_groups separates the two. matrices: how many matrices each parameter of a group holds, one below the
    other, such as 3 for W_q, W_k and W_v in one parameter.

    Raises ValueError for impossible options, and for parameters that are not such matrices, are given twice or require
    no gradient."""

    primitive, buffers = "muon_", ("momentum_buffer",)
    allowed = {
        **dict.fromkeys(("lr", "weight_decay", "momentum", "eps"), is_not_negative),
        "ns_coefficients": are_coefficients,
        "ns_steps": lambda value: type(value) is int and 1 <= value < 100,
        "matrices": lambda value: type(value) is int and value >= 1,
        "adjust_lr_fn": lambda value: value is None or value in SCALES,
    }

    @accepts_keywords_of_pytorch
    def __init__(
        self, params: "Params", lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = JORDAN, eps: float = 1e-7,
        ns_steps: int = 5, adjust_lr_fn: str | None = None, *, matrices: int = 1,
    ) -> None:  # fmt: skip
        options = dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps)
        rest = dict(ns_coefficients=ns_coefficients, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn, matrices=matrices)
        super().__init__(params, options | rest)

    def _check_group(self, group):
        count = group["matrices"]
        for p in group["params"]:
            if p.ndim < 2 or p.shape[-2] % count:
                what = "a matrix" if count == 1 else f"{count} matrices, one below the other"
                raise ValueError(f"a parameter of shape {p.shape} is not {what}; optimize it with AdamW, not Muon")

    def _launch_options(self, group):
        return group["nesterov"], (tuple(group["ns_coefficients"]),) * group["ns_steps"], group["eps"]

    def _step_options(self, state, group):
        return group["lr"], group["weight_decay"], group["momentum"]

    def _parameter_options(self, p, group):
        """Return (rows of each matrix in a parameter, scale of the learning rate)."""
        rows, columns = p.shape[-2] // group["matrices"], p.shape[-1]
        return rows, SCALES[group["adjust_lr_fn"] or "original"](rows, columns) if columns else 1.0
