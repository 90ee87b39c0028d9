"""The kernels that a captured step needs on a GPU besides its own. They run on all devices."""

import numpy as np
import pytest

from minigrad.backend.kernels import StructArray
from minigrad.backend.runners.checks import NONE_WRONG, WORD
from minigrad.replay.cuda_graph import PARAMETER_COPY

from ..devices import DEVICES, backend_of


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "index, n, ignored, found",
    [
        ([0, 4, 2], 5, None, NONE_WRONG),
        ([0, 5, 2, 7, 6], 5, None, (0, 7)),
        ([-1, 0, -9, 2], 5, None, (-9, -1)),
        ([-1, 3, 9], 5, -1, (0, 9)),
        ([-100, 3, 4], 5, -100, NONE_WRONG),
        ([-100, 3, -99], 5, -100, (-99, -1)),
        ([7, 0], 5, 7, NONE_WRONG),
        ([0], 0, None, (0, 0)),
        ([2**62, -(2**62)], 5, None, (-(2**62), 2**62)),
        ([], 5, None, NONE_WRONG),
        (list(range(3000)), 2999, None, (0, 2999)),
    ],
)
def test_check(device, index, n, ignored, found):
    on = backend_of(device)
    index = np.array(index, np.int64)
    y, x = on.from_numpy(np.full(index.shape, 77)), on.from_numpy(index)
    row, stop = on.from_numpy(np.array(NONE_WRONG)), on.from_numpy(np.array([0]))
    args = index.size, n, False, ignored is not None, ignored or 0, row, stop
    on.launch_each(index.size, "captured", "check", WORD, y, x, *args)
    right = ((index >= 0) & (index < n)) | (index == ignored)
    assert on.to_numpy(y).tolist() == np.where(right, index, 0).tolist()
    assert tuple(on.to_numpy(row)) == found and on.to_numpy(stop)[0] == (not right.all())


@pytest.mark.parametrize("device", DEVICES)
def test_indices_that_count_from_the_end(device):
    on = backend_of(device)
    y, x = on.from_numpy(np.full(6, 77)), on.from_numpy(np.array([-5, -1, 4, -6, 5, -99]))
    row, stop = on.from_numpy(np.array(NONE_WRONG)), on.from_numpy(np.array([0]))
    on.launch_each(6, "captured", "check", WORD, y, x, 6, 5, True, False, 0, row, stop)
    assert on.to_numpy(y).tolist() == [0, 4, 4, 0, 0, 0]
    assert on.to_numpy(row).tolist() == [-99, 5] and on.to_numpy(stop)[0] == 1


@pytest.mark.parametrize("device", DEVICES)
def test_copy_parameters(device):
    on = backend_of(device)
    threads = 1 if device == "native" else 32
    shapes = [((3, 2), np.float64), ((2,), np.uint64), ((50,), np.int64)]
    buffers = [on.from_numpy(np.zeros(shape, dtype)) for shape, dtype in shapes]
    slots = np.arange(4 * 58, dtype=np.uint64).reshape(4, 58)
    copies = [dict(to=buffer, start=start, size=buffer.size) for buffer, start in zip(buffers, (0, 6, 8))]
    slots_there, turn = on.from_numpy(slots), on.from_numpy(np.array([2]))
    args = StructArray(PARAMETER_COPY, copies), 3, slots_there, 58, 4, turn
    for call in range(2, 8):
        on.launch("captured", "copy_parameters", WORD, 1, threads, *args)
        got = np.concatenate([on.to_numpy(buffer).reshape(-1).view(np.uint64) for buffer in buffers])
        assert got.tolist() == slots[call % 4].tolist()
    assert on.to_numpy(turn).tolist() == [8]
