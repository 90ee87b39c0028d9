"""Module: a function with parameters, found by walking its attributes."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import numpy as np

from ..autograd import Handle, Node, Op, mode
from ..dtypes import DEFAULT_FLOAT
from ..recording import here
from ..tensor import Tensor
from ..typing import Array, DTypeLike
from .state import compared

if TYPE_CHECKING:
    from typing_extensions import Self

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """Any Module, to type checkers: calling it takes what its forward takes, and returns what that returns."""

    _name: str
    _forward_hooks: dict[Any, Any]
    _forward_pre_hooks: dict[Any, Any]
    _backward_hooks: dict[Any, Any]

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def _call_with_hooks(self, args: Any, kwargs: Any) -> Any: ...


class Parameter(Tensor):
    """A Tensor that a Module counts as its own to train: a leaf, contiguous, requiring a gradient by default."""

    __slots__ = ()

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> "Self":
        x = super().__new__(cls)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter needs a Tensor, got {type(data).__name__}")
        source = data if data.storage.backend.is_compact(data.array) else data.detach().clone()
        x.array, x.storage, x.node = source.array, source.storage, None
        return x.requires_grad_() if requires_grad else x

    def __init__(self, data: Tensor, requires_grad: bool = True):
        pass

    def __repr__(self):
        return f"Parameter({super().__repr__()})"


def placed(device, dtype):
    """The options of a function that makes a layer's parameters. None: on the CPU; float32."""
    return {"device": "cpu" if device is None else device, "dtype": DEFAULT_FLOAT if dtype is None else dtype}


def check_batch_first(batch_first):
    """Raise unless it is True. PyTorch's default is False; ours are batch first when it is left out, too."""
    if not batch_first:
        raise ValueError("minigrad is batch first: give it (B, T, C), as x.transpose(0, 1) of (T, B, C)")


class Tap(Op, abstract=True):
    """Passes values on unchanged, and hands their gradients, all at once, to show(dys), which may replace them.

    Hooks on the backward of a Module are two of these, around its forward."""

    show: Any

    def forward(self, *xs, show):
        return xs

    def backward(self, *dys):
        if mode.inspecting:
            return dys
        return tuple(dx if dx is None else dx.clone() for dx in self.show(dys))  # a hook may have kept what it got


