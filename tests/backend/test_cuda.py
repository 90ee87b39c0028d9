"""The CUDA backend: arrays, launches and primitives, on a GPU or the rig; and the message where it cannot be used."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
import minigrad.nn.functional as F
from minigrad.autograd import Storage
from minigrad.backend import reference
from minigrad.backend.runners import gpu, nvrtc

from .. import ROOT

rng = np.random.default_rng(0)


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return gpu.Cuda()


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


# ---------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (0, 3)])
def test_arrays_go_there_and_back(on, shape, dtype):
    x = (10 * normal(*shape)).astype(dtype)
    y = on.from_numpy(x)
    assert type(y) is on.array_type and y.dtype == x.dtype and y.shape == x.shape
    np.testing.assert_array_equal(on.to_numpy(y), x, strict=True)


def test_to_numpy_and_from_numpy_copy(on):
    y = on.from_numpy(x := normal(3))
    on.to_numpy(y)[:] = 0
    x[:] = 0
    assert on.to_numpy(y).all()


def test_any_layout_of_a_numpy_array_goes_there(on):
    x = normal(4, 6)[::2, ::-1].T
    np.testing.assert_array_equal(on.to_numpy(on.from_numpy(x)), x)


VIEWS = {
    "transpose": lambda on, x: x.transpose([2, 0, 1]),
    "slices": lambda on, x: x[1:, ::-2, 0],
    "new dim": lambda on, x: x[:, None],
    "expand": lambda on, x: on.expand(x[:1], (2, *x.shape[:0], 3, 4)),
    "reshape": lambda on, x: on.reshape(x, (4, 6)),
    "reshape, copied": lambda on, x: on.reshape(x.transpose((2, 1, 0)), (6, 4)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_numpys(on, name):
    x = normal(2, 3, 4)
    view = VIEWS[name]
    np.testing.assert_array_equal(on.to_numpy(view(on, on.from_numpy(x))), view(reference, x))


def test_views_overlap_what_they_see(on):
    x = on.empty((4, 4), np.float32)
    assert on.overlap(x[1:], x) and on.overlap(x[:, 1], x[1:])
    assert not on.overlap(x[:2], x[2:]) and not on.overlap(x, on.empty((4, 4), np.float32))


def test_zeros_full_and_pinned(on):
    np.testing.assert_array_equal(on.to_numpy(on.zeros((2, 3), np.int32)), np.zeros((2, 3), np.int32), strict=True)
    np.testing.assert_array_equal(on.to_numpy(on.full((2, 3), 1.5, np.float64)), np.full((2, 3), 1.5), strict=True)
    batch = on.pinned((2, 3), np.int64)
    batch[:] = np.arange(6).reshape(2, 3)
    x = on.from_numpy(batch)
    batch[:] = 0  # at once
    np.testing.assert_array_equal(on.to_numpy(x), np.arange(6).reshape(2, 3))


# -------------------------------------------------------------------------------------------------------- launches


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2945, 3056, 3072])
def test_the_backward_of_wide_rows_fits_a_block(on, n, dtype):
    """Its dynamic shared memory is below 48 KiB, but together with the static part it is more."""
    x, dy, weight = normal(5, n, dtype=dtype), normal(5, n, dtype=dtype), normal(n, dtype=dtype)
    _, mean, rstd = reference.layer_norm(x, weight, None, 1e-5)
    wanted = reference.layer_norm_backward(dy, x, weight, mean, rstd, (True, True, True))
    put = [on.from_numpy(a) for a in (dy, x, weight, mean, rstd)]
    for found, right in zip(on.layer_norm_backward(*put, (True, True, True)), wanted):
        np.testing.assert_allclose(on.to_numpy(found), right, 1e-4, 1e-4)


def test_a_file_is_compiled_once_for_a_dtype(on, monkeypatch):
    x, loaded, binary = on.from_numpy(normal(3, 5)), [], nvrtc.binary
    monkeypatch.setattr(nvrtc, "binary", lambda file, *of: loaded.append((file, *of[:2])) or binary(file, *of))
    for _ in range(2):
        on.softmax(x, -1)
    on.log_softmax(x, -1)
    assert loaded == [("softmax", "float32", None)]


def test_files_are_compiled_side_by_side(on, monkeypatch):
    binary, together = nvrtc.binary, threading.Barrier(2, timeout=20)
    monkeypatch.setattr(nvrtc, "binary", lambda *args: (together.wait(), binary(*args))[1])
    fresh = gpu.Cuda()
    kernels = [fresh.kernel(*names, np.dtype(np.float32)) for names in (("softmax", "softmax"), ("optim", "adam"))]
    assert all(kernel.raw for kernel in kernels)


def test_elementwise_kernels_are_compiled_one_by_one(on, monkeypatch):
    x, loaded, binary = on.from_numpy(normal(3, 5)), [], nvrtc.binary
    monkeypatch.setattr(nvrtc, "binary", lambda file, *of: loaded.append(of[:2]) or binary(file, *of))
    on.exp(on.add(x, x))
    assert loaded == [("float32", "add_kernel"), ("float32", "exp_kernel")]


# ------------------------------------------------------------------------------------------------------ primitives

TOKENS = np.array([2, 0, 2, 5, 2])
PRIMITIVES = {
    "softmax": lambda on, put: on.softmax(put(normal(3, 40)), 0),
    "sum": lambda on, put: on.sum(put(normal(3, 40, 2)), (0, 2), False),
    "add": lambda on, put: on.add(put(normal(3, 1, 4)), put(normal(5, 1))),
    "gelu": lambda on, put: on.gelu(put(normal(33)), "tanh"),
    "cast": lambda on, put: on.cast(put(normal(4, 5)), np.dtype(np.float64)),
    "cat": lambda on, put: on.cat([put(normal(2, 3)), put(normal(2, 4))], 1),
    "where": lambda on, put: on.where(put(normal(4, 4) > 0), put(normal(4, 4)), 0.0),
    "take": lambda on, put: on.take(put(normal(6, 7)), put(TOKENS)),
    "take_add": lambda on, put: on.take_add(6, put(TOKENS), put(normal(5, 7))),
    "matmul": lambda on, put: on.matmul(put(normal(2, 17, 5)), put(normal(5, 9))),
    "layer_norm": lambda on, put: on.layer_norm(put(normal(4, 40)), put(normal(40)), put(normal(40)), 1e-5)[0],
    "cross_entropy": lambda on, put: on.cross_entropy(put(normal(5, 7)), put(TOKENS), -100, 0.1)[0],
    "argmax": lambda on, put: on.argmax(put(normal(5, 7)), 1, False),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives_are_the_references(on, name):
    global rng
    primitive, results = PRIMITIVES[name], []
    for backend in (reference, on):
        rng = np.random.default_rng(1)
        results.append(backend.to_numpy(primitive(backend, backend.from_numpy)))
    expected, found = results
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_training_step_through_tensors(on):
    """Loss and gradients of a small network: embedding, layer norm, attention, MLP, cross-entropy."""
    arrays = {"table": normal(7, 16), "g": normal(16), "b": normal(16), "qkv": normal(48, 16), "up": normal(24, 16),
              "bias": normal(24), "head": normal(7, 24)}  # fmt: skip
    tokens = rng.integers(0, 7, (2, 6))

    def step(backend, dtype):
        p = {
            k: mg.Tensor._wrap(backend.from_numpy(a.astype(dtype)), Storage(backend)).requires_grad_()
            for k, a in arrays.items()
        }
        index = mg.Tensor._wrap(backend.from_numpy(tokens), Storage(backend))
        x = F.layer_norm(F.embedding(index, p["table"]), (16,), p["g"], p["b"])
        q, k, v = F.linear(x, p["qkv"]).reshape(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 6, 16)
        h = F.gelu(F.linear(x + z, p["up"], p["bias"]), "tanh")
        loss = F.cross_entropy(F.linear(h, p["head"]).reshape(12, 7), index.reshape(12))
        loss.backward()
        return [backend.to_numpy(a) for a in (loss.array, *(x.grad.array for x in p.values()))]

    # float32 costs this network up to 3e-5 of each gradient's largest element, over 20 draws, and NumPy's 9e-5
    for found, expected in zip(step(on, np.float32), step(reference, np.float64)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5 * np.abs(expected).max())


# -------------------------------------------------------------------------------------------------- what is missing


def raises(error):
    def function(*args):
        raise error

    return function


class CUDARuntimeError(RuntimeError):
    """A stand-in for CuPy's class of this name, for tests without CuPy."""

    def __init__(self, status):
        super().__init__("cudaErrorNamed: and so on")
        self.status = status


