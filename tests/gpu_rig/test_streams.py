"""Captured streams and graphs: what works, and what is refused with CUDA's own codes."""

import numpy as np
import pytest

pytestmark = pytest.mark.rig
ADD = 'extern "C" __global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }'
RELAXED, GLOBAL = 2, 0  # cudaStreamCaptureMode


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


def test_another_stream_takes_part_by_events(cupy, add, stream):
    other = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x, y = on_device(cupy, 1), on_device(cupy, 0)
        stream.begin_capture()
        other.wait_event(stream.record())
        with other:
            add((1,), (64,), (y, x))
        stream.wait_event(other.record())
        graph = stream.end_capture()
        graph.launch(stream)
        assert (y.get() == 1).all()


def test_a_stream_that_is_not_joined(cupy, add, stream):
    other = cupy.cuda.Stream(non_blocking=True)
    x, y = on_device(cupy, 1), on_device(cupy, 0)
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        add((1,), (64,), (y, x))
    with refused(cupy, "StreamCaptureUnjoined"):
        stream.end_capture()


REFUSED = {
    "wait for it": (RELAXED, "StreamCaptureUnsupported", lambda cupy, s, x: s.synchronize()),
    "wait for the device": (RELAXED, "StreamCaptureUnsupported", lambda cupy, s, x: cupy.cuda.Device().synchronize()),
    "upload": (RELAXED, "StreamCaptureUnsupported", lambda cupy, s, x: upload(cupy, s, x)),
    "download": (RELAXED, "StreamCaptureUnsupported", lambda cupy, s, x: download(cupy, s, x)),
    "cudaMalloc": (GLOBAL, "StreamCaptureUnsupported", lambda cupy, s, x: cupy.cuda.runtime.malloc(64)),
    "an event from outside": (RELAXED, "StreamCaptureIsolation", lambda cupy, s, x: s.wait_event(x[1])),
}


def upload(cupy, stream, x):
    host = np.zeros(64, np.float32)  # not page-locked
    cupy.cuda.runtime.memcpyAsync(x[0].data.ptr, host.ctypes.data, 256, 1, stream.ptr)


def download(cupy, stream, x):
    host = np.zeros(64, np.float32)
    cupy.cuda.runtime.memcpyAsync(host.ctypes.data, x[0].data.ptr, 256, 2, stream.ptr)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_during_capture(cupy, stream, name):
    mode, code, act = REFUSED[name]
    x = on_device(cupy, 1)
    event = cupy.cuda.Stream(non_blocking=True).record()
    stream.begin_capture(mode)
    with refused(cupy, code):
        act(cupy, stream, (x, event))
    with refused(cupy, "StreamCaptureInvalidated"):
        stream.end_capture()


def test_asking_a_captured_stream_whether_it_is_done(cupy, stream):
    stream.begin_capture()
    assert not stream.done  # CuPy drops the error
    with refused(cupy, "StreamCaptureInvalidated"):
        stream.end_capture()


def test_the_legacy_stream_while_a_blocking_one_is_captured(cupy, add):
    blocking = cupy.cuda.Stream()
    x = on_device(cupy, 1)
    blocking.begin_capture()
    with refused(cupy, "StreamCaptureImplicit"):
        cupy.cuda.runtime.memcpy(x.data.ptr, x.data.ptr, 256, 3)
    with refused(cupy, "StreamCaptureInvalidated"):
        blocking.end_capture()


def test_captured_events_cannot_be_asked(cupy, stream):
    stream.begin_capture()
    event = stream.record()
    with refused(cupy, "CapturedEvent"):
        event.synchronize()
    stream.end_capture()


def test_an_upload_and_a_download_of_cupys_during_capture(cupy, stream):
    with stream:
        x = on_device(cupy, 1)
        stream.begin_capture()
        for act in (x.get, lambda: x.set(np.zeros(64, np.float32))):
            with pytest.raises(RuntimeError, match="captur"):
                act()
        stream.end_capture()
