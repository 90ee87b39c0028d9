"""The pytest plugin, in small suites of its own: the items of a mark, what they say, seeds, budgets, wrong marks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.autograd import registry
from minigrad.backend.runners.compiler import folder

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


def test_one_item_for_each_case_and_order(suite):
    result = suite(OP, "--collect-only", "-q")
    ids = re.findall(r"test_it.py::test_square\[(.*)\]", result.stdout.str())
    assert ids == ["case0", "case0-order2", "case1", "case1-order2"]
    suite(OP).assert_outcomes(passed=4)


def test_a_failure_is_the_message_and_how_to_repeat_it(suite):
    result = suite(OP, "-k", "case1 and not order2", "--gradcheck-seed", "7", factor="2.001")
    result.assert_outcomes(failed=1, deselected=3)
    text = result.stdout.str()
    repeat = "To repeat it: pytest 'test_it.py::test_square?case1?' --gradcheck-seed 7"
    result.stdout.fnmatch_lines(["FAIL plugin_square (full): *seed 7", "*ratio     1.0005*", repeat])
    assert "Traceback" not in text and "pytest_minigrad.py" not in text and "gradcheck/check.py" not in text


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
    @pytest.mark.gradcheck(case((3, 2), dim=1), case((3, 2), dim=0), probes=["linearity"])
    def test_method(self, x, dim):
        return x.softmax(dim)

@pytest.mark.gradcheck(case((3,)), probes=())
def test_without_a_return(x):
    x * 2
"""
    )
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*returned no Tensor*"])


def test_the_fixture_in_marked_tests(suite):
    result = suite(
        """
@pytest.mark.gradcheck(case((3, 2)), order=(1, 2))
def test_function(gradcheck, tmp_path):
    report = gradcheck(lambda x: x.tanh())
    assert report.order in (1, 2) and report.findings and tmp_path

@pytest.mark.gradcheck(op=PluginSquare, probes=(), order=1)
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
    result.assert_outcomes(passed=4, failed=4)
    assert result.stdout.str().count("never called gradcheck(…): nothing was checked") == 2


def test_the_fixture_by_itself(suite):
    tests = """
def test_right(gradcheck):
    assert gradcheck(lambda x: x.sin(), mg.randn(3), probes=()).seed == 5

def test_wrong(gradcheck):
    gradcheck(PluginSquare, mg.ones(2))
"""
    result = suite(tests, "--gradcheck-seed=5", "--gradcheck-budget=9", factor="2.5")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([">*gradcheck(PluginSquare, mg.ones(2))", "*GradcheckError: FAIL plugin_square*seed 5"])
    assert "gradcheck/check.py" not in result.stdout.str()  # the traceback ends at the line of the test


@pytest.mark.parametrize(
    "mark, message",
    [
        ("op=Caseless", "the mark gradcheck needs an op= that declares cases, or minigrad.case"),
        ("", "nothing would be checked"),
        ("PluginSquare, order=1", "nothing would be checked"),
        ("op='no_such_op'", "no op called 'no_such_op' is declared"),
    ],
)
def test_wrong_marks_are_errors(suite, mark, message):
    result = suite(f"@pytest.mark.gradcheck({mark})\ndef test_it(x): ...\n\n\ndef test_other(): ...\n")
    result.assert_outcomes(errors=1, passed=1)
    assert message in result.stdout.str()


def test_a_mark_in_a_unittest_class_is_an_error(suite):
    result = suite("""
import unittest

class TestWrong(unittest.TestCase):
    @pytest.mark.gradcheck(op=PluginSquare)
    def test_square(self): ...

    def test_other(self): ...
""", factor="3")  # fmt: skip
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["the mark gradcheck does nothing in a unittest.TestCase*"])


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
    result.assert_outcomes(passed=3)


def test_a_run_that_checks_nothing_imports_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert not {'minigrad', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "pytest_minigrad", "-q", "--rootdir=."]
    places = os.pathsep.join([str(ROOT), str(ROOT / "minigrad/gradcheck/plugin")])
    environment = {**os.environ, "PYTHONPATH": places, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
