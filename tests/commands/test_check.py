"""minigrad check: the table, JSON and HTML files, users' own ops, exit statuses."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.__main__ import main as program
from minigrad.autograd import registry

OPS = """
import minigrad as mg

class Cube(mg.Op):
    cases = [mg.case((3, 2)), mg.case((2,))]
    def forward(self, x):
        self.save_inputs(x)
        return x * x * x
    def backward(self, dy):
        (x,) = self.saved_inputs()
        return {factor} * x * x * dy

class Softmax(mg.Op):  # a name of ours
    cases = [mg.case((2, 3))]
    def forward(self, x):
        return x * 2.0
    def backward(self, dy):
        return dy * 2.0

class Base(mg.Op, abstract=True):  # no op
    pass

class Step(mg.Op):  # without a gradient to check
    differentiable = False
    def forward(self, x):
        return x
"""
UNCHECKED = """
class Unchecked(mg.Op):
    def forward(self, x):
        return x
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of ops and returns its path; all that it declares is forgotten afterwards."""
    declared, path = dict(registry), list(sys.path)

    def write(factor, name):
        file = tmp_path / f"{name}.py"
        file.write_text(OPS.format(factor=factor))
        return str(file)

    yield write
    registry.clear()
    registry.update(declared)
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith("ops_of_the_test")]:
        del sys.modules[name]


def main(argv):
    return program(["check", *argv])


def test_one_op(capsys):
    assert main(["--op", "softmax", "--op", "relu", "--order", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["verdict", "op", "order", "device"]
    assert {line.split()[1] for line in lines[1:-1]} == {"softmax", "relu"}
    assert re.fullmatch(r"2 ops, \d+ checks: \d+ PASS; \d+ evaluations in [\d.]+ s", lines[-1])


@pytest.mark.slow
def test_users_ops_pass(module, capsys):
    assert main([module("3", "ops_of_the_test_right")]) == 0
    printed = capsys.readouterr()
    assert "2 ops, 6 checks: 6 PASS" in printed.out  # its own ops only, both orders
    assert "ops_of_the_test_right.softmax" in printed.out
    assert printed.err == ""


@pytest.mark.slow
def test_a_warning_fails_if_one_is_strict(module, capsys):
    file = module("(3 if dy.numel() else 1 / 0)", "ops_of_the_test_loud")
    assert main([file, "--order", "1", "--op", "cube", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("WARN") > 1 and "raises ZeroDivisionError" in printed
    for name in ("cube", "ops_of_the_test_loud.softmax", "step"):
        del registry[name]
    del sys.modules["ops_of_the_test_loud"]
    assert main([file, "--order", "1", "--op", "cube", "--strict"]) == 1


@pytest.mark.slow
def test_an_op_without_cases_is_no_success(module, capsys):
    file = module("3", "ops_of_the_test_with_one_more")
    Path(file).write_text(OPS.format(factor="3") + UNCHECKED)
    assert main([file, "--order", "1"]) == 1
    assert "unchecked: declares no cases, so nothing was checked" in capsys.readouterr().err


def test_a_file_without_ops_is_no_success(module, tmp_path, capsys):
    file = tmp_path / "ops_of_the_test_none.py"
    module("3", "ops_of_the_test_imported")  # whose ops are not its own
    file.write_text("import ops_of_the_test_imported\n")
    assert main([str(file)]) == 1
    assert "no op is declared in ops_of_the_test_none, so nothing was checked" in capsys.readouterr().err


def test_a_module_in_which_nothing_is_checked_is_no_success(module, tmp_path, capsys):
    file = tmp_path / "ops_of_the_test_unchecked.py"  # `module` forgets it afterwards
    file.write_text("import minigrad as mg\nclass Nothing(mg.Op):\n    def forward(self, x):\n        return x\n")
    assert main([str(file)]) == 1
    assert "nothing: declares no cases, so nothing was checked" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_op_fails_and_is_reported(module, capsys):
    file = module("3.001", "ops_of_the_test_wrong")
    assert main([file, "--quiet"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("FAIL cube") == 2 and "off by 0.000333 of itself" in printed


@pytest.mark.slow
def test_a_raising_op_is_a_failed_check(module, capsys):
    file = module("(1 / 0)", "ops_of_the_test_raising")
    assert main([file]) == 1
    line = next(i for i, code in enumerate(Path(file).read_text().splitlines(), 1) if "1 / 0" in code)
    said = f"FAIL cube: ZeroDivisionError: division by zero, at {file}:{line} in backward: return (1 / 0) * x * x * dy"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--op", "soft"], "no op is called 'soft'; did you mean"),
        (["--op", "Sofmax"], "no op is called 'Sofmax'; did you mean softmax"),
        (["--device", "tpu"], "tpu"),
        (["--rtol", "nan"], "--rtol must be above 0 and below 1, not nan"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--seed", "words"], "--seed must be a whole number, not 'words'"),
        (["--rtol", "-1"], "--rtol must be above 0"),
        (["/"], "/ is a folder: give a file, such as /my_ops.py"),
        (["/etc/passwd"], "cannot import /etc/passwd: the name of a Python file ends with .py"),
        (["no_such_module_of_mine"], "cannot import no_such_module_of_mine"),
        (["/nowhere/no_such_file.py"], "cannot import /nowhere/no_such_file.py"),
        (["/nowhere/my.ops.py"], "Python imports no file that has a dot in its name"),
        ([""], "FILE must not be empty"),
        (["--order", "3"], "invalid choice"),
    ],
)
def test_bad_arguments(argv, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    "source, message",
    [
        ("import minigrad\n1 / 0\n", "ZeroDivisionError: division by zero, at its line 2"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3, at its line 2"),
        ("import minigrad as mg\nclass Odd(mg.Op):\n    cases = [3]\n", "odd: cases are made by minigrad.case"),
        ("x = (\n", "SyntaxError: '(' was never closed (ops_of_the_test_broken.py, line 1)"),
        ("\0", "null bytes"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_line(module, tmp_path, capsys, source, message):
    (tmp_path / "ops_of_the_test_broken.py").write_text(source)
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "ops_of_the_test_broken.py")])
    line = capsys.readouterr().err
    assert line.startswith("minigrad check: cannot import") and message in line and line.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["| head -1", "> /dev/full"])
def test_a_closed_pipe_and_a_full_disk_end_it_quietly(closed):
    command = f"{sys.executable} -m minigrad check --op exp --op tanh {closed}"
    env = os.environ | {"MINIGRAD_CPU": "numpy"}  # or it would say where there is no compiler
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=env)
    assert done.returncode != 0 or "head" in closed
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1


@pytest.mark.slow
def test_a_reader_that_has_gone_ends_it_quietly():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "minigrad", "check", "--op=exp", "--order=1"]
    env = os.environ | {"MINIGRAD_CPU": "numpy"}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=env, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_file_named_as_another_module_is_not_taken_for_checked(module, tmp_path, capsys):
    (tmp_path / "json.py").write_text(OPS.format(factor="3"))
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "json.py")])
    assert "another module is called 'json' already; rename the file" in capsys.readouterr().err


@pytest.mark.slow
def test_as_a_command():
    command = [sys.executable, "-m", "minigrad", "check", "--op", "exp"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 op, ")
    assert not [line for line in done.stderr.splitlines() if not line.startswith("minigrad: ")]  # on kernels


def test_a_file_called_like_a_module_without_a_file(tmp_path, capsys):
    (tmp_path / "sys.py").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "sys.py")])
    assert "another module is called 'sys' already; rename the file" in capsys.readouterr().err


def test_an_undecided_check_is_no_success(tmp_path, capsys):
    """The gradient of √x at 0 is infinite: NONFINITE, which is not FAIL, and does not pass either."""
    (tmp_path / "roots.py").write_text(
        "import minigrad as mg\nfrom minigrad.autograd.cases import Fixed\n\n"
        "class Root(mg.Op):\n"
        "    cases = [mg.case(Fixed([0.0, 0.0]))]\n"
        "    def forward(self, x):\n"
        "        return self.save_output(self.backend.sqrt(x))\n"
        "    def backward(self, dy):\n"
        "        return dy / (2 * self.saved_output())\n"
    )
    assert main([str(tmp_path / "roots.py"), "--order", "1"]) == 1
    assert "NONFINITE" in capsys.readouterr().out


def test_an_op_does_not_take_the_place_of_one_with_its_name(module, capsys):
    wrong, right = module("4.0", "ops_of_the_test_wrong"), module("3.0", "ops_of_the_test_right")
    with pytest.raises(SystemExit, match="2"):
        main([wrong, right])
    said = "ops_of_the_test_wrong and ops_of_the_test_right both have an op called '(cube|step|unchecked)': rename one"
    assert re.search(said, capsys.readouterr().err)
