"""How a with-block of World ends, on two processes: for all together, whoever has failed."""

import pytest

from .ranks import run

pytestmark = pytest.mark.needs("mpiexec")

ENDS = """
import importlib, sys, time
from minigrad.base import cli
from minigrad import distributed
importlib.import_module("minigrad.distributed.world").GRACE = 0.5
case = sys.argv[1]

def failing():
    raise cli.CommandError("of rank 0", status=5)

@cli.command("ends")
def main(argv):
    with distributed.world() as world:
        if case == "all":
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
