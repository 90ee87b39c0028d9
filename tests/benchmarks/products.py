"""GFLOP/s of float32 matrix products on a CPU: minigrad's, and np.matmul, which calls OpenBLAS.

    python tests/benchmarks/products.py [--config nanogpt-cpu] [--rounds 20] [--only fc]

The products are those of the linear layers of a training step (those of attention are within its kernel), then square
ones. T stands for a transposed operand. "step" is the time of all products of the step, each as often as it occurs.
Each contender has a process of its own, and their turns are interleaved: see workers.py.
"""

import sys

import numpy as np
from small_ops import TURN, microseconds
from train_step import CONFIGS
from workers import environment, interleaved, machine, parser, ratio, serve, spread

SQUARES = 64, 128, 256, 512, 1024
UNTIMED = 20  # products of a case that are not measured


def products(sizes):
    """{name: (shape of a, shape of b, True if a is transposed, True if b is, how often it occurs in a step)}"""
    rows, layers = sizes.B * sizes.T, sizes.L
    linear = {  # name: (inputs, outputs, how many there are)
        "qkv": (sizes.C, 3 * sizes.C, layers),
        "out": (sizes.C, sizes.C, layers),
        "fc": (sizes.C, 4 * sizes.C, layers),
        "proj": (4 * sizes.C, sizes.C, layers),
        "logits": (sizes.C, sizes.V, 1),
    }
    found = {}
    for name, (n, m, times) in linear.items():
        found[f"{name}: y = x Wᵀ"] = (rows, n), (m, n), False, True, times
        found[f"{name}: dx = dy W"] = (rows, m), (m, n), False, False, times
        found[f"{name}: dW = dyᵀ x"] = (rows, m), (rows, n), True, False, times
    return found | {f"{n} × {n}": ((n, n), (n, n), False, False, 0) for n in SQUARES}


def flops(a, b, a_transposed, b_transposed, times):
    (n, k), m = a[::-1] if a_transposed else a, b[0] if b_transposed else b[1]
    return 2 * n * k * m


def work(name, cases):
    """-> (version, a function that measures each case: {case: µs})."""
    rng = np.random.default_rng(0)
    if name == "numpy":
        multiply, version = np.matmul, np.__version__
    else:
        import minigrad
        from minigrad import backend

        multiply, version = backend.get("cpu").matmul, minigrad.__version__

    def product(a, b, a_transposed, b_transposed, times):
        a, b = (rng.standard_normal(shape, np.float32) for shape in (a, b))
        a, b = a.T if a_transposed else a, b.T if b_transposed else b
        return lambda: multiply(a, b)

    functions = {case: product(*about) for case, about in cases.items()}
    first = next(iter(functions.values()))
    microseconds(first, UNTIMED)  # compiles
    times = {case: max(1, round(TURN * 1e6 / microseconds(f, UNTIMED))) for case, f in functions.items()}

    def turn(_):
        microseconds(first, UNTIMED)  # wakes the threads
        return {case: microseconds(f, times[case]) for case, f in functions.items()}

    return version, turn


def main():
    options = parser(__doc__, rounds=20)
    options.add_argument("--config", choices=CONFIGS, default="nanogpt-cpu", help="sizes of the model and the batch")
    options.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    args = options.parse_args()
    cases = {name: about for name, about in products(CONFIGS[args.config]).items() if args.only in name}
    if args.worker:
        serve(lambda: work(args.worker, cases))
        return 0

    about = machine(args)
    given = ["--config", args.config, "--only", args.only]
    commands = {name: ([__file__, "--worker", name, *given], None) for name in ("minigrad", "numpy")}
    workers = interleaved(commands, environment(args), args.rounds)
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(f"{'GFLOP/s':24}" + "".join(f"{name:>10} {w.ready:6}" for name, w in workers.items()) + "  time ÷ numpy")
    for case, product in cases.items():
        rounds = {name: [[turn[case]] for turn in worker.rounds] for name, worker in workers.items()}
        rates = "".join(f"{flops(*product) / spread(values)['median'] / 1e3:17.1f}" for values in rounds.values())
        print(f"{case:24}{rates}{ratio(rounds['minigrad'], rounds['numpy']):14.2f}")
    step = {
        name: [[sum(turn[case] * cases[case][-1] for case in cases)] for turn in worker.rounds]
        for name, worker in workers.items()
    }
    if any(product[-1] for product in cases.values()):
        times = "".join(f"{spread(values)['median'] / 1e3:14.2f} ms" for values in step.values())
        print(f"{'step':24}{times}{ratio(step['minigrad'], step['numpy']):14.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
