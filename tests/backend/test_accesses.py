"""What launches ask of memory, counted on the rig: bytes for each element of a problem, sectors of global memory, and
cycles that accesses to shared memory wait for its banks. No count may get worse than the budget.

The rig runs PTX. Where ptxas then joins neighbouring accesses to shared memory, there are fewer conflicts than this.

    .gpu-rig/run -m tests.backend.test_accesses    rewrites that part of sass_budget.json. Read what it prints.
"""

import contextlib
import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

from minigrad import backend

from . import counts
from .matmul_steps import SOURCE, TABLE, blocks

pytestmark = [pytest.mark.rig, pytest.mark.gpu]
F32 = np.float32
rng = np.random.default_rng


class Problem:
    """Arrays on the GPU, and the same numbers in every run."""

    def __init__(self):
        self.on, self.rng = backend.get("cuda"), rng(0)

    def __call__(self, *shape):
        return self.on.from_numpy(self.rng.standard_normal(shape, F32))

    def whole(self, most, *shape):
        return self.on.from_numpy(self.rng.integers(0, most, shape))


# Each problem is how many elements it has, and launches. For products, an element is a multiply-add.


def matmul(x):
    a, b = x(256, 64), x(64, 256)
    return 256 * 256 * 64, [lambda: x.on.matmul(a, b)]


def linear(x):
    a, weight, bias = x(256, 64), x(256, 64), x(256)
    return 256 * 256 * 64, [lambda: x.on.linear(a, weight, bias)]


def small_tiles(x):
    a, weight = x(64, 64), x(64, 64)
    return 64 * 64 * 64, [lambda: x.on.linear(a, weight, None)]


def weight_gradient(x):
    a, dy = x(512, 64), x(512, 64)
    return 64 * 64 * 512, [lambda: x.on.matmul(dy.T, a)]


def heads(x, n):
    """n arrays (B, nh, T, D) as a layer of attention has them."""
    return [x(1, 64, 2, 64).transpose(0, 2, 1, 3) for _ in range(n)]


def attention(x):
    q, k, v = heads(x, 3)
    return 2 * 64 * 64 * 64, [lambda: x.on.attention(q, k, v, None, None, 0.125, False)]


def attention_backward(x):
    q, k, v, do = heads(x, 4)
    o, lse = x.on.attention(q, k, v, None, None, 0.125, False)
    return 2 * 64 * 64 * 64, [lambda: x.on.attention_backward(do, q, k, v, None, None, o, lse, 0.125, False)]


def elementwise(x):
    a, b, row = x(64, 256), x(64, 256), x(256)
    return 64 * 256, [lambda: x.on.add(a, b), lambda: x.on.exp(a), lambda: x.on.mul(a, row)]


def softmax(x):
    a, dy = x(16, 1000), x(16, 1000)
    y = x.on.softmax(a, 1)
    return 16 * 1000, [lambda: x.on.softmax(a, 1), lambda: x.on.softmax_backward(dy, y, 1)]


def cross_entropy(x):
    logits, target, dloss = x(16, 1000), x.whole(1000, 16), x(16)
    _, p = x.on.cross_entropy(logits, target, -100, 0.0)
    return 16 * 1000, [
        lambda: x.on.cross_entropy(logits, target, -100, 0.0),
        lambda: x.on.cross_entropy_backward(dloss, p, target, -100, 0.0),
    ]


def take_add(x):
    dy, index = x(256, 128), x.whole(100, 256)
    return 256 * 128, [lambda: x.on.take_add(100, index, dy)]


def layer_norm(x):
    a, weight, dy = x(64, 384), x(384), x(64, 384)
    _, mean, rstd = x.on.layer_norm(a, weight, weight, 1e-5)
    return 64 * 384, [
        lambda: x.on.layer_norm(a, weight, weight, 1e-5),
        lambda: x.on.layer_norm_backward(dy, a, weight, mean, rstd, (True, True, True)),
    ]


def reduce(x):
    a = x(256, 256)
    return 256 * 256, [
        lambda: x.on.sum(a, (1,), False),
        lambda: x.on.sum(a, (0,), False),
        lambda: x.on.max(a, (1,), False),
    ]


PROBLEMS = [
    matmul,
    linear,
    small_tiles,
    weight_gradient,
    attention,
    attention_backward,
    elementwise,
    softmax,
    cross_entropy,
]
PROBLEMS = {each.__name__: each for each in [*PROBLEMS, take_add, layer_norm, reduce]}


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
    """The counts of ACCESSES for one kernel."""
    loads, stores, shared_loads, shared_stores = (
        found[kind] for kind in ("global load", "global store", "shared load", "shared store")
    )

    def extra(count):
        accesses, _, cost, least, _ = count
        return (cost - least) / max(1, accesses)

    numbers = {
        "loaded": loads[1] / elements,
        "stored": stores[1] / elements,
        "sectors": (loads[2] + stores[2]) / max(1, loads[3] + stores[3]),
        "shared": shared_loads[1] / elements,
        "load_conflicts": extra(shared_loads),
        "store_conflicts": extra(shared_stores),
    }
    return {what: float(f"{number:.4g}") for what, number in numbers.items()}


def of_problem(name):
    """{entry point: its counts}"""
    elements, launches = PROBLEMS[name](Problem())
    with counting() as found:
        for launch in launches:
            launch()
    return {kernel: row(each, elements) for kernel, each in sorted(found.items())}


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_count_is_worse(name):
    allowed = counts.budget()["launches"].get(name, {})
    over = []
    for entry, now in of_problem(name).items():
        was = allowed.get(entry)
        over += [f"{entry}: {each}" for each in (counts.worse_accesses(was, now) if was else ["is new"])]
    assert not over, "\n".join([*over, "if that is meant: .gpu-rig/run -m tests.backend.test_accesses"])


def test_the_budget_is_of_these_problems():
    assert set(counts.budget()["launches"]) == set(PROBLEMS)


def of_step(step, source=SOURCE, n=256, m=128, k=64):
    """The counts, per FLOP, of a step of kernels/README.md from a naive product to matmul.cu."""
    import cupy

    if step == "matmul.cu":
        was = counts.budget()["launches"]["matmul"]["matmul"]
        return {what: was[what] / (2 if what in ("loaded", "shared") else 1) for what in was}
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


def test_what_is_worse_is_seen():
    was, worse = (row(planted("float", "f4", stride, step), 32) for stride, step in ((33, 1), (32, 4)))
    assert counts.worse_accesses(was, worse) == [
        "2.5 times as many sectors of global memory as needed, of 1",
        "31 extra cycles for a load from shared memory, of 0",
        "31 extra cycles for a store to shared memory, of 0",
    ]
    assert not counts.worse_accesses(worse, was)


def update():
    counts.write("launches", {name: of_problem(name) for name in PROBLEMS}, counts.budget()["nvrtc"])


if __name__ == "__main__":
    update()
