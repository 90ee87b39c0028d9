"""The processes that train one model together: which of them this is, how they agree, and how they end together.

mpiexec starts the same program several times. Each process does the same; what only one may do, such as writing files,
rank 0 does for all.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import os
import pickle
import platform
import signal
import sys
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from .. import backend
from ..backend.kernels import find_kernels
from ..base import cli, launched
from ..base.errors import RanksError
from ..training.checkpoint import as_bytes
from . import routes
from .tree import is_power_of_two

if TYPE_CHECKING:
    from ..nn.module import Module
    from ..tensor import Tensor

T = TypeVar("T")
R = TypeVar("R")
GRACE = 3.0  # seconds that a process which ends by an error waits for the others to do so too
PATIENCE = 30.0  # seconds after which one that has come to its end says that it waits
PASSED_ON = 0.2  # seconds for mpiexec to pass on what was printed, as what it has not yet read is lost when it ends all
POLL = 0.005  # seconds between two looks at whether they have
SOURCES = ".py", ".cu", ".cuh", ".h", ".cpp"
GOOD = -1  # in place of an exit status: a process that has come to the end


def world() -> "World":
    """The World of this process, for a with-block around all that the processes do together.

    Without mpiexec, or with one process, it needs neither MPI nor mpi4py. Raises RanksError, on rank 0 only, if there
    are several processes, but no MPI that connects them; the others end."""
    if launched.size == 1:
        return World()
    if importlib.util.find_spec("mpi4py") is None:
        raise _for_all("needs the package mpi4py, and an MPI, such as MPICH: pip install mpi4py mpich")
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)
    with _while_mpi_starts(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is said below
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # no library, or one that mpi4py was not made for
            raise _for_all(f"finds no MPI that works with mpi4py ({error}): pip install mpich") from None
        another = launched.by_open_mpi(os.environ) and "Open MPI" not in library()
        if not another and not MPI.Is_initialized():
            MPI.Init_thread(MPI.THREAD_FUNNELED)  # the kernels' threads do not talk to MPI
        if another or MPI.COMM_WORLD.size != launched.size:
            raise _for_all(
                f"was started by the mpiexec of another MPI than mpi4py's, which is {library()}: use that one's, "
                f"{launched.mpiexec()}"
            )
        made = World(MPI.COMM_WORLD)
    return made


@contextlib.contextmanager
def _while_mpi_starts():
    """While MPI starts, which may take until all others have, Ctrl-C waits: a process that ends with MPI half started
    would leave the others hanging. If it came, it ends all."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    ours = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
        if threading.current_thread() is threading.main_thread():
            for number, handler in ours.items():
                if handler is not None:
                    signal.signal(number, handler)  # a library under MPI may have put its own there
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except KeyboardInterrupt as error:
            if launched.connected():
                from mpi4py import MPI

                _abort(MPI.COMM_WORLD, error)
            raise


def library() -> str:
    """The name and version of mpi4py's MPI, such as 'MPICH 5.0.0'."""
    from mpi4py import MPI

    return " ".join(MPI.Get_library_version().partition("\n")[0].partition(",")[0].replace("Version:", "").split())


def versions():
    """What processes that train together must have in common, by name."""
    return {
        "program": _hash([sys.argv[0]]) if os.path.isfile(sys.argv[0]) else "",
        "minigrad": _hash(sources()),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        routes.VARIABLE: os.environ.get(routes.VARIABLE, ""),
        "kernels": type(backend.get("cpu")).__name__,
    }


def sources():
    """The files that decide what is computed: ours in Python, and the kernels."""
    places = Path(__file__).parents[1], find_kernels()
    return sorted({x for place in places for x in place.rglob("*") if x.suffix in SOURCES}, key=lambda x: (x.name, x))


def _hash(files):
    digest = hashlib.sha256()
    for file in files:
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:12]


def fingerprint(model: "Module") -> str:
    """A checksum of a Module's weights and buffers."""
    crc = 0
    for x in model.state_dict().values():
        crc = zlib.crc32(as_bytes(x.numpy()), crc)
    return f"{crc:08x}"


