"""The base class of optimizers: parameter groups, their state, and saving both."""

import itertools
import operator
import signal
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from reprlib import repr as shown
from typing import Any, TypeAlias

import numpy as np

from ..autograd import enable_grad, no_grad
from ..base import capturing
from ..dtypes import is_number
from ..nn.module import Parameter
from ..tensor import Tensor, as_tensor, from_backend

Params: TypeAlias = Iterable[Tensor | dict[str, Any]]


class Optimizer:
    """Base class of optimizers. A subclass has options, buffers and a formula:

        class Momentum(Optimizer):
            buffers = ("b",)

            def __init__(self, params, lr=1e-3, momentum=0.9):
                super().__init__(params, {"lr": lr, "momentum": momentum})

            def update(self, p, g, state, group):
                state["b"].mul_(group["momentum"]).add_(g)
                p -= group["lr"] * state["b"]

    params: Tensors, or dicts with 'params' and options that differ from `defaults`, {option: value}. Raises ValueError
    if there are none, and for a parameter that is given twice or requires no gradient. Options may have any values,
    unless the class has a table `allowed`."""

    buffers: tuple[str, ...] = ()  # names of Tensors of each parameter's shape and dtype; they begin as zeros

    allowed: Mapping[str, Callable[[Any], bool]] = {}
    """{option: a function that returns True if it may have a value}. With such a table, other values raise ValueError,
    and a group with an option that `defaults` lacks gives a warning."""

    primitive: str | None = None
    """The backend's primitive that changes all parameters at once (backend/numpy/optim.py). It is called as
    primitive(slots, rows of _step_options(), *_launch_options()). None: update() is called for each parameter."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        nearest = next(base for base in cls.__mro__ if "update" in vars(base) or "primitive" in vars(base))
        if "primitive" not in vars(nearest):  # the inherited primitive computes another formula than this update()
            cls.primitive = None

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise TypeError(
                f"{type(self).__name__} needs Tensors, such as model.parameters(), not a {type(params).__name__}"
            )
        given: list[Any] = list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)  # {parameter: its numbers}
        self.param_groups: list[dict[str, Any]] = []
        for group in groups:
            self.add_param_group(group)
        if not any(group["params"] for group in self.param_groups):
            raise ValueError(f"{type(self).__name__} got no parameters")

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Optimize more parameters. param_group: a dict with 'params', a Tensor or several, and options that differ
        from the defaults. Raises ValueError for a parameter that cannot be optimized or is optimized already."""
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        params = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in params]  # named_parameters() gives pairs
        group = {**self.defaults, **param_group, "params": params}
        unknown = set(group) - set(self.defaults) - {"params"}
        if unknown and self.allowed:
            name, options = type(self).__name__, sorted(self.defaults)
            warnings.warn(f"{name} has no options {sorted(unknown)}, and ignores them; it has {options}", stacklevel=3)
        for name, value in group.items():
            if not self._is_valid(name, value):
                raise ValueError(f"{type(self).__name__}: {name} cannot be {shown(value)}")
        seen = {id(p) for other in self.param_groups for p in other["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise ValueError(f"{type(self).__name__} optimizes Tensors, got {shown(p)}")
            if not p.is_leaf or not (p.requires_grad or isinstance(p, Parameter)):
                raise ValueError(f"{type(self).__name__} optimizes leaves that require a gradient, not shape {p.shape}")
            if not p.storage.backend.is_compact(p.array):
                raise ValueError(f"{type(self).__name__}: a parameter of shape {p.shape} is not contiguous; clone() it")
            if id(p) in seen:
                raise ValueError(f"{type(self).__name__}: a parameter of shape {p.shape} is given twice")
            seen.add(id(p))
        self._check_group(group)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every .grad to None; with set_to_none=False, to zeros where there is one."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, in place.

        closure: a function that computes the loss and the gradients first; its loss is returned. Raises ValueError for
        a buffer that is not an array of floats of its parameter's shape; no parameter has changed then."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        updates = [
            (p, p.grad, self._state_of(p), group)
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if not updates:
            warnings.warn(
                f"{type(self).__name__}.step(): no parameter has a gradient; call loss.backward() first", stacklevel=2
            )
        with no_grad():
            _uninterrupted(self._count_and_update, updates)
        return loss

    def _count_and_update(self, updates):
        for _, _, state, _ in updates:
            state["step"] += 1
        self._update_all(updates)

    def _state_of(self, p):
        """Return the state of a parameter; begin it if there is none.

        A kernel trusts that buffers have the parameter's dtype, device and layout. Buffers that have not, since the
        model was cast or moved or they were set by hand, are converted first."""
        state = self.state.get(p)
        if not state:
            with capturing.uncaptured(after=False):  # zeros depend on nothing
                state = self.state[p] = {"step": 0, **{name: p.zeros_like() for name in self.buffers}}
            return state
        outdated = [name for name in self.buffers if not _is_current(state.get(name), p)]
        if outdated:
            index = [id(x) for group in self.param_groups for x in group["params"]].index(id(p))
            with capturing.uncaptured():
                state.update({name: _as_buffer(state, f"optimizer state {index}", name, p) for name in outdated})
        return state

    def update(self, p: Tensor, g: Tensor, state: MutableMapping[str, Any], group: MutableMapping[str, Any]) -> None:
        """Change p, and the buffers in state, in place. It runs under no_grad, and must not change g.

        state: the parameter's buffers by name, and "step", which counts from 1. group: the options."""
        raise TypeError("an Optimizer must define update(p, g, state, group)")

    def _launch_options(self, group):
        """Return the options that `primitive` takes once for all parameters of a launch."""
        return ()

    def _step_options(self, state, group):
        """Return the options that may change from step to step, such as lr."""
        return ()

    def _parameter_options(self, p, group):
        """Return the further arguments of `primitive` for each parameter p, an array."""
        return ()

    def _update_all(self, updates):
        """Change each p of updates (p, g, state, group). Parameters of one backend with the same launch options share a
        launch of `primitive`."""
        if self.primitive is None:
            for update in updates:
                self.update(*update)
            return
        launches: dict = {}
        for p, g, state, group in updates:
            # A slot has the arrays of a parameter. A row has the options of a group at a step; slots share rows.
            slots, rows = launches.setdefault((p.storage.backend, *self._launch_options(group)), ([], {}))
            row, *_ = rows.setdefault((id(group), state["step"]), (len(rows), state, group))
            buffers = [state[name].array for name in self.buffers]
            slots.append((p.array, g.contiguous().array, *buffers, row, *self._parameter_options(p.array, group)))
            p.storage.changed()
        for (backend, *shared), (slots, rows) in launches.items():

            def numbers(rows=rows):
                return [self._step_options(state, group) for _, state, group in rows.values()]

            getattr(backend, self.primitive)(slots, numbers, *shared)

    def state_dict(self) -> dict[str, Any]:
        """Return {'state': {index: {'step': …, name: Tensor}}, 'param_groups': …}; an index counts parameters over all
        groups. The Tensors share memory with the optimizer's."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        index = {p: i for i, p in enumerate(parameters)}
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {index[p]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what state_dict() gave, with Tensors or arrays. Raises ValueError if the number of parameters, an
        option or a buffer's shape does not fit; nothing has changed then."""
        self._replace_state(*self._check_state_dict(state_dict))

    def _check_state_dict(self, state_dict):
        """Return ({parameter: its state}, [options of each group]) of a state_dict. Raises ValueError."""
        try:
            groups = [self._check_saved_options(group) for group in state_dict["param_groups"]]
            given = [list(group.pop("params")) for group in groups]
            index = itertools.count()
            own = [[next(index) for _ in group["params"]] for group in self.param_groups]
            if given != own:
                raise ValueError(f"it numbers parameters as {shown(given)}, where there are {shown(own)}")
            for group, saved in zip(self.param_groups, groups):
                self._check_group(group | saved)
            parameters = [p for group in self.param_groups for p in group["params"]]
            state = {}
            for i, saved in state_dict["state"].items():
                if not 0 <= int(i) < len(parameters):
                    raise ValueError(f"it has a state {i}, where there are {len(parameters)} parameters")
                p = parameters[int(i)]
                state[p] = self._check_saved_state(saved, f"state {i}", p)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"there is no {shown(error.args[0])}" if isinstance(error, KeyError) else error
            raise ValueError(f"{type(self).__name__}: the state does not fit: {reason}") from error
        return state, groups

    def _replace_state(self, state, groups):
        self.state = defaultdict(dict, state)
        for group, saved in zip(self.param_groups, groups):
            group.update(saved)

    def _is_valid(self, name, value):
        """True if an option may have this value."""
        return name not in self.allowed or self.allowed[name](value)

    def _check_group(self, group):
        """Raise ValueError if a group's options do not fit its parameters. For a subclass to define."""

    def _check_saved_options(self, group):
        """Return a copy of a saved group. Raises ValueError for impossible options, KeyError for missing ones."""
        group = dict(group)
        for name, default in self.defaults.items():
            if isinstance(default, tuple) and isinstance(group[name], list):  # JSON turns tuples into lists
                group[name] = tuple(group[name])
            if not self._is_valid(name, group[name]):
                raise ValueError(f"option {name} cannot be {shown(group[name])}; by default it is {default}")
        return group

    def _check_saved_state(self, state, where, p):
        """Return the saved state of parameter p: its step, and its buffers as Tensors like p. A class with a step() of
        its own gets what it has saved."""
        if type(self).step is not Optimizer.step:
            return dict(state)
        if state.keys() != {"step", *self.buffers}:
            raise ValueError(f"{where} has {shown(sorted(state))}, not step and {self.buffers}")
        step = operator.index(state["step"])  # an int, or an array of one
        return {"step": step, **{name: _as_buffer(state, where, name, p) for name in self.buffers}}


def _uninterrupted(function, *args):
    """Call function(*args). A Ctrl-C that comes meanwhile takes effect afterwards, so that steps are counted and
    parameters changed, or neither. (In a captured step, the step sees to it.)"""
    is_main = threading.current_thread() is threading.main_thread()  # Python calls handlers in no other thread
    if not is_main or capturing.in_step() or signal.getsignal(signal.SIGINT) is None:
        return function(*args)
    came: list = []
    handler = signal.signal(signal.SIGINT, lambda *args: came.append(args))
    try:
        return function(*args)
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


class Optimizers:
    """Several optimizers as one, such as Muon for some parameters and AdamW for the others. They step in order."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all optimizers, in order."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """Change every parameter that has a gradient, in place."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every .grad to None; with set_to_none=False, to zeros where there is one."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return {'optimizers': [the state of each, …]}."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what state_dict() gave. Raises ValueError if a part does not fit; no optimizer has changed then."""
        states = state_dict.get("optimizers", ()) if isinstance(state_dict, Mapping) else ()
        if not isinstance(states, list | tuple) or len(states) != len(self.optimizers):
            raise ValueError(f"the state does not fit: it is not the state of {len(self.optimizers)} optimizers")
        checked = [optimizer._check_state_dict(state) for optimizer, state in zip(self.optimizers, states)]
        for optimizer, new_state in zip(self.optimizers, checked):
            optimizer._replace_state(*new_state)


def is_not_negative(value: Any) -> bool:
    """True for a number of at least 0."""
    return is_number(value) and value >= 0


def _as_buffer(state, where, name, p):
    """Return a copy of state[name] with p's dtype, on p's device. Raises ValueError if it is not an array of floats of
    p's shape."""
    value = state.get(name)
    if not isinstance(value, Tensor | np.ndarray | np.generic) or value.dtype.kind != "f" or value.shape != p.shape:
        given = getattr(value, "shape", None) or shown(value)
        raise ValueError(f"{where} has {given} for {name}, not an array of floats of its parameter's shape {p.shape}")
    value = as_tensor(value if isinstance(value, Tensor) else np.asarray(value))
    backend = p.storage.backend
    return from_backend(backend.copy(value.to(p.device, p.dtype).array), backend)


def _is_current(buffer, p):
    """True if a buffer has the backend, dtype and shape of the parameter p, and is contiguous: then a kernel may change
    both in one loop."""
    backend = p.storage.backend
    if not isinstance(buffer, Tensor) or buffer.storage.backend is not backend:
        return False
    return buffer.dtype == p.dtype and buffer.shape == p.shape and backend.is_compact(buffer.array)
