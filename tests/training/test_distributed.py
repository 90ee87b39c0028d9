"""Training in several processes with a real mpiexec: the same losses for any number, and messages of faults."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import distributed

from ..char_lm.runs import SIZES, WORDS, options, rows, same_run, state

MPIEXEC = Path(sys.executable).with_name("mpiexec")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec: pip install '.[mpi]'")]
MINIGRAD = ["-m", "minigrad", "train"]
TINY = options(SIZES | dict(batch_size=4, eval_every=4, warmup=2, steps=8, dropout=0.0))


def mpiexec(n, *words, **options):
    """Run a program in n processes and return its output."""
    command = [MPIEXEC, "-n", str(n), sys.executable, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def ran(n, *words, status=0):
    """Return (stdout, stderr) of a program in n processes, which must end with this status."""
    program = mpiexec(n, *words)
    out, err = program.communicate(timeout=60)
    assert program.returncode == status, err
    return out, err


@pytest.fixture
def book(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text(WORDS * 30)
    return file


def test_any_number_of_processes_has_the_losses_of_one(tmp_path, book):
    outs = {n: tmp_path / str(n) for n in (1, 2, 4)}
    for n, out in outs.items():
        said, err = ran(n, *MINIGRAD, "--text", book, "--out", out, *TINY)
        assert said.count("best validation loss") == 1 and err == ""  # by process 0 alone
    one = [float(row["train"]) for row in rows(outs[1])]
    for n in (2, 4):
        assert [float(row["train"]) for row in rows(outs[n])] == pytest.approx(one, rel=1e-5)
        for name, x in state(outs[1])["model"].items():  # float32, summed in another order
            np.testing.assert_allclose(state(outs[n])["model"][name].numpy(), x.numpy(), atol=1e-4)
    for n, out in outs.items():  # resumed by other numbers
        ran({1: 4, 2: 1, 4: 2}[n], *MINIGRAD, "--resume", "--steps", 12, "--out", out)
    losses = [[float(row["train"]) for row in rows(out)] for out in outs.values()]
    assert len(losses[0]) == 12
    np.testing.assert_allclose(losses, [losses[0]] * 3, rtol=1e-5)


def test_alone_under_mpiexec_it_is_the_program_itself(tmp_path, book):
    ran(1, *MINIGRAD, "--text", book, "--out", tmp_path / "a", *TINY)
    subprocess.run([sys.executable, *MINIGRAD, "--text", book, "--out", tmp_path / "b", *TINY], check=True)
    same_run(tmp_path / "a", tmp_path / "b")


def test_a_signal_saves_once(tmp_path, book):
    out = tmp_path / "run"
    program = mpiexec(2, *MINIGRAD, "--text", book, "--out", out, *TINY, "--steps", 10**6)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out / "best.safetensors").exists():
        time.sleep(0.05)
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(timeout=60)
    assert program.returncode == 128 + signal.SIGTERM and err.count("stopped and saved at step") == 1
    assert int(rows(out)[-1]["step"]) == state(out)["step"] > 3


def test_settings_that_do_not_fit_are_one_line(tmp_path, book):
    _, err = ran(3, *MINIGRAD, "--text", book, "--out", tmp_path / "run", *TINY, status=2)
    assert err.count("batch_size 4 cannot be divided among 3 processes") == 1 and not (tmp_path / "run").exists()
    assert ran(2, *MINIGRAD, "--text", tmp_path / "nosuch", status=2)[1].count("No such file or directory") == 1


SCRIPT = """
import os, minigrad as mg
from minigrad import distributed, nn
rank, size = distributed.world()
mg.manual_seed(rank)
model = nn.Linear(3, 2 + (rank == 1 and {case!r} == "shapes"))
distributed.broadcast_(model.parameters())
if rank == 1 and {case!r} == "raises":
    raise ValueError("by process 1")
if rank == 1 and {case!r} == "killed":
    os.kill(os.getpid(), 9)
x = mg.arange(12).reshape(4, 3).float()
if rank != 1 or {case!r} != "no gradient":
    model(x[2 * rank : 2 * rank + 2]).square().mean().backward()
distributed.average_gradients_(model.parameters())
whole = nn.Linear(3, 2)
whole.load_state_dict(model.state_dict())
whole(x).square().mean().backward()
for p, q in zip(model.parameters(), whole.parameters()):
    assert mg.allclose(p.grad, q.grad, rtol=1e-5)
assert distributed.average(rank) == 0.5 and distributed.first() == (rank == 0)
print("threads", os.environ["OMP_NUM_THREADS"])
"""


@pytest.mark.parametrize("case, status, said", [
    ("right", 0, ""),
    ("raises", 1, "ValueError: by process 1"),
    ("killed", 9, "Killed (signal 9)"),
    ("shapes", 1, "differ between processes 0 and 1: tensor 0 is ((2, 3), 'float32') and ((3, 3), 'float32')"),
    ("no gradient", 1, "differ between processes 0 and 1: tensor 0 is ((2, 3), 'float32') and None"),
])  # fmt: skip
def test_a_failure_of_one_process_ends_all(case, status, said, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    out, err = ran(2, "-c", SCRIPT.format(case=case), status=status)
    assert said in out + err and err.count("Traceback") == (status == 1)
    assert out.count("threads") == (0 if status else 2)


def test_without_mpiexec_there_is_one_process_and_nothing_to_do():
    x = mg.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    distributed.broadcast_([x])
    distributed.average_gradients_([x])
    assert distributed.world() == (0, 1) and distributed.first() and distributed.average(3) == 3
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
