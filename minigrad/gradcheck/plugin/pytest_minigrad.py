"""Gradient checks in a test suite, as a pytest plugin: see minigrad/gradcheck/pytest_plugin.py, and its README.

pytest imports this file in every run, also where nothing is checked. So it imports nothing but pytest, and is installed
beside the package (see pyproject.toml): minigrad itself, with NumPy, is imported when a test asks for it."""

import argparse
import math

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("gradcheck", "gradient checks of minigrad")
    group.addoption("--gradcheck-seed", type=_seed, default=0, metavar="N", help="of inputs, directions and probes")
    group.addoption(
        "--gradcheck-budget",
        type=_seconds,
        metavar="SECONDS",
        help="for all gradient checks of this run, for those of each process with pytest-xdist; the summary says what "
        "was left out",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "gradcheck(cases…, op=, order=, probes=, **options): check the gradient of an op, or of the marked function "
        "of Tensors; one test for each case and probe",
    )


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("gradcheck"):
        from minigrad.gradcheck.pytest_plugin import parametrize

        parametrize(metafunc)


def pytest_runtest_setup(item):
    """A method of a unittest.TestCase, which runs itself, would pass without a check."""
    marked = isinstance(item, pytest.Function) and item.get_closest_marker("gradcheck")
    if marked and "gradcheck" not in getattr(getattr(item, "callspec", None), "params", ()):
        pytest.fail(
            "the mark gradcheck does nothing here, as in a unittest.TestCase: mark a function, or a method of a class "
            "that is none",
            pytrace=False,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if pyfuncitem.get_closest_marker("gradcheck"):
        from minigrad.gradcheck.pytest_plugin import run

        return run(pyfuncitem)


@pytest.fixture
def gradcheck(request):
    """minigrad's gradcheck(fn, *inputs, **options), with the seed and the budget of this run. In a test that is marked
    `gradcheck`: gradcheck() checks the op, and gradcheck(fn) a function, on the case and with the probe of the item."""
    from minigrad.gradcheck.pytest_plugin import Gradcheck

    return Gradcheck(request.node, getattr(request, "param", None))


def pytest_terminal_summary(terminalreporter, config):
    checked = [
        (report, dict(report.user_properties)["gradcheck"])
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call" and "gradcheck" in dict(report.user_properties)
    ]
    if not checked:
        return
    counts: dict = {}
    for report, (outcome, _) in checked:
        counts[outcome or report.outcome] = counts.get(outcome or report.outcome, 0) + 1
    said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items(), reverse=True))
    terminalreporter.write_line(f"gradcheck: {said}; seed {config.getoption('gradcheck_seed')}")
    for report, (_, left_out) in checked:
        if left_out:
            terminalreporter.write_line(f"gradcheck: no time for {report.nodeid}: {', '.join(left_out)}", yellow=True)


def _seed(typed):
    if not typed.isdecimal() or int(typed) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2³² - 1, not {typed!r}")
    return int(typed)


def _seconds(typed):
    try:
        seconds = float(typed)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {typed!r}")
    return seconds
