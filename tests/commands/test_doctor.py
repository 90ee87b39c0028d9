"""minigrad doctor, on this machine, on one with nothing but NumPy, and with something broken."""

import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend import reference
from minigrad.backend.runners.compiler import CompilerError, Source, find_compiler, load
from minigrad.backend.runners.cuda import why_not
from minigrad.base import cli
from minigrad.commands import doctor, gpu


@pytest.fixture(autouse=True)
def before_others_are_put_in_its_place():
    """What 'cpu' means is chosen once in a process: not while a test has replaced what there is to choose from."""
    backend.get("cpu")


@pytest.fixture
def only_numpy(monkeypatch):
    monkeypatch.setattr(doctor, "BACKENDS", ("numpy",))


class Changed:
    """The reference with one primitive replaced."""

    device = "cpu"

    def __init__(self, name, function):
        self.changed = {name: function}

    def __getattr__(self, name):
        return self.changed.get(name) or getattr(reference, name)


def raising(error):
    def primitive(*args):
        raise error

    return primitive


def test_all_that_is_here_is_right(capsys):
    start = time.perf_counter()
    assert doctor.main() == 0
    said = capsys.readouterr().out
    assert "PASS  numpy" in said and "FAIL" not in said
    assert f"NumPy         {np.__version__}, BLAS: " in said
    on = backend.get("cpu")
    assert f"\ndevice cpu    {'numpy' if on is reference else type(on).__name__.lower()}\n" in said
    assert time.perf_counter() - start < 60  # ten seconds, unless kernels must be compiled first


def test_a_wrong_result_is_a_failure(monkeypatch, capsys, only_numpy):
    wrong = Changed("softmax", lambda x, dim: reference.softmax(x, dim) * np.float32(1.001))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: wrong)
    assert doctor.main() == 1
    assert "FAIL  numpy     softmax: its result is off by 1.0e-03 of its largest element" in capsys.readouterr().out


def test_a_failure_before_a_pass_is_still_one(monkeypatch, capsys):
    wrong = Changed("softmax", lambda x, dim: reference.softmax(x, dim) * np.float32(1.001))
    monkeypatch.setattr(doctor, "BACKENDS", ("native", "numpy"))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: wrong if name == "native" else reference)
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert said.index("FAIL  native") < said.index("PASS  numpy")


@pytest.mark.parametrize("error", [RuntimeError("the GPU has fallen off the bus\nsecond line"), MemoryError()])
def test_an_error_is_a_failure(monkeypatch, capsys, only_numpy, error):
    monkeypatch.setattr(backend, "cpu_backend", lambda name: Changed("softmax", raising(error)))
    assert doctor.main() == 1
    first = str(error).partition("\n")[0] or type(error).__name__
    said = capsys.readouterr().out
    assert f"\nFAIL  numpy     softmax: {type(error).__name__}: {first}\n" in said
    assert said.endswith("\nminigrad computes wrong results here: see FAIL above\n")


def test_nan_is_not_near_anything(monkeypatch, capsys, only_numpy):
    wrong = Changed("softmax", lambda x, dim: np.full_like(x, np.nan))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: wrong)
    assert doctor.main() == 1
    assert "off by nan" in capsys.readouterr().out


BARE = """
import sys
sys.modules["cupy"] = None
from minigrad.commands import doctor
sys.exit(doctor.main())
"""