def a_machine(**changes):
    """The parts of CuPy that why_not() asks, on a machine where everything works except for `changes`."""
    names = {"Device": lambda: types.SimpleNamespace(compute_capability="90")}
    names["runtime"] = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13010,
        getDeviceCount=lambda: 1,
    )
    names["nvrtc"] = types.SimpleNamespace(getVersion=lambda: (13, 0))
    for name, value in changes.items():
        where = next(part for part in (names["runtime"], names["nvrtc"]) if hasattr(part, name))
        setattr(where, name, value)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(**names))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"driverGetVersion": lambda: 0}, "no NVIDIA driver$"),
        ({"getDeviceCount": raises(CUDARuntimeError(100))}, r"no GPU was found \(cudaErrorNamed"),
        ({"getDeviceCount": lambda: 0}, "no GPU was found"),
        ({"driverGetVersion": lambda: 12040}, "for CUDA 13.*driver for CUDA 12: pip install cupy-cuda12x nvidia"),
        ({"driverGetVersion": lambda: 11080}, "driver for CUDA 11: a newer driver is needed"),
        (
            {"driverGetVersion": lambda: 12080, "runtimeGetVersion": lambda: 12090},
            "NVRTC of CUDA 13, and the NVIDIA driver is for CUDA 12: pip install nvidia-cuda-nvrtc-cu12, and remove",
        ),
        (
            {"getVersion": raises(RuntimeError("libnvrtc.so\n…"))},
            r"NVRTC.*pip install nvidia-cuda-nvrtc \(libnvrtc.so\)",
        ),
        ({"headers": None}, r"headers.*pip install nvidia-cuda-runtime \(there is no cuda_fp16.h\)"),
        ({}, None),
    ],
)
def test_the_error_names_the_missing_program(monkeypatch, changes, message):
    found = changes.pop("headers", ("/include", 1, 1))
    monkeypatch.setattr(nvrtc, "headers", lambda: found)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "cupy", a_machine(**changes))
    why = gpu.why_not()
    assert why is None if message is None else re.search(message, why) and why.startswith("device 'cuda'")


