"""The native backend around its kernels: compiling, the cache, falling back, threads."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend import reference
from minigrad.backend.host import CompilerError, compiler
from minigrad.backend.native import CHUNK, FEW, SMALL, Native

SOURCE = 'extern "C" int answer() { return 42; }'
FLAGS = ("-O1",)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MINIGRAD_CACHE", str(folder))
    compiler.cache_folder.cache_clear()
    yield folder
    compiler.cache_folder.cache_clear()


def run(code, **env):
    """What a Python of its own prints, and its log."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def test_compiles_once(cache):
    path = compiler.compiled(SOURCE, FLAGS, "answer")
    assert path.parent == cache and cache.stat().st_mode & 0o777 == 0o700
    before = path.stat().st_mtime_ns
    assert compiler.compiled(SOURCE, FLAGS, "answer") == path and path.stat().st_mtime_ns == before
    assert compiler.compiled(SOURCE, ("-O2",), "answer") != path  # other flags, another result
    assert compiler.compiled(SOURCE + "\n", FLAGS, "answer") != path
    assert [p.suffix for p in cache.iterdir()] == [".so"] * 3  # nothing half made is left


@pytest.mark.parametrize(
    "target, value",
    [
        ("cpu", lambda: "another CPU"),  # a result for its instructions may not run on this one
        ("find_compiler", lambda: os.path.realpath("/bin/true")),
        ("sys", type("Other", (), {"platform": "another system"})),
    ],
)
def test_what_was_compiled_elsewhere_or_by_another_compiler_is_not_taken(cache, monkeypatch, target, value):
    path = compiler.compiled(SOURCE, FLAGS, "answer")
    monkeypatch.setattr(compiler, target, value)
    monkeypatch.setattr(compiler.subprocess, "run", lambda command, **options: pytest.fail("compiles"))
    with pytest.raises(pytest.fail.Exception, match="compiles"):
        compiler.compiled(SOURCE, FLAGS, "answer")
    monkeypatch.undo()
    assert path.exists()


def test_libraries_and_the_compilers_own_file_are_part_of_the_key(cache, tmp_path, monkeypatch):
    own = tmp_path / "c++"
    own.write_text(f'#!/bin/sh\nexec {compiler.find_compiler()} "$@"\n')
    own.chmod(0o700)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(own))
    paths = [compiler.compiled(SOURCE, FLAGS, "answer"), compiler.compiled(SOURCE, FLAGS, "answer", ("-lc",))]
    own.write_text(own.read_text() + "\n")  # another version in the same place
    paths.append(compiler.compiled(SOURCE, FLAGS, "answer"))
    os.utime(own, ns=(1, 1))
    paths.append(compiler.compiled(SOURCE, FLAGS, "answer"))
    paths.append(compiler.compiled(SOURCE, FLAGS, "another name"))
    assert len(set(paths)) == 5 and paths[-1].name.startswith("another name-")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_cache_that_others_may_write_to_is_refused(cache, mode):
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(CompilerError, match="may be written to by others"):
        compiler.compiled(SOURCE, FLAGS, "answer")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_someone_else_is_refused(cache):
    cache.mkdir(mode=0o700)
    os.chown(cache, 12345, -1)
    with pytest.raises(CompilerError, match="belongs to another user"):
        compiler.compiled(SOURCE, FLAGS, "answer")


def test_an_error_of_the_compiler_is_told(cache):
    with pytest.raises(CompilerError, match=r"cannot compile answer: .*error"):
        compiler.compiled("not C++", FLAGS, "answer")
    assert not list(cache.iterdir())


WHICH = "import minigrad as mg; print(type(mg.backend.cpu()).__name__, (mg.ones(100, 100) + 1).sum().item())"


def test_without_a_compiler_numpy_computes(tmp_path):
    printed, log = run(WHICH, PATH=str(tmp_path), CXX="")
    assert printed == "module 20000.0"
    assert (
        log == "minigrad: no native kernels: no C++ compiler (g++ or clang++) was found; computing with NumPy instead"
    )


def test_with_a_compiler_that_fails_numpy_computes(tmp_path):
    (broken := tmp_path / "c++").write_text("#!/bin/sh\necho 'error: broken' >&2\nexit 1\n")
    broken.chmod(0o700)
    printed, log = run(WHICH, CXX=str(broken), MINIGRAD_CACHE=str(tmp_path / "cache"))
    assert printed == "module 20000.0" and "broken" in log and "computing with NumPy instead" in log


@pytest.mark.parametrize("name, kind", [("numpy", "module"), ("native", "Native"), ("emulated", "Emulated")])
def test_the_environment_chooses(name, kind):
    assert run(WHICH, MINIGRAD_CPU=name)[0] == f"{kind} 20000.0"


def test_an_unknown_choice_is_told():
    code = "import minigrad as mg\ntry: mg.ones(1)\nexcept mg.DeviceError as error: print(error)"
    assert run(code, MINIGRAD_CPU="gpu")[0] == "MINIGRAD_CPU=gpu: there are native, numpy, emulated"


def test_a_kernel_that_does_not_compile_leaves_numpy(caplog, monkeypatch):
    on = Native(small=0)

    def fails(*args):
        raise CompilerError("no space left")

    monkeypatch.setattr(on, "compile", fails)
    x = np.ones((3, 4), np.float32)
    with caplog.at_level(logging.WARNING, "minigrad"):
        np.testing.assert_array_equal(on.softmax(x, 1), reference.softmax(x, 1))
        on.softmax(x, 1)
    assert [record.message for record in caplog.records] == ["minigrad: no space left; computing with NumPy instead"]


