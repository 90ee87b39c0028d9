"""PyTorch's gradcheck on the reported mistakes, at its default settings, beside ours.

    python -m tests.oracle.torch_gradcheck    a Markdown table of who catches what

A function of minigrad's is presented to PyTorch as a Function of its own, whose backward asks minigrad for the
gradient; so both check the same code, on the same memory."""

import warnings
from functools import partial

import numpy as np
import torch

import minigrad as mg
from minigrad import backend
from minigrad.tensor import from_backend

from ..gradcheck.reported import REPORTS
from ..gradcheck.reported.__main__ import verdict
from ..gradcheck.reported.report import drawn, tensors


def bridged(function, inputs, floats):
    """The function as one of PyTorch's, of those inputs whose numbers are `floats`."""

    def tensor(array):
        plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if plain else array.copy())

    def shared(x):
        return from_backend(x.detach().numpy(), backend.get("cpu"))

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            mg.manual_seed(0)  # the same random numbers each time
            ctx.leaves = [shared(x).requires_grad_() for x in xs]
            given = list(inputs)
            for i, leaf in zip(floats, ctx.leaves):
                given[i] = leaf
            ctx.y = function(*given)
            return tensor(ctx.y.array)

        @staticmethod
        def backward(ctx, dy):
            found = mg.grad(ctx.y, ctx.leaves, shared(dy), allow_unused=True, retain_graph=True)
            return tuple(tensor(np.zeros(x.shape) if g is None else g.array) for x, g in zip(ctx.leaves, found))

    return Function.apply


def objection(report, function, fast=False):
    """What PyTorch's gradcheck raises of the function at the natural input of the report, or None."""
    report.forget()
    inputs = tensors(drawn(report))
    floats = [i for i, x in enumerate(inputs) if isinstance(x, mg.Tensor) and x.is_floating_point()]
    torch.manual_seed(0)
    points = [torch.from_numpy(inputs[i].numpy()).requires_grad_() for i in floats]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            called = bridged(partial(function, **report.natural.params), inputs, floats)
            torch.autograd.gradcheck(called, points, fast_mode=fast)
        except Exception as error:  # its verdict, or an op that raises before it comes to one
            return error
    return None


def caught(report, fast=False):
    """True if it objects to the wrong gradient and accepts the right one."""
    return objection(report, report.right, fast) is None and objection(report, report.bug, fast) is not None


if __name__ == "__main__":
    counts = [0, 0]
    print("| mistake | minigrad | PyTorch | PyTorch, fast_mode |\n|---|---|---|---|")
    for report in REPORTS:
        theirs = [caught(report), caught(report, fast=True)]
        counts = [n + found for n, found in zip(counts, theirs)]
        words = ["caught" if found else "not caught" for found in theirs]
        print(f"| {report.name} | {verdict(report)} | {' | '.join(words)} |", flush=True)
    print(f"| caught, of {len(REPORTS)} | | {counts[0]} | {counts[1]} |")
