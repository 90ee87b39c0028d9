"""Bugs that a GPU would answer with a wrong number, a crash or nothing at all: the rig names each, and the kernel."""

import subprocess
import sys
import threading
import uuid

import numpy as np
import pytest

pytestmark = pytest.mark.rig

SOURCE = r"""
extern "C" __global__ void twice(float* y, const float* x) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
extern "C" __global__ void from(float* y, const float* x, int at) { y[threadIdx.x] = x[at]; }
extern "C" __global__ void to(float* y, int at) { y[at] = 1; }
extern "C" __global__ void vectors(float* y, const float* x) {
  const float4 v = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void shared(float* y, int to, int from) {
  __shared__ float tile[64];
  extern __shared__ float more[];
  if (threadIdx.x < 32) tile[threadIdx.x + to] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x + from] + (from < 0 ? more[0] : 0);
}
extern "C" __global__ void some_wait(float* y, int most) {
  if (threadIdx.x < most) __syncthreads();
  y[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers(float* y) {
  if (threadIdx.x < 32) { __syncthreads(); y[0] = 1; } else { y[1] = 2; __syncthreads(); y[2] = 1; }
}
extern "C" __global__ void half_come(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, y[threadIdx.x], 1);
}
extern "C" __global__ void from_outside(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffu, y[threadIdx.x], 16);
}
extern "C" __global__ void not_in_mask(float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0xffffu, y[threadIdx.x], 1);
}
extern "C" __global__ void __launch_bounds__(64) bounded(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void nothing_static(float* y) {
  extern __shared__ float bytes[];
  bytes[threadIdx.x] = 1;
  y[threadIdx.x] = bytes[threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def cupy():
    import cupy

    return cupy


@pytest.fixture(scope="module")
def kernels(cupy):
    return cupy.RawModule(code=SOURCE, options=("-std=c++17",)).get_function


@pytest.fixture
def y(cupy):
    return cupy.zeros(256, np.float32)


def refused(cupy, code, text):
    """At a launch or at the wait after it, with CUDA's own code for this."""
    errors = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
    return pytest.raises(errors, match=f"(?s)^{code}: .*{text}")


def wait(cupy):
    cupy.cuda.get_current_stream().synchronize()


def test_right_kernels_pass(cupy, kernels, y):
    kernels("vectors")((1,), (16,), (y, y[16:]))
    kernels("shared")((1,), (32,), (y, np.int32(0), np.int32(0)))
    np.testing.assert_array_equal(y.get()[:32], 1)


# ------------------------------------------------------------------------------------------------------- waiting


def test_a_missing_wait(cupy, kernels, y):
    """What was copied to page-locked memory is there after a wait, and not before."""
    memory = cupy.cuda.alloc_pinned_memory(1024)
    host = np.frombuffer(memory, np.float32, 256)
    x = cupy.array(np.ones(256, np.float32))
    kernels("twice")((1,), (256,), (y, x))
    y.get(out=host, blocking=False)
    assert not (host == 2).any()
    wait(cupy)
    assert (host == 2).all()


def test_page_locked_memory_filled_again_before_the_copy_is_done(cupy):
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(1024), np.float32, 256)
    host[:] = 1
    x = cupy.empty(256, np.float32)
    x.set(host)
    host[:] = 2  # the bug
    assert (x.get() == 2).all()


@pytest.mark.parametrize("by_event", [False, True])
def test_a_stream_that_does_not_wait_for_another(cupy, kernels, by_event):
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        x = cupy.array(np.ones(256, np.float32))
        y = cupy.zeros(256, np.float32)
        first.synchronize()
        kernels("twice")((1,), (256,), (y, x))
        event = first.record()
    with second:
        if by_event:
            second.wait_event(event)
        z = cupy.zeros(256, np.float32)
        kernels("twice")((1,), (256,), (z, y))
        assert (z.get() == 4).all() == by_event
    first.synchronize()


# -------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("where", [-1, (1 << 31) - 1])  # 8 GB on, where nothing else is: 4 MB on, something may be
def test_reading_out_of_bounds(cupy, kernels, where):
    memory = cupy.cuda.Memory(1024)  # not from the pool: the rig knows where it ends
    x = cupy.ndarray(256, np.float32, cupy.cuda.MemoryPointer(memory, 0))
    kernels("from")((1,), (1,), (x, x, np.int32(where)))
    with refused(cupy, "cudaErrorIllegalAddress", r"kernel from, .*thread \(0, 0, 0\): global memory out of bounds: 4"):
        wait(cupy)


def test_writing_just_behind_the_end(cupy, kernels):
    x = cupy.ndarray(256, np.float32, cupy.cuda.MemoryPointer(cupy.cuda.Memory(1024), 0))
    kernels("to")((1,), (1,), (x, np.int32(256)))
    with refused(cupy, "cudaErrorIllegalAddress", "kernel to.*out of bounds.*behind the end"):
        wait(cupy)


def test_memory_of_the_host(cupy, kernels, y):
    host = np.zeros(16, np.float32)
    kernels("from")((1,), (1,), (y, np.uint64(host.ctypes.data), np.int32(0)))
    with refused(cupy, "cudaErrorIllegalAddress", "kernel from.*out of bounds"):
        wait(cupy)


def test_misaligned_vectors(cupy, kernels, y):
    kernels("vectors")((1,), (16,), (y, y[17:]))
    with refused(cupy, "cudaErrorMisalignedAddress", "kernel vectors.*misaligned access of 16 bytes"):
        wait(cupy)


