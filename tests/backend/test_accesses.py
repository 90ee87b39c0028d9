"""What launches ask of memory, counted on the rig, as kernels/README.md tells it of matrix products: bytes for each
FLOP, sectors of global memory, and cycles that accesses to shared memory wait for its banks.

The rig runs PTX. Where ptxas then joins neighbouring accesses to shared memory, there are fewer conflicts than this."""

import contextlib
import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

from minigrad import backend

from .matmul_steps import SOURCE, TABLE, blocks

pytestmark = [pytest.mark.rig, pytest.mark.gpu]
F32 = np.float32


@contextlib.contextmanager
def counting():
    """Counts what is launched meanwhile: {kernel: {"global load", …: (accesses, bytes, cost, least, worst)}}, of
    warps; cost and least in sectors of global memory, or in cycles of shared memory."""
    import cupy

    library = ctypes.CDLL(str(Path(os.environ["GPU_RIG"], "libgpurig.so")))
    library.gpu_rig_counted.restype = ctypes.c_char_p
    found: dict = {}
    cupy.cuda.Device().synchronize()
    library.gpu_rig_count(ctypes.c_bool(True))
    yield found
    cupy.cuda.Device().synchronize()
    library.gpu_rig_count(ctypes.c_bool(False))
    for line in library.gpu_rig_counted().decode().splitlines():
        kernel, space, kind, *numbers = line.split()
        found.setdefault(kernel, {})[f"{space} {kind}"] = tuple(map(int, numbers))


def row(found, elements):
    """What one kernel loads for each element, and what each access to shared memory waits for."""
    loads, stores, shared_loads, shared_stores = (
        found[kind] for kind in ("global load", "global store", "shared load", "shared store")
    )

    def extra(count):
        accesses, _, cost, least, _ = count
        return (cost - least) / max(1, accesses)

    numbers = {
        "loaded": loads[1] / elements,
        "sectors": (loads[2] + stores[2]) / max(1, loads[3] + stores[3]),
        "shared": shared_loads[1] / elements,
        "load_conflicts": extra(shared_loads),
        "store_conflicts": extra(shared_stores),
    }
    return {what: float(f"{number:.4g}") for what, number in numbers.items()}


def of_step(step, source=SOURCE, n=256, m=128, k=64):
    """The counts, per FLOP, of a step of kernels/README.md from a naive product to matmul.cu."""
    import cupy

    if step == "matmul.cu":
        on, rng = backend.get("cuda"), np.random.default_rng(0)
        a, b = (on.from_numpy(rng.standard_normal(shape, F32)) for shape in ((256, 64), (64, 256)))
        with counting() as found:
            on.matmul(a, b)
        return row(found["matmul"], 2 * 256 * 256 * 64)
    a, b, y = (cupy.array(np.ones(shape, F32)) for shape in ((n, k), (k, m), (n, m)))
    kernel = cupy.RawModule(code=source, options=("-std=c++17", "-default-device")).get_function(step)
    with counting() as found:
        kernel((blocks(step, n, m),), (256,), (y, a, b, np.int32(m), np.int32(k)))
    assert (y.get() == k).all()
    return row(found[step], 2 * n * m * k)


@pytest.mark.parametrize("step", TABLE)
def test_the_readmes_bytes(step):
    now = of_step(step)
    assert TABLE[step][:2] == pytest.approx((now["loaded"], now["shared"]), rel=0.02)


def test_what_the_readme_says_of_banks_and_sectors():
    wide, unpadded = of_step("wide"), of_step("wide", SOURCE.replace("[128 + 4]", "[128]"))
    assert wide["load_conflicts"] == wide["store_conflicts"] == 0 < unpadded["store_conflicts"]
    assert wide["sectors"] == 1 < of_step("blocked")["sectors"]


# ------------------------------------------------------------------------------------------- that the tests can fail

PLANTED = r"""
typedef TYPE V;
extern "C" __global__ void planted(V* y, const V* x, int stride, int step) {
  __shared__ V tile[32 * 33];
  const int i = threadIdx.x;
  tile[i * stride] = x[i * step];
  __syncwarp();
  y[i] = tile[i * stride];
}
"""


def planted(kind, dtype, stride, step):
    import cupy

    x, y = (cupy.zeros(2048, dtype) for _ in range(2))
    kernel = cupy.RawModule(code=PLANTED.replace("TYPE", kind)).get_function("planted")
    with counting() as found:
        kernel((1,), (32,), (y, x, np.int32(stride), np.int32(step)))
    return found["planted"]


@pytest.mark.parametrize("kind, dtype, stride, cycles, least", [
    ("float", "f4", 1, 1, 1),
    ("float", "f4", 0, 1, 1),  # all lanes read one word
    ("float", "f4", 2, 2, 1),
    ("float", "f4", 4, 4, 1),
    ("float", "f4", 32, 32, 1),
    ("float", "f4", 33, 1, 1),  # what a row longer by one is for
    ("float2", "f8", 1, 2, 2),  # halves of a warp
    ("float2", "f8", 2, 4, 2),
    ("float2", "f8", 16, 32, 2),
    ("float4", "c16", 1, 4, 4),  # quarters
    ("float4", "c16", 8, 32, 4),
    ("char", "i1", 1, 1, 1),  # four lanes in a word
])  # fmt: skip
def test_conflicts_are_counted(kind, dtype, stride, cycles, least):
    found = planted(kind, dtype, stride, 1)
    bytes_each = np.dtype(dtype).itemsize
    assert found["shared load"] == found["shared store"] == (1, 32 * bytes_each, cycles, least, cycles)


@pytest.mark.parametrize("step, sectors", [(1, 4), (2, 8), (8, 32), (0, 1)])
def test_sectors_are_counted(step, sectors):
    found = planted("float", "f4", 1, step)
    assert found["global load"][:3] == (1, 128, sectors) and found["global store"][2] == 4
