"""A rank that raises, dies, gets a signal or finds the disk full: all end within seconds, and the checkpoint loads."""

import os
import random
import signal
import time

import pytest

from minigrad.training import checkpoint

from ..char_lm.runs import SIZES, TRAIN, WORDS, options
from .ranks import run, start

pytestmark = pytest.mark.needs("mpiexec")

# minigrad train, where something happens to one rank before it draws the batch of a step.
FAULTY = """
import os, runpy, signal, sys
from minigrad.base import launched
from minigrad.training import checkpoint, text

fault, victim, step, *argv = sys.argv[1:]
draw, drawn = text.Batches.__next__, 0

def full(*args):
    raise OSError(28, "No space left on device")

def faulty(self):
    global drawn
    drawn += 1
    if drawn == int(step) and launched.rank == int(victim):
        if fault == "raise":
            raise ZeroDivisionError("a mistake of ours")
        elif fault == "full":
            checkpoint.save = full
        elif fault == "weights":
            checkpoint.fingerprint = lambda model: "other"
        else:
            os.kill(os.getpid(), getattr(signal, fault))
    return draw(self)

text.Batches.__next__ = faulty
sys.argv = ["minigrad", "train", *argv]
runpy.run_module("minigrad", run_name="__main__", alter_sys=True)
"""
ENDLESS = options(SIZES | dict(batch_size=8, eval_every=4, steps=10**6, dropout=0.2, warmup=2, lr=0.001, min_lr=0.001))


MORE_SIGNALS = [pytest.param(*case, marks=pytest.mark.slow) for case in ((0, "SIGTERM"), (1, "SIGINT"), (1, "SIGHUP"))]


@pytest.fixture
def faulty(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "book.txt").write_text(WORDS * 50)
    out = tmp_path / "run"

    def begin(fault, victim, step):
        argv = fault, victim, step, "--text", tmp_path / "book.txt", *ENDLESS, "--out", out
        status, _, err, seconds = run(2, tmp_path / "faulty.py", *argv)
        assert seconds < 30  # it would train for hours
        return status, err, checkpoint.load(out / "last.safetensors")[1]["step"]

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_rank_that_is_killed(victim, faulty):
    status, _, step = faulty("SIGKILL", victim, 7)
    assert status != 0 and step == 4


def test_a_mistake_in_one_rank(faulty):
    status, err, step = faulty("raise", 1, 7)
    assert (status, step) == (1, 4)
    assert err.count("ZeroDivisionError: a mistake of ours") == 1 and "rank 1 of 2 ends all: ZeroDivisionError" in err


@pytest.mark.parametrize("victim, name", [(1, "SIGTERM"), *MORE_SIGNALS])
def test_a_signal_to_one_rank_stops_all_after_the_same_step(victim, name, faulty):
    status, err, step = faulty(name, victim, 7)
    assert (status, step) == (128 + getattr(signal, name), 7)
    assert (
        err.startswith("minigrad train: stopped and saved at step 7; go on with: mpiexec -n 2 ")
        and err.count("stopped") == 1
    )


@pytest.mark.slow
def test_a_full_disk(faulty):
    status, err, step = faulty("full", 0, 7)
    assert (status, step) == (2, 4)
    assert err.startswith("minigrad train: cannot save step 8 in ") and err.count("cannot save") == 1


def test_weights_that_are_no_longer_the_same_are_not_saved(faulty):
    status, err, step = faulty("weights", 1, 7)
    assert (status, step) == (2, 4)
    assert err.startswith("minigrad train: the processes differ in weights: ") and "other on rank 1, machine " in err


@pytest.mark.slow
def test_what_was_typed_wrong_is_said_once_and_other_settings_are_named(tmp_path):
    status, _, err, _ = run(2, *TRAIN, "--steps", "x")
    assert status == 2 and err.count("minigrad train: --steps must be a whole number, not 'x'") == 1
    status, _, err, _ = run(4, *TRAIN, "--batch-size", 6, "--out", tmp_path / "run")
    assert status == 2 and err.count("4 processes need as many shards or more, not 2") == 1
    (tmp_path / "own.py").write_text(
        "import runpy, sys\nfrom minigrad.base import launched\nsys.argv[1:] += ['--lr', str(launched.rank)]\n"
        "sys.argv[1:1] = ['train']\nrunpy.run_module('minigrad', run_name='__main__', alter_sys=True)\n"
    )
    status, _, err, _ = run(2, tmp_path / "own.py", "--out", tmp_path / "run")
    assert status == 2 and err.startswith(
        "minigrad train: the processes differ in lr: 0.0 on rank 0, 1.0 on rank 1, machine "
    )
    assert not (tmp_path / "run").exists()


def below(pid):
    """The processes that descend from one, in Linux's /proc."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
        except OSError:
            pass
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found, todo = found + children, todo + children
    return found


def ranks_below(pid):
    found = []
    for each in below(pid):
        try:
            with open(f"/proc/{each}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"python" in os.path.basename(words[0]) and b"minigrad" in words:
            found.append(each)
    return found


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path):
    """No rank is left, nothing hangs, every checkpoint loads; the next process goes on from it."""
    rng, out = random.Random(0), tmp_path / "run"
    (tmp_path / "book.txt").write_text(WORDS * 50)
    steps = []
    for _ in range(20):
        new = not (out / "last.safetensors").exists()
        argv = ["--text", tmp_path / "book.txt", *ENDLESS] if new else ["--resume"]
        process = start(2, *TRAIN, *argv, "--out", out)
        try:
            time.sleep(rng.uniform(0.2, 3))
            ranks = ranks_below(process.pid)
            for rank in ranks and [rng.choice(ranks)]:
                os.kill(rank, rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            if not ranks:
                process.kill()
            process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
        deadline = time.monotonic() + 5
        while any(os.path.exists(f"/proc/{rank}") for rank in ranks):
            assert time.monotonic() < deadline, "a rank is left"
            time.sleep(0.05)
        if (out / "last.safetensors").exists():
            steps.append(checkpoint.load(out / "last.safetensors")[1]["step"])
    assert steps == sorted(steps) and steps[-1] > 0


@pytest.mark.slow
def test_killed_and_resumed_with_other_numbers_of_processes(tmp_path):
    """The files are, byte for byte, those of one process that nothing happened to."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "book.txt").write_text(WORDS * 50)
    sizes = dict(n_layer=2, n_head=2, n_embd=32, block_size=16, batch_size=16, steps=50, eval_every=5, shards=8)
    argv = ["--text", tmp_path / "book.txt", *options(SIZES | sizes | dict(dropout=0.2, clip=0.5, weight_decay=0.1))]
    assert run(1, *TRAIN, *argv, "--out", tmp_path / "straight")[0] == 0
    saved = []
    for n, victim, draw in (2, 1, 13), (4, 2, 9), (8, 5, 12), (1, 0, 8), (2, 0, 17):
        more = argv if n == 2 and not saved else ["--resume"]
        status, *_ = run(n, tmp_path / "faulty.py", "SIGKILL", victim, draw, *more, "--out", tmp_path / "run")
        assert status != 0
        saved.append(checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["step"])
    assert saved == [10, 15, 25, 30, 45]
    assert run(4, *TRAIN, "--resume", "--out", tmp_path / "run")[0] == 0
    for name in "last.safetensors", "best.safetensors", "losses.csv":
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
