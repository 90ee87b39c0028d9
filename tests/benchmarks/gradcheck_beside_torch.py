"""gradcheck beside torch.autograd.gradcheck in slow mode, on the same functions and inputs: seconds, and the ratio.

    python tests/benchmarks/gradcheck_beside_torch.py [--rounds 3]

Needs torch. Three columns: torch, ours without probes (differences only, which is what torch does), and ours with all
probes. The best of the rounds."""

import argparse
import math
import time

import numpy as np

import minigrad as mg
from minigrad.gradcheck import gradcheck
from minigrad.nn import functional as F


def functions():
    """{name: (ours, torch's, shapes of the inputs)}"""
    import torch
    import torch.nn.functional as tF

    return {
        "sin": (mg.sin, torch.sin, [(5, 6)]),
        "tanh": (mg.tanh, torch.tanh, [(5, 6)]),
        "exp": (mg.exp, torch.exp, [(5, 6)]),
        "sigmoid": (mg.sigmoid, torch.sigmoid, [(5, 6)]),
        "erf": (mg.erf, torch.erf, [(5, 6)]),
        "relu": (mg.relu, torch.relu, [(5, 6)]),
        "mul": (mg.mul, torch.mul, [(5, 6), (5, 6)]),
        "div, broadcast": (mg.div, torch.div, [(5, 6), (6,)]),
        "matmul": (mg.matmul, torch.matmul, [(6, 5), (5, 4)]),
        "matmul, batched": (mg.matmul, torch.matmul, [(3, 4, 5), (3, 5, 2)]),
        "sum": (lambda x: x.sum(1), lambda x: x.sum(1), [(5, 6)]),
        "amax": (lambda x: x.amax(1), lambda x: x.amax(1), [(5, 6)]),
        "var": (lambda x: x.var(1), lambda x: x.var(1), [(5, 6)]),
        "logsumexp": (lambda x: mg.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), [(5, 6)]),
        "softmax": (lambda x: mg.softmax(x, 1), lambda x: torch.softmax(x, 1), [(5, 6)]),
        "log_softmax": (lambda x: mg.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), [(5, 6)]),
        "prod": (lambda x: mg.prod(x, 1), lambda x: torch.prod(x, 1), [(5, 6)]),
        "layer_norm": (
            lambda x, w, b: F.layer_norm(x, (6,), w, b),
            lambda x, w, b: tF.layer_norm(x, (6,), w, b),
            [(5, 6), (6,), (6,)],
        ),
        "attention": (
            lambda q, k, v: mg.softmax(q @ k.mT / 2, -1) @ v,
            lambda q, k, v: torch.softmax(q @ k.mT / 2, -1) @ v,
            [(2, 4, 4), (2, 4, 4), (2, 4, 4)],
        ),
        "MLP loss": (
            lambda x, a, b: ((x @ a).tanh() @ b).var(0).sum(),
            lambda x, a, b: ((x @ a).tanh() @ b).var(0).sum(),
            [(6, 4), (4, 8), (8, 3)],
        ),
    }


def seconds(check, rounds):
    best = math.inf
    for _ in range(rounds):
        began = time.perf_counter()
        assert check()
        best = min(best, time.perf_counter() - began)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    import torch

    torch.set_num_threads(1)
    rng, ratios = np.random.default_rng(0), []
    print(f"{'ms':20}  {'torch':>8}  {'ours':>8}  {'ratio':>6}  {'all probes':>10}  {'ratio':>6}")
    for name, (ours, theirs, shapes) in functions().items():
        arrays = [rng.standard_normal(shape) for shape in shapes]
        xs, ts = [mg.tensor(a) for a in arrays], [torch.tensor(a, requires_grad=True) for a in arrays]
        torchs = seconds(lambda theirs=theirs, ts=ts: torch.autograd.gradcheck(theirs, ts), rounds)
        alone = seconds(lambda ours=ours, xs=xs: gradcheck(ours, *xs, probes=()), rounds)
        probed = seconds(lambda ours=ours, xs=xs: gradcheck(ours, *xs), rounds)
        ratios.append((alone / torchs, probed / torchs))
        print(
            f"{name:20}  {torchs * 1e3:8.1f}  {alone * 1e3:8.1f}  {ratios[-1][0]:6.2f}  {probed * 1e3:10.1f}  "
            f"{ratios[-1][1]:6.2f}",
            flush=True,
        )
    means = [math.exp(np.mean(np.log(column))) for column in zip(*ratios)]
    print(f"{'geometric mean':20}  {'':8}  {'':8}  {means[0]:6.2f}  {'':10}  {means[1]:6.2f}")


if __name__ == "__main__":
    main()
