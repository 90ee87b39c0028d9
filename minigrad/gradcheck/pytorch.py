"""PyTorch: functions, autograd.Functions and nn.Modules, on the cpu."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch

from ..nn import Module
from .frameworks import Adapted, Framework, as_tensor, owner_of
from .subject import flat

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class TorchModule(Module):
    """Represents a torch Module: its parameters as Tensors, under the same names."""

    def __init__(self, foreign):
        self.foreign = foreign
        self.own = {path: _entered(p) for path, p in foreign.named_parameters()}

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return iter(self.own.items())


class PyTorch(Framework):
    array = "torch.Tensor"
    kinds = (torch.Tensor, torch.nn.Module)
    packings = (tuple, list)  # PyTorch's gradcheck accepts both

    def entered(self, x):
        return TorchModule(x) if isinstance(x, torch.nn.Module) else _entered(x)

    def adapted(self, fn):
        fn = getattr(fn, "apply", fn) if _is_function_class(fn) else fn
        owner = owner_of(fn)
        return Adapted(self, fn, TorchModule(owner) if isinstance(owner, torch.nn.Module) else None)

    def signed(self, fn):
        cls: Any = getattr(fn, "__self__", None)
        if _is_function_class(cls):
            takes_context = cls.setup_context is torch.autograd.function._SingleLevelFunction.setup_context
            return partial(cls.forward, None) if takes_context else cls.forward
        return fn.forward if isinstance(fn, torch.nn.Module) else fn

    def function(self, call, label):
        return _Function(call, label)

    def inside(self, modules, seed, run):
        generator = torch.default_generator
        state = generator.get_state()
        try:
            generator.manual_seed(seed)  # torch.manual_seed would format a traceback for the GPU
            before = generator.get_state()
            y = torch.func.functional_call(*_stand_in(modules, run)) if modules else run()
            return y, not torch.equal(before, generator.get_state())
        finally:
            generator.set_state(state)

    def compact(self, x):
        return x.contiguous()

    def outputs(self, y):
        found = flat(y, of=torch.Tensor)
        for x in found:
            if x.is_complex() or x.layout != torch.strided:
                what = "complex" if x.is_complex() else str(x.layout)
                instead = "torch.view_as_real(y)" if x.is_complex() else "y.to_dense()"
                raise TypeError(f"gradcheck: the function returned a {what} tensor; return {instead} to check it")
        floats = [x for x in found if x.is_floating_point()]
        return [x.float() if x.dtype == torch.bfloat16 else x for x in floats]

    def has_gradient(self, y):
        return y.requires_grad


class _Function:
    def __init__(self, call, label):
        self.call, self.label = call, label

    def vjp(self, arrays, needs):
        with torch.inference_mode(False), torch.set_grad_enabled(any(needs)):
            xs = [a if a is None else _tensor(a).requires_grad_(need) for a, need in zip(arrays, needs)]
            ys = self.call(xs)

        def pullback(dys, wanted):
            with torch.inference_mode(False):
                dys = [dy if dy is None else _tensor(dy) for dy in dys]
                found = _gradients(ys, [x for x, want in zip(xs, wanted) if want], dys, retain_graph=True)
            return [g.detach().to_dense().numpy() for g in found]

        return [y.detach().numpy() for y in ys], pullback

    def gradient(self, n, wanted, label):
        def call(tensors):
            xs, dys = tensors[:n], tensors[n:]
            chosen = [x for x, want in zip(xs, wanted) if want]
            with torch.enable_grad():
                ys = self.call([x.requires_grad_() if x is not None and want else x for x, want in zip(xs, wanted)])
                return _gradients(ys, chosen, dys, create_graph=True)

        return _Function(call, label)


def _gradients(ys, xs, dys, **how):
    """The gradients of xs; zeros where none arrives. None among the dys leaves that output out."""
    pairs = [(y, dy) for y, dy in zip(ys, dys) if dy is not None and y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in xs]
    roots, cotangents = zip(*pairs)
    return torch.autograd.grad(roots, xs, cotangents, allow_unused=True, materialize_grads=True, **how)


class _StandIn(torch.nn.Module):
    """Has the user's modules as submodules, so that functional_call can replace their parameters."""

    def __init__(self, modules, run):
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)
        self.run = run

    def forward(self):
        return self.run()


def _stand_in(modules, run):
    """Arguments for functional_call. Buffers are copies: a running mean starts every call from the same value."""
    places, dtype = {}, torch.float64
    for i, (module, parameters) in enumerate(modules):
        dtype = next((p.dtype for p in parameters.values()), dtype)
        for path, buffer in module.named_buffers():
            copy = buffer.detach().clone()
            places[f"parts.{i}.{path}"] = copy.to(dtype) if copy.is_floating_point() else copy
        places |= {f"parts.{i}.{path}": p.contiguous() for path, p in parameters.items()}  # like a Module's
    return _StandIn([module for module, _ in modules], run), places, ()


def _is_function_class(x):
    return isinstance(x, type) and issubclass(x, torch.autograd.Function)


def _entered(x):
    """A torch tensor as a Tensor, in its memory if NumPy can access it."""
    if x.is_complex():
        raise TypeError("gradcheck: complex inputs are not checked; pass torch.view_as_real(z) to a function of it")
    if x.device.type != "cpu" or x.layout != torch.strided:
        where = str(x.layout if x.device.type == "cpu" else x.device)
        raise TypeError(f"gradcheck: torch tensors must be dense and on the cpu; one is {where}")
    if not x.is_floating_point():
        return as_tensor(x.detach().numpy()) if x.dtype in INTEGERS else x
    given = x.detach().float() if x.dtype == torch.bfloat16 else x.detach()
    return as_tensor(given.resolve_neg().numpy(), x.requires_grad)


def _tensor(array):
    """A NumPy array as a tensor in its memory; a copy if strides are negative, which torch does not support."""
    array = np.asarray(array)
    if any(stride < 0 for stride in array.strides) or any(stride % array.itemsize for stride in array.strides):
        array = array.copy()
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a broadcast array is not writeable, and its zero strides say so to torch too
        return torch.from_numpy(array)


framework = PyTorch()
