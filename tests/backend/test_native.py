"""The native backend: choosing it, falling back to NumPy, threads."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.runners.native import Native, NativeKernels
from minigrad.replay.programs import Launch

from .. import ROOT


def run(code, **env):
    """The output of a Python process of its own, and its log."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


WHICH = "import minigrad as mg; print(type(mg.backend.cpu()).__name__, (mg.ones(100, 100) + 1).sum().item())"


@pytest.mark.needs("g++")
@pytest.mark.parametrize("name, kind", [("numpy", "Numpy"), ("native", "Native")])
def test_the_environment_chooses(name, kind):
    assert run(WHICH, MINIGRAD_CPU=name)[0] == f"{kind} 20000.0"


def test_an_unknown_choice_is_told():
    code = "import minigrad as mg\ntry: mg.ones(1)\nexcept mg.DeviceError as error: print(error)"
    assert run(code, MINIGRAD_CPU="gpu")[0] == "MINIGRAD_CPU=gpu: there are native, numpy"


@pytest.mark.needs("g++")
def test_numpy_computes_small_arrays_and_other_dtypes(monkeypatch):
    on = Native()
    monkeypatch.setattr(on, "_start", lambda *args: pytest.fail("a kernel ran"))
    on.mul(np.ones(10, np.float32), 2)
    on.exp(np.ones(10_000, np.float16))
    on.add(np.ones(10_000, np.float16), np.ones(10_000, np.float16))
    on.add(np.arange(10_000), 1)
    on.exp(np.ones(10_000, complex))


@pytest.mark.needs("g++")
def test_a_result_that_has_its_place_stays_there():
    on, y = Native(), np.zeros((3, 4), np.float32).T
    assert on.add(np.ones((4, 3), np.float32), 1, out=y) is y and (y == 2).all()


@pytest.mark.needs("g++")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinity_are_themselves(dtype):
    """NaN and infinities are computed right, which -ffast-math would break."""
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


@pytest.mark.needs("g++")
@pytest.mark.parametrize("wanted, threads", [("1", 1), (" 2,4", 2), ("0", None), ("many", None), ("9" * 30, 1024)])
def test_the_number_of_threads_follows_the_environment(wanted, threads):
    """The number of threads is OMP_NUM_THREADS if that is a number, otherwise the cores that this process may use."""
    assert run(COUNT, OMP_NUM_THREADS=wanted)[0] == str(threads or len(os.sched_getaffinity(0)))


FAULTS = """
import resource
import minigrad as mg
x = mg.ones(1 << 18)  # 256 pages of 4 KiB
for i in range(60):
    if i == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = x
    for _ in range(4):
        y = (y + 1) * 2
    z = y.exp()
    (z * y).sum()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.needs("g++")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_freed_memory_is_used_again():
    """Fifty times ten results of 256 pages each: the system does not clear their pages again each time."""
    assert int(run(FAULTS)[0]) < 1000


BLOCKS = """
import ctypes, threading
from pathlib import Path
from minigrad.backend.runners.native.native import pool

Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)
pool().start_pool(3)
address = ctypes.cast(pool().run_blocks, ctypes.c_void_p).value
run_blocks = ctypes.CFUNCTYPE(None, Work, ctypes.c_void_p, ctypes.c_longlong)(address)
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
    """Also the last blocks of a number that cannot be divided evenly, whichever of three threads takes them."""
    assert run(BLOCKS)[0] == "each once"


@pytest.mark.needs("g++")
@pytest.mark.parametrize("n", [1, 1000, 1_000_000])
def test_recorded_launches_run_again(n):
    """They run in order, any number of times, on the memory at the addresses that they are given."""
    on, dtype = NativeKernels(), np.dtype(np.float32)
    x, y, z = (np.zeros(n, dtype) for _ in range(3))
    recorded = []
    on._start = lambda *launch: recorded.append(Launch(*launch))
    on.copy_to(y, x), on.copy_to(z, y)
    del on._start
    replay = on.replayer(recorded)
    (spots, launch_of), (function, *arguments) = replay.pointers(), replay.call
    assert launch_of.tolist() == [0, 0, 1, 1]
    other = np.arange(n, dtype=dtype)
    for source in (x, other):
        replay.words[spots] = [a.ctypes.data for a in (y, source, z, y)]
        z[:] = np.nan
        assert list(map(function, *arguments)) == [None]
        np.testing.assert_array_equal(z, source)


OVERLOAD = """
import threading, numpy as np
from minigrad.backend.runners.native import Native

on = Native(any_size=True)
rng = np.random.default_rng(0)
arrays = [rng.standard_normal((rows, 64)).astype(np.float32) for rows in (1, 2, 63, 64, 65, 1000, 4000)]
expected = [on.softmax(x, 1) for x in arrays]
wrong = []

def work():
    for _ in range(300):
        for x, y in zip(arrays, expected):
            if not np.array_equal(on.softmax(x, 1), y):
                wrong.append(x.shape)

callers = [threading.Thread(target=work) for _ in range(4)]
for caller in callers: caller.start()
for caller in callers: caller.join()
print(on.threads, wrong)
"""


@pytest.mark.needs("g++")
@pytest.mark.parametrize("threads", [*[pytest.param(n, marks=pytest.mark.slow) for n in ("1", "2")], "8"])
def test_more_threads_than_cores_and_callers_at_once(threads):
    """Jobs are shared or not, and workers look for work, sleep, or have no core."""
    assert run(OVERLOAD, OMP_NUM_THREADS=threads)[0] == f"{threads} []"


IDLE = """
import os, time, numpy as np
from minigrad.backend.runners.native import Native

on, x = Native(any_size=True), np.ones((4000, 64), np.float32)
for _ in range(20): on.softmax(x, 1)
time.sleep(0.1)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before < 0.1)
"""


@pytest.mark.needs("g++")
def test_workers_without_work_sleep():
    assert run(IDLE, OMP_NUM_THREADS="2")[0] == "True"
