"""What mpiexec tells this process through the environment, and how many threads it should use.

minigrad imports this first: libraries read the number of threads when NumPy is imported, MPI how it is to wait when it
starts, and CUDA which GPUs it may see. Without mpiexec, nothing changes.
"""

import contextlib
import os
from typing import Any, NamedTuple


class Rank(NamedTuple):
    """A process's place among those that mpiexec started."""

    rank: Any = 0  # among all
    size: Any = 1  # how many there are
    beside: Any = 0  # the rank among those on this machine
    local: Any = 1  # how many are on this machine


# How launchers say it: MPICH and what descends from it, such as Intel MPI; Open MPI; and Slurm's srun with PMIx, which
# hands out the cores itself.
NAMES = (
    Rank("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Rank(*(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    Rank("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
)


def rank_in(environment):
    """The Rank according to environment variables."""
    for names in NAMES:
        said = [environment.get(name, "") for name in names]
        if said[0].isdecimal() and said[1].isdecimal():
            return Rank(*(int(s) if s.isdecimal() else default for s, default in zip(said, Rank())))
    return Rank()


rank, size, beside, local = rank_in(os.environ)
ended_together = False  # have all processes left a World's with-block by an error?


def cores():
    """(cores for this process, cores for all processes on this machine)"""
    if not hasattr(os, "sched_getaffinity"):
        count = os.cpu_count() or 1
        return max(1, count // local), count
    mine = launchers = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        launchers = os.sched_getaffinity(os.getppid())
    bound = mine != launchers  # the launcher has divided them
    return len(mine) if bound else max(1, len(mine) // local), len(launchers)


def own_gpu(environment, present="/proc/driver/nvidia/gpus"):
    """What CUDA_VISIBLE_DEVICES should be: one GPU for each process of a machine, in turn, of those it names, or of
    all; None where there is no driver."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        try:
            gpus = [str(i) for i in range(len(os.listdir(present)))]
        except OSError:
            return None
    else:
        gpus = [gpu for gpu in named.split(",") if gpu]
    return gpus[beside % len(gpus)] if gpus else named


def prepare(environment):
    """Set what has to be set before NumPy, MPI and CUDA start, except for what the user has set."""
    if size == 1:
        return
    if (gpu := own_gpu(environment)) is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    own, total = cores()
    environment.setdefault("OMP_NUM_THREADS", str(own))
    if local > total:  # a waiting rank must not keep another from computing
        environment.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
        environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")


prepare(os.environ)