def _for_all(why):
    """What to raise where no MPI connects the processes: each finds out by itself, and one on each machine tells."""
    if launched.beside > 0:
        return SystemExit(2)
    if launched.rank == 0:
        return RanksError(f"training on {launched.size} processes {why}")
    print(f"rank {launched.rank}: training on machine {platform.node()} {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)  # or mpiexec would let the others wait for it for ever
    return SystemExit(2)


class World:
    """The processes that train together, as one of them sees them.

    rank: the number of this process, from 0. size: how many there are. comm: their mpi4py communicator, or None.

    Methods are called by all processes, in the same order. A with-block ends for all together: if one raises, rank
    0 or the first of those that did tells why, and the others end silently, with the same exit status. A process that
    raises while the others go on ends them after three seconds, and tells why. At the end they wait for each other
    without computing; one that has waited for long says so."""

    def __init__(self, comm: Any = None) -> None:
        self.comm: Any = comm
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        self._route: Any = None
        self._ending: Any = None  # a communicator
        self._told: BaseException | None = None  # an error that a with-block has ended by
        if comm is not None:
            self._ending = comm.Dup()  # so that what was under way on `comm` is not mixed in
            atexit.register(self._at_exit)

    def first(self, function: Callable[[], T]) -> T:
        """function() of rank 0, for every process: what it returned or raised, sent to all by pickle."""
        if self.size == 1:
            return function()
        result: Any = None
        error = None
        sent = b""
        if self.rank == 0:
            try:
                result = function()
                sent = pickle.dumps((result, None))
            except Exception as caught:
                error = caught
                sent = pickle.dumps((None, _sendable(error)))
        sent = self.comm.bcast(sent)
        if error is not None:
            raise error  # itself, which knows where it came from
        if self.rank == 0:
            return result
        result, error = pickle.loads(sent)
        if error is not None:
            raise error
        return result

    def everyone(self, value: T) -> list[T]:
        """[value of each process], sent by pickle."""
        return [value] if self.size == 1 else self.comm.allgather(value)

    def largest(self, number: int) -> int:
        """The largest of the processes' ints."""
        if self.size == 1:
            return number
        from mpi4py import MPI

        return self.comm.allreduce(int(number), MPI.MAX)

    def sum(self, x: "Tensor") -> "Tensor":
        """The sum of a Tensor (n,) over the 2^k processes, along the tree: equal on all. It may share x's memory.
        From a GPU it takes the route that MINIGRAD_MPI names: see routes.py."""
        if self.size == 1:
            return x
        if not is_power_of_two(self.size):
            raise RanksError(f"a sum along the tree takes 2, 4, 8, … processes, not {self.size}")
        if self._route is None:
            self._route = routes.route(self.comm)
        return self._route.sum(x)

    def dealt(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """[function(item) for each item], where each process computes some, and all get every one by pickle."""
        found = self.everyone([function(item) for item in items[self.rank :: self.size]])
        return [found[i % self.size][i // self.size] for i in range(len(items))]

    def check_same(self, **values: Any) -> None:
        """Raise RanksError with the names of those values that the processes do not agree on, and who has what."""
        everyone = self.everyone((platform.node(), values))
        wrong = []
        for name, mine in everyone[0][1].items():
            others = [(rank, host, found[name]) for rank, (host, found) in enumerate(everyone) if found[name] != mine]
            if others:
                rank, host, found = others[0]
                more = f" (and {len(others) - 1} more)" * (len(others) > 1)
                wrong.append(f"{name}: {mine} on rank 0, {found} on rank {rank}{more}, machine {host}")
        if wrong:
            raise RanksError(f"the processes differ in {'; '.join(wrong)}")

    def __enter__(self) -> Self:
        if self.size > 1:
            try:
                self.check_same(**versions())
                routes.name()  # is known
            except BaseException:  # Ctrl-C, or kernels that cannot be had: what keeps this process from the block
                self.__exit__(*sys.exc_info())
                raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._ending is None:
            return
        self._told = error
        try:
            statuses = self._statuses(GOOD if error is None else int(cli.status_of(error)) & 0xFF, error)
        except KeyboardInterrupt as impatient:
            _abort(self.comm, impatient)
        failed = [rank for rank, status in enumerate(statuses) if status != GOOD]
        if failed and failed[0] != self.rank:
            raise SystemExit(int(statuses[failed[0]])) from None

    def _at_exit(self):
        """Once more at the end of the program, for what is done outside of a with-block."""
        error = getattr(sys, "last_value", None)  # what it ends by, if it was not caught: Python has printed it
        error = None if error is self._told else error
        with contextlib.suppress(SystemExit):
            self.__exit__(type(error), error, None)

    def _statuses(self, mine, error):
        """The exit statuses of all processes, once all have come here."""
        statuses = np.zeros(self.size, np.int64)
        request = self._ending.Iallgather(np.array([mine], np.int64), statuses)
        began = time.monotonic()
        deadline = began + GRACE + 0.1 * self.rank  # so that one tells, if several have failed
        notice = began + PATIENCE * max(1, self.rank)  # likewise
        while not request.Test():
            now = time.monotonic()
            if error is not None and now > deadline:
                _abort(self.comm, error)
            if error is None and now > notice:
                notice = np.inf
                line = f"rank {self.rank} of {self.size} has come to its end, and waits for the others"
                print(line, file=sys.stderr, flush=True)
            time.sleep(POLL)
        return statuses


def _sendable(error):
    """An exception as other processes can have it: of its type, if pickle can send that."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # a class within a function, arguments that its __init__ does not take, an open file
        return RuntimeError(f"{type(error).__name__} on rank 0: {error}")
    return error


def _abort(comm, error):
    """End all processes now."""
    line = cli.line_of(error)
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        line = error.code  # which Python would have printed
    if line is None and error is not getattr(sys, "last_value", None):
        traceback.print_exception(error)
    print(f"rank {comm.rank} of {comm.size} ends all: {line or type(error).__name__}", file=sys.stderr, flush=True)
    time.sleep(PASSED_ON)
    status = cli.status_of(error) or 1  # sys.exit(0) too: the others have not come to their end
    comm.Abort(status)
    os._exit(status)  # MPICH's Abort returns, and leaves it to mpiexec to end this process
