"""Helpers that run `minigrad train` and `minigrad sample` small, in this or another process."""

import contextlib
import csv
import itertools
import os
import signal
import subprocess
import sys

import pytest

import minigrad as mg
from minigrad import __main__ as program
from minigrad.training import text

WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n"
SIZES = dict(n_layer=1, n_head=2, n_embd=8, block_size=8, batch_size=3)
REST = dict(eval_every=4, warmup=2, dropout=0.2)


def options(settings):
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


TINY = options(SIZES | REST)


def main(*argv):
    """Return the exit status of `minigrad train`, or of another command whose name comes first."""
    words = [str(a) for a in argv]
    try:
        return program.main(words if words[:1] == ["sample"] else ["train", *words])
    except SystemExit as stop:
        return stop.code


def fails(capsys, *argv):
    """Return the one line that a command with bad input prints before it exits with status 2."""
    capsys.readouterr()
    assert main(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("minigrad ") and captured.err.count("\n") == 1
    return captured.err


def start(*argv, **options):
    """Start a command in another process."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "minigrad", "train", *map(str, argv)]
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=env, **piped | options)


def state(out, name="last"):
    return mg.load(out / f"{name}.safetensors")


def same_run(a, b):
    """Return every byte of a run: parameters, optimizer, generators, step, settings, vocabulary and losses."""
    for name in ("last.safetensors", "best.safetensors", "losses.csv"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


def rows(out):
    with open(out / "losses.csv", newline="") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def stop_after(n, *numbers):
    """Send signals (Ctrl-C) during the n-th step."""
    steps, draw = itertools.count(1), text.Batches.__next__

    def with_signals(self):
        if next(steps) == n:
            for number in numbers or (signal.SIGINT,):
                signal.raise_signal(number)
        return draw(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text.Batches, "__next__", with_signals)
        yield
