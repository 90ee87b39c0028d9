"""Contenders in processes of their own that take turns: what the benchmarks beside this file share.

In one process the thread pools of several libraries would spin against each other. Turns are interleaved, since a
machine's speed drifts by a third within seconds: so what counts is the ratio within a round.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

REST = 0.1  # seconds: by then the threads of the one before have stopped spinning
ENVIRONMENT = dict(os.environ)  # before minigrad, which a benchmark may import for its sizes, can add to it
OPENBLAS = "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"


# ---------------------------------------------------------------------------------------------- the command's process


def parser(description, rounds):
    """An ArgumentParser with the options that all of these benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contender (default: {rounds})")
    text = f"what becomes of {' and '.join(OPENBLAS)}, which choose other kernels than OpenBLAS itself would: removed "
    text += "from the contenders' environment (the default), or left as they are"
    parser.add_argument("--openblas", choices=("unset", "as-is"), default="unset", help=text)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def environment(args):
    """What the contenders' processes get."""
    removed = OPENBLAS if args.openblas == "unset" else ()
    return {name: value for name, value in ENVIRONMENT.items() if name not in removed}


def machine(args):
    """What to record of the machine, and of what the contenders may use of it."""
    cpu, flags = platform.processor(), []
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            about = dict(map(str.strip, line.split(":", 1)) for line in file if ":" in line)
        cpu, flags = about.get("model name", cpu), about.get("flags", "").split()
    variables = environment(args)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "vectors": [name for name in ("avx2", "fma", "avx512f") if name in flags],
        "load": os.getloadavg()[0],  # of the minute before: anything but near 0 spoils the numbers
        "python": platform.python_version(),
        "numpy": np.__version__,
        "openblas": args.openblas,
        "variables": {name: variables[name] for name in OPENBLAS if name in variables},
    }


def beside_torch(file, args):
    """{name: Worker} of minigrad and, where it is installed, torch. file: the benchmark, which takes --only."""
    names = [name for name in ("minigrad", "torch") if importlib.util.find_spec(name)]
    commands = {name: ([file, "--worker", name, "--only", *args.only], None) for name in names}
    return interleaved(commands, environment(args), args.rounds)


class Worker:
    """The process in which a contender runs, what it said when it was ready, and what it answered to each turn."""

    def __init__(self, command, environment):
        pipe = subprocess.PIPE
        command = [sys.executable, *command]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.rounds = []
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError("it stopped, and said why above")
        return json.loads(line)

    def turn(self, request):
        time.sleep(REST)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ChildProcessError("it stopped between its turns") from None
        self.rounds.append(self.answer())

    def stop(self):
        with contextlib.suppress(BrokenPipeError):  # it is gone, with a request unread
            self.process.stdin.close()
        self.process.wait()


def interleaved(commands, environment, rounds):
    """{name: (the arguments of python, the request of each turn)} -> {name: Worker}, each with its answers to `rounds`
    turns. One that cannot start, or stops, is left out."""
    workers, lost = {}, set()

    @contextlib.contextmanager
    def leaving_out(name):
        try:
            yield
        except ChildProcessError as error:
            lost.add(name)
            print(f"leaving out {name}: {error}", file=sys.stderr)

    try:
        for name, (command, _) in commands.items():
            print(f"starting {name}", file=sys.stderr)
            with leaving_out(name):
                workers[name] = Worker(command, environment)
        for i in range(rounds):
            print(f"\rround {i + 1}/{rounds}", end="", file=sys.stderr, flush=True)
            order = [name for name in workers if name not in lost]
            for name in order[i % len(order) :] + order[: i % len(order)]:  # so that none always follows the same one
                with leaving_out(name):
                    workers[name].turn(commands[name][1])
        print(file=sys.stderr)
    finally:
        for worker in workers.values():
            worker.stop()
    return {name: worker for name, worker in workers.items() if name not in lost}


def spread(rounds):
    """The median and the 10th percentile of all rounds' values."""
    values = sorted(value for each in rounds for value in each)
    return {"median": statistics.median(values), "p10": values[len(values) // 10]}


def ratio(rounds, base):
    """The median of the rounds' ratios of medians."""
    return statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(rounds, base))


# ------------------------------------------------------------------------------------------------ a worker's process


def serve(make):
    """Be a Worker's process. make() -> (what to say when ready, a function of a turn's request that gives its answer).

    Both are lines of JSON. Whatever else this process or a compiler prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ready, turn = make()
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(json.loads(line))), file=answers, flush=True)


def peak_memory():
    """The most memory that this process has had, in MiB.

    Not getrusage's ru_maxrss: on Linux that begins with what the process that started this one had."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
