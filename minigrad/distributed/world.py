"""The processes that train one model together: rank and size, agreement, and ending together.

mpiexec starts the same program several times, and each process does the same. Rank 0 does what only one process may,
such as writing files.
"""

import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from ..base import cli, launched
from ..base.errors import RanksError
from ..tensor import from_numpy
from .tree import exchange, is_power_of_two

if TYPE_CHECKING:
    from ..tensor import Tensor

T = TypeVar("T")
R = TypeVar("R")
GRACE = 3.0  # seconds that a process which ends by an error waits for the others to do so too
PASSED_ON = 0.2  # seconds for mpiexec to pass on what was printed, as it loses the rest when it ends all
POLL = 0.005  # seconds between two looks at whether they have
LIMIT = 1800.0  # seconds that processes wait for each other
SPINNING = 0.01  # seconds of that in which they look all the time: longer than from one call to the next, nearly always
RECORD = 200  # bytes of what a process says of a call
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # a sleep of 0 takes 0.1 ms


def world(limit: float = LIMIT) -> "World":
    """The World of this process, for a with-block around all that the processes do together. limit: the seconds that
    one waits for the others to reach the same call.

    Without mpiexec, or with one process, it needs neither MPI nor mpi4py. Raises RanksError if there are several
    processes, but no MPI that connects them."""
    if launched.size == 1:
        return World()
    try:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"  # the kernels' threads do not talk to MPI
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no package, no library, or one that it was not made for
        why = f"needs mpi4py and an MPI, such as MPICH ({error}): pip install mpi4py mpich"
        raise RanksError(f"training on {launched.size} processes {why}") from None
    if launched.size != MPI.COMM_WORLD.size:
        library = MPI.Get_library_version().split("\n")[0].strip()
        raise RanksError(f"mpiexec belongs to another MPI than mpi4py, which has {library}: use the mpiexec of that")
    return World(MPI.COMM_WORLD, limit)


class World:
    """The processes that train together, seen from one of them.

    rank: the number of this process, from 0. size: how many there are. comm: their mpi4py communicator, or None.

    All processes must call its methods in the same order: otherwise RanksError lists the call of each. An exception
    ends a with-block for all: if every process raises one within three seconds, that of rank 0 propagates, and the
    others end silently. If some continue without it, the process prints its exception, and MPI ends them all."""

    def __init__(self, comm: Any = None, limit: float = LIMIT) -> None:
        self.comm: Any = comm
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        self._ending: Any = comm and comm.Dup()  # so that what was under way on `comm` is not mixed in
        self._limit, self._calls = limit, 0

    def _meet(self, call):
        """Wait until all have reached a call. Raises RanksError if their calls differ, or after the limit."""
        self._calls += 1
        said = f"call {self._calls}, {call}"
        mine, everyone = said.encode()[:RECORD].ljust(RECORD), bytearray(self.size * RECORD)
        request, began = self.comm.Iallgather(mine, everyone), time.monotonic()
        while not request.Test():
            waited = time.monotonic() - began
            if waited > self._limit:
                raise RanksError(f"not all processes reached {said} within {self._limit:g} s")
            if waited < SPINNING:
                _give_way()
            else:
                time.sleep(SPINNING / 10)
        if everyone == self.size * mine:
            return
        calls = [everyone[i : i + RECORD].decode(errors="replace").rstrip() for i in range(0, len(everyone), RECORD)]
        rank = next(i for i, other in enumerate(calls) if other != calls[0])
        raise RanksError(f"the processes are at different calls: rank 0 at {calls[0]}; rank {rank} at {calls[rank]}")

    def first(self, function: Callable[[], T]) -> T:
        """function() of rank 0, for every process: what it returned or raised, sent to all by pickle."""
        if self.size == 1:
            return function()
        self._meet("first")
        result: Any = None
        if self.rank == 0:
            try:
                result = function(), None
            except Exception as error:
                result = None, error
        value, raised = self.comm.bcast(result)
        if raised is not None:
            raise raised
        return value

    def everyone(self, value: T) -> list[T]:
        """[value of each process], sent by pickle."""
        if self.size == 1:
            return [value]
        self._meet("everyone")
        return self.comm.allgather(value)

    def sum(self, x: "Tensor", of: str = "") -> "Tensor":
        """The sum of a Tensor (n,) over the 2^k processes, along the tree: equal on all. A GPU's goes through the
        host. Raises RanksError for another number of processes, and if they differ in shape, dtype or `of`, a word on
        what is summed."""
        if self.size == 1:
            return x
        if not is_power_of_two(self.size):
            raise RanksError(f"a sum along the tree takes 2, 4, 8, … processes, not {self.size}")
        self._meet(f"sum of {x.shape} {x.dtype} {of}".rstrip())
        total = np.array(x.numpy(), order="C")
        exchange(total, self.comm)
        return from_numpy(total).to(x.device)

    def dealt(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """[function(item) for each item], where each process computes some, and all get every one by pickle."""
        found = self.everyone([function(item) for item in items[self.rank :: self.size]])
        return [found[i % self.size][i // self.size] for i in range(len(items))]

    def check_same(self, **values: Any) -> None:
        """Raise RanksError with the name of a value that the processes do not agree on, and who has what."""
        everyone = self.everyone((platform.node(), values))
        for rank, (host, found) in enumerate(everyone):
            for name, value in everyone[0][1].items():
                if value != (its := found[name]):
                    here = f"{value} on rank 0, {its} on rank {rank}, machine {host}"
                    raise RanksError(f"the processes differ in {name}: {here}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.size == 1:
            return
        if error is not None:
            self._end_together(error)
            return
        try:
            self._meet("the end")
        except RanksError as apart:
            self._end_together(apart)
            raise

    def _end_together(self, error):
        all_have_failed = self._ending.Ibarrier()
        deadline = time.monotonic() + GRACE + 0.1 * self.rank  # so that one tells, if several have failed
        while not all_have_failed.Test():
            if time.monotonic() > deadline:
                self._abort(error)
            time.sleep(POLL)
        launched.ended_together = True
        if self.rank:
            raise SystemExit(cli.status_of(error)) from None

    def _abort(self, error):
        line = cli.line_of(error)
        if line is None:
            traceback.print_exception(error)
        said = f"rank {self.rank} of {self.size} ends all: {line or type(error).__name__}"
        print(said, file=sys.stderr, flush=True)
        time.sleep(PASSED_ON)
        self.comm.Abort(cli.status_of(error) or 1)  # sys.exit(0) too: the others have not finished
