"""Matrix products on the CPU: minigrad's, OpenBLAS's through NumPy, and what the cores can do.

    python tests/benchmarks/matmul.py [--rounds 20] [--only step cube] [--dtype float64] [--json FILE]

The products of a training step of nanoGPT's CPU configuration, cubes, single rows, and batches of small products, all
as the backends' primitive matmul(a, b), Python included. Each contender has a process of its own, which sleeps while
another has its turn: in one process their thread pools would spin against each other. A turn is a few milliseconds of
each product. The ratio is the median of the rounds' ratios of medians: above 1, minigrad is faster. "Of peak" compares
the best turn with the multiply-adds that peak.py's loop does on as many cores.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
from peak import peak_gflops
from workers import ENVIRONMENT, REST, machine

from minigrad import backend

TURN = 0.01  # seconds of a product
BATCH = 5e-5  # seconds that are measured at once, so that the clock costs nothing
CONTENDERS = "minigrad", "numpy"

# {name: (shape of a, shape of b, how they lie in memory: n row by row, t column by column)}
ROWS, C, V = 12 * 64, 128, 65
LAYERS = {"qkv": (C, 3 * C), "proj": (C, C), "fc": (C, 4 * C), "fc2": (4 * C, C), "head": (C, V)}
CASES = {}
for _name, (_k, _m) in LAYERS.items():
    CASES[f"step {_name} y = x Wᵀ"] = (ROWS, _k), (_k, _m), "nt"
    CASES[f"step {_name} dx = dy W"] = (ROWS, _m), (_m, _k), "nn"
    CASES[f"step {_name} dW = dyᵀ x"] = (_m, ROWS), (ROWS, _k), "tn"
for _n in (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048):
    CASES[f"cube {_n}"] = (_n, _n), (_n, _n), "nn"
for _n in (64, 256, 1024):
    CASES[f"cube {_n} a bᵀ"] = (_n, _n), (_n, _n), "nt"
    CASES[f"cube {_n} aᵀ b"] = (_n, _n), (_n, _n), "tn"
for _k, _m in ((C, 3 * C), (C, 4 * C), (4 * C, C), (768, 3072), (4096, 4096)):
    CASES[f"row (1, {_k}) Wᵀ ({_m})"] = (1, _k), (_k, _m), "nt"
CASES["row (1, 768) W (3072)"] = (1, 768), (768, 3072), "nn"
CASES["rows (8, 768) Wᵀ (3072)"] = (8, 768), (768, 3072), "nt"
CASES["column A (768, 3072) v"] = (768, 3072), (3072, 1), "nn"
CASES["batch 48 (64, 32) (32, 64)"] = (48, 64, 32), (48, 32, 64), "nt"
CASES["batch 48 (64, 64) (64, 32)"] = (48, 64, 64), (48, 64, 32), "nn"
CASES["batch 16 (16, 8) (8, 16)"] = (16, 16, 8), (16, 8, 16), "nt"


def operands(name, dtype):
    rng = np.random.default_rng(0)
    *shapes, orders = CASES[name]
    pair = []
    for shape, order in zip(shapes, orders):
        if order == "t":
            shape = (*shape[:-2], shape[-1], shape[-2])
        x = rng.standard_normal(shape).astype(dtype)
        pair.append(x.swapaxes(-1, -2) if order == "t" else x)
    return pair


def flops(name):
    a, b, _ = CASES[name]
    return 2 * np.prod(a) * b[-1]


def work(contender, dtype):
    """To each line, a turn: {name: [the median of its times in seconds, the least]} and the peak, as JSON."""
    multiply = {"minigrad": backend.cpu().matmul, "numpy": np.matmul}[contender]
    for line in sys.stdin:
        times = {}
        for name in json.loads(line):
            a, b = operands(name, dtype)
            multiply(a, b)
            start = time.perf_counter()
            multiply(a, b)
            calls = max(1, round(BATCH / (time.perf_counter() - start)))
            end, found = time.perf_counter() + TURN, []
            while not found or time.perf_counter() < end:
                start = time.perf_counter()
                for _ in range(calls):
                    multiply(a, b)
                found.append((time.perf_counter() - start) / calls)
            times[name] = statistics.median(found), min(found)
        peak = peak_gflops(dtype) if contender == "minigrad" else None
        print(json.dumps([times, peak]), flush=True)


def measure(names, dtype, rounds):
    """({contender: [what work() answers, by round]}, the highest peak)"""
    pipe = subprocess.PIPE
    workers, turns, peak = {}, {contender: [] for contender in CONTENDERS}, 0
    try:
        for contender in CONTENDERS:
            command = [sys.executable, __file__, "--worker", contender, "--dtype", dtype]
            workers[contender] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT)
        for i in range(rounds + 1):
            for contender in CONTENDERS[:: 1 if i % 2 else -1]:
                time.sleep(REST)  # by then the threads of the one before have stopped spinning
                workers[contender].stdin.write(json.dumps(names) + "\n")
                workers[contender].stdin.flush()
                times, one = json.loads(workers[contender].stdout.readline())
                peak = max(peak, one or 0)
                if i:  # the first round warms up
                    turns[contender].append(times)
    finally:
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    return turns, peak


def summary(name, turns, peak):
    medians = {c: [times[name][0] for times in turns[c]] for c in CONTENDERS}
    best = {c: min(times[name][1] for times in turns[c]) for c in CONTENDERS}
    return {
        "gflops": {c: flops(name) / statistics.median(medians[c]) / 1e9 for c in CONTENDERS},
        "best_gflops": {c: flops(name) / best[c] / 1e9 for c in CONTENDERS},
        "microseconds": {c: 1e6 * statistics.median(medians[c]) for c in CONTENDERS},
        "ratio": statistics.median(theirs / ours for ours, theirs in zip(*(medians[c] for c in CONTENDERS))),
        "best_ratio": best["numpy"] / best["minigrad"],
        "of_peak": flops(name) / best["minigrad"] / 1e9 / peak,
    }


def report(results):
    print(f"{'':28}{'µs':>20}{'GFLOP/s, best':>20}{'ratio':>9}{'of best':>9}{'of peak':>9}")
    print(f"{'':28}{'minigrad':>11}{'numpy':>9}{'minigrad':>11}{'numpy':>9}")
    for name, r in results.items():
        pairs = [r[key][c] for key in ("microseconds", "best_gflops") for c in CONTENDERS]
        numbers = "{:11.1f}{:9.1f}{:11.1f}{:9.1f}".format(*pairs)
        print(f"{name:28}{numbers}{r['ratio']:9.2f}{r['best_ratio']:9.2f}{r['of_peak']:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="products whose names begin with one of these")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--worker", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.dtype)
        return
    names = [name for name in CASES if not args.only or name.startswith(tuple(args.only))]
    turns, peak = measure(names, args.dtype, args.rounds)
    about = machine() | {"dtype": args.dtype, "rounds": args.rounds, "peak_gflops": peak}
    results = {name: summary(name, turns, peak) for name in names}
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    report(results)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(about | {"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
