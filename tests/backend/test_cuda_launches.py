"""Launches on a GPU: the arguments that CuPy gets, wrong arguments, threads, streams, and too little memory."""

import functools
import itertools
import re
import types

import numpy as np
import pytest

from minigrad.backend.runners import gpu

from .in_threads import in_threads

rng = np.random.default_rng(0)


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return gpu.Cuda()


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------------- arguments

STRUCT = bytes(range(24))
LAYOUT = "struct Layout {\n  long long a, b, c;\n};\n"
ARGUMENTS = {  # C type -> (what launch code gives, what CuPy is to get)
    "float": (1, np.float32(1)), "double": (1, np.float64(1)), "half": (0.5, np.float16(0.5)),
    "bool": (1, np.True_), "int": (-1, np.int32(-1)), "unsigned": (3, np.uint32(3)),
    "long long": (-(1 << 40), np.int64(-(1 << 40))), "unsigned long long": ((1 << 64) - 1, np.uint64((1 << 64) - 1)),
    "*": (None, None), "Layout": (STRUCT, np.frombuffer(STRUCT, "V24")),
}  # fmt: skip


class Array:
    """An array, as far as a launch needs one."""

    def __init__(self, gpu=0):
        self.data, self.size = types.SimpleNamespace(device_id=gpu), 1


class Raw:
    """A RawKernel of CuPy's, as far as a Kernel needs one. It keeps its launches."""

    shared_size_bytes, max_dynamic_shared_size_bytes = 100, None

    def __init__(self):
        self.launches = []

    def __call__(self, grid, block, args, *, shared_mem):
        self.launches.append((grid, block, args, shared_mem))


def kernel(*kinds):
    """A Kernel with these parameters, on a stand-in for a Cuda."""
    on = types.SimpleNamespace(array_type=Array, gpu=0, shared_limit=227 << 10)
    on.require_this_gpu = functools.partial(gpu.Cuda.require_this_gpu, on)
    parameters = ", ".join(f"{'float*' if kind == '*' else kind} p{i}" for i, kind in enumerate(kinds))
    raw, text = Raw(), f'{LAYOUT}extern "C" __global__ void k({parameters}) {{\n}}\n'
    return gpu.Kernel(on, lambda: {"k": raw}, "k", text)


def test_arguments_become_exactly_what_is_declared():
    x = Array()
    k = kernel(*ARGUMENTS, "*")
    k((2, 3), (64,), 8, [*(given for given, _ in ARGUMENTS.values()), x])
    (((grid, block, (*found, there), shared)),) = k.raw.launches
    assert (grid, block, shared) == ((2, 3), (64,), 8) and there is x
    for value, (_, wanted) in zip(found, ARGUMENTS.values()):
        if wanted is None:
            assert value is None
        else:
            assert value.dtype == wanted.dtype and value.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "kinds, args, message",
    [
        (["int"], [1 << 31], "out of bounds"),
        (["unsigned"], [-1], "out of bounds"),
        (["float"], ["one"], "could not convert"),
        (["*", "int"], [3, 3], "needs an array of the GPU, got int"),
        (["long long", "int"], [1], "shorter"),
        (["long long"], [1, 2], "longer"),
        (["Layout"], [3], "int"),
    ],
)
def test_wrong_arguments_are_named(kinds, args, message):
    k = kernel(*kinds)
    with pytest.raises(TypeError, match=rf"kernel k\({re.escape(', '.join(kinds))}\): .*({message})"):
        k((1,), (1,), 0, args)
    assert not k.raw.launches


def test_an_array_of_another_gpu_is_refused():
    k = kernel("*", "int")
    with pytest.raises(RuntimeError, match="an array of GPU 1"):
        k((1,), (1,), 0, [Array(1), 2])
    assert not k.raw.launches


def test_much_shared_memory_is_asked_for():
    """48 KiB of shared memory, static and dynamic, can be used without asking the driver."""
    k, most = kernel("int"), (227 << 10) - 100
    for shared, asked in ((0, None), ((48 << 10) - 100, None), ((48 << 10) - 99, most), (100 << 10, most)):
        k((1,), (32,), shared, [1])
        assert k.raw.max_dynamic_shared_size_bytes == asked


# --------------------------------------------------------------------------------------- threads, streams and memory


def test_threads_launch_at_once(on):
    """Each thread computes its own numbers, by kernels that none has loaded before."""

    def work(i):
        x = on.full((33,), float(i), np.dtype(np.float32))
        for n in range(50):
            y = on.softmax(on.add(on.mul(x, 2.0), n), 0)
            x = on.add(x, on.sum(y, (0,), True))
        return on.to_numpy(x)

    for i, x in enumerate(in_threads(8, work)):
        np.testing.assert_allclose(x, i + 50, rtol=1e-5)


def test_a_thread_that_asks_cuda_for_nothing_launches(on):
    """CUDA launches only in a thread that has a context; so far, only other threads have worked."""
    x = on.from_numpy(normal(8))
    y = on.add(x, 0.0)  # loads the kernel, for which CuPy asks CUDA for something
    in_threads(1, lambda i: on.add(x, x, out=y))
    np.testing.assert_array_equal(on.to_numpy(y), 2 * on.to_numpy(x))


def test_launches_go_to_the_current_stream(on):
    """Nothing waits for another stream, and arrays may be dropped while work on them is queued."""
    import cupy

    x, wanted = on.from_numpy(normal(64)), []
    on.synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    results = []
    for n, stream in itertools.product(range(3), streams):
        with stream:
            y = functools.reduce(lambda y, _: on.add(y, n), range(20), x)  # all but the last are dropped at once
            results.append((stream, y))
            wanted.append(on.to_numpy(x) + 20 * n)
    for (stream, y), right in zip(results, wanted):
        with stream:
            np.testing.assert_allclose(on.to_numpy(y), right, rtol=1e-4, atol=1e-4)


def test_without_memory_it_is_said_and_goes_on(on):
    import cupy

    x = on.from_numpy(normal(8))
    limited = cupy.cuda.MemoryPool()
    limited.set_limit(size=1 << 20)
    with cupy.cuda.using_allocator(limited.malloc):
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            on.empty((1 << 20,), np.dtype(np.float32))
        np.testing.assert_array_equal(on.to_numpy(on.add(x, x)), 2 * on.to_numpy(x))
