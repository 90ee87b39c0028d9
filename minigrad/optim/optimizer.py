"""What all optimizers share: parameter groups, their state, and saving both."""

import itertools
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from reprlib import repr as shown
from typing import Any, TypeAlias

import numpy as np

from ..autograd import enable_grad, no_grad
from ..base import recording
from ..dtypes import is_number
from ..nn.module import Parameter
from ..tensor import Tensor, as_tensor, from_backend

Params: TypeAlias = Iterable[Tensor | dict[str, Any]]


class Optimizer:
    """Base class of optimizers. A subclass gives its options, its buffers and its formula:

        class Momentum(Optimizer):
            buffers = ("b",)

            def __init__(self, params, lr=1e-3, momentum=0.9):
                super().__init__(params, {"lr": lr, "momentum": momentum})

            def update(self, p, g, state, group):
                state["b"].mul_(group["momentum"]).add_(g)
                p -= group["lr"] * state["b"]

    params: Tensors, or dicts with 'params' and options that differ from `defaults`, {option: value}. Raises ValueError
    for none, for one that is given twice or requires no gradient, and for impossible options."""

    buffers: tuple = ()  # names of the Tensors of state that each parameter has, of its shape; they begin as zeros

    primitive: str | None = None
    """The backend's primitive that changes all parameters at once: (slots, rows of _numbers(), *_shared()), see
    backend/numpy/optim.py. None: update() is called for each."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        nearest = next(base for base in cls.__mro__ if "update" in vars(base) or "primitive" in vars(base))
        if "primitive" not in vars(nearest):  # the kernel that it would inherit computes another formula
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
        """Optimize more parameters: a dict with 'params', a Tensor or several, and options that differ from the
        defaults. Raises ValueError for what cannot be optimized, or is already."""
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        params = [p[1] if isinstance(p, tuple) and len(p) == 2 else p for p in params]  # named_parameters() gives pairs
        group = {**self.defaults, **param_group, "params": params}
        unknown = set(group) - set(self.defaults) - {"params"}
        if unknown:
            raise ValueError(f"{type(self).__name__} has no options {sorted(unknown)}; it has {sorted(self.defaults)}")
        for name, value in group.items():
            if not self._can_be(name, value):
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
        if wrong := self._misfit(group):
            raise ValueError(f"{type(self).__name__}: {wrong}")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every .grad to None; with set_to_none=False, to zeros where there is one."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, in place. closure: a function that computes the loss and the
        gradients first; its loss is returned. Raises ValueError, before a parameter or a step has changed, for a buffer
        that is not an array of floats of its parameter's shape."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        due = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    due.append((p, p.grad, self._fitting_state(p), group))
        if not due:
            warnings.warn(
                f"{type(self).__name__}.step(): no parameter has a gradient; call loss.backward() first", stacklevel=2
            )
        for _, _, state, _ in due:
            state["step"] += 1
        with no_grad():
            self._update_all(due)
        return loss

    def _fitting_state(self, p):
        """The state of a parameter, begun if it has none. Buffers that are not like it, since it has been cast or moved
        or they were set by hand, are taken as load_state_dict takes them: kernels trust that all are alike."""
        state = self.state.get(p)
        if not state:
            with recording.uncaptured(after=False):  # zeros depend on nothing
                state = self.state[p] = {"step": 0, **{name: p.zeros_like() for name in self.buffers}}
            return state
        x, on = p.array, p.storage.backend
        unfit = [name for name in self.buffers if not _fits(state.get(name), x, on)]
        if unfit:
            index = [id(x) for group in self.param_groups for x in group["params"]].index(id(p))
            with recording.uncaptured():
                state.update({name: _as_buffer(state, f"optimizer state {index}", name, p) for name in unfit})
        return state

    def update(self, p: Tensor, g: Tensor, state: MutableMapping[str, Any], group: MutableMapping[str, Any]) -> None:
        """Change p, and the buffers in state, in place; g stays as it is. Runs under no_grad.

        state: the parameter's buffers by name, and "step", which counts from 1. group: the options."""
        raise TypeError("an Optimizer must define update(p, g, state, group)")

    def _shared(self, group):
        """For `primitive`: the options that a launch takes once, for all its parameters."""
        return ()

    def _numbers(self, state, group):
        """For `primitive`: what may change from step to step."""
        return ()

    def _about(self, p, group):
        """For `primitive`: what else it has to know of an array of parameters."""
        return ()

    def _update_all(self, due):
        """Change each p of (p, g, state, group): by one launch for those of a backend that share their options."""
        if self.primitive is None:
            for each in due:
                self.update(*each)
            return
        launches: dict = {}
        for p, g, state, group in due:
            # rows: one of _numbers() for each group and step
            slots, rows = launches.setdefault((p.storage.backend, *self._shared(group)), ([], {}))
            row, *_ = rows.setdefault((id(group), state["step"]), (len(rows), state, group))
            buffers = [state[name].array for name in self.buffers]
            slots.append((p.array, g.contiguous().array, *buffers, row, *self._about(p.array, group)))
            p.storage.changed()
        for (on, *shared), (slots, rows) in launches.items():

            def numbers(rows=rows):
                return [self._numbers(state, group) for _, state, group in rows.values()]

            getattr(on, self.primitive)(slots, numbers, *shared)

    def state_dict(self) -> dict[str, Any]:
        """{'state': {index: {'step': …, name: Tensor}}, 'param_groups': …}, parameters by their index over all groups.

        The Tensors share memory with the optimizer's."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        index = {p: i for i, p in enumerate(parameters)}
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {index[p]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what state_dict() gave (arrays or Tensors); the parameters must be the same in number and shape.

        Everything is checked before anything changes. Raises ValueError for what does not fit."""
        self._take_over(*self._checked(state_dict))

    def _checked(self, state_dict):
        """(state, options of each group) that a state_dict gives. Raises ValueError for what does not fit."""
        try:
            groups = [self._checked_options(group) for group in state_dict["param_groups"]]
            given = [list(group.pop("params")) for group in groups]
            index = itertools.count()
            own = [[next(index) for _ in group["params"]] for group in self.param_groups]
            if given != own:
                raise ValueError(f"it numbers parameters as {shown(given)}, where there are {shown(own)}")
            for group, saved in zip(self.param_groups, groups):
                if wrong := self._misfit(group | saved):
                    raise ValueError(wrong)
            parameters = [p for group in self.param_groups for p in group["params"]]
            found = {int(i): self._checked_state(state, int(i), parameters) for i, state in state_dict["state"].items()}
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            missing = f"there is no {shown(error.args[0])}" if isinstance(error, KeyError) else error
            raise ValueError(f"{type(self).__name__}: the state does not fit: {missing}") from error
        return {parameters[i]: state for i, state in found.items()}, groups

    def _take_over(self, state, groups):
        self.state = defaultdict(dict, state)
        for group, saved in zip(self.param_groups, groups):
            group.update(saved)

    def _can_be(self, name, value):
        """Whether an option may have this value. Only options that mean the same in all optimizers are judged here."""
        if name in ("lr", "momentum", "weight_decay", "eps"):
            return is_number(value) and value >= 0
        if name == "betas":  # Adam divides by 1 - beta
            return (
                isinstance(value, list | tuple) and len(value) == 2 and all(is_number(v) and 0 <= v < 1 for v in value)
            )
        return True

    def _misfit(self, group):
        """What is wrong with options of a group for its parameters, in words, or nothing: for a subclass to say."""
        return ""

    def _checked_options(self, group):
        """A saved group: its parameters, and options that are possible and of their defaults' kinds."""
        group = dict(group)
        for name, default in self.defaults.items():
            kind = bool if isinstance(default, bool) else tuple if isinstance(default, tuple) else object
            if kind is tuple and isinstance(group[name], list):  # JSON turns tuples into lists
                group[name] = tuple(group[name])
            if not isinstance(group[name], kind) or not self._can_be(name, group[name]):
                raise ValueError(f"option {name} cannot be {shown(group[name])}; by default it is {default}")
        return group

    def _checked_state(self, state, i, parameters):
        """The saved state of parameter i: its step, and Tensors of the parameter's shape, dtype and device."""
        if not 0 <= i < len(parameters) or state.keys() != {"step", *self.buffers}:
            raise ValueError(f"state {i} of {len(parameters)} has {shown(sorted(state))}, not step and {self.buffers}")
        step = operator.index(state["step"])  # an int, or an array of one
        if not 0 <= step < 2**53:
            raise ValueError(f"state {i} has step {shown(step)}")
        return {"step": step, **{name: _as_buffer(state, f"state {i}", name, parameters[i]) for name in self.buffers}}


