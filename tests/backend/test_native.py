"""The native backend around its kernels: choosing it, falling back, threads."""

import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend import reference
from minigrad.backend.runners.native import Native
from minigrad.backend.runners.toolchain import CompilerError

from .. import ROOT


def run(code, **env):
    """What a Python of its own prints, and its log."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


WHICH = "import minigrad as mg; print(type(mg.backend.cpu()).__name__, (mg.ones(100, 100) + 1).sum().item())"


@pytest.mark.needs("g++")
@pytest.mark.parametrize("name, kind", [("numpy", "Numpy"), ("native", "Native"), ("emulated", "Emulated")])
def test_the_environment_chooses(name, kind):
    assert run(WHICH, MINIGRAD_CPU=name)[0] == f"{kind} 20000.0"


def test_an_unknown_choice_is_told():
    code = "import minigrad as mg\ntry: mg.ones(1)\nexcept mg.DeviceError as error: print(error)"
    assert run(code, MINIGRAD_CPU="gpu")[0] == "MINIGRAD_CPU=gpu: there are native, numpy, emulated"


@pytest.mark.needs("g++")
def test_a_kernel_that_does_not_compile_leaves_numpy(caplog, monkeypatch):
    on = Native(any_size=True)

    def fails(*args):
        raise CompilerError("no space left")

    monkeypatch.setattr(on, "compile", fails)
    x = np.ones((3, 4), np.float32)
    with caplog.at_level(logging.WARNING, "minigrad"):
        np.testing.assert_array_equal(on.softmax(x, 1), reference.softmax(x, 1))
        on.softmax(x, 1)
    assert [record.message for record in caplog.records] == ["minigrad: no space left; computing with NumPy instead"]


@pytest.mark.needs("g++")
def test_what_is_small_or_not_float_is_numpys(monkeypatch):
    on = Native()
    monkeypatch.setattr(on, "_run", lambda *args: pytest.fail("a kernel ran"))
    on.mul(np.ones(10, np.float32), 2)
    on.exp(np.ones(10_000, np.float16))
    on.add(np.ones(10_000, np.float16), np.ones(10_000, np.float16))
    on.add(np.arange(10_000), 1)
    on.exp(np.ones(10_000, complex))


@pytest.mark.needs("g++")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinity_are_themselves(dtype):
    """What -ffast-math would lose."""
    on = Native(any_size=True)
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e30, -1e30], dtype), 9)
    rows = np.stack([x, np.where(np.isfinite(x), x, -np.inf), np.full_like(x, -np.inf)])
    with reference.quietly():
        for name in ("exp", "tanh", "erf", "sigmoid", "abs", "relu"):
            np.testing.assert_allclose(getattr(on, name)(x), getattr(reference, name)(x), 1e-6, err_msg=name)
        np.testing.assert_allclose(on.softmax(rows, 1), reference.softmax(rows, 1), 1e-6)
    np.testing.assert_array_equal(on.isnan(x), np.isnan(x))


@pytest.mark.needs("g++")
@pytest.mark.parametrize("low, high", [(-104, 89), (-1, 1), (-1e-3, 1e-3)])
def test_float_functions_are_exact_to_two_units(low, high):
    on = Native(any_size=True)
    x = np.linspace(low, high, 100_001, dtype=np.float32)
    for name in ("exp", "tanh"):
        exact = getattr(np, name)(x.astype(np.float64))
        normal = (np.abs(exact) > np.finfo(np.float32).tiny) & (exact < np.finfo(np.float32).max)
        error = np.abs(getattr(on, name)(x) - exact)[normal]
        assert (error / np.spacing(np.abs(exact[normal]).astype(np.float32))).max() <= 2, name


COUNT = "import minigrad as mg; print(mg.backend.cpu().threads)"


COUNTS = [
    ("1", 1),
    ("3", 3),
    (" 2,4", 2),
    ("0", None),
    ("many", None),
    (" 3,4", 3),
    ("²", None),
    ("", None),
    ("9" * 30, 1024),
]


@pytest.mark.needs("g++")
@pytest.mark.parametrize("wanted, threads", COUNTS)
def test_how_many_threads_compute(wanted, threads):
    """OMP_NUM_THREADS, if that is a number; else the cores that this process may use."""
    assert run(COUNT, OMP_NUM_THREADS=wanted)[0] == str(threads or len(os.sched_getaffinity(0)))


def test_the_environment_stays_as_it_is():
    code = "import os; before = dict(os.environ); import minigrad as mg; mg.backend.cpu(); print(before == os.environ)"
    assert run(code)[0] == "True"


def test_backends_are_named():
    with pytest.raises(backend.DeviceError, match="there are native, numpy, emulated"):
        backend.cpu_backend("tpu")


@pytest.mark.needs("g++")
def test_a_kernel_that_cannot_be_had_leaves_no_update_half_done(monkeypatch, caplog):
    """Of several dtypes, some have their kernel already: NumPy must not do again what it has done."""
    on, compile = Native(any_size=True), Native.compile
    ps, options = [np.ones(4, "f4"), np.ones(4, "f8")], lambda: [(0.1, 0.0)]
    on.sgd_([(ps[0], np.zeros(4, "f4"), None, 0)], options, 0.0, False)

    def broken(on, files, dtype):
        if dtype == np.float64:
            raise CompilerError("no room")
        return compile(on, files, dtype)

    monkeypatch.setattr(Native, "compile", broken)
    on.sgd_([(p, np.ones_like(p), None, 0) for p in ps], options, 0.0, False)
    for p in ps:
        np.testing.assert_allclose(p, 0.9, rtol=1e-6)
    said = [record.getMessage() for record in caplog.records]
    said = [line for line in said if "compiling kernels" not in line]  # it may have to, for float32
    assert said == ["minigrad: no room; computing with NumPy instead"]


@pytest.mark.needs("g++")
def test_what_cannot_be_compiled_is_tried_once(monkeypatch, caplog):
    on, tried = Native(any_size=True), []

    def broken(on, files, dtype):
        tried.append(dtype)
        time.sleep(0.2)
        raise CompilerError("broken")

    monkeypatch.setattr(Native, "compile", broken)
    x = np.ones(100, "f4")
    results = [None] * 4
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, on.exp(x))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((y == reference.exp(x)).all() for y in results) and len(tried) == len(caplog.records) == 1


BLOCKS = """
import ctypes, threading
from pathlib import Path
from minigrad.backend.runners.native import pool

Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)
run_blocks = ctypes.CFUNCTYPE(None, Work, ctypes.c_void_p, ctypes.c_longlong)(pool.start(3).value)
for blocks in (0, 1, 2, 3, 23, 24, 25, 100, 1000):
    taken, lock = [], threading.Lock()

    def work(launch, first, last):
        with lock:
            taken.extend(range(first, last))

    run_blocks(Work(work), None, blocks)
    assert sorted(taken) == list(range(blocks)), blocks
print("each once")
"""


@pytest.mark.needs("g++")
def test_each_block_is_computed_once():
    """Also the last of them, where they do not come out even; whichever of three threads takes them."""
    assert run(BLOCKS)[0] == "each once"