class Module:
    """Base class of layers and models. Assign Parameters and Modules as attributes, define forward, call the module.

    Parameters, buffers and submodules are found in the order in which they were assigned."""

    training = True
    _name = ""  # what the parent calls this module; such names make up paths such as "blocks.1.attn"
    _buffer_names: dict = {}
    _forward_hooks: dict = {}
    _forward_pre_hooks: dict = {}
    _backward_hooks: dict = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes: see the class. Subclasses define it; call the module, not this."""
        raise TypeError(f"{type(self).__name__} must define forward()")

    def __setattr__(self, name, value):
        if isinstance(value, Module):
            value._rename(name)
        object.__setattr__(self, name, value)

    def _rename(self, name):
        self.__dict__["_name"] = name

    def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if here.recorder is not None:
            here.recorder.module(self)
        outer, name = mode.scope, self._name
        if name:
            mode.scope = f"{outer}.{name}" if outer else name
        try:  # with `switched` this would take a microsecond more, and a small layer has only ten
            if not (self._forward_pre_hooks or self._forward_hooks or self._backward_hooks):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        finally:
            mode.scope = outer

    @property
    def has_hooks(self) -> bool:
        """True if a forward or backward of this module, not counting those below it, calls hooks."""
        return bool(self._forward_pre_hooks or self._forward_hooks or self._backward_hooks)

    # ------------------------------------------------------------------------------------------------------- contents

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """(name, module) of the direct submodules."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def children(self) -> "Iterator[Module]":
        """The direct submodules."""
        return (child for _, child in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
        """(path, module) of this and all modules below it, each once."""
        seen = set()
        stack = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                below = [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
                stack.extend(reversed(below))

    def modules(self) -> "Iterator[Module]":
        """This and all modules below it, each once."""
        return (module for _, module in self.named_modules())

    def _named(self, kind, prefix="", recurse=True):
        """(path, value) of all attributes that kind(module, name, value) accepts. A shared tensor has several paths."""
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, value in vars(module).items():
                if kind(module, name, value):
                    yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) of all parameters, each once; recurse=False: of this module's own."""
        seen = set()
        for path, p in self._named(lambda module, name, value: isinstance(value, Parameter), prefix, recurse):
            if id(p) not in seen:
                seen.add(id(p))
                yield path, p

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once. recurse=False: only this module's own."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(path, tensor) of what register_buffer added, except None; recurse=False: of this module's own."""
        return self._named(
            lambda module, name, value: name in module._buffer_names and value is not None, prefix, recurse
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, except None. recurse=False: only this module's own."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, path: str) -> Any:
        """The module at a path such as "blocks.1.attn"; "" is this one. Raises AttributeError if there is none."""
        return _found(self, path, Module) if path else self

    def get_parameter(self, path: str) -> Parameter:
        """The parameter at a path. Raises AttributeError if there is none."""
        return _found(self, path, Parameter)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Add a submodule, or exchange it, under a name that is no attribute of the class."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__}: {name!r} must be a Module, got {type(module).__name__}")
        _check_name(self, name)
        setattr(self, name, module)

    register_module = add_module

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a Parameter, or None."""
        if not isinstance(parameter, Parameter | None):
            raise TypeError(f"{type(self).__name__}: {name!r} must be a Parameter, got {type(parameter).__name__}")
        _check_name(self, name)
        setattr(self, name, parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a Tensor (or None) that is not trained but moves with the module. persistent: it is part of
        state_dict()."""
        if not isinstance(tensor, Tensor | None):
            raise TypeError(f"{type(self).__name__}: buffer {name!r} must be a Tensor, got {type(tensor).__name__}")
        self._buffer_names = {**self._buffer_names, name: persistent}
        setattr(self, name, tensor)

    def num_parameters(self) -> int:
        """How many numbers the parameters hold; shared parameters count once."""
        return sum(p.numel() for p in self.parameters())

    # ---------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Tensor]:
        """{path: Tensor} of parameters and persistent buffers, sharing memory with the module."""
        return {path: value.detach() for path, value in self._named(_is_state)}

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor | Array], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Copy values (Tensors or arrays) in by path. strict: every path must be there, and no other.

        Shapes and kinds (float, int, bool) must be the same; the widths of dtypes may differ. Everything is checked
        before anything is copied: raises ValueError if something does not fit. Returns missing_keys and
        unexpected_keys, the paths, as a named tuple."""
        keys = self.check_state_dict(state_dict, strict)
        for path, x in self._named(_is_state):
            if path in state_dict:
                x.detach().copy_(state_dict[path])
        return keys

    def check_state_dict(
        self, state_dict: Mapping[str, Tensor | Array], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Raise or return what load_state_dict would, without loading anything."""
        return compared(type(self).__name__, dict(self._named(_is_state)), state_dict, strict)

    def to(
        self, *targets: DTypeLike | Tensor | None, dtype: DTypeLike | None = None, device: str | None = None
    ) -> "Self":
        """Move parameters and buffers to a device, a float dtype, or both, in place. .grad is lost. Returns self."""
        for module in self.modules():
            for name, x in vars(module).items():
                if not (isinstance(x, Parameter) or (name in module._buffer_names and x is not None)):
                    continue
                y = x.detach().to(*targets, dtype=dtype, device=device)
                if x.dtype.kind == "f" and y.dtype.kind != "f":
                    raise TypeError(f"{type(self).__name__}.to: parameters are floats, not {y.dtype}")
                if x.dtype.kind != "f" and y.dtype.kind == "f":
                    y = x.detach().to(y.device)  # integers stay integers
                if y.storage is not x.storage:
                    x.array, x.storage = y.array, y.storage
                    x.node = x.node and Node(None, 0, y.shape, y.dtype, y.device)
        return self

    def float(self) -> "Self":
        """Parameters and buffers of floats as float32, in place. Returns self."""
        return self.to(np.dtype("float32"))

    def double(self) -> "Self":
        """Parameters and buffers of floats as float64, in place. Returns self."""
        return self.to(np.dtype("float64"))

    def half(self) -> "Self":
        """Parameters and buffers of floats as float16, in place. Returns self."""
        return self.to(np.dtype("float16"))

    def train(self, training: bool = True) -> "Self":
        """Switch this and all modules below to training, or to evaluation. Returns self."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> "Self":
        """Switch this and all modules below to evaluation: no dropout. Returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> "Self":
        """Have all parameters require a gradient, or stop requiring one. Returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def cpu(self) -> "Self":
        """Parameters and buffers on the CPU, in place. Returns self."""
        return self.to("cpu")

    def cuda(self) -> "Self":
        """Parameters and buffers on the GPU, in place. Returns self."""
        return self.to("cuda")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every parameter's .grad to None; with set_to_none=False, to zeros where there is one."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

    def apply(self, function: "Callable[[Module], Any]") -> "Self":
        """Call function(module) on every module below and then on this. Returns self."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # ---------------------------------------------------------------------------------------------------------- hooks

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, args) before forward. It may return new args: a tuple, or the only argument."""
        return self._add_hook("_forward_pre_hooks", hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, args, output) after forward. It may return another output."""
        return self._add_hook("_forward_hooks", hook)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, grad_input, grad_output) in backward, with tuples that match args and output. It may
        return another grad_input."""
        return self._add_hook("_backward_hooks", hook)

    def _add_hook(self, kind, hook):
        if kind not in self.__dict__:
            self.__dict__[kind] = {}
        return Handle(self.__dict__[kind], hook)

    def _call_with_hooks(self, args, kwargs):
        for hook in list(self._forward_pre_hooks.values()):
            found = hook(self, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
        if self._backward_hooks:
            args, output = self._call_watched(args, kwargs)
        else:
            output = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            found = hook(self, args, output)
            output = output if found is None else found
        return output

    def _call_watched(self, args, kwargs):
        """forward between two Taps: one gets the gradients of the outputs, the other those of the inputs."""
        seen, n = {}, len(args)  # what the Taps hold must not lead back to them, or the graph would be a cycle
        inputs = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.node is not None]

        def at_output(dys):
            shown = tuple(dy.detach() for dy in dys)
            if inputs:
                seen["output"] = shown
            else:
                self._run_backward_hooks((None,) * n, shown)
            return dys

        def at_input(dxs):
            given = [None] * n
            for i, dx in zip(inputs, dxs):
                given[i] = dx
            grad_output = seen.pop("output", (None,))  # None if the loss used something that forward kept aside
            given = self._run_backward_hooks(tuple(given), grad_output)
            return tuple(given[i] for i in inputs)

        if inputs and mode.grad:
            through = Tap.apply(*[args[i] for i in inputs], show=at_input)
            args = tuple(through[inputs.index(i)] if i in inputs else x for i, x in enumerate(args))
        output = self.forward(*args, **kwargs)
        outputs = output if isinstance(output, tuple) else (output,)
        places = [i for i, y in enumerate(outputs) if isinstance(y, Tensor) and y.node is not None]
        if places:
            through = Tap.apply(*[outputs[i] for i in places], show=at_output)
            outputs = tuple(through[places.index(i)] if i in places else y for i, y in enumerate(outputs))
        return args, outputs if isinstance(output, tuple) else outputs[0]

    def _run_backward_hooks(self, grad_input, grad_output):
        for hook in list(self._backward_hooks.values()):
            found = hook(self, grad_input, grad_output)
            if found is not None:
                found = found if isinstance(found, tuple) else (found,)
                if [getattr(g, "shape", None) for g in found] != [getattr(g, "shape", None) for g in grad_input]:
                    raise RuntimeError(
                        f"backward hook {getattr(hook, '__name__', hook)} of {type(self).__name__} must return None or "
                        f"gradients of the inputs' shapes"
                    )
                grad_input = found
        return grad_input

    # ----------------------------------------------------------------------------------------------------------- repr

    def extra_repr(self) -> str:
        """What repr shows in the parentheses. Subclasses override it."""
        return ""

    def __repr__(self):
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}({self.extra_repr()}\n  " + "\n  ".join(lines) + "\n)"


def _is_state(module, name, value):
    return isinstance(value, Parameter) or (module._buffer_names.get(name, False) and value is not None)


def _check_name(module, name):
    """Raise unless an entry of this module may be called so."""
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"{type(module).__name__}: a name is a str without dots, and not empty; got {name!r}")
    if hasattr(type(module), name):
        raise ValueError(f"{type(module).__name__}: {name!r} is already the name of an attribute of the class")


def _found(module, path, kind):
    """What is at a path below a module. Raises AttributeError if it is no `kind`, or not there."""
    value = module
    for name in path.split("."):
        value = vars(value).get(name) if isinstance(value, Module) else None
    if not isinstance(value, kind):
        raise AttributeError(f"{type(module).__name__} has no {kind.__name__} at {path!r}")
    return value