@pytest.mark.parametrize("to, start, code, text", [
    (64, 0, "cudaErrorIllegalAddress", "shared memory out of bounds"),
    (-64, 0, "cudaErrorIllegalAddress", "shared memory out of bounds"),
    (0, 32, "cudaErrorLaunchFailure", "that nothing was written to"),
])  # fmt: skip
def test_shared_memory(cupy, kernels, y, to, start, code, text):
    kernels("shared")((1,), (32,), (y, np.int32(to), np.int32(start)))
    with refused(cupy, code, f"kernel shared.*{text}"):
        wait(cupy)


# ------------------------------------------------------------------------------------------- threads that should meet


@pytest.mark.parametrize("name, args, threads, text", [
    ("some_wait", (40,), 64, "deadlock: of 64 threads, 40 wait at a barrier, 24 have ended"),
    ("two_barriers", (), 64, "divergent barrier"),
    ("half_come", (), 32, "deadlock"),
    ("from_outside", (), 32, r"shuffle from lane \d+, which is outside the mask 0xffff"),
    ("not_in_mask", (), 32, "lane 16 is not in its own mask 0xffff"),
])  # fmt: skip
def test_threads_that_do_not_meet(cupy, kernels, y, name, args, threads, text):
    kernels(name)((1,), (threads,), (y, *map(np.int32, args)))
    with refused(cupy, "cudaErrorLaunch(Timeout|Failure)", f"kernel {name}.*{text}"):
        wait(cupy)


# ------------------------------------------------------------------------------------------------------ launches

KIB = 1 << 10


@pytest.mark.parametrize("grid, block, text", [
    ((1, 65536), (1,), "grid.y is 65536, of at most 65535"),
    ((1, 1, 65536), (1,), "grid.z is 65536, of at most 65535"),
    ((1,), (1025,), "block.x is 1025"),
    ((1,), (1, 1, 65), "block.z is 65"),
    ((1,), (32, 33), "number of threads is 1056"),
])  # fmt: skip
def test_a_launch_over_the_limit(cupy, kernels, y, grid, block, text):
    with refused(cupy, "cudaErrorInvalidValue", f"kernel nothing_static cannot be launched.*{text}"):
        kernels("nothing_static")(grid, block, (y,), shared_mem=4096)


def test_more_threads_than_the_launch_bounds(cupy, kernels, y):
    kernels("bounded")((1,), (64,), (y,))
    with refused(cupy, "cudaErrorInvalidValue", "kernel bounded.*__launch_bounds__.*65, of at most 64"):
        kernels("bounded")((1,), (65,), (y,))


def test_more_shared_memory_than_asked_for(cupy, kernels, y):
    """48 KiB is the limit of static and dynamic shared memory together, until more is asked for."""
    kernel, args = kernels("shared"), (y, np.int32(0), np.int32(0))
    kernel((1,), (32,), args, shared_mem=48 * KIB - 256)
    with refused(cupy, "cudaErrorInvalidValue", "kernel shared .*shared memory together is 49408, of at most 49152"):
        kernel((1,), (32,), args, shared_mem=48 * KIB)
    kernel.max_dynamic_shared_size_bytes = 100 * KIB
    kernel((1,), (32,), args, shared_mem=100 * KIB)
    with refused(cupy, "cudaErrorInvalidValue", "kernel shared"):
        kernel((1,), (32,), args, shared_mem=101 * KIB)
    with refused(cupy, "cudaErrorInvalidValue", "kernel shared: 232448 bytes of dynamic and 256 of static"):
        kernel.max_dynamic_shared_size_bytes = 227 * KIB
    wait(cupy)


def test_a_thread_without_a_context(cupy, kernels, y):
    """Functions of the runtime make a context; functions of the driver do not."""
    kernel, errors = kernels("bounded").kernel, []
    place = np.array([y.data.ptr], np.uint64)
    addresses = np.array([place.ctypes.data], np.uint64)

    def launch():
        try:
            cupy.cuda.driver.launchKernel(kernel.ptr, 1, 1, 1, 1, 1, 1, 0, 0, addresses.ctypes.data, 0)
        except cupy.cuda.driver.CUDADriverError as error:
            errors.append(str(error))

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    (error,) = errors
    assert error.startswith("cudaErrorDeviceUninitialized: kernel bounded: this thread has no context")
    launch()
    assert len(errors) == 1


# ------------------------------------------------------------------------------------------------- the rig itself

SAME = """
import cupy, numpy as np
y = cupy.zeros(32, np.float32)
code = 'extern "C" __global__ void k_%s(float* y) { y[threadIdx.x] = threadIdx.x; }'
cupy.RawModule(code=code).get_function("k_%s")((1,), (32,), (y,))
np.testing.assert_array_equal(y.get(), np.arange(32))
"""


def test_two_processes_translate_the_same_kernel_at_once():
    name = uuid.uuid4().hex  # that nobody has translated before
    both = [subprocess.Popen([sys.executable, "-c", SAME % (name, name)]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]


def test_a_kernel_that_is_not_known_is_refused(cupy, y, capfd):
    code = 'extern "C" __global__ void clocked(long long* y) { *y = clock64(); }'
    with refused(cupy, "cudaErrorInvalidPtx", "kernel clocked cannot be translated"):
        cupy.RawModule(code=code).get_function("clocked")((1,), (1,), (y,))
    assert "does not know this PTX: `mov.u64 %rd" in capfd.readouterr().err
