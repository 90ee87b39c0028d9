"""Launches on a GPU: what the driver is given, wrong arguments, threads, streams, and too little memory."""

import ctypes
import functools
import itertools
import re
import struct
import types

import numpy as np
import pytest

from minigrad.backend.runners import cuda

from .in_threads import in_threads

rng = np.random.default_rng(0)


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return cuda.Cuda()


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------------- arguments

STRUCT = bytes(range(24))
ARGUMENTS = {  # C type -> (what launch code gives, the bytes that the driver is to find)
    "float": (1, np.float32(1)), "double": (1, np.float64(1)), "half": (0.5, np.float16(0.5)),
    "bool": (1, np.True_), "int": (-1, np.int32(-1)), "unsigned": (3, np.uint32(3)),
    "long long": (-(1 << 40), np.int64(-(1 << 40))), "unsigned long long": ((1 << 64) - 1, np.uint64((1 << 64) - 1)),
    "*": (None, np.uint64(0)), "Layout": (STRUCT, np.frombuffer(STRUCT, "V24")),
}  # fmt: skip


class Array:
    """What a launch asks of an array."""

    def __init__(self, address, gpu=0):
        self.data = types.SimpleNamespace(ptr=address, device_id=gpu)


class Machine:
    """What a Kernel asks of a Cuda, without a GPU. It keeps the launches: (function, *six sizes, shared, stream), and
    the bytes at each address that the driver is given."""

    array_type, gpu = Array, 0
    room, ask = staticmethod(lambda function: (48 << 10) - 100), staticmethod(lambda function: 200 << 10)
    current_stream = staticmethod(lambda: types.SimpleNamespace(ptr=7))
    own = cuda.Cuda.own

    def __init__(self):
        self.driver, self.launches = types.SimpleNamespace(launch=self.launch), []

    def kernel(self, *kinds):
        self.sizes = [24 if kind == "Layout" else struct.calcsize(cuda.FORMATS[kind][0]) for kind in kinds]
        return cuda.Kernel(self, types.SimpleNamespace(ptr=5), "k", kinds, {"Layout": 24} if "Layout" in kinds else {})

    def launch(self, *numbers):
        *told, addresses, _ = numbers
        places = (ctypes.c_void_p * len(self.sizes)).from_address(addresses)
        self.launches.append((told, [ctypes.string_at(at, size) for at, size in zip(places, self.sizes)]))


def test_arguments_become_exactly_what_is_declared():
    on = Machine()
    on.kernel(*ARGUMENTS).launch((2, 3), (64,), 8, [given for given, _ in ARGUMENTS.values()])
    ((told, found),) = on.launches
    assert told == [5, 2, 3, 1, 64, 1, 1, 8, 7]
    assert found == [wanted.tobytes() for _, wanted in ARGUMENTS.values()]


@pytest.mark.parametrize(
    "kinds, args, message",
    [
        (["int"], [1 << 31], "format requires"),
        (["int"], [1.5], "required argument is not an integer"),
        (["unsigned"], [-1], "requires|out of range"),
        (["float"], [1e39], "too large"),
        (["*"], [np.zeros(1)], "an array of this device was expected, not ndarray"),
        (["*", "int"], [3, 3], "an array of this device was expected, not int"),
        (["long long", "int"], [1], "2 arguments were expected, not 1"),
        (["long long"], [1, 2], "1 arguments were expected, not 2"),
        (["int", "*"], [1], "2 arguments were expected, not 1"),
        (["Layout"], [3], "int"),
        (["Layout"], [STRUCT[:-8]], "a Layout has 24 bytes, not 16"),
    ],
)
def test_wrong_arguments_are_named(kinds, args, message):
    on = Machine()
    with pytest.raises(TypeError, match=rf"kernel k\({re.escape(', '.join(kinds))}\): .*({message})"):
        on.kernel(*kinds).launch((1,), (1,), 0, args)
    assert not on.launches


def test_what_was_refused_is_not_in_the_way():
    """The memory for arguments is used again, of whatever became of the launch before."""
    on = Machine()
    kernel, right = on.kernel("*", "int"), [struct.pack("Q", 64), struct.pack("i", 2)]
    kernel.launch((1,), (1,), 0, [Array(64), 2])
    with pytest.raises(TypeError, match="format requires"):
        kernel.launch((1,), (1,), 0, [Array(128), 1 << 40])
    with pytest.raises(RuntimeError, match="an array of GPU 1"):
        kernel.launch((1,), (1,), 0, [types.SimpleNamespace(data=Array(0, 1).data, size=1), 2])
    on.driver.launch = lambda *numbers: 1 / 0
    with pytest.raises(ZeroDivisionError):
        kernel.launch((1,), (1,), 0, [Array(128), 3])
    on.driver.launch = on.launch
    kernel.launch((1,), (1,), 0, [Array(64), 2])
    assert [found for _, found in on.launches] == [right, right]


def test_launches_within_launches_have_memory_of_their_own():
    """As those of several threads do: the driver is called without Python's lock."""
    on, depth = Machine(), itertools.count(1)
    kernel = on.kernel("long long")

    def launch(*numbers):
        if (n := next(depth)) < 4:
            kernel.launch((1,), (1,), 0, [n])
        on.launch(*numbers)

    on.driver.launch = launch
    kernel.launch((1,), (1,), 0, [0])
    assert [struct.unpack("q", found[0])[0] for _, found in on.launches] == [3, 2, 1, 0]


@pytest.mark.gpu
def test_the_driver_takes_such_numbers_and_no_others():
    import cupy

    memory, launch = cuda.Memory([8]), cupy.cuda.driver.launchKernel
    for shape, addresses, error in [
        ((1, 1, 1, 1, 2, 1), memory.addresses, cupy.cuda.driver.CUDADriverError),  # a kernel that is none
        ((1, 1, 1, 1, 2, 1), None, TypeError),
        ((-1, 1, 1, 1, 2, 1), memory.addresses, OverflowError),
    ]:
        with pytest.raises(error):
            launch(0, *shape, 0, 0, addresses, 0)


def test_much_shared_memory_is_asked_for():
    """48 KiB are to be had without asking, with what is static."""
    kernel = Machine().kernel("int")
    for shared, asked in ((0, False), ((48 << 10) - 100, False), ((48 << 10) - 99, True), (100 << 10, True)):
        kernel.launch((1,), (32,), shared, [1])
        assert (kernel.room == 200 << 10) == asked


# --------------------------------------------------------------------------------------- threads, streams and memory


def test_threads_launch_at_once(on):
    """Each its own numbers, on kernels that none has loaded before."""

    def work(i):
        x = on.full((33,), float(i), np.dtype(np.float32))
        for n in range(50):
            y = on.softmax(on.add(on.mul(x, 2.0), n), 0)
            x = on.add(x, on.sum(y, (0,), True))
        return on.to_numpy(x)

    for i, x in enumerate(in_threads(8, work)):
        np.testing.assert_allclose(x, i + 50, rtol=1e-5)


def test_a_thread_that_asks_cuda_for_nothing_launches(on):
    """The driver launches only in a thread that has a context, and so far this one's work was all in others."""
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
