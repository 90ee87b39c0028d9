"""Every test starts from the same seed. What a test needs that is not here is said in one place, and skips it; with
--only-gpu-skips, no test may be skipped but for want of a GPU."""

import functools
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the 600 Pythons that tests start compiles minigrad anew
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:  # each core has a process of its own then; read when NumPy is imported
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.runners.compiler import CompilerError, find_compiler, folder
from minigrad.backend.runners.native import TRAINING, Native
from minigrad.random import manual_seed

from .backend.contract import check_launches
from .devices import DEVICES, backend_of

SKIP_ALLOWED = "no GPU"
ON_RIG = "GPU_RIG" in os.environ  # tests/gpu_rig/
LIMIT = 1.5  # CPU-seconds of a test that is not marked slow, on a quiet machine
INSTALL = {  # programs, and how to get them on Debian and Ubuntu
    "g++": "apt install g++",
    "dot": "apt install graphviz",
    "chromium": "apt install chromium",
    "mypy": "pip install mypy",
}


@pytest.fixture(autouse=True)
def seed():
    manual_seed(0)


@pytest.fixture(scope="session")
def thorough(pytestconfig):
    """True if slow tests run, as in CI. Some tests then try more cases."""
    return "not slow" not in pytestconfig.option.markexpr


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """A backend that runs kernels, on which everything in the test is then computed."""
    on = backend_of(request.param)
    if on.device == "cpu":  # what device="cpu" then means, for the creation functions too
        monkeypatch.setattr(backend, "cpu", lambda: on)
    return on


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The path of a cache folder for kernels, which is yet to be made."""
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pytest_configure(config):
    """If the user's cache folder cannot be used, compiled kernels go to a folder of this test session."""
    check_launches()
    # A shell has a background job ignore Ctrl-C, and nohup SIGHUP; what the tests start would inherit that.
    for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *args: None)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, heard)
    try:
        usable = os.access(folder(), os.W_OK) and os.access(os.path.expanduser("~"), os.W_OK)
    except CompilerError:
        usable = False
    if not usable and not hasattr(config, "workerinput"):  # the processes of pytest-xdist get what the first one sets
        made = tempfile.mkdtemp(prefix="minigrad-tests-")
        for name in ("MINIGRAD_CACHE", "CUPY_CACHE_DIR", "MPLCONFIGDIR"):
            os.environ[name] = os.path.join(made, name.lower())
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    if lacks("dot"):  # then examples say so and go on
        config.addinivalue_line("filterwarnings", "ignore:wrote .* but not .* `dot` is not installed:UserWarning")


def lacks(program):
    """Why tests that need a program cannot run; '' if it is here."""
    try:
        if program == "mypy":
            here = importlib.util.find_spec("mypy")
        else:
            here = find_compiler() if program == "g++" else shutil.which(program)
    except CompilerError:
        here = None
    return "" if here else f"no {program}: {INSTALL[program]}"


@pytest.fixture(scope="session")
def a_compiler():
    """The command of the C++ compiler. It skips like the mark needs("g++"), for use in fixtures."""
    if reason := lacks("g++"):
        pytest.skip(reason)
    return find_compiler()


def pytest_sessionstart(session):
    """Compile the kernels that most tests use once, before there are several processes that would."""
    if not hasattr(session.config, "workerinput") and isinstance(on := backend.cpu(), Native):
        on.compile([(file, np.dtype(dtype)) for dtype in (np.float32, np.float64) for file in TRAINING])


@pytest.hookimpl(tryfirst=True)  # before markers choose
def pytest_collection_modifyitems(items, config):
    """Slow tests first, so that in the end no process is left alone with one. Without a GPU, those that need one are
    left out by default: 1,500 skips take as long as some hundred tests."""
    for item in items:
        if "thorough" in item.fixturenames:
            item.add_marker("thorough")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if "not slow" in config.option.markexpr and not ON_RIG and no_gpu():
        needy = [item for item in items if item.get_closest_marker("gpu") or item.get_closest_marker("rig")]
        config.hook.pytest_deselected(items=needy)
        left_out = set(needy)
        items[:] = [item for item in items if item not in left_out]


@functools.cache
def no_gpu():
    """Why there is none; '' if there is."""
    try:
        backend.get("cuda")
    except backend.DeviceError as error:
        return str(error)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """In CI's run of the default tests, one that takes longer than LIMIT fails: two minutes are made of such. (Not in
    .ci/bare, where NumPy does what a kernel does here.) A machine that is shared, as CI's is, may take twice as long,
    and a slow one as many times longer as it takes for a loop in Python. Other processes do not count: the first test
    of a kernel has it compiled."""
    began = time.process_time()
    result = yield
    took = time.process_time() - began
    default = item.config.getoption("--only-gpu-skips") and "not slow" in item.config.option.markexpr
    if took > 2 * LIMIT and default and not ON_RIG and took > 2 * LIMIT * (slower := slowness()):
        limit = f"{LIMIT} (this machine is {slower:.1f} times slower)"
        pytest.fail(f"took {took:.1f} CPU-seconds, of {limit}: let it do less, or mark it slow", pytrace=False)
    return result


def slowness():
    """How many times longer a loop takes than where LIMIT was chosen: 0.04 s there, inferred from the suites' times."""
    began = time.process_time()
    for i in range(2_000_000):
        i & 3
    return max(1.0, (time.process_time() - began) / 0.04)


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if reason := lacks(program):
                pytest.skip(reason)
    if item.get_closest_marker("rig") and not ON_RIG:
        pytest.skip(f"{SKIP_ALLOWED} rig: make gpu-rig-test")
    if item.get_closest_marker("gpu") and (reason := no_gpu()):
        pytest.skip(f"{SKIP_ALLOWED}: {reason}")


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
