"""The emulator against planted bugs: in small kernels, and by an edit in those of kernels/. It must find each, and have
nothing to say of a right kernel."""

import re
from pathlib import Path

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch.source import source
from tests.emulated import Emulated, EmulationError

pytestmark = pytest.mark.needs("g++")

F32 = np.dtype("float32")
PLANTED = (Path(__file__).parent / "planted_bugs.cu").read_text(encoding="utf-8")
PLANTED = PLANTED.replace('extern "C"', '// args  y, x? (…)\nextern "C"')
SCHEDULES = range(6)
X = np.random.default_rng(0).standard_normal(128).astype(F32)


def run(entry, schedule=0, check=False, x=X, grid=2, block=64, shared=256):
    emulated = Emulated(schedule, check, lambda file, dtype: PLANTED)
    y = emulated.empty(128, F32)
    x = None if x is None else apart(emulated, x)
    emulated.launch("planted_bugs", entry, F32, grid, block, y, x, shared=shared)
    return y


def apart(emulated, x):
    """A copy of x with nothing else near it in memory."""
    y = emulated.empty(x.shape, x.dtype)
    y[...] = x
    return y


def findings(entry, **how):
    with pytest.raises(EmulationError, match=f"kernel {entry}: ") as raised:
        run(entry, **how)
    return "\n".join(raised.value.findings)


def line_of(entry, code):
    """'planted_bugs.cu:n' of the first line after an entry point that contains some code."""
    lines = PLANTED.splitlines()
    start = next(i for i, line in enumerate(lines) if f" {entry}(" in line)
    return f"planted_bugs.cu:{next(i for i in range(start, len(lines)) if code in lines[i]) + 1}"


# ------------------------------------------------------------------------------------------------------ right kernels


