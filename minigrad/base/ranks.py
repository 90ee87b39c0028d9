"""The number of this process among those that mpiexec started: `rank` 0, 1, … of `size` processes.

This module is imported before NumPy, which counts the cores. The processes on one machine share its cores, so each
computes with cores ÷ processes threads, and its GPUs, of which each process gets one."""

import os
import time


def _number(names, otherwise):
    """The number in the first of these environment variables that holds one; else `otherwise`."""
    return next((int(os.environ[name]) for name in names.split() if os.environ.get(name, "").isdecimal()), otherwise)


rank, size = _number("PMI_RANK OMPI_COMM_WORLD_RANK", 0), _number("PMI_SIZE OMPI_COMM_WORLD_SIZE", 1)  # MPICH, Open MPI

if size > 1:
    _local = _number("MPI_LOCALRANKID OMPI_COMM_WORLD_LOCAL_RANK", 0)
    _on_machine = _number("MPI_LOCALNRANKS OMPI_COMM_WORLD_LOCAL_SIZE", size)
    _cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for _name in "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS":
        os.environ.setdefault(_name, str(max(1, _cores // _on_machine)))
    _gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = _gpus[_local % len(_gpus)] or str(_local)


def after_first():
    """Wait for a second, unless this is process 0. An error of all processes is then reported once, by process 0, whose
    end ends the others."""
    if rank:
        time.sleep(1)
