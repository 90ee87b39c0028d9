"""How long it takes to draw random numbers and to build a GPT of GPT-2's size, beside NumPy's own generator.

    python tests/benchmarks/build_gpt2.py [--rounds 3] [--limit 8] [--json FILE]

Each CPU backend has processes of its own, so that each round finds memory that it has never had. Kernels are compiled
before. Exits with 1 if the median of a backend's times to build the model is above the limit.
"""

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
from workers import ENVIRONMENT, Worker, machine, peak_memory, serve

BACKENDS = "native", "numpy"
NUMBERS = 10**7
WORK = "build", "normal", "uniform", "NumPy's normal"


def timed(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def worker():
    import minigrad as mg
    from minigrad import nn

    mg.randn(1)  # starts the backend, and compiles what is not in the cache
    nn.init.normal_(mg.empty(4096))

    def turn(what):
        work = {
            "build": lambda: nn.GPT(nn.GPTConfig.preset("gpt2")),
            "normal": lambda: mg.randn(NUMBERS),
            "uniform": lambda: mg.rand(NUMBERS),
            "NumPy's normal": lambda: np.random.default_rng(0).standard_normal(NUMBERS, np.float32),
        }
        return {"seconds": timed(work[what]), "peak": peak_memory()}

    return type(mg.backend.get("cpu")).__name__, turn


def measure(backend, rounds):
    """{what: [seconds]}, and the most memory in MiB that a process had, each of which does one thing."""
    times, peak = {what: [] for what in WORK}, {}
    for _ in range(rounds):
        for what, found in times.items():
            process = Worker([os.path.abspath(__file__), "--worker"], ENVIRONMENT | {"MINIGRAD_CPU": backend})
            try:
                process.turn(what)
            finally:
                process.stop()
            found.append(process.rounds[0]["seconds"])
            peak[what] = max(peak.get(what, 0), process.rounds[0]["peak"])
    return times, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=8.0, help="seconds to build the model in (default: 8)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return serve(worker)

    about, results = machine(), {}
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(f"{'seconds, median of ' + str(args.rounds):24}{'build GPT-2':>14}" + "".join(f"{w:>16}" for w in WORK[1:]))
    for backend in BACKENDS:
        times, peak = measure(backend, args.rounds)
        results[backend] = {what: {"seconds": times[what], "peak_mib": peak[what]} for what in WORK}
        medians = [statistics.median(times[what]) for what in WORK]
        row = "".join(f"{seconds:16.2f}" for seconds in medians[1:])
        print(f"{backend:24}{medians[0]:14.2f}{row}   at most {peak['build']:.0f} MiB")
    print(f"\nnormal, uniform: {NUMBERS:,} numbers in float32")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(about | {"rounds": args.rounds, "numbers": NUMBERS, "results": results}, file, indent=1)
    return int(any(statistics.median(found["build"]["seconds"]) > args.limit for found in results.values()))


if __name__ == "__main__":
    sys.exit(main())