def good(x):
    lanes = x.reshape(2, 2, 32)
    segments = x.reshape(2, 2, 2, 16)
    down = np.concatenate([segments[..., 1:], segments[..., -1:]], -1).reshape(2, 2, 32)
    y = x.reshape(2, 64)[:, ::-1].reshape(2, 2, 32) + lanes[..., 3:4] + 1 + np.roll(lanes, 16, -1) + down + 2 * 32 * 8
    return (y + np.array([2000, 1000])[:, None]).reshape(-1)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_right_kernel_is_right_in_every_schedule(schedule, check):
    np.testing.assert_allclose(run("good", schedule, check), good(X), rtol=1e-6)
    np.testing.assert_array_equal(run("hand_over", schedule, check), X.reshape(-1, 32)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_is_the_references(dtype, check):
    x = np.random.default_rng(1).standard_normal((7, 300)).astype(dtype)
    x[2, 5:], x[3] = -np.inf, -np.inf
    for schedule in SCHEDULES:
        emulated = Emulated(schedule, check)
        for rows in (x, x[:, :33], x[:, :1], x.T[:, :3], x[:0], x[::-2]):
            expected = reference.softmax(rows, 1)
            np.testing.assert_allclose(emulated.softmax(rows, 1), expected, rtol=1e-5, atol=1e-30)


def test_memory_is_poisoned():
    for check in (False, True):
        emulated = Emulated(check=check)
        assert np.isnan(emulated.empty((3, 5), F32)).all()
        assert emulated.empty((0, 5), F32).shape == (0, 5)
        assert emulated.empty((), np.dtype("int64")) == -1


# ------------------------------------------------------------------------------------------------------------ planted


@pytest.mark.parametrize(
    "entry, kind, array, code",
    [
        ("missing_barrier", "race: ", "turned, byte", "turned[threadIdx"),
        ("missing_syncwarp", "race: ", "turned, byte", "turned[threadIdx"),
        ("overwritten_too_early", "race: write after read", "turned, byte", "turned[63 -"),
        ("reads_past_the_end", "read out of bounds", "x, element 128", "x[place() + 1]"),
        ("writes_past_the_end", "write out of bounds", "y, element 128", "y[place() + 1]"),
        ("writes_before_the_start", "write out of bounds", "y, element -1", "y[place() - 1]"),
        ("past_dynamic_shared", "write out of bounds", "dynamic shared memory, byte 256", "row[threadIdx"),
        ("past_static_shared", "write out of bounds", "row, byte ", "row[threadIdx"),
        ("unwritten_shared", "unwritten", "row, byte 20", "= row["),
        ("unwritten_dynamic", "unwritten", "dynamic shared memory", "row[threadIdx"),
        ("all_blocks_write", "race: write after write", "y, element", "y["),
        ("all_blocks_add", "race: ", "y, element", "y["),
        ("one_block_reads_anothers", "race: ", "y, element", ""),
        ("atomic_and_plain", "race: ", "y, element 0", ""),
    ],
)
def test_the_checker_finds(entry, kind, array, code):
    for schedule in SCHEDULES:
        found = findings(entry, schedule=schedule, check=True)
        assert kind in found, found
        assert array in found, found
        assert line_of(entry, code) in found if code else "planted_bugs.cu:" in found, found


@pytest.mark.parametrize(
    "entry, array", [("writes_past_the_end", "y, element 128"), ("writes_before_the_start", "y, element -1")]
)
def test_a_write_out_of_bounds_is_told_without_the_checker_too(entry, array):
    """At once, and by name: what is beside y would otherwise break in some later test, or the heap."""
    for schedule in SCHEDULES:
        assert findings(entry, schedule=schedule) == f"write out of bounds: {array}"


def test_what_lies_beside_an_array_is_not_written_to():
    emulated = Emulated(text_of=lambda file, dtype: PLANTED)
    memory = np.zeros((3, 128), F32)
    for entry in ("writes_past_the_end", "writes_before_the_start"):
        with pytest.raises(EmulationError, match="write out of bounds: y"):
            emulated.launch("planted_bugs", entry, F32, 2, 64, memory[1], X, shared=256)
        assert not memory.any()
    emulated.launch("planted_bugs", "good", F32, 2, 64, memory[1], X, shared=256)
    np.testing.assert_allclose(memory[1], good(X), rtol=1e-6)
    assert not memory[[0, 2]].any()


def test_arrays_change_in_place_and_whatever_their_strides():
    """A launch has copies of its arrays: what is written is given back, and to nothing that lies between."""
    emulated, x = Emulated(), np.arange(24, dtype=F32).reshape(4, 6)
    memory = x.copy()
    view = memory[::2, ::-2]
    emulated.add(view, 1.0, out=view)
    expected = x.copy()
    expected[::2, ::-2] += 1
    np.testing.assert_array_equal(memory, expected)
    emulated.add(memory[:, :3], memory[:, 3:], out=memory[:, :3])
    expected[:, :3] += expected[:, 3:]
    np.testing.assert_array_equal(memory, expected)
    rows = np.broadcast_to(memory[0], (3, 6))  # read-only
    np.testing.assert_array_equal(emulated.mul(rows, 2.0), rows * 2)
    emulated.setitem(memory, (np.array([1, 3]),), memory[0])
    expected[[1, 3]] = expected[0]
    np.testing.assert_array_equal(memory, expected)
    memory *= 2
    emulated.clip_([memory], np.array(2 - 1e-6), 1.0)  # by its address, in a table
    np.testing.assert_array_equal(memory, expected)
    memory *= 2
    emulated.sgd_([(memory, memory.copy(), None, 0)], lambda: [(0.5, 0.0)], 0.0, False)
    np.testing.assert_array_equal(memory, expected)
    assert emulated.copy(np.empty((0, 3), F32)).shape == (0, 3)


def test_the_checker_finds_a_null_pointer():
    assert "read out of bounds: address (nil)" in findings("reads_a_null_pointer", x=None, check=True)


@pytest.mark.parametrize(
    "entry, expected",
    [
        ("missing_barrier", X.reshape(2, 64)[:, ::-1]),
        ("missing_syncwarp", X.reshape(4, 32)[:, ::-1]),
        ("overwritten_too_early", 2 * X.reshape(2, 64)[:, ::-1] + 1),
    ],
)
def test_a_missing_barrier_shows_in_the_results_of_some_schedule(entry, expected):
    right = [np.allclose(run(entry, schedule), expected.reshape(-1), rtol=1e-5) for schedule in SCHEDULES]
    assert not all(right)


def test_wrong_results_show():
    assert np.isnan(run("unwritten_output")[77])
    for schedule in SCHEDULES:  # a block finds nothing of another's in its static shared memory
        y = run("filled_by_the_first_block_only", schedule)
        assert (y[:64] == X[:64]).all() and np.isnan(y[64:]).all()
    assert not np.allclose(run("wrong_shuffle"), np.repeat(X.reshape(-1, 32).sum(1), 32))


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "entry, message",
    [
        ("barrier_for_some", r"deadlock, in block \(., 0, 0\) of schedule .: threads 0 to 15 at (place); .*returned"),
        ("two_barriers", "threads of a block meet at different barriers"),
        ("missing_lane", r"deadlock.*threads 0 to 30 at (place), mask 0xffffffff; thread 31 returned;"),
        ("unnamed_lane", "a lane is in a collective whose mask does not name it"),
        ("mixed_collectives", "lanes of a warp meet in different collectives"),
    ],
)
def test_threads_that_miss_each_other(entry, message, check):
    for schedule in SCHEDULES:
        found = findings(entry, schedule=schedule, check=check)
        assert re.search(message.replace("place", r"planted_bugs\.cu:\d+"), found), found
    run("good")  # the launch that was given up leaves nothing behind