def test_what_is_small_or_not_float_is_numpys(monkeypatch):
    on = Native()
    monkeypatch.setattr(on, "_run", lambda *args: pytest.fail("a kernel ran"))
    on.exp(np.ones(10, np.float32))
    on.add(np.ones(10_000, np.float16), np.ones(10_000, np.float16))
    on.add(np.arange(10_000), 1)
    on.exp(np.ones(10_000, complex))


def test_what_is_large_runs_as_a_kernel(monkeypatch):
    """From SMALL elements on, norms from a sixteenth of that on, attention from FEW queries on; of any argument."""
    on, ran = Native(), []
    run = on._run
    monkeypatch.setattr(on, "_run", lambda file, entry, *rest: ran.append(entry) or run(file, entry, *rest))

    def kernels(name, *args):
        ran.clear()
        getattr(on, name)(*args)
        return len(ran)

    for n, expected in ((SMALL - 1, 0), (SMALL, 1)):
        for dtype in (np.float32, np.float64):
            x = np.ones(n, dtype)
            assert kernels("exp", x) == kernels("add", np.ones(1, dtype), x) == kernels("mul", 2.0, x) == expected
            assert kernels("where", x > 0, x, 0.0) == expected and kernels("relu", x) == expected
            assert kernels("scale_", [np.ones(1, dtype), x], 2.0) == expected
            assert kernels("sgd_", [(x, x.copy(), None, 0.1, 0.0)], 0.0, False) == expected
        assert kernels("exp", np.ones(n, np.float16)) == kernels("sin", np.ones(n)) == 0  # NumPy's whatever the size
        rows = np.ones((1, n // 16), np.float32) if expected else np.ones((1, n // 16 - 1), np.float32)
        assert kernels("layer_norm", rows, None, None, 1e-5) == expected and kernels("rms_norm", rows, None, 1e-5) == 0
    for T, expected in ((FEW - 1, 0), (FEW, 1)):
        q = np.ones((1, 4, T, 32), np.float32)
        assert kernels("attention", q, q, q, None, None, 1.0, True) == expected


def test_work_is_spread_over_the_cores_by_its_size():
    on = Native()
    on.threads = 4
    chunks = {0: 1, 1: 1, CHUNK: 1, 2 * CHUNK - 1: 1, 2 * CHUNK: 2, 7 * CHUNK: 7, 8 * CHUNK: 8, 99 * CHUNK: 8}
    assert {n: on.spread(n) for n in chunks} == {n: (blocks, 1) for n, blocks in chunks.items()}


def test_what_is_of_two_kinds_is_numpys():
    """A large float32 beside numbers that kernels do not know: NumPy computes in their dtype, nothing is cast."""
    on, x = Native(), np.linspace(-1, 1, 5000, dtype=np.float32)
    for other in (x * np.complex64(1 + 1j), x.astype(np.float16), x.astype(np.longdouble)):
        for args in ((x, other), (other, x)):
            y = on.mul(*args)
            assert y.dtype == np.result_type(*args)
            np.testing.assert_array_equal(y, np.multiply(*args))
    for other in (np.arange(5000), np.arange(5000, dtype=np.uint8), x > 0, x.astype(np.float64)):
        y = on.mul(x, other)
        assert y.dtype == np.result_type(x, other)
        np.testing.assert_allclose(y, x * other, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinity_are_themselves(dtype):
    """What -ffast-math would lose."""
    on = Native(small=0)
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e30, -1e30], dtype), 9)
    rows = np.stack([x, np.where(np.isfinite(x), x, -np.inf), np.full_like(x, -np.inf)])
    with reference.quietly():
        for name in ("exp", "tanh", "erf", "sigmoid", "abs", "relu"):
            np.testing.assert_allclose(getattr(on, name)(x), getattr(reference, name)(x), 1e-6, err_msg=name)
        np.testing.assert_allclose(on.softmax(rows, 1), reference.softmax(rows, 1), 1e-6)
    np.testing.assert_array_equal(on.isnan(x), np.isnan(x))


@pytest.mark.parametrize("low, high", [(-104, 89), (-1, 1), (-1e-3, 1e-3)])
def test_float_functions_are_exact_to_two_units(low, high):
    on = Native(small=0)
    x = np.linspace(low, high, 100_001, dtype=np.float32)
    for name in ("exp", "tanh"):
        exact = getattr(np, name)(x.astype(np.float64))
        normal = (np.abs(exact) > np.finfo(np.float32).tiny) & (exact < np.finfo(np.float32).max)
        error = np.abs(getattr(on, name)(x) - exact)[normal]
        assert (error / np.spacing(np.abs(exact[normal]).astype(np.float32))).max() <= 2, name


THREADS = """
import numpy as np, os, threading
import minigrad as mg
x = mg.randn(512, 512)
def work(): return (x @ x).tanh().softmax(1).sum().item()
expected = work()
threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(4)]
results = []
for t in threads: t.start()
for t in threads: t.join()
assert results == [expected] * 4, results
child = os.fork()
if child == 0:  # OpenMP's workers are not there
    os._exit(0 if abs(work() - expected) < 1e-3 else 1)
print(mg.backend.cpu().threads, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_forks(threads):
    """NumPy's BLAS and our kernels on one pool; from several Python threads; in a child, which has no pool."""
    assert run(THREADS, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS="2")[0] == f"{threads} 0"


def test_the_environment_stays_as_it_is():
    code = "import os; before = dict(os.environ); import minigrad as mg; mg.backend.cpu(); print(before == os.environ)"
    assert run(code)[0] == "True"


def test_backends_are_named():
    with pytest.raises(backend.DeviceError, match="there are native, numpy, emulated"):
        backend.cpu_backend("tpu")
