"""Microseconds of the host for an eager launch on a GPU, with its results' memory: of primitives and of Tensor's ops.

    python tests/benchmarks/launch.py [--rounds 20] [--beside FOLDER] [--json FILE]

Arrays are (4, 8) and (8, 8) float32. Time runs until a call returns, with its work queued; the waits between are not
counted. "CuPy's launch" and "memory" are the parts that are not ours. On the rig of tests/gpu_rig/ (as
.gpu-rig/run tests/benchmarks/launch.py) that is the rig's queue in the place of a driver's. --beside: another checkout
of minigrad, in a process of its own, with which turns are interleaved.
"""

import importlib
import sys
import time
from pathlib import Path

import numpy as np
from workers import environment, interleaved, machine, parser, ratio, serve, spread, write

CALLS, BATCHES = 500, 4  # of each case in a turn: so few calls that a driver's queue has room for them


def cases(mg, on):
    """{name: function}, for a minigrad and its CUDA backend."""
    rng = np.random.default_rng(0)
    x, y, a, b, w = (on.from_numpy(rng.standard_normal(n, np.float32)) for n in ((4, 8), (4, 8), (8, 8), (8, 8), 8))
    X, Y, A, B, W = (mg.from_dlpack(array) for array in (x, y, a, b, w))
    return {
        "CuPy's launch": cupys_launch(on, x, y),
        "memory": lambda: on.empty((4, 8), x.dtype),
        "add": lambda: on.add(x, y),
        "mul by a number": lambda: on.mul(x, 2.0),
        "exp": lambda: on.exp(x),
        "softmax": lambda: on.softmax(x, -1),
        "sum": lambda: on.sum(x, (0, 1), False),
        "matmul": lambda: on.matmul(a, b),
        "layer_norm": lambda: on.layer_norm(x, w, w, 1e-5),
        "Tensor: add": lambda: X + Y,
        "Tensor: exp": lambda: X.exp(),
        "Tensor: softmax": lambda: X.softmax(-1),
        "Tensor: sum": lambda: X.sum(),
        "Tensor: matmul": lambda: A @ B,
        "Tensor: layer_norm": lambda: mg.nn.functional.layer_norm(X, (8,), W, W),
    }


def cupys_launch(on, x, y):
    """A function that has CuPy launch the softmax of x's rows into y, whose arguments are what CuPy takes."""
    on.softmax(x, -1)
    kernel = on._kernels["softmax", "softmax", x.dtype].raw
    arguments = y, x, *map(np.int64, x.shape)
    return lambda: kernel((1,), (32, 4), arguments)


def work(folder):
    """-> (the folder, a function that measures each case: {case: µs})."""
    sys.path.insert(0, folder)
    mg = importlib.import_module("minigrad")
    on = mg.backend.get("cuda")
    functions = cases(mg, on)

    def microseconds(function):
        best = []
        for _ in range(BATCHES):
            on.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            best.append((time.perf_counter() - start) * 1e6 / CALLS)
        return min(best)

    for function in functions.values():
        function()  # compiles
    return folder, lambda _: {case: microseconds(function) for case, function in functions.items()}


def main():
    options = parser(__doc__, rounds=20)
    options.add_argument("--beside", metavar="FOLDER", help="another checkout to measure in turns")
    args = options.parse_args()
    if args.worker:
        serve(lambda: work(args.worker))
        return 0

    about, here = machine(args), str(Path(__file__).resolve().parents[2])
    folders = [here] + ([str(Path(args.beside).resolve())] if args.beside else [])
    commands = {folder: ([__file__, "--worker", folder], None) for folder in folders}
    workers = interleaved(commands, environment(args), args.rounds)
    if here not in workers:
        return 1

    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    names = ["median", "least", "beside: median", "least", "ratio"] if args.beside else ["median", "least"]
    print(f"{'µs':20}" + "".join(f"{name:>16}" for name in names))
    results = {}
    for case in workers[here].rounds[0]:
        rounds = {folder: [[turn[case]] for turn in worker.rounds] for folder, worker in workers.items()}
        found = results[case] = {folder: spread(values) for folder, values in rounds.items()}
        line = "".join(f"{r['median']:16.2f}{min(r['medians_of_rounds']):16.2f}" for r in found.values())
        if len(found) == 2:
            found["ratio"] = ratio(*rounds.values())
            line += f"{found['ratio']:16.2f}"
        print(f"{case:20}{line}")
    write(args.json, about, args.rounds, unit="µs", results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
