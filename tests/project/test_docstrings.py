"""What docstrings say: that ops keep shape and dtype where they say so, and that each error that they name comes."""

import builtins
import inspect
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import gradcheck, nn, optim, study
from minigrad.optim import lr_scheduler
from minigrad.training import checkpoint
from minigrad.utils import data

from ..types import public
from .test_public import ARGUMENTS, FUNCTIONS, arguments

PROMISES = {  # words of a docstring, and the dtype of the result that they promise, of x's shape; None: x's
    r"[Oo]f x's shape and (float )?dtype": None,
    r"bool, of x's shape": mg.bool_,
    r"int64, of x's shape": mg.int64,
}


@pytest.mark.parametrize("words", PROMISES)
def test_ops_keep_shape_and_dtype_where_they_say_so(words):
    functions = {name: f for name, f in FUNCTIONS.items() if re.search(words, " ".join(inspect.getdoc(f).split()))}
    assert functions
    for name, function in functions.items():
        for dtype in (mg.float16, mg.float32, mg.float64):
            x, *more = ARGUMENTS.get(name) or arguments(inspect.signature(function))
            y = function(x.to(dtype), *(v.to(dtype) if v is x else v for v in more))
            assert (y.shape, y.dtype) == (x.shape, PROMISES[words] or dtype), name


# ------------------------------------------------------------------------------------------------------------- errors

ERROR = re.compile(r"\b[A-Z]\w*Error\b")
KNOWN = vars(builtins) | {
    kind.__name__: kind
    for kind in (
        mg.autograd.AnomalyError, mg.CaptureError, mg.DeviceError, mg.GraphError, checkpoint.CheckpointError,
        gradcheck.GradcheckError, study.IdentityError, mg.base.errors.CommandError,
        mg.base.errors.TextError,
    )
}  # fmt: skip


def claims():
    """(name, docstring, names of errors) of all that is public and names errors."""
    for each in public.public():
        own = vars(each.object).get("__doc__") if inspect.isclass(each.object) else inspect.getdoc(each.object)
        if own and not (inspect.isclass(each.object) and issubclass(each.object, BaseException)):
            yield each, set(ERROR.findall(own))


def test_docstrings_name_errors_that_exist():
    named = set().union(*(errors for _, errors in claims()))
    assert len(named) > 15 and named <= KNOWN.keys()


def raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


# Errors that are named of tensors, layers, optimizers, schedules, data, and a mistake that leads to each.
X = mg.randn(2, 3, dtype=mg.float64)
G = mg.ones(2, 3, requires_grad=True)
LINEAR = nn.Linear(3, 4)
SGD = optim.SGD(LINEAR.parameters())


GPT = nn.GPT(nn.GPTConfig(11, 8, n_layer=1, n_head=2, n_embd=8))


def used():
    """A graph that has been freed."""
    loss = (G * G).sum()
    loss.backward()
    return loss


def later_group():
    optimizer = optim.SGD(LINEAR.parameters())
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    optimizer.add_param_group({"params": mg.ones(1, requires_grad=True)})
    scheduler.step()


def refused_state():
    mg.Generator().state = {"seed": 1}


def with_anomaly():
    with mg.autograd.detect_anomaly():
        mg.zeros(1).log()


