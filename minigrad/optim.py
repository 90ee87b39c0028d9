"""Optimizers with parameter groups, and the learning-rate schedule of nanoGPT."""

import math

import numpy as np

from .autograd import Storage
from .creation import as_tensor
from .tensor import Tensor


class Optimizer:
    """Base class: parameter groups (dicts of 'params' and options), their state, and saving both.

    params: Tensors, or dicts with 'params' and options that differ from `defaults`."""

    buffers: tuple = ()  # names of the arrays of state that each parameter has, of its shape

    def __init__(self, params, defaults):
        params = list(params)
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [{**defaults, **group, "params": list(group["params"])} for group in groups]
        seen = set()
        for group in self.param_groups:
            unknown = set(group) - set(defaults) - {"params"}
            if unknown:
                raise ValueError(
                    f"{type(self).__name__}: unknown options {sorted(unknown)}; there are {sorted(defaults)}"
                )
            for p in group["params"]:
                if not isinstance(p, Tensor) or not p.is_leaf or not p.requires_grad:
                    raise ValueError(f"{type(self).__name__} optimizes leaves that require a gradient, got {p!r}")
                if not p.storage.backend.is_compact(p.array):
                    raise ValueError(
                        f"{type(self).__name__}: a parameter of shape {p.shape} is not contiguous; clone() it"
                    )
                if id(p) in seen:
                    raise ValueError(f"{type(self).__name__}: a parameter of shape {p.shape} is given twice")
                seen.add(id(p))
        if not seen:
            raise ValueError(f"{type(self).__name__} got no parameters")
        self.state: dict = {}

    def zero_grad(self):
        """Set every .grad to None."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def step(self):
        """Change every parameter that has a gradient, in place."""
        updates: dict = {}  # (backend, options that all slots of an update share): slots
        for group in self.param_groups:
            shared = self._shared(group)
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state.get(p)
                    if state is None:
                        state = self.state[p] = {"step": 0, **{name: p.zeros_like() for name in self.buffers}}
                    state["step"] += 1
                    slot = self._slot(p.array, p.grad.detach().contiguous().array, state, group)
                    updates.setdefault((p.storage.backend, *shared), []).append(slot)
                    p.storage.changed()
        for (on, *shared), slots in updates.items():
            self._update(on, slots, *shared)

    # A subclass says what the backend's primitive, which updates many parameters at once, is to be given.

    def _shared(self, group):
        """The options that go for all slots of one call."""
        raise TypeError("an Optimizer must define _shared, _slot and _update")

    def _slot(self, p, g, state, group):
        """A parameter's arrays and numbers."""
        raise TypeError("an Optimizer must define _shared, _slot and _update")

    def _update(self, on, slots, *shared):
        raise TypeError("an Optimizer must define _shared, _slot and _update")

    def state_dict(self):
        """{'state': {index: {'step': …, name: Tensor}}, 'param_groups': …}, parameters by their index over all groups.

        The Tensors share memory with the optimizer."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        index = {p: i for i, p in enumerate(parameters)}
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {index[p]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Take over what state_dict() gave (arrays or Tensors); the parameters must be the same in number and shape."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        sizes = [len(group["params"]) for group in self.param_groups]
        given = [len(group["params"]) for group in state_dict["param_groups"]]
        if sizes != given:
            raise ValueError(f"optimizer state for groups of {given} parameters does not fit groups of {sizes}")
        loaded = {}
        for i, state in state_dict["state"].items():
            p = parameters[int(i)]
            loaded[p] = {"step": int(state["step"])}
            for name in self.buffers:
                value = as_tensor(state[name] if isinstance(state[name], Tensor) else np.asarray(state[name]))
                if value.shape != p.shape:
                    raise ValueError(f"optimizer state {name} {i} has shape {value.shape}, its parameter {p.shape}")
                on = p.storage.backend
                loaded[p][name] = Tensor._wrap(on.copy(value.to(p.device, p.dtype).array), Storage(on))
        self.state = loaded
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({key: value for key, value in saved.items() if key != "params"})


class SGD(Optimizer):
    """p -= lr · g; with momentum, b = momentum · b + g and p -= lr · b (Nesterov: lr · (g + momentum · b))."""

    buffers = ("momentum_buffer",)

    def __init__(self, params, lr=1e-3, momentum=0.0, weight_decay=0.0, nesterov=False):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def _shared(self, group):
        return group["momentum"], group["nesterov"]

    def _slot(self, p, g, state, group):
        return p, g, state["momentum_buffer"].array, group["lr"], group["weight_decay"]

    def _update(self, on, slots, *shared):
        on.sgd_(slots, *shared)


class Adam(Optimizer):
    """Kingma and Ba 2015. weight_decay is added to the gradient."""

    buffers = ("m", "v")
    decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _shared(self, group):
        return *group["betas"], group["eps"], self.decoupled

    def _slot(self, p, g, state, group):
        return p, g, state["m"].array, state["v"].array, group["lr"], group["weight_decay"], state["step"]

    def _update(self, on, slots, *shared):
        on.adam_(slots, *shared)


class AdamW(Adam):
    """Loshchilov and Hutter 2019: Adam, with weight_decay · lr · p subtracted apart from the gradient."""

    decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, lr, betas, eps, weight_decay)


def warmup_cosine(step, *, lr, min_lr, warmup, total):
    """The learning rate at a step, counted from 0: linear up to lr over `warmup` steps, then half a cosine down to
    min_lr at `total`, and min_lr from there on."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step >= total:
        return min_lr
    done = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (lr - min_lr)
