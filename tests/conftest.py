"""Every test starts from the same seed; with --only-gpu-skips, no test may be skipped but for want of a GPU."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # each core has a process of its own then; read when NumPy is imported
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.native import TRAINING, Native
from minigrad.random import manual_seed

SKIP_ALLOWED = "no GPU"


@pytest.fixture(autouse=True)
def seed():
    manual_seed(0)


def pytest_sessionstart(session):
    """Compile the kernels that most tests use once, before there are several processes that would."""
    if not hasattr(session.config, "workerinput") and isinstance(on := backend.cpu(), Native):
        for dtype in (np.float32, np.float64):
            on.compile(TRAINING, np.dtype(dtype))


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        try:
            backend.get("cuda")
        except backend.DeviceError as error:
            pytest.skip(f"{SKIP_ALLOWED}: {error}")


def pytest_addoption(parser):
    parser.addoption("--only-gpu-skips", action="store_true", help=f"fail on a skip unless for {SKIP_ALLOWED!r}")


def forbidden_skips(config):
    if not config.getoption("--only-gpu-skips"):
        return []
    reports = config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    skips = [(report.nodeid, report.longrepr[2].removeprefix("Skipped: ")) for report in reports]
    return [(test, reason) for test, reason in skips if not reason.startswith(SKIP_ALLOWED)]


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.OK and forbidden_skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    for test, reason in forbidden_skips(config):
        terminalreporter.write_line(f"FORBIDDEN SKIP {test}: {reason}", red=True)
