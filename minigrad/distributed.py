"""One training in several processes, each with a part of the batch: `mpiexec -n 4 python train.py`. It uses mpi4py.

    rank, size = distributed.world()
    distributed.broadcast_(model.parameters())                  once: all begin with the weights of process 0
    loss.backward()
    distributed.average_gradients_(model.parameters())          between backward and the optimizer's step
    if distributed.first(): mg.save(…)                          in one process only

Every process must make the same calls in the same order. An exception in one process ends all, with its traceback.
Import minigrad before NumPy, so that the processes of a machine share its cores."""

import sys
import time
import traceback
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from .autograd import no_grad
from .base import ranks
from .tensor import Tensor, from_numpy

__all__ = ["average", "average_gradients_", "broadcast_", "first", "world"]


def world() -> tuple[int, int]:
    """Return (rank, size): the number of this process, from 0 on, and how many there are; (0, 1) without mpiexec.

    With several processes, raises ImportError if mpi4py is missing, and RuntimeError if it belongs to another MPI than
    mpiexec."""
    if ranks.size > 1:
        _mpi()
    return ranks.rank, ranks.size


def first() -> bool:
    """True in process 0, which prints and writes."""
    return ranks.rank == 0


def broadcast_(tensors: Iterable[Tensor]) -> None:
    """Copy the numbers of process 0 to all processes. Raises ValueError in all of them if shapes or dtypes differ."""
    _exchange_flat([x.detach() for x in tensors], lambda flat: _mpi().COMM_WORLD.Bcast(flat, 0))


def average_gradients_(parameters: Iterable[Tensor]) -> None:
    """Replace each .grad by its mean over all processes. If each process has the mean loss of an equal part of a batch,
    this is the gradient of the whole batch.

    Gradients go through the host, and float16 is summed in float32. Raises ValueError in all processes if shapes or
    dtypes differ, or if a .grad is missing in some of them."""

    def mean(flat):
        _mpi().COMM_WORLD.Allreduce(_mpi().IN_PLACE, flat)
        flat /= ranks.size

    _exchange_flat([p.grad for p in parameters], mean)


def average(number: float) -> float:
    """Return the mean of a number over all processes."""
    return _mpi().COMM_WORLD.allreduce(number) / ranks.size if ranks.size > 1 else number


def _exchange_flat(tensors, exchange):
    """For each dtype, put the numbers of all tensors of that dtype into one array, call exchange(array), which changes
    it in place, and copy the numbers back."""
    if ranks.size == 1:
        return
    _require_same_shapes([None if x is None else (x.shape, str(x.dtype)) for x in tensors])
    present = [x for x in tensors if x is not None]
    for dtype in sorted({str(x.dtype) for x in present}):
        same = [x for x in present if x.dtype == dtype]
        host = [x._host() for x in same]
        flat = np.concatenate([x.ravel() for x in host], dtype="float32" if dtype == "float16" else dtype)
        exchange(flat)
        ends = np.cumsum([x.size for x in host])[:-1]
        with no_grad():
            for x, part in zip(same, np.split(flat, ends)):
                x.copy_(from_numpy(part.reshape(x.shape)).to(x))


def _require_same_shapes(shapes):
    """Raise ValueError in all processes unless all have the same list of shapes."""
    comm, checksum = _mpi().COMM_WORLD, zlib.crc32(repr(shapes).encode())
    if comm.allreduce(checksum, _mpi().MAX) == comm.allreduce(checksum, _mpi().MIN):
        return
    all_shapes = comm.allgather(shapes)
    rank = next(rank for rank, theirs in enumerate(all_shapes) if theirs != all_shapes[0])
    first, other = all_shapes[0], all_shapes[rank]
    if len(first) != len(other):
        difference = f"their numbers are {len(first)} and {len(other)}"
    else:
        i = next(i for i, (a, b) in enumerate(zip(first, other)) if a != b)
        difference = f"tensor {i} is {first[i]} and {other[i]}"
    raise ValueError(f"tensors differ between processes 0 and {rank}: {difference}")


@cache
def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError:
        raise ImportError(f"{ranks.size} processes need mpi4py: pip install mpi4py mpich") from None
    if MPI.COMM_WORLD.size != ranks.size:
        raise RuntimeError(
            f"mpiexec started {ranks.size} processes, and mpi4py sees {MPI.COMM_WORLD.size}: it belongs to another MPI "
            f"({MPI.Get_library_version().splitlines()[0]})"
        )
    sys.excepthook = _report_and_end
    return MPI


def _report_and_end(kind, error, where):
    """Print the traceback of an uncaught exception, and end all processes: sys.excepthook."""
    ranks.after_first()
    sys.stderr.write("".join(traceback.format_exception(kind, error, where)))
    end_all(1)


def end_all(status: int) -> None:
    """End all processes with this status."""
    sys.stdout.flush()
    time.sleep(0.2)  # mpiexec drops output that it has not yet passed on
    _mpi().COMM_WORLD.Abort(status)
