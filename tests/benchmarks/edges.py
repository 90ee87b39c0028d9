"""Do estimates of edges between heads agree with cutting them? Asked of four small trained models.

    python tests/benchmarks/edges.py [--steps 1.0] [--json FILE]      about a minute

The models of importance_ranks.py, of each task one, and a GPT that sorts. An edge is worth the loss with it minus the
loss without it, by study.flow(method="cut"). Estimates of that are

    first order   study.flow, one backward
    relp          one backward in which norms divide by constants and an activation multiplies by one, y / x (Jafari et
                  al. 2025, arXiv 2508.21258; patterns have their gradients, or Q and K would have no edges)
    path, n       the mean slope of the loss at n Gauss-Legendre points between the edge and none, n backwards an edge

Each row: Spearman's correlation with the cut, and of the 20 edges that cost most to cut, how many have the wrong sign,
and how many are among the 20 largest of the estimate.
"""

import argparse
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import workers
from importance_ranks import TASKS, returned, spearman, trained

import minigrad as mg
from minigrad import nn, study
from minigrad.gradcheck.report import aligned
from minigrad.nn.attention import all_take
from minigrad.study import stream as streams
from minigrad.study.cut import Scissors
from minigrad.study.flow import _flow

TOP = 20


def sorting(layers, heads, n=10):
    """A GPT reads n numbers below 16 and writes them in order."""

    def draw(B, generator):
        numbers = generator.integers(0, 16, (B, n))
        tokens = np.concatenate([numbers, np.full((B, 1), 16), np.sort(numbers)], 1)
        targets = np.where(np.arange(2 * n) < n, -100, tokens[:, 1:])
        return mg.tensor(tokens[:, :-1]), mg.tensor(targets)

    return nn.GPT(nn.GPTConfig(17, 2 * n, layers, heads, 64)), returned, draw, 600, 4e-3


MODELS = {name: (task, sizes[-2 if name == "reversal" else 0]) for name, (task, sizes) in TASKS.items()}
MODELS["sorting"] = (sorting, (2, 4))


# ------------------------------------------------------------------------------------------------------------ estimates


def centred(norm, x):
    return x - x.mean(-1, keepdims=True) if isinstance(norm, nn.LayerNorm) else x


def divided(norm, x, u, dtype):
    """streams._projected, with a norm's scale as a constant."""
    eps = np.finfo(dtype).eps if norm.eps is None else norm.eps
    return centred(norm, u) / np.sqrt((centred(norm, x) ** 2).mean(-1, keepdims=True) + eps)


def as_linear(y, x, slope):
    """y, with slope as its derivative by x."""
    return y.detach() + (x - x.detach()) * slope.detach()


@contextmanager
def relp(model, found):
    """Within the with-block, backward takes norms and activations for linear."""
    outside, original = {}, streams._projected

    def norm(module, args, y):
        x = args[0]
        c = x - x.mean(-1, keepdim=True) if isinstance(module, nn.LayerNorm) else x
        scale = ((c * c).mean(-1, keepdim=True) + module.eps) ** -0.5
        return as_linear(y, c, scale * module.weight)

    def chord(module, args):
        x, y = outside[module], args[0]
        return (as_linear(y, x, mg.where(x == 0, 0.5, y / x)),)

    with ExitStack() as stack:
        streams._projected = divided
        stack.callback(setattr, streams, "_projected", original)
        for module in model.modules():
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                stack.callback(module.register_forward_hook(norm).remove)
        for stream in found:
            for part in stream.parts:
                if not part.is_attention:
                    first, last = (
                        (part.first.fc, part.last.proj) if part.first is part.last else (part.first, part.last)
                    )
                    keep = lambda module, args, y, last=last: outside.__setitem__(last, y)  # noqa: E731
                    stack.callback(first.register_forward_hook(keep).remove)
                    stack.callback(last.register_forward_pre_hook(chord).remove)
        yield


def along(model, batch, loss, found, flow, n):
    """Every edge, from the slopes at n points of its own path."""
    points, weights = np.polynomial.legendre.leggauss(n)
    edges, share = np.zeros(flow.edges.shape), [None]
    for i, j in np.argwhere(flow._known):
        v, p = flow.inputs[j]
        with (
            all_take("batched"),
            Scissors(found, flow.sources[i], v, p or None, lambda w: w - share[0] * w).hooked(model),
        ):
            for at, weight in zip((points + 1) / 2, weights / 2):
                share[0] = mg.tensor([at], dtype=mg.float64, requires_grad=True)
                edges[i, j] += weight * mg.grad(loss(model, *batch), share)[0].item()
    return edges


def agreement(edges, cut):
    top = np.argsort(-np.abs(cut))[:TOP]
    found = {*top} & {*np.argsort(-np.abs(edges))[:TOP]}
    wrong = int((np.sign(edges[top]) != np.sign(cut[top])).sum())
    return {"spearman": spearman(edges, cut), "wrong signs": wrong, "found": len(found)}


def measured(task, sizes, share):
    """(number of edges, the loss, {estimate: its agreement with the cut, and seconds})"""
    model, loss, batches, _, _ = trained(task, *sizes, 0, share)
    model, batch = model.double(), [x[:4] for x in batches[0]]
    found, began, rows = streams.streams(model), time.perf_counter(), {}
    cut = study.flow(model, batch, loss, method="cut")
    known, seconds = cut._known, time.perf_counter() - began

    def add(name, estimate):
        began = time.perf_counter()
        rows[name] = agreement(estimate()[known], cut.edges[known]) | {"seconds": time.perf_counter() - began}

    add("first order", lambda: study.flow(model, batch, loss).edges)
    with relp(model, found):
        add("relp", lambda: _flow(found, streams.Run(model, found, batch, loss)).edges)
    for n in 1, 4:
        add(f"path, {n}", lambda n=n: along(model, batch, loss, found, cut, n))
    return {"edges": int(known.sum()), "loss": cut.loss, "seconds of cuts": seconds, "estimates": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=float, default=1.0, metavar="SHARE", help="of the usual training (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()
    results = {}
    for name, (task, sizes) in MODELS.items():
        results[name] = found = measured(task, sizes, args.steps)
        print(f"{name}: {found['edges']} edges, loss {found['loss']:.3f}, all cut in {found['seconds of cuts']:.1f} s")
        rows = [("", "Spearman", f"wrong signs of {TOP}", f"found of {TOP}", "seconds")]
        for estimate, row in found["estimates"].items():
            rows.append(
                (
                    estimate,
                    f"{row['spearman']:.2f}",
                    *(str(row[k]) for k in ("wrong signs", "found")),
                    f"{row['seconds']:.1f}",
                )
            )
        print(*aligned(rows), "", sep="\n", flush=True)
    workers.write(args.json, workers.machine(), 1, models=results)


if __name__ == "__main__":
    main()
