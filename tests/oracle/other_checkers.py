"""The planted bugs before other gradient checkers, at their default settings.

    python -m tests.oracle.other_checkers             a Markdown table of who catches what
    python -m tests.oracle.other_checkers reported    the same of the mistakes that users of frameworks reported

A minigrad function is presented to each framework as a function of its own with a backward of its own, which asks
minigrad for the gradient; so each checker differentiates the same code and judges it in its own way."""

import contextlib
import logging
import os
import sys
import warnings
from functools import cache

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import minigrad as mg
from minigrad.gradcheck import gradcheck

from ..gradcheck.engine_mutants import MUTANTS  # these, and those of formulas
from ..gradcheck.reported import REPORTS
from ..gradcheck.reported.report import drawn, tensors

# -------------------------------------------------------------------------------------------------- the minigrad side


class Bridged:
    """A minigrad function of float arrays. Its other inputs are constants; its outputs are a tuple."""

    def __init__(self, function, inputs):
        self.function, self.inputs = function, inputs
        self.floats = [i for i, x in enumerate(inputs) if isinstance(x, mg.Tensor) and x.is_floating_point()]
        self.arrays = [inputs[i].numpy() for i in self.floats]

    def __call__(self, *tensors):
        inputs = list(self.inputs)
        for i, x in zip(self.floats, tensors):
            inputs[i] = x
        return (self.function(*inputs),)

    def recorded(self, arrays):
        """(outputs, leaves) of a run whose leaves share the memory of the arrays; the same random numbers each time."""
        mg.manual_seed(0)
        leaves = [mg.from_numpy(a).requires_grad_() for a in arrays]
        return self(*leaves), leaves

    def values(self, *arrays):
        return tuple(y.detach().numpy() for y in self.recorded(arrays)[0])

    def example(self):
        """Outputs at the point itself, which stays as it is whatever the function does to its inputs."""
        return self.values(*(a.copy() for a in self.arrays))

    def gradient(self):
        return Gradient(self)


class Gradient(Bridged):
    """The gradient of a Bridged as a function of its inputs and of its cotangents."""

    def __init__(self, f):
        self.f = f
        self.arrays = [*f.arrays, *(np.ones_like(y) for y in f.example())]

    def __call__(self, *tensors):
        n = len(self.f.arrays)
        xs, dys = tensors[:n], tensors[n:]
        return _gradients(self.f(*xs), xs, dys, create_graph=True)


def _gradients(ys, xs, dys, **how):
    pairs = [(y, dy) for y, dy in zip(ys, dys) if y.requires_grad]
    if not pairs:
        return tuple(x.zeros_like() for x in xs)
    found = mg.grad([y for y, _ in pairs], xs, [dy for _, dy in pairs], allow_unused=True, **how)
    return tuple(x.zeros_like() if g is None else g for x, g in zip(xs, found))


def pulled_back(graph, dys):
    """The arrays that minigrad's backward makes of the arrays dys, through a graph that recorded() left."""
    return [g.numpy() for g in _gradients(*graph, [mg.from_numpy(dy) for dy in dys], retain_graph=True)]


# ------------------------------------------------------------------------------------------------ PyTorch, JAX and HIPS


def torch_function(f, order):
    import torch

    def tensor(array):
        plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if plain else array.copy())

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.save_for_backward(*xs)
            ctx.graph = f.recorded([x.detach().numpy() for x in xs])
            return tuple(tensor(y.detach().numpy()) for y in ctx.graph[0])

        @staticmethod
        def backward(ctx, *dys):
            if order > 1:
                return torch_function(f.gradient(), order - 1)(*ctx.saved_tensors, *dys)
            return tuple(tensor(g) for g in pulled_back(ctx.graph, [dy.detach().numpy() for dy in dys]))

    return Function.apply


def torch_check(f, order, fast):
    import torch

    torch.manual_seed(0)
    inputs = [torch.from_numpy(a.copy()).requires_grad_() for a in f.arrays]
    check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
    check(torch_function(f, order), inputs, fast_mode=fast)


