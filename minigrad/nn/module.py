"""Module: a function with parameters, found by walking its attributes."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from ..autograd import current_modes
from ..autograd.arguments import not_a_tensor_error
from ..dtypes import DEFAULT_FLOAT, float16, float32, float64
from ..tensor import Tensor, as_tensor
from ..typing import Array, DTypeLike
from .hooks import HookMixin

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """A Module, for type checkers: a call has the arguments and the result of forward."""

    _name: str
    _forward_hooks: dict[Any, Any]
    _forward_pre_hooks: dict[Any, Any]

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def _call_with_hooks(self, args: Any, kwargs: Any) -> Any: ...


class Parameter(Tensor):
    """A Tensor that a Module trains: a leaf, contiguous, requiring a gradient by default.

    It has the shape and dtype of data, and shares memory with contiguous data. Raises TypeError for anything but a
    Tensor, and for integers that would require a gradient."""

    __slots__ = ()

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Self:
        x = object.__new__(cls)
        if not isinstance(data, Tensor):
            raise not_a_tensor_error("Parameter", "data", data)
        source = data if data.storage.backend.is_compact(data.array) else data.detach().clone()
        x.node = None
        x._become(source)
        return x.requires_grad_() if requires_grad else x

    def __init__(self, data: Tensor, requires_grad: bool = True):
        pass

    def __repr__(self):
        return f"Parameter({super().__repr__()})"


def factory(device, dtype):
    """Return {"device": …, "dtype": …} for the parameters of a layer; None means the CPU, and float32."""
    return {"device": "cpu" if device is None else device, "dtype": DEFAULT_FLOAT if dtype is None else dtype}


class Module(HookMixin):
    """Base class of layers and models. Assign Parameters and Modules as attributes, define forward, call the module.

    Parameters, buffers and submodules are found in the order in which they were assigned. Raises TypeError if another
    value is assigned to the name of one, and if a module without a forward is called."""

    _training = True
    _name = ""  # the parent's name for this module; these names make up paths, such as "blocks.1.attn"
    _buffer_names: dict = {}

    @property
    def training(self) -> bool:
        """False in eval mode, where there is no dropout: after eval(), and within evaluating() in this thread."""
        return self._training and self not in current_modes()["evaluating"]

    @training.setter
    def training(self, training: bool) -> None:
        self._training = training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what a call of the module returns. Subclasses define it; call the module, not this."""
        raise TypeError(f"{type(self).__name__} must define forward()")

    if not TYPE_CHECKING:  # to mypy a class with __setattr__ would take every name

        def __setattr__(self, name, value):
            if isinstance(value, Module):
                value._rename(name)
            elif value is not None and not isinstance(value, Parameter):
                _check_replacement(self, name, value)
            object.__setattr__(self, name, value)

    def _rename(self, name):
        self.__dict__["_name"] = name

    def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        modes, name = current_modes(), self._name
        outer = modes["scope"]
        if name:
            modes["scope"] = f"{outer}.{name}" if outer else name
        try:  # a context manager would take a microsecond more, and a small layer takes only ten
            if not (self._forward_pre_hooks or self._forward_hooks):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        finally:
            current_modes()["scope"] = outer

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Yield (name, module) of the direct submodules."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    @property
    def _modules(self) -> Mapping[str, "Module"]:
        """{name: module} of the direct submodules, as programs for PyTorch read it. Assign attributes to change it."""
        return MappingProxyType(dict(self.named_children()))

    @property
    def _parameters(self) -> Mapping[str, Parameter]:
        """{name: parameter} of this module's own parameters. Assign attributes to change it."""
        return MappingProxyType({name: x for name, x in vars(self).items() if isinstance(x, Parameter)})

    @property
    def _buffers(self) -> Mapping[str, Tensor]:
        """{name: buffer} of this module's own buffers. Assign attributes to change it."""
        return MappingProxyType({name: vars(self)[name] for name in self._buffer_names})

    def children(self) -> "Iterator[Module]":
        """Yield the direct submodules."""
        return (child for _, child in self.named_children())

    def named_modules(self) -> Iterator[tuple[str, "Module"]]:
        """Yield (path, module) of this and all modules below it, each once."""
        seen, stack = set(), [("", self)]
        while stack:
            path, module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                below = [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
                stack.extend(reversed(below))

    def modules(self) -> "Iterator[Module]":
        """Yield this and all modules below it, each once."""
        return (module for _, module in self.named_modules())

    def _named_values(self, kind, dot="", above=()):
        """Yield (path, value) of all attributes of this and the modules below for which kind(module, name, value) is
        true. A shared value comes once for each of its paths."""
        yield from ((dot + name, value) for name, value in vars(self).items() if kind(self, name, value))
        above = (*above, id(self))
        for name, child in self.named_children():
            if id(child) not in above:  # a module may have its parent as an attribute
                yield from child._named_values(kind, f"{dot}{name}.", above)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter) of all parameters, each once. Warn of Modules in a plain list: they are not found."""
        held: list = []

        def is_parameter(module, name, value):
            if type(value) in (list, tuple, dict):
                held.append((module, name, value))
            return isinstance(value, Parameter)

        yield from _unique(self._named_values(is_parameter))
        self._warn_of_hidden_modules(held)

    def _warn_of_hidden_modules(self, held):
        """Warn of Modules that are only in a list, tuple or dict. held: [(module, name, value)] of these."""
        for module, name, value in held:
            inside = [each for each in (value.values() if type(value) is dict else value) if isinstance(each, Module)]
            if inside and not {*inside} <= {*self.modules()}:
                what = f"{type(module).__name__}.{name} is a {type(value).__name__} of Modules"
                holder = "ModuleDict" if type(value) is dict else "ModuleList"
                warnings.warn(f"{what}, whose parameters are not found: make it an nn.{holder}", stacklevel=3)

    def parameters(self) -> Iterator[Parameter]:
        """Yield all parameters, each once."""
        return (p for _, p in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (path, tensor) of the buffers that are not None, each once."""
        return _unique(self._named_values(_is_buffer))

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers that are not None, each once."""
        return (b for _, b in self.named_buffers())

    def get_submodule(self, path: str) -> Any:
        """Return the module at a path such as "blocks.1.attn"; "" is this one. Raises AttributeError if there is
        none."""
        module: Any = self
        for name in path.split(".") if path else ():
            module = vars(module).get(name)
            if not isinstance(module, Module):
                raise AttributeError(f"{type(self).__name__} has no Module at {path!r}")
        return module

    def add_module(self, name: str, module: "Module") -> None:
        """Add or replace the submodule of this name. Raises TypeError for anything but a Module, and ValueError for a
        name with a dot and for the name of an attribute of the class."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__}: {name!r} must be a Module, got {type(module).__name__}")
        _check_name(self, name)
        setattr(self, name, module)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a Tensor or None that is not trained but moves with the module. If persistent, it is part of
        state_dict(). Raises TypeError for anything else."""
        if not isinstance(tensor, Tensor | None):
            raise TypeError(f"{type(self).__name__}: buffer {name!r} must be a Tensor, got {type(tensor).__name__}")
        self._buffer_names = {**self._buffer_names, name: persistent}
        setattr(self, name, tensor)

    def num_parameters(self) -> int:
        """Return how many numbers the parameters hold; shared parameters count once."""
        return sum(p.numel() for p in self.parameters())

    # ---------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Tensor]:
        """Return {path: Tensor} of parameters and persistent buffers, which share memory with the module."""
        return {path: value.detach() for path, value in self._named_values(_is_state)}

    def load_state_dict(self, state_dict: Mapping[str, Tensor | Array], strict: bool = True) -> "Keys":
        """Copy values, Tensors or arrays, into the parameters and buffers of the same paths. Return the paths that are
        missing and unexpected, as a named tuple (missing_keys, unexpected_keys).

        Shapes and kinds (float, int, bool) must be the same; the widths of dtypes may differ. strict: no path may be
        missing or unexpected. Raises ValueError if something does not fit; nothing has been copied then."""
        keys = self.check_state_dict(state_dict, strict)
        for path, x in self._named_values(_is_state):
            if path in state_dict:
                x.detach().copy_(as_tensor(state_dict[path]).detach().to(x.device))
        return keys

    def check_state_dict(self, state_dict: Mapping[str, Tensor | Array], strict: bool = True) -> "Keys":
        """Check as load_state_dict does, without loading anything."""
        own = dict(self._named_values(_is_state))
        missing, unexpected = [k for k in own if k not in state_dict], [k for k in state_dict if k not in own]
        problems = [f"missing {_first_few(missing)}"] if missing and strict else []
        problems += [f"unexpected {_first_few(unexpected)}"] if unexpected and strict else []
        reasons = [_reason_against(path, x, state_dict[path]) for path, x in own.items() if path in state_dict]
        misfits = [reason for reason in reasons if reason is not None]
        problems += misfits[:_SHOWN]
        if len(misfits) > _SHOWN:
            problems.append(f"and {len(misfits) - _SHOWN} more")
        if problems:
            raise ValueError(f"load_state_dict into {type(self).__name__}: " + "; ".join(problems))
        return Keys(missing, unexpected)

    def to(self, *targets: DTypeLike | Tensor | None, dtype: DTypeLike | None = None, device: str | None = None,
           non_blocking: bool = False) -> Self:  # fmt: skip
        """Move parameters, their .grad and buffers to a device, a float dtype, or both, in place. Return self.

        non_blocking is ignored: see Tensor.to. Raises TypeError for a dtype that is not a float, and DeviceError for a
        device that is not available."""
        for module in self.modules():
            for name, x in vars(module).items():
                if not (isinstance(x, Parameter) or (name in module._buffer_names and x is not None)):
                    continue
                y = x.detach().to(*targets, dtype=dtype, device=device)
                if x.dtype.kind == "f" and y.dtype.kind != "f":
                    raise TypeError(f"{type(self).__name__}.to: parameters are floats, not {y.dtype}")
                if x.dtype.kind != "f" and y.dtype.kind == "f":
                    y = x.detach().to(y.device)  # integers stay integers
                if y.array is not x.array:
                    _move_into(x, y)
        return self

    def float(self) -> Self:
        """Make parameters and buffers of floats float32, in place. Return self."""
        return self.to(float32)

    def double(self) -> Self:
        """Make parameters and buffers of floats float64, in place. Return self."""
        return self.to(float64)

    def half(self) -> Self:
        """Make parameters and buffers of floats float16, in place. Return self."""
        return self.to(float16)

    def train(self, mode: bool = True) -> Self:
        """Switch this and all modules below to training (mode=True) or to evaluation. Return self.

        A module whose class overrides train() is asked to switch itself and the modules below it."""
        done: set[Module] = set()
        for module in self.modules():
            if module in done:
                continue
            if module is self or type(module).train is Module.train:
                module.training = mode
            else:
                module.train(mode)
                done.update(module.modules())
        return self

    def eval(self) -> Self:
        """Switch this and all modules below to evaluation: no dropout. Return self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make all parameters require a gradient, or not. Return self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def cpu(self) -> Self:
        """Move parameters and buffers to the CPU, in place. Return self."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """Move parameters and buffers to the GPU, in place. Return self."""
        return self.to("cuda")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every parameter's .grad to None; with set_to_none=False, to zeros where there is one."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

    def apply(self, function: "Callable[[Module], Any]") -> Self:
        """Call function(module) on every module below and then on this. Return self."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # ----------------------------------------------------------------------------------------------------------- repr

    def extra_repr(self) -> str:
        """Return what repr shows in the parentheses. Subclasses override it."""
        return ""

    def __repr__(self):
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}({self.extra_repr()}\n  " + "\n  ".join(lines) + "\n)"


