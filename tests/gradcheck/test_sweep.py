"""minigrad check on users' ops that do what no op should: exit, hide minigrad's names."""

import sys

import pytest

from minigrad.__main__ import main as program
from minigrad.autograd import registry
from minigrad.commands.check import arguments
from minigrad.gradcheck.report import describe_exception

OP = """
class {name}(mg.Op):
    cases = [mg.case((2,))]
    def forward(self, x):
        {does}
        return x * 2.0
    def backward(self, dy):
        return dy * {factor}
"""
HEAD = "import os, sys, time\nimport minigrad as mg\n"


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


def test_an_op_that_exits_is_a_failure_of_that_op(write, capfd):
    file = write("ending", Leaves="sys.exit(0)", Odd="raise BaseException('odd')", Right="")
    assert program(["check", file, "--order", "1"]) == 1
    out, err = capfd.readouterr()
    assert f"FAIL leaves: SystemExit: 0, at {file}:" in out and "FAIL odd: BaseException: odd, at" in out
    assert "3 ops, 3 checks: 2 FAIL, 1 PASS" in out and "Traceback" not in err


def test_an_exception_that_cannot_say_what_it_is():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe_exception(Mute()) == "Mute"
    assert describe_exception(ValueError()) == "ValueError"
    assert describe_exception(ValueError(3)) == "ValueError: 3"