def test_launches_that_a_gpu_refuses():
    for block in (0, 33, 1056, (1, 1, 96), (64, 32)):
        assert "a block has 1 thread or a multiple of 32, at most 1024" in findings("good", block=block)
    assert "the grid is too large" in findings("good", grid=(1, 1 << 16))
    assert "shared memory" in findings("good", shared=(227 << 10) + 1)
    assert "shared memory" in findings("past_static_shared", shared=227 << 10)  # which has some of its own


def test_more_than_48_kib_of_shared_memory_must_be_asked_for():
    """Static and dynamic together: planted_bugs.cu has some of the first kind."""
    whole = 48 << 10
    static = Emulated(text_of=lambda file, dtype: PLANTED).static_shared("planted_bugs", "good", F32)
    assert 0 < static < whole
    for shared, asked, refused in (
        (whole - static, 0, False), (whole - static + 1, 0, True), (whole, whole - 1, True), (whole, whole, False),
    ):  # fmt: skip
        emulated = Emulated(text_of=lambda file, dtype: PLANTED, asked=asked)
        y = emulated.empty(128, F32)
        try:
            emulated.launch("planted_bugs", "good", F32, 2, 64, y, X, shared=shared)
        except EmulationError as error:
            assert (
                refused
                and f"for which the kernel has not asked: grid (2, 1, 1), block (64, 1, 1), {shared} + {static} bytes"
                in str(error)
            )
        else:
            assert not refused


def test_wrong_arguments():
    emulated = Emulated()
    y = emulated.empty((2, 40), F32)
    for args in [(y, X, 2), (y, X, 2, 40, 40), (y, X, 2, "40"), (y, X, 2, 1.5)]:
        with pytest.raises(TypeError, match="kernel softmax"):
            emulated.launch("softmax", "softmax", F32, 2, 64, *args)


# ---------------------------------------------------------------------------------------- bugs planted in real kernels


def edited(old, new, count=1):
    """The source of a file with one passage changed (its `count`-th occurrence)."""

    def text_of(file, dtype):
        parts = source(file, dtype).split(old)
        assert len(parts) > count, f"{old!r} is no longer in {file}: plant another bug"
        return old.join(parts[:count]) + new + old.join(parts[count:])

    return text_of


ROWS = np.random.default_rng(2).standard_normal((9, 200)).astype(F32)  # each is a warp's
LONG = np.random.default_rng(3).standard_normal((2, 1100)).astype(F32)  # each is a block's


def softmax(emulated):
    return emulated.softmax(apart(emulated, LONG), 1)


def softmax_of_short_rows(emulated):
    return emulated.softmax(apart(emulated, ROWS), 1)


def transpose(emulated):
    return emulated.copy(apart(emulated, ROWS).T)


