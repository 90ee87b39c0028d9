"""How a with-block of World ends, on two processes: for all together, whoever has failed."""

import pytest

from .ranks import run, start

pytestmark = pytest.mark.needs("mpiexec")

ENDS = """
import importlib, os, sys, time
from minigrad.base import launched
case = sys.argv[1]
if case == "kernels" and launched.rank:
    os.environ["MINIGRAD_CPU"] = "numpy"
from minigrad.base import cli
from minigrad import distributed
importlib.import_module("minigrad.distributed.world").GRACE = 0.5

class Mine(Exception):
    def __init__(self, one, two):
        super().__init__(one + two)

def failing():
    raise Mine("one", "two")

@cli.command("ends")
def main(argv):
    try:
        with distributed.world() as world:
            if case == "one" and world.rank:
                raise cli.CommandError("only rank 1", status=5)
            elif case == "both":
                raise cli.CommandError(f"of rank {world.rank}", status=5 + world.rank)
            elif case == "waited for":
                if world.rank:
                    raise cli.CommandError("only rank 1", status=5)
                world.everyone(1)
            elif case == "exits" and world.rank:
                sys.exit(3)
            elif case == "leaves":
                if world.rank:
                    sys.exit(0)
                world.everyone(1)
            elif case == "says" and world.rank:
                sys.exit("what went wrong")
            elif case == "says":
                world.everyone(1)
            elif case == "slow" and world.rank == 0:
                time.sleep(2)
            elif case == "first":
                try:
                    world.first(failing)
                except Exception as error:
                    told = world.everyone(f"{type(error).__name__}: {error}")
                    if world.rank == 0:
                        print(*told, sep="\\n")
    except SystemExit as stop:
        print(f"the other ends with {stop.code}", flush=True)
        raise

if case == "kernels of one" and launched.rank:
    os.environ["MINIGRAD_CPU"] = "abacus"
if case == "before" and launched.rank:
    1 / 0
elif case == "before":
    distributed.world()
elif case == "twice":
    with distributed.world(), distributed.world() as world:
        print(sum(world.everyone(1)))
elif case == "caught":
    world = distributed.world()
    try:
        with world:
            if world.rank:
                raise ValueError
    except (SystemExit, ValueError):
        pass
    with world:
        if world.rank:
            1 / 0
        world.everyone(1)
elif case == "true":
    with distributed.world():
        sys.exit(True)
elif case == "late":  # what follows the with-block, or a second one
    with distributed.world() as world:
        pass
    with world:
        world.everyone(1)
    if world.rank:
        1 / 0
    world.everyone(1)
elif case == "early":  # nothing has failed, but one comes to its end, and the other waits for it
    importlib.import_module("minigrad.distributed.world").PATIENCE = 0.5
    with distributed.world() as world:
        if world.rank == 0:
            world.everyone(1)
elif case == "outside":
    world = distributed.world()
    if world.rank:
        1 / 0
    world.everyone(1)
else:
    cli.run(main)
"""


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.fixture
def ended(tmp_path):
    def end(case):
        (tmp_path / "ends.py").write_text(ENDS)
        status, out, err, seconds = run(2, tmp_path / "ends.py", case)
        assert seconds < 20
        return status, out, err

    return end


@pytest.mark.slow
def test_the_others_end_with_the_status_of_the_first_that_failed(ended):
    assert ended("one") == (5, "the other ends with 5\n", "ends: only rank 1\n")
    status, out, err = ended("both")  # mpiexec tells one of the two
    assert status in (5, 6) and (out, err) == ("the other ends with 5\n", "ends: of rank 0\n")
    assert ended("exits")[1].count("the other ends with 3") == 2


@pytest.mark.parametrize(
    "case, status, said",
    [
        ("waited for", 5, "only rank 1"),
        slow("leaves", 1, "SystemExit"),
        slow("says", 1, "what went wrong"),
        ("outside", 1, "ZeroDivisionError"),
        slow("late", 1, "ZeroDivisionError"),
        slow("caught", 1, "ZeroDivisionError"),
        slow("kernels of one", 2, "MINIGRAD_CPU=abacus: there are native, numpy"),
    ],
)
def test_one_that_others_wait_for_ends_all(case, status, said, ended):
    found, _, err = ended(case)
    assert found == status and f"rank 1 of 2 ends all: {said}" in err
    assert err.count("Traceback") == (said == "ZeroDivisionError") and err.count("UnboundLocalError") == 0


@pytest.mark.slow
def test_one_that_is_slow_is_waited_for(ended):
    assert ended("slow") == (0, "", "")


@pytest.mark.slow
def test_other_kernels_are_told_at_the_start(ended):
    status, _, err = ended("kernels")
    assert status == 2 and err.startswith("ends: the processes differ in kernels: ") and err.count("\n") == 1


@pytest.mark.slow
def test_an_exception_of_rank_0_that_pickle_cannot_send(ended):
    assert ended("first") == (0, "Mine: onetwo\nRuntimeError: Mine on rank 0: onetwo\n", "")


@pytest.mark.slow
def test_one_that_waits_for_long_says_so(tmp_path):
    (tmp_path / "ends.py").write_text(ENDS)
    process = start(2, tmp_path / "ends.py", "early")
    try:
        line = process.stderr.readline()
    finally:
        process.terminate()
        process.communicate()
    assert line == "rank 1 of 2 has come to its end, and waits for the others\n"


@pytest.mark.slow
def test_one_that_fails_before_it_has_met_the_others_ends_them(ended):
    status, _, err = ended("before")
    assert status != 0 and err.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.slow
def test_a_second_world_and_an_odd_status(ended):
    status, out, err = ended("twice")
    assert (status, err) == (0, "") and out.split() in (["2", "2"], ["22"])  # two processes write at once
    assert ended("true") == (1, "", "")
