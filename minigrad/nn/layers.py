"""Layers with PyTorch's names, arguments, parameter names and default initialisation. Activations, losses and
containers are in files of their own.

For a Tensor whose shape or dtype does not fit the parameters, a layer raises what its function raises: ValueError or
TypeError."""

import math
from typing import Any

from ..dtypes import DEFAULT_FLOAT
from ..tensor import Tensor, empty
from ..typing import DTypeLike, Size
from . import functional as F
from . import init
from .module import Module, Parameter, factory


class Identity(Module):
    """Return the input, a Tensor of any shape. All arguments of the constructor are ignored, as in PyTorch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """x with the dims start_dim to end_dim merged into one: see flatten()."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Linear(Module):
    """y = x Wᵀ + b, (…, in_features) -> (…, out_features). weight (out, in) and bias (out,) are uniform in ±1/√in.

    x has the parameters' float dtype. Raises ValueError for another last size, and TypeError for another dtype."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: str | None = None,
        dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:  # fmt: skip
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, **factory(device, dtype)))
        self.bias = Parameter(empty(out_features, **factory(device, dtype))) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights from the default generator."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a weight (num_embeddings, embedding_dim), selected by an int Tensor: (…) -> (…, embedding_dim).

    Initial values are standard normal. padding_idx: a row that begins as zeros and gets no gradient. Raises IndexError
    for a number outside [0, num_embeddings), TypeError for an index that is not an int Tensor, and ValueError for a
    padding_idx that is not a row."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, device: str | None = None,
        dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} is out of range for {num_embeddings} embeddings")
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(empty(num_embeddings, embedding_dim, **factory(device, dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights from the default generator."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class LayerNorm(Module):
    """Shift and scale each row over the last dims to mean 0 and variance 1, then multiply by weight and add bias.

    x (…, *normalized_shape) -> the same shape. weight begins as ones, bias as zeros. Formula and errors: see
    F.layer_norm."""

    def __init__(
        self, normalized_shape: Size, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: str | None = None, dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:  # fmt: skip
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        shape, place = self.normalized_shape, factory(device, dtype)
        self.weight = Parameter(empty(shape, **place)) if elementwise_affine else None
        self.bias = Parameter(empty(shape, **place)) if elementwise_affine and bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to ones and bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, affine={self.weight is not None}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Scale each row over the last dims to mean square 1, then multiply by weight, which begins as ones.

    x (…, *normalized_shape) -> the same shape. Formula and errors: see F.rms_norm."""

    def __init__(
        self, normalized_shape: Size, eps: float | None = None, elementwise_affine: bool = True,
        device: str | None = None, dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:  # fmt: skip
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(empty(self.normalized_shape, **factory(device, dtype))) if elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.weight is not None}"


class Dropout(Module):
    """In training, set each element to 0 with probability p and divide it by 1 - p otherwise.

    Floats of any shape -> the same shape. `inplace` is ignored. Raises ValueError for a p outside of [0, 1]."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p must lie in [0, 1], got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
