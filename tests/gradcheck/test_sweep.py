"""minigrad check on users' ops that do what no op should: exit, crash, hide minigrad's names, start processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.__main__ import main as program
from minigrad.autograd import registry
from minigrad.commands.check import arguments
from minigrad.gradcheck.sweep import check_op, sweep
from minigrad.gradcheck.where import raised

OP = """
class {name}(mg.Op):
    cases = [mg.case((2,))]
    def forward(self, x):
        {does}
        return x * 2.0
    def backward(self, dy):
        return dy * {factor}
"""
HEAD = "import multiprocessing, os, sys, time\nimport minigrad as mg\n"
ENV = os.environ | {"MINIGRAD_CPU": "numpy"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module of ops (name -> what its forward does) and returns its path; all is forgotten afterwards."""
    declared, path = dict(registry), list(sys.path)
    monkeypatch.setenv("MINIGRAD_CPU", "numpy")
    names = []

    def write(name, factor=2.0, **ops):
        file = tmp_path / f"{name}.py"
        file.write_text(HEAD + "".join(OP.format(name=op, does=does, factor=factor) for op, does in ops.items()))
        names.append(name)
        return str(file)

    yield write
    registry.clear()
    registry.update(declared)
    sys.path[:] = path
    for name in names:
        sys.modules.pop(name, None)


def test_an_op_of_a_file_goes_before_ours_of_the_same_name(write):
    file = write("mine", Tanh="")
    for _ in range(2):  # also where it has been imported before
        assert arguments([file, "--op", "tanh"]).names == ["mine.tanh"]
        assert arguments([file, "--op", "mine.tanh"]).names == arguments([file]).names == ["mine.tanh"]
    assert arguments([file, write("other", Tanh=""), "--op", "tanh"]).names == ["mine.tanh", "other.tanh"]
    assert arguments(["minigrad.ops.activation", "--op", "tanh"]).names == ["tanh"]


@pytest.mark.parametrize(
    "op, said",
    [
        ("softmax", "mine.py declares no op 'softmax'\n"),
        ("tahn", "mine.py declares no op 'tahn'; did you mean tanh?\n"),
    ],
)
def test_an_op_that_a_file_does_not_declare(write, capsys, op, said):
    with pytest.raises(SystemExit, match="2"):
        program(["check", write("mine", Tanh=""), "--op", op])
    assert capsys.readouterr().err.endswith(said)


FORK = "multiprocessing.get_context('fork').Process(target=time.sleep, args=({seconds},), daemon={daemon})"


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_op_that_ends_its_process_is_a_failure_of_that_op(write, capfd, jobs):
    ops = {"Leaves": "sys.exit(0)", "Odd": "raise BaseException('odd')", "Realtime": "os.kill(os.getpid(), 40)"}
    if jobs == "2":
        ops["Dies"] = f"os._exit({FORK.format(seconds=600, daemon=False)}.start() or 0)"
    file = write(f"ending_with_{jobs}", **ops)
    assert program(["check", file, "--order", "1", "--jobs", jobs]) == 1
    out, err = capfd.readouterr()
    assert f"FAIL leaves: SystemExit: 0, at {file}:" in out and "FAIL odd: BaseException: odd, at" in out
    assert "FAIL realtime: the process that checked it was ended by signal 40" in out
    assert jobs == "1" or "FAIL dies: the process that checked it was ended with status 0" in out
    assert "Traceback" not in err


def test_an_op_that_exits_is_a_failed_check_in_this_process_too(write):
    arguments([write("exiting", Exits="sys.exit(3)")])
    assert {row.message.partition(",")[0] for row in check_op("exits")} == {"FAIL exits: SystemExit: 3"}


def test_an_exception_that_cannot_say_what_it_is():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert (
        raised(Mute()) == "Mute" and raised(ValueError()) == "ValueError" and raised(ValueError(3)) == "ValueError: 3"
    )


@pytest.mark.parametrize("before", [None, "7"])
def test_a_sweep_leaves_the_environment_as_it_was(monkeypatch, before):
    names, seen = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), []
    for name in names:
        monkeypatch.delenv(name, raising=False) if before is None else monkeypatch.setenv(name, before)

    def start(process):
        seen.extend(os.environ[name] for name in names)
        raise OSError("no process")

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", start)
    with pytest.raises(OSError, match="no process"):
        next(sweep(["exp", "tanh"], jobs=2))
    assert seen == ["1", "1"] and {os.environ.get(name) for name in names} == {before}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [None, signal.SIGINT, signal.SIGTERM])
def test_ops_may_start_processes_which_end_with_the_check(write, stop):
    """They hold its stdout, which is a pipe here: whoever reads from it waits for the last of them."""
    ops = {}
    for op, daemon in [("First", True), ("Second", False)]:
        child = FORK.format(seconds=600, daemon=daemon)
        ops[op] = f"if {op} not in started: started.add({op}), {child}.start(), os.write(1, b'started\\n')"
        ops[op] += "\n        time.sleep(600)" if stop else ""
    file = write("parents", **ops)
    Path(file).write_text("started = set()\n" + Path(file).read_text())
    command = [sys.executable, "-m", "minigrad", "check", file, "--order=1", "--jobs=2"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    try:
        assert [running.stdout.readline() for _ in range(2)] == [b"started\n"] * 2
        if stop:
            running.send_signal(stop)
        out, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == (-stop if stop else 0), (out, err)
    assert stop or b"2 ops" in out
    assert err == (b"minigrad check: stopped while checking first, second\n" if stop == signal.SIGINT else b"")