def test_a_missing_cupy_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "needs CuPy, which is not installed: pip install" in gpu.why_not()


@pytest.mark.parametrize(
    "error, why",
    [
        ("PermissionError(13, 'Permission denied', '/nobody/.cupy')", "cannot be imported .*/nobody/.cupy"),
        ("ImportError('libcudart.so\\nmore')", r"cannot be imported \(libcudart.so\)$"),
        ("ValueError('CUDA_PATH')", "cannot be imported"),
    ],
)
def test_a_cupy_that_cannot_be_imported_is_said(tmp_path, monkeypatch, error, why):
    """Importing CuPy raises PermissionError if the home folder cannot be written to."""
    (tmp_path / "cupy.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert re.search(f"^device 'cuda': CuPy is installed, but {why}", gpu.why_not())


def test_nothing_but_memory_views_and_kernels_is_asked_of_cupy():
    text = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in (gpu, nvrtc))
    used = set(re.findall(r"\b_?cupy\.(\w+)", text))
    memory = {"array", "ndarray", "zeros"}
    assert used == memory | {"RawModule", "__version__", "broadcast_to", "cuda", "may_share_memory"}


def test_importing_minigrad_does_not_import_cupy():
    code = "import sys, minigrad, minigrad.backend.runners.gpu; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(gpu.why_not() is None, reason="no GPU is what this is about, and there is one")
def test_the_benchmark_says_what_is_missing():
    script = ROOT / "tests/benchmarks/kernels.py"
    environment = os.environ | {"PYTHONPATH": str(Path(mg.__file__).parent.parent)}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert (run.returncode, run.stderr) == (1, "") and re.fullmatch("device 'cuda'.*\n", run.stdout)


FORKED = """
import os, minigrad as mg
x, refused = mg.ones(3, device="cuda"), 0
if pid := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for use in (lambda: x + 1, x.tolist, lambda: mg.zeros(3, device="cuda"), lambda: mg.tensor([1], device="cuda")):
    try:
        use()
    except RuntimeError as error:
        refused += "cannot be used in a child of os.fork()" in str(error)
os._exit(refused)
"""


@pytest.mark.gpu
def test_a_forked_child_refuses_all_that_needs_the_driver():
    assert subprocess.run([sys.executable, "-c", FORKED], check=False, timeout=60).returncode == 4
