"""The pytest plugin, in small suites of its own: the items of a mark, what they say, seeds, budgets, wrong marks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.autograd import registry
from minigrad.backend.runners.toolchain.cache import folder
from minigrad.gradcheck import PROBES

pytest_plugins = ["pytester"]

OFF = [f"-pno:{name}" for name in ("hypothesispytest", "randomly", "cacheprovider")]  # which take their time
CACHE = os.environ.get("MINIGRAD_CACHE") or str(folder())
ROOT = Path(__file__).parents[2]
HEAD = """
import pytest
import minigrad as mg
from minigrad import case

class {name}(mg.Op):
    cases = [case((3, 2)), case((2,))]
    def forward(self, x):
        self.save_inputs(x)
        return self.backend.mul(x, x)
    def backward(self, dy):
        return {factor} * self.saved_inputs()[0] * dy

class Caseless(mg.Op):
    def forward(self, x):
        return x
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """suite(tests, *arguments, factor=2): the result of pytest on a file with the ops of HEAD and these tests."""
    declared = dict(registry)
    monkeypatch.delenv("CI", raising=False)  # where it is set, pytest says more
    monkeypatch.setenv("MINIGRAD_CACHE", CACHE)  # pytester has a home of its own, in which kernels would be compiled

    def ran(tests, *arguments, factor="2"):
        pytester.makepyfile(test_it=HEAD.format(name="PluginSquare", factor=factor) + tests)
        return pytester.runpytest("-p", "pytest_minigrad", *OFF, *arguments)

    yield ran
    registry.clear()
    registry.update(declared)


OP = """
@pytest.mark.gradcheck(op=PluginSquare)
def test_square(): ...
"""


def test_one_item_for_each_case_order_and_part(suite):
    result = suite(OP, "--collect-only", "-q")
    ids = re.findall(r"test_it.py::test_square\[(.*)\]", result.stdout.str())
    parts = ["jacobian", *PROBES]
    assert ids == [f"case{i}-{order}{part}" for i in (0, 1) for order in ("", "order2-") for part in parts]
    result = suite(OP, "-k", "case0 and linearity and not order2", "-v")
    result.assert_outcomes(passed=1, deselected=len(ids) - 1)
    result.stdout.fnmatch_lines(["*test_square?case0-linearity? PASSED*", "gradcheck: 1 passed; seed 0"])


def test_a_right_op_passes_and_what_does_not_apply_is_skipped(suite):
    result = suite(OP, "-k", "case1 and not order2", "-rs")
    result.stdout.fnmatch_lines(["gradcheck: * passed, * not applicable; seed 0", "SKIPPED*alone: there is one input"])
    assert result.ret == 0


def test_a_failure_is_the_message_and_how_to_repeat_it(suite):
    result = suite(OP, "-k", "case1-jacobian", "--gradcheck-seed", "7", factor="2.001")
    result.assert_outcomes(failed=1, deselected=4 * (1 + len(PROBES)) - 1)
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "FAIL plugin_square (full): *seed 7",
            "*ratio     1.0005*",
            "To repeat it: pytest 'test_it.py::test_square?case1-jacobian?' --gradcheck-seed 7",
            "gradcheck: 1 failed; seed 7",
        ]
    )
    assert "Traceback" not in text and "pytest_plugin.py" not in text and "gradcheck/check.py" not in text

    def place(*options):
        message = suite(OP, "-k", "case1-jacobian", *options, factor="2.001").stdout.str()
        return re.search(r"analytic .*", message)[0]

    assert place("--gradcheck-seed", "7") in text != place()


def test_an_op_that_raises_is_told_with_its_line(suite):
    result = suite(OP, "-k", "case1-jacobian", factor="(1 / 0)")
    result.stdout.fnmatch_lines(
        ["ZeroDivisionError: division by zero, at *test_it.py:11 in backward: return (1 / 0) *"]
    )


