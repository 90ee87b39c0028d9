"""Every test starts from the same seed; with --only-gpu-skips, no test may be skipped but for want of a GPU."""

import pytest

from minigrad.random import manual_seed

SKIP_ALLOWED = "no GPU"


@pytest.fixture(autouse=True)
def seed():
    manual_seed(0)


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
