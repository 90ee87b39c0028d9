"""Captured streams and graphs: calls that work, and calls that fail with CUDA's own codes."""

import numpy as np
import pytest

pytestmark = pytest.mark.rig
ADD = 'extern "C" __global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }'


@pytest.fixture(scope="module")
def cupy():
    import cupy

    return cupy


@pytest.fixture
def add(cupy):
    return cupy.RawModule(code=ADD, options=("-std=c++17",)).get_function("add")


@pytest.fixture
def stream(cupy):
    return cupy.cuda.Stream(non_blocking=True)


def refused(cupy, code):
    return pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=f"^cudaError{code}: ")


def on_device(cupy, value):
    x = cupy.array(np.full(64, value, np.float32))
    cupy.cuda.get_current_stream().synchronize()
    return x


def test_a_graph_does_what_was_captured_as_often_as_it_is_launched(cupy, add, stream):
    with stream:
        x, y = on_device(cupy, 1), on_device(cupy, 0)
        pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(pool.malloc):
            stream.begin_capture()
            z = cupy.empty(64, np.float32)  # from the private pool, which lives as long as the graph
            z.data.memset_async(0, z.nbytes)
            add((1,), (64,), (z, x))
            add((1,), (64,), (y, z))
            graph = stream.end_capture()
        assert (y.get() == 0).all()  # capturing does nothing
        for i in range(1, 4):
            graph.launch(stream)
            assert (y.get() == i).all()
        x.set(np.full(64, 10, np.float32))
        graph.launch(stream)
        assert (y.get() == 13).all()


REFUSED = {
    "wait for it": ("StreamCaptureUnsupported", lambda cupy, s, x: s.synchronize()),
    "wait for the device": ("StreamCaptureUnsupported", lambda cupy, s, x: cupy.cuda.Device().synchronize()),
    "upload": ("StreamCaptureUnsupported", lambda cupy, s, x: upload(cupy, s, x)),
    "download": ("StreamCaptureUnsupported", lambda cupy, s, x: download(cupy, s, x)),
    "an event from outside": ("StreamCaptureIsolation", lambda cupy, s, x: s.wait_event(x[1])),
    "an event": ("NotSupported", lambda cupy, s, x: s.record()),
}


def upload(cupy, stream, x):
    host = np.zeros(64, np.float32)  # not page-locked
    cupy.cuda.runtime.memcpyAsync(x[0].data.ptr, host.ctypes.data, 256, 1, stream.ptr)


def download(cupy, stream, x):
    host = np.zeros(64, np.float32)
    cupy.cuda.runtime.memcpyAsync(host.ctypes.data, x[0].data.ptr, 256, 2, stream.ptr)


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_a_capture_forbids_raise(cupy, stream, name):
    code, act = REFUSED[name]
    x = on_device(cupy, 1)
    event = cupy.cuda.Stream(non_blocking=True).record()
    stream.begin_capture()
    with refused(cupy, code):
        act(cupy, stream, (x, event))
    with refused(cupy, "StreamCaptureInvalidated"):
        stream.end_capture()


def test_an_upload_and_a_download_of_cupys_during_capture(cupy, stream):
    with stream:
        x = on_device(cupy, 1)
        stream.begin_capture()
        for act in (x.get, lambda: x.set(np.zeros(64, np.float32))):
            with pytest.raises(RuntimeError, match="captur"):
                act()
        stream.end_capture()


@pytest.mark.parametrize("blocks, mode", [(True, 2), (False, 0)])
def test_capture_modes_that_the_rig_lacks_raise(cupy, blocks, mode):
    with refused(cupy, "NotSupported"):
        cupy.cuda.Stream(non_blocking=not blocks).begin_capture(mode)