def test_a_function_is_checked_itself(suite):
    result = suite(
        """
@pytest.fixture
def power():
    return 2

@pytest.mark.gradcheck(case((3, 4), (4, 2)), case((1, 4), (4, 1)), probes=["linearity"], rtol=1e-6)
def test_affine(x, w, power):
    return (x @ w).tanh() ** power

class TestGroup:
    @pytest.mark.gradcheck([case((3, 2), dim=1), case((3, 2), dim=0)], probes="linearity")
    def test_method(self, x, dim):
        return x.softmax(dim)

@pytest.mark.gradcheck(case((3,)), probes=())
def test_without_a_return(x):
    x * 2
""",
        "-v",
    )
    result.assert_outcomes(passed=8, failed=1)
    result.stdout.fnmatch_lines(["*TestGroup::test_method?case1-linearity? PASSED*", "*returned no Tensor*"])


def test_the_fixture_in_marked_tests(suite):
    result = suite(
        """
@pytest.mark.gradcheck(case((3, 2)), probes=["linearity"], order=(1, 2))
def test_function(gradcheck, tmp_path):
    report = gradcheck(lambda x: x.tanh())
    assert report.order in (1, 2) and report.findings and tmp_path

@pytest.mark.gradcheck(op=PluginSquare, probes=())
def test_op(gradcheck):
    assert gradcheck().mode == "full"

@pytest.mark.gradcheck(op=PluginSquare, probes=(), order=1)
def test_forgets(gradcheck):
    pass

@pytest.mark.gradcheck(op=PluginSquare, probes=(), order=1)
def test_body_runs_too():
    assert 0, "the body"
"""
    )
    result.assert_outcomes(passed=8, failed=4)
    text = result.stdout.str()
    assert (
        text.count("never called gradcheck(…): nothing was checked") == 2
        and text.count("AssertionError: the body") >= 2
    )


def test_the_fixture_by_itself(suite):
    tests = """
def test_right(gradcheck):
    assert gradcheck(lambda x: x.sin(), mg.randn(3), probes=()).seed == 5

def test_wrong(gradcheck):
    gradcheck(PluginSquare, mg.ones(2))

def test_nothing(gradcheck):
    gradcheck()
"""
    result = suite(tests, "--gradcheck-seed=5", factor="2.5")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines([">*gradcheck(PluginSquare, mg.ones(2))", "*GradcheckError: FAIL plugin_square*seed 5"])
    assert "gradcheck/check.py" not in result.stdout.str()  # the traceback ends at the line of the test


@pytest.mark.parametrize(
    "mark, message",
    [
        ("op=PluginSquare, probes=['lineraity']", "no probe is called 'lineraity'; there are linearity, "),
        ("op=PluginSquare, rtoll=1", "gradcheck has no option 'rtoll' that a mark can give"),
        ("op=PluginSquare, seed=1", "gradcheck has no option 'seed' that a mark can give"),
        ("op=PluginSquare, order=0", "order must be 1, 2, or several of those; got 0"),
        ("op=Caseless", "op caseless declares no cases, and the mark gives none: nothing would be checked"),
        ("", "the mark gives no op and no cases: nothing would be checked"),
        ("op='no_such_op'", "no op called 'no_such_op' is declared"),
        ("PluginSquare, order=1", "cases are made by minigrad.case(…), and an op is given as op=; got <class"),
        ("[3]", "cases are made by minigrad.case(…), and an op is given as op=; got 3"),
        ("case((2,), (2,))", "the case has 2 inputs, which the function's arguments do not match"),
    ],
)
def test_wrong_marks_are_errors(suite, mark, message):
    result = suite(f"@pytest.mark.gradcheck({mark})\ndef test_it(): ...\n")
    assert result.ret == pytest.ExitCode.INTERRUPTED and message in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    "function, message",
    [
        ("def test_it(x, *, w): return x * w", "inputs are given by position, and 'w' is taken by keyword only"),
        ("async def test_it(x, w): return x * w", "an async function has no gradient to check"),
    ],
)
def test_functions_that_cannot_be_called_are_errors(suite, function, message):
    result = suite(f"@pytest.mark.gradcheck(case((2,), (2,)))\n{function}\n")
    assert result.ret == pytest.ExitCode.INTERRUPTED and message in result.stdout.str()


