"""Which optional parts of minigrad work on this machine, why others do not, and whether results are correct.

    minigrad doctor
    minigrad doctor --gpu gpu.json

A line for each thing; then every backend takes a training step of small networks, whose results must be those of NumPy
in float64. The last line says whether minigrad works here, and what the missing parts would be good for. Exit status 1
if a result is wrong. The first run on a machine compiles kernels, which takes longer.

With --gpu, every op runs on the GPU and on the CPU, a small GPT trains on both, and the main kernels are timed beside
cuBLAS's, if that is installed: some minutes in all. The file is what to send with a report about a GPU.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from .. import backend
from ..backend.runners.compiler import CompilerError, find_compiler, folder
from ..backend.runners.cuda import INSTALL, first_line
from ..backend.runners.native import cores
from ..base import cli
from ..base.files import atomic_write
from ..gradcheck.report import plain_values
from ..nn import functional as F
from ..tensor import from_backend, grad
from ..version import __version__

BACKENDS = *backend.CPU_BACKENDS, "cuda"
TOLERANCE = 1e-4  # of the largest element of a result, in float32
OPTIONAL = {  # things in the inventory that may be missing, and what for
    "C++ compiler": "fast kernels on the CPU",
    "CuPy": "a GPU",
    "dot": "pictures of graphs",
    "graphviz": "pictures of graphs",
    "matplotlib": "plots",
    "tqdm": "progress bars",
}


# ------------------------------------------------------------------------------------------------------ what there is


def inventory():
    """(thing, what there is of it or why there is none), for everything that minigrad can use."""
    yield "minigrad", f"{__version__} in {Path(__file__).parents[1]}"
    yield "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}, {cores()} cores"
    yield "NumPy", f"{np.__version__}, BLAS: {blas()}"
    yield "C++ compiler", attempt(compiler)
    yield "flags", attempt(flags)
    yield "kernel cache", attempt(cache)
    yield "CuPy", (found := attempt(cupy_version))
    if not found.startswith("none"):
        yield "driver", attempt(driver)
        yield "GPU", attempt(gpu)
        yield "NVRTC", attempt(nvrtc)
    yield "dot", shutil.which("dot") or "not found; pictures of graphs need it: install Graphviz"
    for name in ("graphviz", "matplotlib", "tqdm"):
        yield name, version(name) or f"not installed: pip install {name}"


def attempt(function):
    try:
        return function()
    except Exception as error:  # reporting what is wrong with a library is the purpose here
        return f"none: {first_line(error)}"


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas():
    about = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{about['name']} {about.get('version', '')}".strip()


def compiler():
    command = find_compiler()
    run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=10)
    return f"{shlex.join(command)}: {first_line(run.stdout)}"


def flags():
    from ..backend.runners.native import FLAGS

    return " ".join(FLAGS)


def cache():
    path = folder()
    files = [file for file in Path(path).iterdir() if file.suffix in (".so", ".cubin")]
    said = f"{path}: {len(files)} files, {sum(file.lstat().st_size for file in files) / 1e6:.1f} MB"
    return said if os.access(path, os.W_OK) else f"{said}; nothing can be added without permission to write"


def cupy():
    if importlib.util.find_spec("cupy") is None:
        raise ImportError(f"CuPy is not installed: {INSTALL}")
    import cupy

    return cupy


def cupy_version():
    return cupy().__version__


def driver():
    runtime = cupy().cuda.runtime
    number = runtime.driverGetVersion()
    return f"for CUDA up to {number // 1000}.{number % 1000 // 10}" if number else "none"


def gpu():
    runtime = cupy().cuda.runtime
    names = []
    for i in range(runtime.getDeviceCount() if runtime.driverGetVersion() else 0):
        about = runtime.getDeviceProperties(i)
        names.append(
            f"{about['name'].decode()}, {about['totalGlobalMem'] / 2**30:.0f} GiB, compute capability "
            f"{about['major']}.{about['minor']}, {about['multiProcessorCount']} multiprocessors"
        )
    return "; ".join(names) or "none"


def nvrtc():
    return ".".join(map(str, cupy().cuda.nvrtc.getVersion()))


def get_backend(name):
    """The backend. Raises backend.DeviceError with the reason."""
    return backend.get("cuda") if name == "cuda" else backend.cpu_backend(name)


# ---------------------------------------------------------------------------------------------------------- self-test


def elementwise(x, g):
    return (x * g).exp() / (1 + x * x)


def softmax(x, g):
    return x.softmax(-1) * g


def mlp(x, g):
    h = F.gelu(F.linear(F.layer_norm(x, x.shape[-1:], g[0]), g), "tanh")
    target = x.detach().argmax(1)
    return F.cross_entropy(F.linear(h, g), target)


def attention(x, g):
    q, k, v = (x.reshape(2, -1, 4, 16).transpose(1, 2) for x in (x, x * 2, F.linear(x, g)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


CHECKS = {"elementwise": elementwise, "softmax": softmax, "MLP": mlp, "attention": attention}


def run(check, on, dtype):
    """The result of a check and its gradients as NumPy arrays. x and g are large enough for native to use kernels."""
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal((64, 64)).astype(dtype) for _ in range(2))
    x, g = (from_backend(on.from_numpy(a), on, requires_grad=True) for a in arrays)
    y = CHECKS[check](x, g)
    return [on.to_numpy(a.array) for a in (y, *grad(y.sum(), (x, g)))]


def self_test(on):
    """What is wrong with a backend, in words; '' if nothing is. Raises CompilerError if its kernels do not compile."""
    for check in CHECKS:
        try:
            results = run(check, on, np.float32)
        except CompilerError:
            raise
        except Exception as error:
            return f"{check}: {type(error).__name__}: {first_line(error)}"
        for what, y, expected in zip(("result", "dx", "dg"), results, run(check, backend.reference, np.float64)):
            apart = np.abs(y - expected).max() / np.abs(expected).max()
            if not apart < TOLERANCE:
                return f"{check}: its {what} is off by {apart:.1e} of its largest element"
    return ""


def look_at_gpu(file, found):
    """Print and write what gpu.report() says. Returns whether anything is wrong."""
    from .gpu import report

    with cli.busy() as say:
        about = {"inventory": found, **report(say)}
    atomic_write(file, json.dumps(plain_values(about), indent=1, allow_nan=False).encode())
    for wrong in about["wrong"]:
        print(f"FAIL  cuda      {first_line(wrong)}")
    print(f"{'FAIL' if about['wrong'] else 'PASS'}  cuda      {about['checks']} checks of ops, and a training")
    for name, row in about["speeds"].items():
        if "failed" in row:
            continue
        rate = next(f"{number:8.1f} {unit}" for unit, number in row.items() if unit.endswith("/s"))
        beside = f"; cuBLAS {row['cublas_ms']:.2f} ms" if "cublas_ms" in row else ""
        print(f"{name:22}{row['ms']:8.2f} ms {rate}{beside}")
    print(f"written to {file}")
    return bool(about["wrong"])


def main(argv=()):
    parser = cli.Parser("minigrad doctor", description=__doc__)
    parser.add_argument("--gpu", type=cli.path, metavar="FILE", help="check and time the GPU, and write it all to FILE")
    args = parser.parse_args(argv)
    if args.gpu:
        cli.file_to_write(args.gpu, "--gpu", "gpu.json", ".json")
        with cli.refusing(backend.DeviceError):
            backend.get("cuda")
    missing, found = [], {}
    for thing, text in inventory():
        found[thing] = text
        print(f"{thing:14}{text}")
        if thing in OPTIONAL and text.startswith("no"):
            missing.append(f"{OPTIONAL[thing]} ({thing})")
    default = backend.get("cpu")
    print(f"{'device cpu':14}{'numpy' if default is backend.reference else type(default).__name__.lower()}")
    failed = False
    for name in BACKENDS:
        try:
            on = get_backend(name)
            start = time.perf_counter()
            wrong = self_test(on)
        except (backend.DeviceError, CompilerError) as error:
            print(f"NONE  {name:10}{first_line(error)}")
            continue
        failed = failed or bool(wrong)
        done = wrong or f"{', '.join(CHECKS)} and gradients in {time.perf_counter() - start:.1f} s"
        print(f"{'FAIL' if wrong else 'PASS'}  {name:10}{done}")
    if args.gpu:
        failed = look_at_gpu(args.gpu, found) or failed
    if failed:
        print("\nminigrad computes wrong results here: see FAIL above")
    else:
        print("\nminigrad works here" + f"; what is missing is only needed for {', '.join(missing)}" * bool(missing))
    return int(failed)
