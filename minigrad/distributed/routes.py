"""How numbers get from one process to another. MINIGRAD_MPI names the route for those on a GPU; the sums have the same
bits on each.

host   through page-locked memory of the host. Any MPI can do it, and so it is the default
cuda   by an MPI that takes addresses in a GPU's memory. One that does not may crash, and cannot be asked beforehand
nccl   by NVIDIA's library, between the GPUs. Each process needs a GPU of its own
"""

import os
import warnings
from typing import Any

import numpy as np

from ..base.errors import RanksError
from ..tensor import empty, from_backend, from_numpy
from .tree import exchange

VARIABLE = "MINIGRAD_MPI"


def name():
    """The route that the environment names. Raises RanksError for one that there is not."""
    found = os.environ.get(VARIABLE) or "host"
    if found not in ROUTES:
        raise RanksError(f"{VARIABLE}={found}: there are {', '.join(ROUTES)}")
    return found


def route(comm):
    """The route between the processes of an mpi4py communicator. They all call it. Raises RanksError."""
    return ROUTES[name()](comm)


class Host:
    """Through the host's memory."""

    def __init__(self, comm):
        self.comm = comm
        self._kept: Any = None  # (backend, page-locked vector and room for half of it, event of its last upload)

    def sum(self, x):
        """The sum of a Tensor (n,) over all processes, along the tree. Its memory may be x's."""
        if x.device == "cpu":
            array = np.require(x.numpy(), requirements=["C", "W"])
            exchange(array, self.comm)
            return from_numpy(array)
        return self._through_host(x)

    def _through_host(self, x):
        on = x.storage.backend
        array, room, uploaded = self._page_locked(on, x)
        uploaded.synchronize()  # the copy to the GPU of the step before may have been queued on another stream
        on.download(x.array, array)
        exchange(array, self.comm, room)
        y = on.from_numpy(array)
        uploaded.record(on.current_stream())
        return from_backend(y, on)

    def _page_locked(self, on, x):
        kept = self._kept
        if kept is None or kept[0] is not on or kept[1].shape != x.shape or kept[1].dtype != x.dtype:
            kept = on, on.pinned(x.shape, x.dtype), on.pinned((-(-x.numel() // 2),), x.dtype), on.event()
            self._kept = kept
        return kept[1:]


class Direct(Host):
    """From the memory of one GPU to that of another. A subclass has the Sendrecv that `exchange` calls."""

    def __init__(self, comm):
        super().__init__(comm)
        self.rank, self.size = comm.rank, comm.size

    def _through_host(self, x):
        x = x.contiguous()
        exchange(x, self, empty(-(-x.numel() // 2), dtype=x.dtype, device=x.device))
        return x


class CudaAware(Direct):
    def Sendrecv(self, sent, to, recvbuf, source):
        sent.storage.backend.synchronize()  # MPI knows nothing of streams, where what it sends is still being computed
        self.comm.Sendrecv(sent.array, to, recvbuf=recvbuf.array, source=source)


class Nccl(Direct):
    def __init__(self, comm):
        super().__init__(comm)
        self._nccl: Any = None  # cupy.cuda.nccl
        self._connected: Any = None

    def Sendrecv(self, sent, to, recvbuf, source):
        on, nccl = sent.storage.backend, self._nccl or self._connect()
        kind, stream = self._kind(sent.dtype), on.current_stream().ptr  # it is queued there: no wait is needed
        nccl.groupStart()  # or each would wait for the other to receive
        self._connected.send(on.pointer(sent.array), sent.numel(), kind, to, stream)
        self._connected.recv(on.pointer(recvbuf.array), recvbuf.numel(), kind, source, stream)
        nccl.groupEnd()

    def _connect(self):
        """At the first use, when each process has its GPU."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CuPy's, which the next lines tell in ours
            from cupy.cuda import nccl
        everywhere = self.comm.allgather(bool(nccl.available))
        if not all(everywhere):
            without = everywhere.index(False)
            raise RanksError(f"{VARIABLE}=nccl: rank {without} has no NCCL: pip install nvidia-nccl-cu13")
        unique = self.comm.bcast(nccl.get_unique_id() if self.rank == 0 else None)
        try:
            self._connected = nccl.NcclCommunicator(self.size, unique, self.rank)
        except nccl.NcclError as error:
            raise RanksError(f"{VARIABLE}=nccl: {error}; each process needs a GPU of its own") from None
        self._nccl = nccl
        return nccl

    def _kind(self, dtype):
        return getattr(self._nccl, f"NCCL_{dtype.name.upper()}")


ROUTES: dict[str, type[Host]] = {"host": Host, "cuda": CudaAware, "nccl": Nccl}