def test_a_mark_in_a_unittest_class_is_an_error(suite):
    result = suite("""
import unittest

class TestWrong(unittest.TestCase):
    @pytest.mark.gradcheck(op=PluginSquare)
    def test_square(self): ...

    def test_other(self): ...
""", factor="3")  # fmt: skip
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["the mark gradcheck does nothing here, as in a unittest.TestCase*"])


def test_cases_of_the_mark_come_before_those_of_the_op(suite):
    result = suite("@pytest.mark.gradcheck(case((2,)), op=Caseless, order=1, probes=())\ndef test_it(): ...\n")
    result.assert_outcomes(failed=1)  # it has no backward
    result.stdout.fnmatch_lines(["*caseless has no gradient*"])


def test_a_budget_is_for_the_run_and_what_is_left_out_is_said(suite):
    result = suite(OP, "--gradcheck-budget", "1e-9", "-k", "case1 and not order2", "-rs")
    result.assert_outcomes(passed=1, skipped=len(PROBES), deselected=3 * (1 + len(PROBES)))
    result.stdout.fnmatch_lines(
        [
            f"gradcheck: 1 passed, {len(PROBES)} left out; seed 0",
            "gradcheck: no time for test_it.py::test_square?case1-linearity?: linearity",
            "SKIPPED*no time left within --gradcheck-budget 1e-09",
        ]
    )
    result = suite(
        "def test_it(gradcheck):\n    gradcheck(lambda x: x.sin(), mg.randn(600))\n", "--gradcheck-budget=1e-9"
    )
    result.stdout.fnmatch_lines(["gradcheck: no time for test_it.py::test_it: direction 1, *linearity*"])


@pytest.mark.parametrize("option", ["--gradcheck-seed=x", "--gradcheck-seed=-1", "--gradcheck-budget=0"])
def test_wrong_options(suite, option, capsys):
    assert suite(OP, option).ret == pytest.ExitCode.USAGE_ERROR
    assert "must be" in capsys.readouterr().err


def test_random_numbers_of_the_function_are_the_same_and_the_suite_s_own_go_on(suite):
    result = suite(
        """
seen = []

def test_before():
    mg.manual_seed(3)

@pytest.mark.gradcheck(case((4,)), probes=["repeatable", "linearity"])
def test_noise(x):
    noise = mg.rand(4, dtype=mg.float64)
    seen.append(noise.tolist())
    return x * noise

def test_after():
    assert len({tuple(s) for s in seen}) <= 2  # a probe draws others on purpose
    drawn = mg.rand(2).tolist()
    mg.manual_seed(3)
    assert drawn == mg.rand(2).tolist()
"""
    )
    result.assert_outcomes(passed=5)


@pytest.mark.slow
def test_any_order_gives_the_same(suite):
    """Each item draws its own numbers, whichever ran before."""

    def numbers(*arguments):
        text = suite(OP, "-k", "sizes and not order2", *arguments, factor="2.001").stdout.str()
        return re.findall(r"analytic .*", text)

    assert numbers() == numbers("test_it.py::test_square[case1-sizes]", "test_it.py::test_square[case0-sizes]")[::-1]


@pytest.mark.slow
def test_with_xdist(suite):
    pytest.importorskip("xdist")
    result = suite(OP, "-n", "2", "-k", "case1 and not order2", "-p", "xdist", "-rs", factor="2.001")
    result.stdout.fnmatch_lines(["gradcheck: * passed, * not applicable, * failed; seed 0"])


def test_a_run_that_checks_nothing_imports_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert not {'minigrad', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "pytest_minigrad", "-q", "--rootdir=."]
    places = os.pathsep.join([str(ROOT), str(ROOT / "minigrad/gradcheck/plugin")])
    environment = {**os.environ, "PYTHONPATH": places, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "gradcheck:" not in done.stdout, done.stdout