CALLS = {
    "detect_anomaly": {"AnomalyError": with_anomaly},
    "device": {"ValueError": lambda: mg.device("tpu")},
    "Generator": {"ValueError": refused_state},
    "Generator.integers": {"ValueError": lambda: mg.Generator().integers(5, 5, (2,))},
    "Tensor.numpy": {"GraphError": lambda: G.numpy()},
    "Tensor.item": {"ValueError": lambda: X.item()},
    "Tensor.add_": {"ValueError": lambda: X.add_(mg.ones(5)), "GraphError": lambda: G.add_(1)},
    "Tensor.copy_": {"ValueError": lambda: X.copy_(mg.ones(5)), "GraphError": lambda: G.copy_(X)},
    "Tensor.uniform_": {"ValueError": lambda: X.uniform_(1, 0), "TypeError": lambda: X.long().uniform_()},
    "Tensor.normal_": {"ValueError": lambda: X.normal_(std=-1), "TypeError": lambda: X.long().normal_()},
    "Tensor.requires_grad_": {
        "TypeError": lambda: X.long().requires_grad_(),
        "GraphError": lambda: (G * 2).requires_grad_(False),
    },
    "Tensor.register_hook": {"GraphError": lambda: X.register_hook(print)},
    "Tensor.backward": {"GraphError": lambda: used().backward()},
    "Tensor.constant": {"TypeError": lambda: X.constant("a")},
    "Tensor.size": {"IndexError": lambda: X.size(5)},
    "empty": {"ValueError": lambda: mg.empty(-1)},
    "zeros": {"ValueError": lambda: mg.zeros(2, -1)},
    "ones": {"ValueError": lambda: mg.ones((-1,))},
    "from_numpy": {"ValueError": lambda: mg.from_numpy(np.zeros(2, "i1,f4")["f1"])},
    "grad": {"GraphError": lambda: mg.grad(X.sum(), X)},
    "rand": {"TypeError": lambda: mg.rand(2, dtype=mg.int64)},
    "randn": {"TypeError": lambda: mg.randn(2, dtype=mg.int64)},
    "randn_like": {"TypeError": lambda: mg.randn_like(X.long())},
    "tensor": {"OverflowError": lambda: mg.tensor([300], dtype=mg.uint8)},
    "nn.Dropout": {"ValueError": lambda: nn.Dropout(2)},
    "nn.Embedding": {
        "IndexError": lambda: nn.Embedding(3, 4)(mg.tensor([3])),
        "TypeError": lambda: nn.Embedding(3, 4)(X),
        "ValueError": lambda: nn.Embedding(3, 4, padding_idx=3),
    },
    "nn.GPT.forward": {
        "ValueError": lambda: GPT(mg.randint(0, 11, (1, 9))),
        "IndexError": lambda: GPT(mg.tensor([[11]])),
        "TypeError": lambda: GPT(X),
    },
    "nn.GPT.prune_heads": {"ValueError": lambda: GPT.prune_heads({1: [0]})},
    "nn.GPT.with_weights": {"ValueError": lambda: nn.GPT.with_weights(GPT.config, {})},
    "nn.GPT.from_state_dict": {"ValueError": lambda: nn.GPT.from_state_dict({})},
    "nn.GPTConfig": {"ValueError": lambda: nn.GPTConfig(11, 8, n_head=3)},
    "nn.GPTConfig.check_sizes": {"ValueError": lambda: GPT.config.check_sizes({})},
    "nn.KVCache.append": {
        "RuntimeError": lambda: GPT.new_cache(1)[0].append(mg.ones(1, 2, 1, 4), mg.ones(1, 2, 1, 4)),
        "TypeError": mg.no_grad()(lambda: GPT.new_cache(1)[0].append(*[mg.ones(1, 2, 1, 4).double()] * 2)),
        "ValueError": mg.no_grad()(lambda: GPT.new_cache(1)[0].append(mg.ones(2, 3), mg.ones(2, 3))),
    },
    "nn.KVCache.grow": {"ValueError": lambda: GPT.new_cache(1)[0].grow(99)},
    "nn.Linear": {"ValueError": lambda: LINEAR(mg.ones(2)), "TypeError": lambda: LINEAR(X)},
    "nn.Module": {"TypeError": lambda: nn.Module()(X)},
    "nn.Module.get_submodule": {"AttributeError": lambda: LINEAR.get_submodule("fc")},
    "nn.Module.add_module": {
        "TypeError": lambda: LINEAR.add_module("fc", None),
        "ValueError": lambda: LINEAR.add_module("a.b", LINEAR),
    },
    "nn.Module.register_buffer": {"TypeError": lambda: LINEAR.register_buffer("a", 3)},
    "nn.Module.load_state_dict": {"ValueError": lambda: LINEAR.load_state_dict({})},
    "nn.Module.to": {"TypeError": lambda: LINEAR.to(mg.int64)},
    "nn.ModuleDict": {
        "KeyError": lambda: nn.ModuleDict()["a"],
        "TypeError": lambda: nn.ModuleDict({"a": 3}),
        "ValueError": lambda: nn.ModuleDict({"keys": LINEAR}),
    },
    "nn.ModuleList": {"IndexError": lambda: nn.ModuleList()[0], "TypeError": lambda: nn.ModuleList([3])},
    "nn.Sequential": {"TypeError": lambda: nn.Sequential([LINEAR])},
    "nn.Parameter": {"TypeError": lambda: nn.Parameter(X.long())},
    "nn.MultiheadAttention": {
        "TypeError": lambda: nn.MultiheadAttention(8, 2),
        "ValueError": lambda: nn.MultiheadAttention(8, 3, batch_first=True),
    },
    "nn.MultiheadAttention.head": {"ValueError": lambda: nn.MultiheadAttention(8, 2, batch_first=True).head(2)},
    "nn.TransformerEncoderLayer": {
        "ValueError": lambda: nn.TransformerEncoderLayer(8, 2, activation="nonsense", batch_first=True),
        "TypeError": lambda: nn.TransformerEncoderLayer(8, 2),
    },
    "nn.choose": {
        "ValueError": lambda: nn.choose(X, temperature=-1),
        "FloatingPointError": lambda: nn.choose(X * float("nan")),
    },
    "nn.init.uniform_": {"TypeError": lambda: nn.init.uniform_(X.long())},
    "nn.init.normal_": {"TypeError": lambda: nn.init.normal_(X.long())},
    **{
        f"nn.init.{name}": {"ValueError": lambda name=name: getattr(nn.init, name)(X[0])}
        for name in ("xavier_uniform_", "kaiming_normal_")
    },
    "nn.positions.rotary": {"ValueError": lambda: nn.positions.rotary(X)},
    "optim.Optimizer": {"ValueError": lambda: optim.SGD([])},
    "optim.SGD": {"ValueError": lambda: optim.SGD([X])},
    "optim.Adam": {"ValueError": lambda: optim.Adam(LINEAR.parameters(), betas=(2, 0))},
    "optim.Muon": {"ValueError": lambda: optim.Muon(LINEAR.parameters())},
    "optim.Optimizers.load_state_dict": {"ValueError": lambda: optim.Optimizers(SGD).load_state_dict({})},
    "optim.Optimizer.add_param_group": {"ValueError": lambda: SGD.add_param_group({"params": LINEAR.weight})},
    "optim.Optimizer.load_state_dict": {"ValueError": lambda: SGD.load_state_dict({})},
    "optim.lr_scheduler.LRScheduler": {"TypeError": lambda: lr_scheduler.CosineAnnealingLR(LINEAR, 1)},
    "optim.lr_scheduler.LRScheduler.step": {"ValueError": later_group},
    "optim.lr_scheduler.LRScheduler.load_state_dict": {
        "ValueError": lambda: lr_scheduler.CosineAnnealingLR(SGD, 1).load_state_dict({})
    },
    "optim.lr_scheduler.LambdaLR": {"ValueError": lambda: lr_scheduler.LambdaLR(SGD, [abs, abs])},
    "optim.lr_scheduler.CosineAnnealingLR": {"ValueError": lambda: lr_scheduler.CosineAnnealingLR(SGD, 0)},
    "utils.data.TensorDataset": {
        "ValueError": lambda: data.TensorDataset(X, X[0]),
        "TypeError": lambda: data.TensorDataset(mg.tensor(1.0)),
    },
    "utils.data.Subset": {"IndexError": lambda: data.Subset([1], [0])[1]},
    "utils.data.random_split": {"ValueError": lambda: data.random_split([1, 2], [3])},
    "utils.data.RandomSampler": {"ValueError": lambda: data.RandomSampler([1], num_samples=0)},
    "utils.data.default_collate": {
        "TypeError": lambda: data.default_collate([object()]),
        "ValueError": lambda: data.default_collate([X, X[0]]),
    },
    "utils.data.DataLoader": {"ValueError": lambda: data.DataLoader([1], batch_size=0)},
}
PACKAGES = "minigrad.tensor", "minigrad.nn", "minigrad.optim", "minigrad.utils", "minigrad.random"
TESTED_ELSEWHERE = {  # their errors need a model of some kind, a GPU, or a file
    ("Module.to", "DeviceError"), ("from_dlpack", "RuntimeError"), ("from_dlpack", "TypeError"),
    ("clip_grad_norm_", "ArithmeticError"),
    ("Optimizer.step", "ValueError"),
}  # fmt: skip


PREFIX = re.compile(r"(nn|init|positions|utils|optim|lr_scheduler|data|Tensor)\.")


def test_errors_that_tensors_layers_optimizers_and_loaders_name_come():
    expected = {(PREFIX.sub("", name), error) for name, calls in CALLS.items() for error in calls}
    come = {(PREFIX.sub("", name), raised(call)) for name, calls in CALLS.items() for call in calls.values()}
    assert come == expected
    named = set()
    for each, errors in claims():
        value = inspect.unwrap(each.object) if callable(each.object) else each.object
        if hasattr(value, "__qualname__") and value.__module__.startswith(PACKAGES):
            short = re.sub(r"^(Attributes|Interop|InPlace|Gradients|Operations|Tensor)\.", "", value.__qualname__)
            named |= {(short, error) for error in errors}
    assert len(named) > 80 and named - TESTED_ELSEWHERE == come & named
