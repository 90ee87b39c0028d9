"""How a with-block of World ends, on two processes: for all together, whoever has failed."""

import pytest

from .ranks import run

pytestmark = pytest.mark.needs("mpiexec")

ENDS = """
import importlib, sys, time
import minigrad as mg
from minigrad.base import cli
from minigrad import distributed
importlib.import_module("minigrad.distributed.world").GRACE = 0.5
case = sys.argv[1]

def failing():
    raise cli.CommandError("of rank 0", status=5)

@cli.command("ends")
def main(argv):
    with distributed.world(limit=0.5 if case == "too slow" else 60) as world:
        if case == "too slow":
            time.sleep(3 * world.rank)
            world.everyone(1)
        elif case == "all":
            raise cli.CommandError(f"of rank {world.rank}", status=5)
        elif case == "first":
            world.first(failing)
        elif case == "one":
            if world.rank:
                raise cli.CommandError("only rank 1", status=5)
            world.everyone(1)
        elif case == "leaves":
            if world.rank:
                sys.exit(0)
            world.everyone(1)
        elif case == "bug":
            if world.rank:
                1 / 0
            world.everyone(1)
        elif case == "late" and world.rank:  # rank 0 has come to its end
            time.sleep(1)
            raise cli.CommandError("only rank 1", status=5)
        elif case == "slow" and world.rank == 0:
            time.sleep(2)
        elif case == "calls":
            world.everyone(1) if world.rank else world.first(int)
        elif case == "dtypes":
            world.sum(mg.ones(3, dtype=mg.float64 if world.rank else mg.float32))
        elif case == "one more" and world.rank:
            world.everyone(1)
        elif case == "batches":
            distributed.Shards(world, 2).sum(lambda x: x.sum(1), mg.full((2, 3), world.rank))
    with distributed.world() as again:
        assert again.everyone(again.rank) == [0, 1]

cli.run(main)
"""


@pytest.fixture
def ended(tmp_path):
    def end(case):
        (tmp_path / "ends.py").write_text(ENDS)
        status, _, err, seconds = run(2, tmp_path / "ends.py", case)
        assert seconds < 20
        return status, err

    return end


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize("case", ["all", slow("first")])
def test_what_all_raise_rank_0_tells(case, ended):
    assert ended(case) == (5, "ends: of rank 0\n")


@pytest.mark.parametrize(
    "case, status, said",
    [
        slow("one", 5, "only rank 1"),
        slow("leaves", 1, "SystemExit"),
        slow("late", 5, "only rank 1"),
        ("bug", 1, "ZeroDivisionError"),
    ],
)
def test_one_that_others_wait_for_ends_all(case, status, said, ended):
    found, err = ended(case)
    assert found == status and f"rank 1 of 2 ends all: {said}" in err
    assert err.count("Traceback") == (said == "ZeroDivisionError")


@pytest.mark.slow
def test_one_that_is_slow_is_waited_for(ended):
    assert ended("slow") == (0, "")


@pytest.mark.parametrize(
    "case, said",
    [
        ("calls", "rank 0 at call 1, first; rank 1 at call 1, everyone"),
        slow("dtypes", "rank 0 at call 1, sum of (3,) float32; rank 1 at call 1, sum of (3,) float64"),
        slow("one more", "rank 0 at call 1, the end; rank 1 at call 1, everyone"),
        slow("batches", "rank 0 at call 1, sum of (1,) int64 over the batch"),
    ],
)
def test_processes_at_different_calls_are_told_apart(case, said, ended):
    status, err = ended(case)
    assert status and err.startswith(f"ends: the processes are at different calls: {said}") and err.count("\n") == 1


@pytest.mark.slow
def test_one_that_does_not_come_is_not_waited_for_for_ever(ended):
    status, err = ended("too slow")
    assert status and "not all processes reached call 1, everyone within 0.5 s" in err
