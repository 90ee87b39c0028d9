"""List the parts of minigrad that work on this machine, and say why others do not and whether results are correct.

    minigrad doctor

It prints a line for each part. Then every backend computes the gradients of a small network with attention, which must
agree with NumPy's in float64. The exit status is 1 if one does not. The first run on a machine compiles kernels, which
takes longer.

`minigrad check --device cuda` checks every op on a GPU.
"""

import importlib.metadata
import platform
import shlex
import shutil
import time
from pathlib import Path

import numpy as np

from .. import backend
from ..backend.runners.compiler import CompilerError, find_compiler, folder
from ..backend.runners.gpu import first_line
from ..backend.runners.native import cores
from ..base import cli
from ..nn import functional as F
from ..tensor import from_backend, grad
from ..version import __version__

BACKENDS = *backend.CPU_BACKENDS, "cuda"
TOLERANCE = 1e-4  # allowed error of float32, relative to a gradient's largest element


def inventory():
    """Return {name of a program, package or device: its version, or the reason why it cannot be used}."""
    system = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {cores()} cores"
    entries = {"minigrad": f"{__version__} in {Path(__file__).parents[1]}", "Python": system, "NumPy": np.__version__}
    for name, function in {"C++ compiler": compiler, "kernel cache": folder, "GPU": gpu}.items():
        try:
            entries[name] = str(function())
        except Exception as error:  # whatever is wrong with a library is what this command reports
            entries[name] = f"none: {first_line(error)}"
    entries["dot"] = shutil.which("dot") or "none: install Graphviz for pictures of graphs"
    try:
        entries["graphviz"] = importlib.metadata.version("graphviz")
    except importlib.metadata.PackageNotFoundError:
        entries["graphviz"] = "none: pip install graphviz"
    return entries


def compiler():
    return shlex.join(find_compiler())


def gpu():
    backend.get("cuda")  # raises DeviceError, which names what is missing
    import cupy

    about, driver = cupy.cuda.runtime.getDeviceProperties(0), cupy.cuda.runtime.driverGetVersion()
    memory = f"{about['totalGlobalMem'] / 2**30:.0f} GiB, compute capability {about['major']}.{about['minor']}"
    versions = f"driver for CUDA up to {driver / 1000:.1f}, CuPy {cupy.__version__}"
    return f"{about['name'].decode()}, {memory}, {versions}, NVRTC {'.'.join(map(str, cupy.cuda.nvrtc.getVersion()))}"


def gradients(backend, dtype):
    """Return the gradients of a network as NumPy arrays, computed by a backend. The network is large enough for native
    kernels."""
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal((64, 64)).astype(dtype) for _ in range(2))
    x, w = (from_backend(backend.from_numpy(a), backend, requires_grad=True) for a in arrays)
    q, k, v = (y.reshape(2, 32, 4, 16).transpose(1, 2) for y in (x, (x * 0.5).exp(), F.linear(x, w)))
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(64, 64)
    h = F.gelu(F.linear(F.layer_norm(z, (64,), w[0]), w), "tanh")
    loss = F.cross_entropy(F.linear(h, w), x.detach().argmax(1))
    return [backend.to_numpy(g.array) for g in grad(loss, (x, w))]


def self_test(tested):
    """Return a sentence that names the fault of a backend, or '' if it works. Raises CompilerError if its kernels do
    not compile."""
    try:
        computed = gradients(tested, np.float32)
    except CompilerError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    for g, expected in zip(computed, gradients(backend.reference, np.float64)):
        off = np.abs(g - expected).max() / np.abs(expected).max()
        if not off < TOLERANCE:
            return f"a gradient is off by {off:.1e} of its largest element"
    return ""


def main(argv=()):
    cli.Parser("minigrad doctor", description=__doc__).parse_args(argv)
    entries, failed = inventory(), False
    for thing, text in entries.items():
        print(f"{thing:14}{text}")
    for name in BACKENDS:
        try:
            start = time.perf_counter()
            wrong = self_test(backend.get("cuda") if name == "cuda" else backend.cpu_backend(name))
        except (backend.DeviceError, CompilerError) as error:
            print(f"NONE  {name:10}{first_line(error)}")
            continue
        failed = failed or bool(wrong)
        print(f"{'FAIL' if wrong else 'PASS'}  {name:10}{wrong or f'gradients in {time.perf_counter() - start:.1f} s'}")
    print("minigrad computes wrong results here: see FAIL above" if failed else "minigrad works here")
    return int(failed)