def jax_function(f, order):
    import jax

    inputs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in f.arrays]
    outputs = tuple(jax.ShapeDtypeStruct(y.shape, y.dtype) for y in f.example())

    def writable(arrays):  # JAX's own are not
        return [np.array(a) for a in arrays]

    @jax.custom_vjp
    def function(*xs):
        return jax.pure_callback(lambda *xs: f.values(*writable(xs)), outputs, *xs)

    def backward(xs, dys):
        if order > 1:
            return jax_function(f.gradient(), order - 1)(*xs, *dys)

        def on_host(xs, dys):
            return tuple(pulled_back(f.recorded(writable(xs)), writable(dys)))

        return jax.pure_callback(on_host, tuple(inputs), xs, dys)

    function.defvjp(lambda *xs: (function(*xs), xs), backward)
    return function


def jax_check(f, order):
    import jax
    from jax.test_util import check_grads

    logging.getLogger("jax._src.callback").setLevel(logging.CRITICAL)  # it would print what it also raises
    with jax.enable_x64(True):
        check_grads(jax_function(f, order), [jax.numpy.array(a) for a in f.arrays], order=order, modes=["rev"])


def hips_function(f, order):
    from autograd.core import defvjp_argnums
    from autograd.extend import primitive

    graphs = []

    @primitive
    def function(*arrays):
        graphs[:] = [f.recorded(arrays)]
        return tuple(y.detach().numpy() for y in graphs[0][0])

    def backward(argnums, ans, args, kwargs):
        graph = graphs[0]  # of the run that this is the backward of

        def pull_back(dys):
            gradient = hips_function(f.gradient(), order - 1)(*args, *dys) if order > 1 else pulled_back(graph, dys)
            return [gradient[i] for i in argnums]

        return pull_back

    defvjp_argnums(function, backward)
    return function


def hips_check(f, order):
    from autograd.test_util import check_grads

    np.random.seed(0)
    n = len(f.arrays)
    check_grads(hips_function(f, order), tuple(range(n)), modes=["rev"], order=order)(*(a.copy() for a in f.arrays))


OTHERS = {
    "torch slow": lambda f, order: torch_check(f, order, fast=False),
    "torch fast": lambda f, order: torch_check(f, order, fast=True),
    "JAX": jax_check,
    "HIPS": hips_check,
}


# ------------------------------------------------------------------------------------------------------- the comparison


class Reported:
    """A report as if it were a planted bug, at its natural input."""

    def __init__(self, report):
        self.report, self.name, self.order = report, report.name, report.order
        self.wrong, self.right = report.bug, report.right

    def inputs(self, seed):
        self.report.forget()
        return tensors(drawn(self.report, seed))

    patch = staticmethod(contextlib.nullcontext)


def objection(checker, mutant, planted, seed=0):
    """What a checker raises about a mutant, with or without its bug, or None."""
    function, inputs = mutant.wrong if planted else mutant.right, mutant.inputs(seed)
    patch = mutant.patch() if planted else contextlib.nullcontext()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            f = Bridged(function, inputs)
            with patch:
                if checker == "minigrad":
                    gradcheck(function, *inputs, order=mutant.order, seed=seed)
                else:
                    OTHERS[checker](f, mutant.order)
        except Exception as error:  # a checker's verdict, or an op that raises before it comes to one
            return error
    return None


@cache
def outcome(checker, mutant):
    """'✓' caught, '✗' missed, '–' cannot tell: it objects to the right function too."""
    if objection(checker, mutant, planted=False):
        return "–"
    return "✓" if objection(checker, mutant, planted=True) else "✗"


def table(checkers=("minigrad", *OTHERS), mutants=MUTANTS):
    yield f"| bug | {' | '.join(checkers)} |"
    yield f"|---|{'---|' * len(checkers)}"
    counts = dict.fromkeys(checkers, 0)
    for mutant in mutants:
        row = [outcome(checker, mutant) for checker in checkers]
        for checker, mark in zip(checkers, row):
            counts[checker] += mark == "✓"
        order = ", second derivative" if mutant.order == 2 else ""
        yield f"| {mutant.name}{order} | {' | '.join(row)} |"
    yield f"| caught, of {len(mutants)} | {' | '.join(map(str, counts.values()))} |"


if __name__ == "__main__":
    print("✓ caught, ✗ missed, – cannot tell: it objects to the right function too\n")
    for line in table(mutants=[Reported(r) for r in REPORTS] if sys.argv[1:] == ["reported"] else MUTANTS):
        print(line, flush=True)