BARRIER, EVERYONE = "__syncthreads();", "if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32]"
TILE_FULL = "__syncthreads();\n  tile_each"
PLANTED_IN_KERNELS = [
    (softmax, BARRIER, "", 2, "unwritten: warps"),
    (softmax, "threadIdx.x % count", "threadIdx.x % 32", 1, "unwritten: warps"),
    (softmax, "warps[32];", "warps[1];", 1, "write out of bounds: warps"),
    (softmax, EVERYONE, "warps[threadIdx.x / 32]", 1, "race: write after write: warps"),
    (softmax, "if (i < count)", "if (i <= count)", 1, "read out of bounds: x"),
    (softmax, "softmax_row(y + at", "softmax_row(y", 1, "race: write after write: y"),
    (softmax_of_short_rows, "if (own_row() >= rows) return;", "", 1, "read out of bounds: x"),
    (softmax_of_short_rows, "softmax_row(y + at", "softmax_row(y", 1, "race: write after write: y"),
    (softmax, BARRIER, "if (threadIdx.x < 32) __syncthreads();", 1, "threads of a block meet at different barriers"),
    (transpose, TILE_FULL, "tile_each", 1, "unwritten: tile"),
]


def test_a_barrier_that_a_second_sum_needs():
    """block_combine waits for who still reads what it is about to write: what the call before it has left."""

    def twice(file, dtype):
        return edited("softmax_row(y + at, row);", "softmax_row(y + at, row); softmax_row(y + at, row);")(file, dtype)

    np.testing.assert_array_equal(softmax(Emulated(check=True, text_of=twice)), softmax(Emulated()))
    for schedule in (0, 1, 3):
        with pytest.raises(EmulationError, match="race: write after read: warps"):
            softmax(Emulated(schedule, check=True, text_of=lambda *of: twice(*of).replace(BARRIER, "", 1)))


@pytest.mark.parametrize("compute, old, new, count, finding", PLANTED_IN_KERNELS)
def test_the_checker_finds_bugs_in_real_kernels(compute, old, new, count, finding):
    compute(Emulated(check=True))  # as it is, nothing is found
    for schedule in (0, 1, 3):
        with pytest.raises(EmulationError) as raised:
            compute(Emulated(schedule, check=True, text_of=edited(old, new, count)))
        assert any(line.startswith(finding) for line in raised.value.findings), raised.value.findings
        assert re.search(r"at \w+\.cuh?:\d+", str(raised.value))


@pytest.mark.parametrize(
    "compute, old, new, count, expected",
    [
        (softmax, "lane = threads / 2", "lane = threads / 4", 1, reference.softmax(LONG, 1)),
        (softmax, BARRIER, "", 2, reference.softmax(LONG, 1)),
        (softmax, "lane = count / 2", "lane = count / 4", 1, reference.softmax(LONG, 1)),
        (softmax_of_short_rows, "lane = threads / 2", "lane = threads / 4", 1, reference.softmax(ROWS, 1)),
        (transpose, TILE_FULL, "tile_each", 1, ROWS.T),
    ],
)
def test_bugs_in_real_kernels_show_in_the_results(compute, old, new, count, expected):
    def right(**how):
        return [np.allclose(compute(Emulated(s, **how)), expected, rtol=1e-5, atol=1e-6) for s in SCHEDULES]

    assert all(right())
    assert not all(right(text_of=edited(old, new, count)))


def test_the_checker_knows_arrays_that_come_in_a_table():
    def adam(emulated):
        p, g, m, v = (apart(emulated, abs(ROWS[i])) for i in range(4))
        emulated.adam_([(p, g, m, v, 0)], lambda: [(0.1, 0.0, 1)], 0.9, 0.99, 1e-8, True)
        return p

    for _ in range(2):
        np.testing.assert_array_equal(adam(Emulated(check=True)), adam(Emulated()))
    with pytest.raises(EmulationError, match="out of bounds: an array, byte 4080"):
        adam(Emulated(check=True, text_of=edited("from + CHUNK < slots[low].size", "slots[low].size > 0", 1)))
