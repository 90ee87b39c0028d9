"""Races: accesses of one element that nothing orders. The rig finds those that are planted, and none in kernels/."""

import contextlib
import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.launch import source
from minigrad.backend.runners.gpu import Cuda

from ..kernels.on_gpu import OnGpu

pytestmark = [pytest.mark.rig, pytest.mark.gpu]


@contextlib.contextmanager
def looking():
    """Meanwhile, a kernel with a race fails."""
    import cupy

    library = ctypes.CDLL(str(Path(os.environ["GPU_RIG"], "libgpurig.so")))
    cupy.cuda.Device().synchronize()
    library.gpu_rig_races(ctypes.c_bool(True))
    try:
        yield
        cupy.cuda.Device().synchronize()
    finally:
        library.gpu_rig_races(ctypes.c_bool(False))


PLANTED = r"""
__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }
extern "C" __global__ void good(float* y, const float* x) {
  __shared__ float turned[64];
  turned[threadIdx.x ^ 31] = x[place()];
  __syncwarp();
  const float mine = turned[threadIdx.x];
  __syncthreads();
  turned[63 - threadIdx.x] = mine;
  __syncthreads();
  y[place()] = turned[threadIdx.x];
}
extern "C" __global__ void missing_barrier(float* y, const float* x) {
  __shared__ float turned[64];
  turned[63 - threadIdx.x] = x[place()];
  if (threadIdx.x < 32) __syncwarp();  // which the other warp does not know of
  y[place()] = turned[threadIdx.x];
}
extern "C" __global__ void missing_syncwarp(float* y, const float* x) {
  __shared__ float turned[64];
  turned[threadIdx.x ^ 31] = x[place()];
  y[place()] = turned[threadIdx.x] + __shfl_sync(0xffffffffu, x[place()], 3);
}
extern "C" __global__ void overwritten_too_early(float* y, const float* x) {  // no barrier at the end of the loop
  __shared__ float turned[64];
  float sum = 0;
  for (int turn = 0; turn < 2; turn++) {
    turned[63 - threadIdx.x] = x[place()] + turn;
    __syncthreads();
    sum += turned[threadIdx.x];
  }
  y[place()] = sum;
}
extern "C" __global__ void all_blocks_write(float* y, const float* x) { y[threadIdx.x] = x[place()]; }
extern "C" __global__ void reads_anothers(float* y, const float* x) { y[place()] = x[0] + y[(place() + 64) % 128]; }
extern "C" __global__ void atomic_and_plain(float* y, const float* x) {
  if (place() == 5) y[0] = 1; else atomicAdd(y, x[0]);
}
extern "C" __global__ void all_atomic(float* y, const float* x) { atomicAdd(y, x[0]); }
"""


def run(entry):
    import cupy

    module = cupy.RawModule(code=PLANTED, options=("-std=c++17",))
    x, y = cupy.ones(128, np.float32), cupy.zeros(128, np.float32)
    with looking():
        module.get_function(entry)((2,), (64,), (y, x))
    return y.get()


@pytest.mark.parametrize("entry, what", [
    ("missing_barrier", "read of shared memory that nothing was written to"),  # yet
    ("missing_syncwarp", "read of shared memory that nothing was written to"),
    ("overwritten_too_early", "race: (read after write|write after read) of shared memory"),
    ("all_blocks_write", "race: write after write of global memory"),
    ("reads_anothers", "race: (read after write|write after read) of global memory"),
    ("atomic_and_plain", "race: (write after atomic write|atomic write after write)"),
])  # fmt: skip
def test_a_race_is_found(entry, what):
    with pytest.raises(Exception, match=f"kernel {entry}.*{what}"):
        run(entry)


def test_ordered_accesses_are_no_race():
    assert (run("good") == 1).all() and run("all_atomic")[0] == 128


