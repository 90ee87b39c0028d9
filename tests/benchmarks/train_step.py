"""Milliseconds per training step of nanoGPT's CPU configuration: minigrad, and which of torch, jax, tinygrad are here.

    python tests/benchmarks/train_step.py [--rounds 20] [--steps 10] [--only minigrad torch] [--compile] [--json FILE]

4 layers, 4 heads, 128 wide, block 64, batch 12, 65 tokens, float32, AdamW with clipping; the models are in
contenders.py. All start from the same weights and see the same random batches, so their first losses must agree.

Each has a process of its own, which sleeps while another has its turn: in one process their thread pools would spin
against each other. Turns are interleaved, since a machine's speed drifts by a third within seconds; so what counts is
the ratio within a round. "GEMMs alone" are the step's matrix products and nothing else, in NumPy: the floor.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from contenders import CONTENDERS, B, T, V, initial_weights

AGREE = 1e-3  # the largest difference between two first losses
FIRST, UNTIMED, TURN, REST = 5, 2, 3.0, 0.1  # steps compared; steps to warm up with; longest turn, rest, in seconds
ENVIRONMENT = dict(os.environ)  # before minigrad, imported for its initial weights, may add to it


def work(name, path):
    """Answer on stdout in lines of JSON: version and first losses; then, to each number of steps, their times
    in ms, and the peak of memory that training has taken so far, in MiB."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    make, package = CONTENDERS[name]
    step = make(dict(np.load(path)))
    before = peak_memory()  # the libraries, the weights
    tokens = np.random.default_rng(0).integers(0, V, (64, B, T + 1))
    batches = [(np.ascontiguousarray(t[:, :-1]), np.ascontiguousarray(t[:, 1:])) for t in tokens]
    version = getattr(sys.modules[package], "__version__", None) or importlib.metadata.version(package)
    print(json.dumps([version, [step(*batches[i]) for i in range(FIRST)]]), file=answers, flush=True)
    done = FIRST
    for line in sys.stdin:
        end, times = time.monotonic() + TURN, []
        for i in range(int(line) + UNTIMED):
            start = time.perf_counter()
            step(*batches[done % len(batches)])
            times.append((time.perf_counter() - start) * 1e3)
            done += 1
            if i >= UNTIMED and time.monotonic() > end:  # a slow one does fewer
                break
        print(json.dumps([times[UNTIMED:], peak_memory() - before]), file=answers, flush=True)


def peak_memory():
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Worker:
    """The process in which a contender runs, and what it has measured. variables: of its environment."""

    def __init__(self, name, path, **variables):
        command = [sys.executable, __file__, "--worker", name, path]
        pipe, environment = subprocess.PIPE, ENVIRONMENT | variables
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.rounds = []  # ms of each step, by round
        self.memory = 0.0  # MiB that training has taken at its peak, beyond libraries and weights
        self.version, self.losses = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError("it stopped, and said why above")
        return json.loads(line)

    def turn(self, steps):
        time.sleep(REST)  # by then the threads of the one before have stopped spinning
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        times, self.memory = self.answer()
        self.rounds.append(times)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def machine():
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],  # of the minute before: anything but near 0 spoils the numbers
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def summary(worker, base):
    """Medians and 10th percentiles in ms; the ratio to torch is the median of the rounds' ratios of medians."""
    times = sorted(ms for times in worker.rounds for ms in times)
    medians = [statistics.median(times) for times in worker.rounds]
    ratios = [a / statistics.median(times) for a, times in zip(medians, base.rounds)] if base else []
    return {
        "version": worker.version,
        "steps": len(times),
        "median": statistics.median(times),
        "p10": times[len(times) // 10],
        "ratio_to_torch": statistics.median(ratios) if ratios else None,
        "peak_mib": worker.memory,
        "medians_of_rounds": medians,
        "first_losses": worker.losses,
    }


def measure(names, rounds, steps):
    """{name: Worker}, each with its times. One that cannot start is left out."""
    workers = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            np.savez(path := os.path.join(folder, "weights.npz"), **initial_weights())
            for name in names:
                print(f"starting {name}", file=sys.stderr)
                try:
                    workers[name] = Worker(name, path)
                except ChildProcessError as error:
                    print(f"leaving out {name}: {error}", file=sys.stderr)
        for i in range(rounds):
            order = list(workers)
            order = order[i % len(order) :] + order[: i % len(order)]  # so that none always follows the same one
            for name in order:
                workers[name].turn(steps)
            latest = ", ".join(f"{name} {statistics.median(w.rounds[-1]):.1f}" for name, w in workers.items())
            print(f"round {i + 1}/{rounds}, ms: {latest}", file=sys.stderr)
    finally:
        for worker in workers.values():
            worker.stop()
    return workers


def report(results):
    print(f"{'':14}{'version':>14}{'steps':>7}{'median ms':>11}{'p10 ms':>9}{'÷ torch':>9}{'MiB':>7}   first losses")
    for name, r in results.items():
        ratio = "" if r["ratio_to_torch"] is None else f"{r['ratio_to_torch']:.2f}"
        losses = " ".join("" if loss is None else f"{loss:.5f}" for loss in r["first_losses"])
        numbers = f"{r['steps']:7}{r['median']:11.1f}{r['p10']:9.1f}{ratio:>9}{r['peak_mib']:7.0f}"
        print(f"{name:14}{r['version']:>14}{numbers}   {losses}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in a turn (default: 10)")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help=", ".join(CONTENDERS))
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker)
        return 0

    names = args.only or [name for name in CONTENDERS if name != "torch.compile" or args.compile]
    names = [name for name in names if importlib.util.find_spec(CONTENDERS[name][1])]
    about = machine()
    workers = measure(names, args.rounds, args.steps)
    results = {name: summary(worker, workers.get("torch")) for name, worker in workers.items()}
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    report(results)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(about | {"rounds": args.rounds, "unit": "ms per step", "results": results}, file, indent=1)
    losses = np.array([w.losses for w in workers.values() if w.losses[0] is not None])
    if len(losses) and (apart := np.ptp(losses, axis=0).max()) > AGREE:
        print(f"\nthe first losses differ by up to {apart:.1e}: these are not the same model", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