def _unique(named):
    """Yield the first (path, value) of each value."""
    seen = set()
    for path, value in named:
        if id(value) not in seen:
            seen.add(id(value))
            yield path, value


def _move_into(x, y):
    """Give the leaf x the memory, dtype and device of y. Its .grad gets the dtype and device too."""
    x._become(y)
    node = x.node
    if node is not None:  # the node and its hooks stay: a graph may end in it
        node.dtype, node.device = y.dtype, y.device
        node.grad = None if node.grad is None else node.grad.to(y.device).to(y.dtype)


def _is_buffer(module, name, value):
    return name in module._buffer_names and value is not None


def _is_state(module, name, value):
    return isinstance(value, Parameter) or (module._buffer_names.get(name, False) and value is not None)


def _check_replacement(module, name, value):
    """Raise TypeError if a value that is neither Parameter nor Module is assigned to the name of one, which would then
    no longer be trained or saved."""
    old = vars(module).get(name)
    if isinstance(old, Parameter):
        raise TypeError(
            f"{type(module).__name__}.{name} is a Parameter, and a {type(value).__name__} would take its place: assign "
            f"nn.Parameter(…), or None, or under no_grad use {name}.copy_(…)"
        )
    if isinstance(old, Module) or (name in module._buffer_names and not isinstance(value, Tensor)):
        kind = "Module" if isinstance(old, Module) else "buffer"
        raise TypeError(f"{type(module).__name__}.{name} is a {kind}, and cannot become a {type(value).__name__}")


