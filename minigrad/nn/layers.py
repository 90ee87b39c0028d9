"""Layers with the names, arguments, parameter names and default initialisation of PyTorch's."""

import math
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any

from ..dtypes import DEFAULT_FLOAT
from ..tensor import Tensor, empty, ones, zeros
from ..typing import DTypeLike, Size
from . import functional as F
from . import init
from .module import Module, Parameter

if TYPE_CHECKING:
    from typing_extensions import Self


class Identity(Module):
    """x itself, of any shape."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """y = x Wᵀ + b, (…, in_features) -> (…, out_features). weight (out, in) and bias (out,) are uniform in ±1/√in."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: DTypeLike = DEFAULT_FLOAT
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype))
        self.bias = Parameter(empty(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a weight (num_embeddings, embedding_dim), named by an int index: (…) -> (…, embedding_dim).

    Initial values are standard normal."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: DTypeLike = DEFAULT_FLOAT) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(init.normal_(empty(num_embeddings, embedding_dim, dtype=dtype)))

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """Each row, over the last dims, shifted and scaled to mean 0 and variance 1, times weight plus bias.

    See F.layer_norm."""

    def __init__(
        self,
        normalized_shape: Size,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(zeros(self.normalized_shape, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, affine={self.weight is not None}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Each row, over the last dims, scaled to mean square 1, times weight. See F.rms_norm."""

    def __init__(
        self,
        normalized_shape: Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DTypeLike = DEFAULT_FLOAT,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.weight is not None}"


class Dropout(Module):
    """In training, each element becomes 0 with probability p and is divided by 1 - p otherwise."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class GELU(Module):
    """x Φ(x), or its approximation by tanh with approximate="tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x σ(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """tanh x"""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class Sigmoid(Module):
    """1 / (1 + e^-x)"""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Softmax(Module):
    """Softmax along dim."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class CrossEntropyLoss(Module):
    """See F.cross_entropy."""

    def __init__(self, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean") -> None:
        self.ignore_index, self.label_smoothing, self.reduction = ignore_index, label_smoothing, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(input, target, self.ignore_index, self.label_smoothing, self.reduction)


# ----------------------------------------------------------------------------------------------------------- containers


class Sequential(Module):
    """Modules applied one after the other."""

    def __init__(self, *modules: Module) -> None:
        for i, module in enumerate(modules):
            setattr(self, str(i), module)

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        modules = list(self.children())
        return Sequential(*modules[index]) if isinstance(index, slice) else modules[index]

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Any]:
        return self.children()


class _Container(Module):
    """Modules by key. A container is never called itself, so its children carry its name in their paths."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if isinstance(value, Module) and self._name:
            value._rename(f"{self._name}.{name}")

    def _rename(self, name):
        super()._rename(name)
        for key, child in self.named_children():
            child._rename(f"{name}.{key}")

    def __len__(self) -> int:
        return sum(1 for _ in self.children())


class ModuleList(_Container):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> "Self":
        """Add a module at the end. Returns self."""
        setattr(self, str(len(self)), module)
        return self

    def __getitem__(self, index: int) -> Any:
        return list(self.children())[index]

    def __iter__(self) -> Iterator[Any]:
        return self.children()


class ModuleDict(_Container):
    """A dict of modules by name."""

    def __init__(self, modules: Any = ()) -> None:
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Any:
        return dict(self.named_children())[name]

    def __contains__(self, name: object) -> bool:
        return name in dict(self.named_children())

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.named_children()))

    def keys(self) -> KeysView[str]:
        """The names, in the order in which they were added."""
        return dict(self.named_children()).keys()

    def values(self) -> ValuesView[Any]:
        """The modules, in the order in which they were added."""
        return dict(self.named_children()).values()

    def items(self) -> ItemsView[str, Any]:
        """(name, module), in the order in which they were added."""
        return dict(self.named_children()).items()
