"""What mpiexec says of a process, and what follows: threads, waiting, errors where no MPI connects the processes."""

import os
import subprocess
import sys

import pytest

from minigrad.base import launched
from minigrad.base.launched import Rank, rank_in

from .. import ROOT
from ..distributed.ranks import MPIEXEC

LAUNCHERS = {
    "MPICH": dict(PMI_RANK="3", PMI_SIZE="8", MPI_LOCALRANKID="1", MPI_LOCALNRANKS="4"),
    "Open MPI": dict(
        PMIX_RANK="3",
        OMPI_COMM_WORLD_RANK="3",
        OMPI_COMM_WORLD_SIZE="8",
        OMPI_COMM_WORLD_LOCAL_RANK="1",
        OMPI_COMM_WORLD_LOCAL_SIZE="4",
    ),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_place_among_others(name):
    assert rank_in(LAUNCHERS[name]) == Rank(rank=3, size=8, beside=1, local=4)


def test_none_and_srun():
    assert rank_in({}) == rank_in({"PMI_RANK": "x"}) == rank_in({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == Rank()
    assert rank_in(dict(PMIX_RANK="1", SLURM_STEP_NUM_TASKS="4", SLURM_LOCALID="1")) == Rank(1, 4, 1, 1)


def test_a_job_of_another_launcher_around_it():
    """mpiexec of Open MPI within a step of Slurm, which says that it has one task."""
    slurm = dict(SLURM_STEP_NUM_TASKS="1", SLURM_LOCALID="0", PMIX_RANK="0")
    assert rank_in(slurm | LAUNCHERS["Open MPI"]) == Rank(3, 8, 1, 4)
    assert rank_in({"PMI_RANK": "1"}) == Rank()


def test_cores_of_a_process(monkeypatch):
    monkeypatch.setattr(launched, "local", 4)

    def affinity(own, parents):
        def of(pid):
            if pid and parents is None:
                raise ProcessLookupError
            return parents if pid else own

        monkeypatch.setattr(os, "sched_getaffinity", of)
        return launched.cores()

    every = set(range(8))
    assert affinity(every, every) == (2, 8)
    assert affinity({0, 1, 2}, every) == (3, 8)  # the launcher has bound each to cores of its own
    assert affinity(every, None) == (2, 8)  # the launcher is not to be asked
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert launched.cores() == (3, 12)


def test_waiting_yields_where_there_are_more_processes_than_cores(monkeypatch):
    monkeypatch.setattr(launched, "local", 4)
    monkeypatch.setattr(launched, "size", 8)
    monkeypatch.setattr(launched, "own_gpu", lambda environment: None)

    def prepared(cores, **environment):
        monkeypatch.setattr(launched, "cores", lambda: (1, cores))
        launched.prepare(environment)
        return environment

    both = dict(MPIR_CVAR_ENABLE_HEAVY_YIELD="1", OMPI_MCA_mpi_yield_when_idle="1")
    assert prepared(4) == dict(OMP_NUM_THREADS="1") and prepared(2) == dict(OMP_NUM_THREADS="1") | both
    own = dict.fromkeys(["OMP_NUM_THREADS", *both], "of the user")
    assert prepared(2, **own) == own


def said(code, **variables):
    """A process as mpiexec would start it, without an mpiexec. -> (exit status, stdout, stderr)"""
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    env |= {"PYTHONPATH": str(ROOT)} | variables
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout.strip(), run.stderr


THREADS = "import os, minigrad; print(*map(os.environ.get, ('OMP_NUM_THREADS', 'MPIR_CVAR_ENABLE_HEAVY_YIELD')))"


@pytest.mark.slow
def test_threads_are_cores_by_ranks_and_the_user_wins():
    cores = len(os.sched_getaffinity(0))
    several = dict(PMI_RANK="0", PMI_SIZE="64", MPI_LOCALRANKID="0")
    assert said(THREADS, PMI_RANK="0", PMI_SIZE="1", MPI_LOCALNRANKS="1")[1] == "None None"
    assert said(THREADS, **several, MPI_LOCALNRANKS="1")[1] == f"{cores} None"
    assert said(THREADS, **several, MPI_LOCALNRANKS=str(cores))[1] == "1 None"
    assert said(THREADS, **several, MPI_LOCALNRANKS=str(2 * cores))[1] == "1 1"  # they take turns, and do not spin
    assert said(THREADS, **several, MPI_LOCALNRANKS=str(2 * cores), OMP_NUM_THREADS="3")[1] == "3 1"


GPU = "import os, minigrad; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


@pytest.mark.slow
def test_a_gpu_for_each_process_of_a_machine(tmp_path, monkeypatch):
    third = dict(PMI_RANK="3", PMI_SIZE="4", MPI_LOCALRANKID="3", MPI_LOCALNRANKS="4")
    assert said(GPU, **third, CUDA_VISIBLE_DEVICES="4,5,6,7")[1] == "7"
    assert said(GPU, **third, CUDA_VISIBLE_DEVICES="4,5")[1] == "5"  # two share each
    assert said(GPU, **third, CUDA_VISIBLE_DEVICES="GPU-8a")[1] == "GPU-8a"  # Slurm may have dealt them out
    assert said(GPU, **third, CUDA_VISIBLE_DEVICES="")[1] == ""  # none is to be seen
    assert said(GPU, CUDA_VISIBLE_DEVICES="4,5")[1] == "4,5"
    monkeypatch.setattr(launched, "beside", 3)
    assert launched.own_gpu({}, tmp_path / "gpus") is None  # no driver
    for name in ("0000:00:1e.0", "0000:00:1f.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert launched.own_gpu({}, tmp_path / "gpus") == "1"


WITHOUT = """
import sys
sys.modules["mpi4py"] = None
from minigrad.base import cli
from minigrad import distributed

@cli.command("prog")
def main(argv):
    with distributed.world():
        pass

cli.run(main)
"""


@pytest.mark.slow
def test_without_mpi4py_one_process_works_and_several_are_told_what_to_install():
    assert said(WITHOUT)[::2] == (0, "")
    status, _, err = said(WITHOUT, **LAUNCHERS["MPICH"])
    assert status == 2 and err.startswith("prog: training on 8 processes needs mpi4py and an MPI, such as MPICH (")


@pytest.mark.needs("mpiexec")
def test_the_mpiexec_of_another_mpi_is_named():
    """Each process then sees only itself."""
    place = dict(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
    if b"open" in subprocess.check_output([MPIEXEC, "--version"]).lower():
        place = dict(PMI_RANK="0", PMI_SIZE="2")
    status, _, err = said(WITHOUT[WITHOUT.index("from minigrad") :], **place)
    assert status == 2 and "mpiexec belongs to another MPI than mpi4py, which has " in err