def _check_name(module, name):
    """Raise ValueError unless an entry of this module may have this name."""
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"{type(module).__name__}: a name is a str without dots, and not empty; got {name!r}")
    if hasattr(type(module), name):
        raise ValueError(f"{type(module).__name__}: {name!r} is already the name of an attribute of the class")


# ----------------------------------------------------------------------------------------- checks of load_state_dict


class Keys(NamedTuple):
    """The paths that load_state_dict returns."""

    missing_keys: list[str]
    unexpected_keys: list[str]


_SHOWN = 5  # how many paths an error names, since a model may have hundreds
_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool"}


def _first_few(paths):
    return f"{paths[:_SHOWN]}" + f" and {len(paths) - _SHOWN} more" * (len(paths) > _SHOWN)


def _reason_against(path, x, given):
    """Return why `given` cannot be loaded into the parameter or buffer x, or None if it can."""
    if not isinstance(given, Tensor | np.ndarray | np.generic):
        return f"{path} is no Tensor or array in the state, but a {type(given).__name__}"
    if tuple(given.shape) != x.shape:
        return f"{path} has shape {x.shape} here but {tuple(given.shape)} in the state"
    if _KINDS.get(given.dtype.kind) != _KINDS.get(x.dtype.kind):
        return f"{path} has dtype {x.dtype} here but {given.dtype} in the state"
    return None
