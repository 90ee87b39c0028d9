"""minigrad doctor on this machine, on one with nothing but NumPy, and with a wrong backend."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend import reference
from minigrad.backend.runners.compiler import CompilerError
from minigrad.commands import doctor
from minigrad.gradcheck import check_op
from minigrad.ops.activation import Tanh


@pytest.fixture(autouse=True)
def before_others_are_put_in_its_place():
    """Choose the backend of 'cpu', which happens once in a process, before a test replaces the backends."""
    backend.get("cpu")


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
    assert doctor.main() == 0
    said = capsys.readouterr().out
    assert "PASS  numpy     gradients in " in said and "FAIL" not in said and said.endswith("\nminigrad works here\n")
    assert f"\nNumPy         {np.__version__}\n" in said


@pytest.mark.parametrize("function, words", [
    (lambda x: reference.exp(x) * np.float32(1.01), "a gradient is off by "),
    (lambda x: np.full_like(x, np.nan), "a gradient is off by nan"),
    (raising(RuntimeError("it has fallen off the bus\nsecond line")), "RuntimeError: it has fallen off the bus\n"),
], ids=["wrong", "nan", "error"])  # fmt: skip
def test_a_wrong_result_is_a_failure(monkeypatch, capsys, function, words):
    wrong = Changed("exp", function)
    monkeypatch.setattr(doctor, "BACKENDS", ("native", "numpy"))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: wrong if name == "native" else reference)
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert f"FAIL  native    {words}" in said and "PASS  numpy" in said
    assert said.endswith("\nminigrad computes wrong results here: see FAIL above\n")


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
        "GPU           none: device 'cuda' needs CuPy",
        "dot           none: install Graphviz",
        "PASS  numpy",
        "NONE  native    no native kernels: no C++ compiler",
        "NONE  cuda      device 'cuda' needs CuPy",
        "minigrad works here",
    ):
        assert line in run.stdout, run.stdout


def test_a_gpu_is_described(monkeypatch):
    about = {"name": b"NVIDIA H200", "totalGlobalMem": 140 << 30, "major": 9, "minor": 0}
    runtime = types.SimpleNamespace(driverGetVersion=lambda: 13000, getDeviceProperties=lambda i: about)
    compiler = types.SimpleNamespace(getVersion=lambda: (13, 0))
    cupy = types.SimpleNamespace(__version__="14", cuda=types.SimpleNamespace(runtime=runtime, nvrtc=compiler))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(backend, "get", lambda name: None)
    said = "NVIDIA H200, 140 GiB, compute capability 9.0, driver for CUDA up to 13.0, CuPy 14, NVRTC 13.0"
    assert doctor.inventory()["GPU"] == said


def test_kernels_that_cannot_be_compiled_are_none(monkeypatch, capsys):
    """A backend without kernels is not a PASS because NumPy computed in its place."""
    on = Changed("exp", raising(CompilerError("no space left")))
    monkeypatch.setattr(doctor, "BACKENDS", ("native",))
    monkeypatch.setattr(backend, "cpu_backend", lambda name: on)
    assert doctor.main() == 0
    assert "NONE  native    no space left\n" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_gradient_that_is_wrong_in_float16_alone_is_found(monkeypatch):
    right = Tanh.backward
    monkeypatch.setattr(Tanh, "backward", lambda self, dy: right(self, dy) * (1.5 if dy.dtype == "float16" else 1.0))
    assert {row.verdict for row in check_op("tanh", "cuda", (1,), probes=("float16",))} == {"FAIL"}