@pytest.mark.slow
def test_nothing_but_numpy(tmp_path):
    """No compiler, no Graphviz, no CuPy: PATH leads nowhere, and an import of CuPy fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "MINIGRAD_CPU")}
    environment |= {"PATH": str(tmp_path), "MINIGRAD_CACHE": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    for line in (
        "C++ compiler  none: no C++ compiler (g++ or clang++) was found",
        "CuPy          none: CuPy is not installed: pip install cupy-cuda13x nvidia-cuda-nvrtc",
        "dot           not found; pictures of graphs need it: install Graphviz",
        "device cpu    numpy",
        "PASS  numpy",
        "NONE  native    no native kernels: no C++ compiler",
        "NONE  cuda      device 'cuda' needs CuPy",
        "minigrad works here; what is missing is only needed for fast kernels on the CPU (C++ compiler), a GPU (",
    ):
        assert line in run.stdout, run.stdout


def test_missing_packages_come_with_the_way_to_get_them(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = dict(doctor.inventory())
    assert found["matplotlib"] == "not installed: pip install matplotlib"


def test_a_gpu_is_described(monkeypatch):
    about = {"name": b"NVIDIA H200", "totalGlobalMem": 140 << 30, "major": 9, "minor": 0, "multiProcessorCount": 132}
    runtime = types.SimpleNamespace(
        driverGetVersion=lambda: 13000, getDeviceCount=lambda: 1, getDeviceProperties=lambda i: about
    )
    compiler = types.SimpleNamespace(getVersion=lambda: (13, 0))
    cupy = types.SimpleNamespace(__version__="14", cuda=types.SimpleNamespace(runtime=runtime, nvrtc=compiler))
    monkeypatch.setattr(doctor, "cupy", lambda: cupy)
    found = dict(doctor.inventory())
    assert found["GPU"] == "NVIDIA H200, 140 GiB, compute capability 9.0, 132 multiprocessors"
    assert (found["driver"], found["NVRTC"]) == ("for CUDA up to 13.0", "13.0")
    runtime.driverGetVersion = lambda: 12080
    assert doctor.driver() == "for CUDA up to 12.8"
    runtime.driverGetVersion = lambda: 0
    found = dict(doctor.inventory())
    assert (found["driver"], found["GPU"]) == ("none", "none")


def test_kernels_that_cannot_be_compiled_are_none(monkeypatch, capsys):
    """Not a PASS for what NumPy has computed in their place."""
    on = Changed("softmax", raising(CompilerError("no space left")))
    monkeypatch.setattr(doctor, "BACKENDS", ("native",))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: on)
    assert doctor.main() == 0
    assert "NONE  native    no space left\n" in capsys.readouterr().out


@pytest.mark.needs("g++")
def test_the_compiler_and_its_cache_are_described(monkeypatch, cache, capsys):
    load(Source('extern "C" int answer() { return 42; }', ("-O0",), "answer"))
    found = dict(doctor.inventory())
    assert found["C++ compiler"].startswith(f"{shlex.join(find_compiler())}: ")
    assert found["kernel cache"] == f"{cache}: 1 files, 0.0 MB"
    cache.chmod(0o777)
    assert dict(doctor.inventory())["kernel cache"].startswith(f"none: the cache folder {cache} may be written to by")


def test_a_compiler_that_hangs_does_not_hang_the_doctor(monkeypatch):
    def run(command, timeout, **how):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(doctor, "find_compiler", lambda: ("ccache", "g++"))
    monkeypatch.setattr(subprocess, "run", run)
    assert "'--version']' timed out after 10" in dict(doctor.inventory())["C++ compiler"]


@pytest.mark.gpu
def test_a_gpu_is_checked_and_timed(monkeypatch, capsys, tmp_path):
    """Of few ops and small arrays. The rig has no cuBLAS, which is said."""
    few = {name: gpu.registry[name] for name in ("softmax", "linear")}
    monkeypatch.setattr(gpu, "registry", few)
    monkeypatch.setattr(gpu, "SIDE", 64)
    monkeypatch.setattr(gpu, "TURN", 0.0)
    file = tmp_path / "gpu.json"
    assert doctor.main(["--gpu", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["checks"] >= 4 and not found["wrong"] and len(found["losses"]) == 5
    assert {"copy", "softmax", "matmul, bfloat16", "attention, float16"} <= set(found["speeds"])
    for name, row in found["speeds"].items():
        assert row["ms"] >= 0 and ("TFLOP/s" in row or "GB/s" in row), name
    assert all("cublas" in " ".join(found["speeds"][f"matmul, {kind}"]) for kind in ("float32", "float16"))
    assert "GPU" in found["inventory"] and f"PASS  cuda      {found['checks']} checks of ops" in capsys.readouterr().out


@pytest.mark.gpu
def test_what_is_wrong_on_a_gpu_is_said(monkeypatch, capsys, tmp_path):
    on = backend.get("cuda")
    monkeypatch.setattr(gpu, "registry", {"exp": gpu.registry["exp"]})
    monkeypatch.setattr(gpu, "losses", lambda device: [np.nan])
    fast, broken = gpu.Timed(lambda: None, 8), gpu.Timed(raising(RuntimeError("out of memory")))
    monkeypatch.setattr(gpu, "cases", lambda: {"fast": fast, "broken": broken})
    monkeypatch.setattr(gpu, "TURN", 0.0)
    right = on.exp
    monkeypatch.setattr(on, "exp", lambda x: on.mul(right(x), 1.001), raising=False)
    file = tmp_path / "gpu.json"
    assert doctor.main(["--gpu", str(file)]) == 1
    said = capsys.readouterr().out
    for wrong in ("exp, case", "a training: its losses are [nan]", "broken: RuntimeError: out of memory"):
        assert f"FAIL  cuda      {wrong}" in said
    found = json.loads(file.read_text(), parse_constant=pytest.fail)  # no NaN, which is no JSON
    assert found["losses"] == ["nan"] and found["speeds"]["fast"]["ms"] > 0


@pytest.mark.skipif(why_not() is None, reason="no GPU is what this is about, and there is one")
def test_without_a_gpu_nothing_is_checked(tmp_path):
    with pytest.raises(cli.CommandError, match="device 'cuda'"):
        doctor.main(["--gpu", str(tmp_path / "gpu.json")])