def numbers(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def heads(*shape, dtype="float32"):
    return [numbers(*shape, dtype=dtype, seed=seed) for seed in range(3)]


def attention(on, T=70, D=24, dtype="float32", is_causal=True, keep=None):
    q, k, v = heads(1, 2, T, D, dtype=dtype)
    o, lse = on.attention(q, k, v, None, None, 0.2, is_causal, keep, 1.25)
    on.attention_backward(numbers(1, 2, T, D, dtype=dtype), q, k, v, None, None, o, lse, 0.2, is_causal, keep, 1.25)


def adam(on):
    p, g, m, v = (abs(numbers(5000, seed=seed)) for seed in range(4))
    on.adam_([(p, g, m, v, 0)], lambda: [(0.1, 0.0, 1)], 0.9, 0.99, 1e-8, True)
    on.clip_([p, g], on.global_norm([p, g]), 0.5)


def muon(on):
    slots = [(numbers(36, 20), numbers(36, 20, seed=1), numbers(36, 20, seed=2), 0, 36, 0.2)]
    on.muon_(slots, lambda: [(0.1, 0.0, 0.9)], True, ((3.4, -4.8, 2.0),) * 2, 1e-7)


def norms(on, n):
    x, w = numbers(9, n), numbers(n)
    y, mean, rstd = on.layer_norm(x, w, w, 1e-5)
    on.layer_norm_backward(y, x, w, mean, rstd, (True, True, True))


def cross_entropy(on, n):
    target = np.arange(9) % n
    loss, p = on.cross_entropy(numbers(9, n), target, -1, 0.1)
    on.cross_entropy_backward(loss, p, target, -1, 0.1)


def softmax(on, n):
    y = on.softmax(numbers(7, n), 1)
    on.softmax_backward(y, y, 1)


KERNELS = {
    "short rows": lambda on: softmax(on, 200),
    "long rows": lambda on: softmax(on, 1100),
    "norm of short rows": lambda on: norms(on, 200),
    "norm of long rows": lambda on: norms(on, 1100),
    "cross entropy": lambda on: (cross_entropy(on, 65), cross_entropy(on, 1100)),
    "transpose": lambda on: on.copy(numbers(70, 90).T),
    "sums": lambda on: [on.sum(numbers(40, 50, 30), dims, False) for dims in ((0,), (1,), (2,), (0, 1, 2))],
    "largest": lambda on: (on.argmax(numbers(5, 2000), 1, False), on.max(numbers(5, 2000), (1,), False)),
    "orders": lambda on: on.argsort(numbers(3, 2500), 1, False),
    "running sums": lambda on: (on.cumsum(numbers(3, 5000), 1, False), on.cumsum(numbers(60, 40), 0, True)),
    "sums at indices": lambda on: on.take_add(9, np.arange(900) % 9, numbers(900, 3)),
    "scattered sums": lambda on: on.scatter_add((9, 7), 0, np.arange(140).reshape(20, 7) % 9, numbers(20, 7)),
    "matmul": lambda on: on.matmul(numbers(132, 100), numbers(100, 36)),
    "long sums": lambda on: on.matmul(numbers(40, 4000), numbers(4000, 20)),
    "matmul of float16": lambda on: on.matmul(numbers(140, 72, dtype="float16"), numbers(72, 40, dtype="float16")),
    "attention": attention,
    "attention of float16": lambda on: attention(on, dtype="float16"),
    "attention with dropout": lambda on: attention(on, keep=np.arange(9800).reshape(1, 2, 70, 70) % 5 > 0),
    "adam": adam,
    "muon": muon,
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_have_none(name):
    with looking():
        KERNELS[name](OnGpu(backend.get("cuda")))


BARRIER = "__syncthreads();"


@pytest.mark.parametrize("name, file, old, new, count", [
    ("long rows", "softmax", BARRIER, "", 2),
    ("long rows", "softmax", "if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32]", "warps[threadIdx.x / 32]", 1),
    ("short rows", "softmax", "softmax_row(y + at", "softmax_row(y", 1),
    ("transpose", "movement", "__syncthreads();\n  tile_each", "tile_each", 1),
    ("matmul", "matmul", BARRIER, "", 0),
    ("matmul of float16", "matmul_tensor", BARRIER, "", 0),
    ("attention", "attention_forward", BARRIER, "", 0),
    ("sums at indices", "index_add", BARRIER, "", 0),
])  # fmt: skip
def test_a_race_in_a_kernel_is_found(monkeypatch, name, file, old, new, count):
    """`new` in place of the `count`-th `old` of a file, or of all."""
    right = source.source

    def edited(of, *rest, **how):
        text = right(of, *rest, **how)
        if of.split()[0] != file:
            return text
        parts = text.split(old)
        assert len(parts) > count, f"{old!r} is no longer in {file}: plant another bug"
        return old.join(parts[:count]) + new + old.join(parts[count:]) if count else new.join(parts)

    monkeypatch.setattr("minigrad.backend.runners.nvrtc.source", edited)
    with pytest.raises(Exception, match=r"race|nothing was written"), looking():
        KERNELS[name](OnGpu(Cuda()))
