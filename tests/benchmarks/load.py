"""What the native kernels' threads gain and lose where other processes want the cores too.

    python tests/benchmarks/load.py [--rounds 10] [--steps 10] [--threads 1 2] [--loads 0 1 2 4] [--json FILE]

A training step of nanoGPT's CPU configuration (contenders.py), with each number of threads and beside each number of
busy loops, in turn. Each number of threads has a process of its own, which sleeps while another has its turn. NumPy's
OpenBLAS has one thread: the pool of the native kernels is what is measured. What counts is the ratio within a round to
the first number of threads: no more than 1.1, whatever the load.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from train_step import CONFIGS
from workers import ENVIRONMENT, Worker, machine, ratio, spread

LIMIT = 1.1
LOOP = "while True: pass"
STEP = Path(__file__).parent / "train_step.py"


@contextlib.contextmanager
def busy(loops):
    """Processes that want a core each."""
    processes = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(threads, loads, rounds, steps):
    """{load: {threads: [ms of each step, by round]}}."""
    workers = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            np.savez(path := os.path.join(folder, "weights.npz"), **CONFIGS["nanogpt-cpu"].initial_weights())
            command = [STEP, "--worker", "minigrad", "--config", "nanogpt-cpu", "--weights", path]
            for n in threads:
                workers[n] = Worker(command, ENVIRONMENT | {"OMP_NUM_THREADS": str(n), "OPENBLAS_NUM_THREADS": "1"})
        times = {load: {n: [] for n in threads} for load in loads}
        for i in range(rounds):
            for load, found in times.items():
                with busy(load):
                    for n in threads if i % 2 else threads[::-1]:
                        workers[n].turn(steps)
                        times_of_steps, _ = workers[n].rounds.pop()
                        found[n].append(times_of_steps)
            latest = ", ".join(
                f"{load} loops " + " ".join(f"{statistics.median(found[n][-1]):.1f}" for n in threads)
                for load, found in times.items()
            )
            print(f"round {i + 1}/{rounds}, ms: {latest}", file=sys.stderr)
    finally:
        for worker in workers.values():
            worker.stop()
    return times


def summary(rounds, base):
    return spread(rounds) | {"ratio": ratio(rounds, base)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in a turn (default: 10)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 1, 2, 4], metavar="LOOPS")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()

    about = machine()
    times = measure(args.threads, args.loads, args.rounds, args.steps)
    results = {
        load: {n: summary(rounds, found[args.threads[0]]) for n, rounds in found.items()}
        for load, found in times.items()
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(f"{'busy loops':>10}{'threads':>9}{'median ms':>11}{'p10 ms':>9}{'÷ ' + str(args.threads[0]):>9}")
    for load, found in results.items():
        for n, r in found.items():
            print(f"{load:10}{n:9}{r['median']:11.1f}{r['p10']:9.1f}{r['ratio']:9.2f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(about | {"rounds": args.rounds, "unit": "ms per step", "results": results}, file, indent=1)
    return int(any(r["ratio"] > LIMIT for found in results.values() for r in found.values()))


if __name__ == "__main__":
    sys.exit(main())
