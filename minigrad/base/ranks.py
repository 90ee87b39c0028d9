"""Which of the processes that mpiexec started this one is: asked before NumPy is imported, which counts the cores.

rank: 0, 1, … of `size` processes. Those on this machine share its cores, so that each computes with cores ÷ processes
threads, and its GPUs, of which each has one."""

import os
import time


def _number(names, otherwise):
    return next((int(os.environ[name]) for name in names.split() if os.environ.get(name, "").isdecimal()), otherwise)


rank, size = _number("PMI_RANK OMPI_COMM_WORLD_RANK", 0), _number("PMI_SIZE OMPI_COMM_WORLD_SIZE", 1)  # MPICH, Open MPI

if size > 1:
    _local = _number("MPI_LOCALRANKID OMPI_COMM_WORLD_LOCAL_RANK", 0)
    _here = _number("MPI_LOCALNRANKS OMPI_COMM_WORLD_LOCAL_SIZE", size)
    _cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for _name in "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS":
        os.environ.setdefault(_name, str(max(1, _cores // _here)))
    _gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = _gpus[_local % len(_gpus)] or str(_local)


def after_first():
    """Wait a second, unless this is process 0: it may have the same error to tell, and ends all others when it has."""
    if rank:
        time.sleep(1)
