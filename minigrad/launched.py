"""What mpiexec says of this process, in the environment, and how many threads it should have then.

minigrad imports this first: libraries read the number of threads when NumPy is imported, and MPI how it is to wait when
it starts. Without mpiexec, nothing changes.
"""

import os
import shutil
import sys
from pathlib import Path

# How launchers say (rank, ranks in all, ranks on this machine): MPICH and what descends from it, such as Intel MPI;
# Open MPI; and PMIx, as Slurm's srun has it.
NAMES = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", ""),  # srun hands out the cores itself
)


def _read(environment):
    for names in NAMES:
        if environment.get(names[0], "").isdecimal():
            rank, size, beside = (environment.get(name, "1") for name in names)
            return int(rank), int(size) if size.isdecimal() else 1, int(beside) if beside.isdecimal() else 1
    return 0, 1, 1


rank, size, beside = _read(os.environ)


def cores():
    """How many cores this process has for itself, if each of the ranks on this machine gets its share."""
    if not hasattr(os, "sched_getaffinity"):
        return max(1, (os.cpu_count() or 1) // beside)
    mine = os.sched_getaffinity(0)
    try:
        bound = mine != os.sched_getaffinity(os.getppid())  # the launcher has shared the cores out itself
    except OSError:
        bound = False
    return len(mine) if bound else max(1, len(mine) // beside)


def prepare(environment):
    """Set what has to be set before NumPy and MPI start, except for what the user has set."""
    if size == 1:
        return
    environment.setdefault("OMP_NUM_THREADS", str(cores()))
    total = len(os.sched_getaffinity(os.getppid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if beside > total:  # a rank that waits must not keep another from computing
        environment.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
        environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")


def mpiexec():
    """The path of the mpiexec that belongs to this Python, also in a venv that is not active; or another; or None."""
    beside = Path(sys.executable or "python").with_name("mpiexec")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


prepare(os.environ)