class Optimizers:
    """Several optimizers as one, such as Muon for some parameters and AdamW for the others. They step in order."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them, in order."""
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
        """{'optimizers': [the state of each, …]}"""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what state_dict() gave. Raises ValueError for what does not fit; all are then as they were."""
        states = state_dict.get("optimizers", ()) if isinstance(state_dict, Mapping) else ()
        if not isinstance(states, list | tuple) or len(states) != len(self.optimizers):
            raise ValueError(f"the state does not fit: it is not that of {len(self.optimizers)} optimizers")
        checked = [optimizer._checked(state) for optimizer, state in zip(self.optimizers, states)]
        for optimizer, found in zip(self.optimizers, checked):
            optimizer._take_over(*found)


def _as_buffer(state, where, name, p):
    """A buffer of a parameter's state as a Tensor of its own, of p's dtype on p's device. Raises ValueError for one
    that is not an array of floats of p's shape."""
    value = state.get(name)
    if not isinstance(value, Tensor | np.ndarray | np.generic) or value.dtype.kind != "f" or value.shape != p.shape:
        given = getattr(value, "shape", None) or shown(value)
        raise ValueError(f"{where} has {given} for {name}, not an array of floats of its parameter's shape {p.shape}")
    value = as_tensor(value if isinstance(value, Tensor) else np.asarray(value))
    on = p.storage.backend
    return from_backend(on.copy(value.to(p.device, p.dtype).array), on)


def _fits(buffer, x, on):
    """Whether a kernel of a backend may change a buffer in place beside a parameter's array x."""
    if not isinstance(buffer, Tensor) or buffer.storage.backend is not on:
        return False
    array = buffer.array
    return array.dtype == x.dtype and array.shape == x.shape and on.is_compact(array)
