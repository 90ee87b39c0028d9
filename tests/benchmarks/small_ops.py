"""Microseconds of eager ops on (4, 8) float32, where nearly all is overhead: minigrad beside PyTorch.

    python tests/benchmarks/small_ops.py [--rounds 40] [--only softmax chain]

"grad": the inputs require gradients, so the op is recorded in a graph, which is then dropped. "chain" is five ops and
their backward. "large": ops with their own algorithms for large arrays, on a million numbers or more. Both libraries
have a process of their own, and their turns are interleaved: see workers.py.
"""

import importlib
import math
import sys
import time

import numpy as np
from workers import beside_torch, machine, parser, ratio, serve, spread

TURN, REPEATS = 0.003, 3  # seconds of each op in each turn; parts of it, of which the best counts


def cases(lib):
    """{name: function} for a library, minigrad or torch: here they have the same names for everything."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((4, 8), (4, 8), (8, 8), (8, 8), (8,), (8,))]
    layer_norm = lib.nn.functional.layer_norm

    def ops(grad):
        x, y, a, b, weight, bias = (lib.tensor(array, requires_grad=grad) for array in arrays)

        def chain():
            ((x @ a + bias).tanh() * y).sum().backward()
            for leaf in (x, y, a, bias):
                leaf.grad = None

        forward = {
            "add": lambda: x + y,
            "mul": lambda: x * y,
            "exp": lambda: x.exp(),
            "softmax": lambda: x.softmax(-1),
            "layer_norm": lambda: layer_norm(x, (8,), weight, bias),
            "matmul 8 × 8": lambda: a @ b,
            "sum": lambda: x.sum(),
            "reshape": lambda: x.reshape(8, 4),
        }
        return {f"{name}, grad": op for name, op in forward.items()} | {"chain": chain} if grad else forward

    many, words = (lib.tensor(rng.standard_normal(shape, np.float32)) for shape in ((1024, 1024), (64, 50257)))
    large = {
        "topk": lambda: words.topk(50),
        "sort": lambda: many.sort(),
        "softmax(0)": lambda: many.softmax(0),
        "rand": lambda: lib.rand(10**6),
        "randn": lambda: lib.randn(10**6),
    }
    return ops(False) | ops(True) | {f"large {name}": op for name, op in large.items()}


def work(name, only):
    """-> (version, a function that measures each case: {case: µs})."""
    lib = importlib.import_module(name)
    functions = {case: f for case, f in cases(lib).items() if case.startswith(only)}
    for f in functions.values():  # compile
        f()
    times = {case: math.ceil(TURN / REPEATS * 1e6 / microseconds(f, 10)) for case, f in functions.items()}

    def turn(_):
        return {case: min(microseconds(f, times[case]) for _ in range(REPEATS)) for case, f in functions.items()}

    return lib.__version__, turn


def microseconds(function, times):
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) * 1e6 / times


def main():
    options = parser(__doc__, rounds=40)
    options.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="cases that begin with one of these")
    args = options.parse_args()
    if args.worker:
        serve(lambda: work(args.worker, tuple(args.only)))
        return 0

    about = machine(args)
    workers = beside_torch(__file__, args)

    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(
        f"{'µs, median and p10':20}"
        + "".join(f"{name:>12} {w.ready:7}" for name, w in workers.items())
        + f"{'÷ torch':>10}"
    )
    for case in next(iter(workers.values())).rounds[0]:
        rounds = {name: [[turn[case]] for turn in worker.rounds] for name, worker in workers.items()}
        found = {name: spread(values) for name, values in rounds.items()}
        columns = "".join(f"{r['median']:12.2f} {r['p10']:7.2f}" for r in found.values())
        if len(rounds) == 2:
            columns += f"{ratio(rounds['minigrad'], rounds['torch']):10.2f}"
        print(f"{case:20}{columns}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
