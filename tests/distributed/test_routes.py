"""Sums over processes of Tensors on a GPU: the same bits by each route that MINIGRAD_MPI names."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.base.errors import RanksError
from minigrad.distributed import routes
from minigrad.distributed.tree import tree_sum

from ..char_lm.runs import SCRIPT, WORDS, options
from .ranks import run
from .test_same_bits import FILES, SETTINGS

# Where there is no NCCL: its functions that are used, on MPI. What is queued is sent at groupEnd, after what the stream
# had to do, and a send or a receive outside of a group is refused, as it would wait for ever.
NCCL = """
import sys, types
import cupy
import numpy as np
from mpi4py import MPI

class NcclError(RuntimeError):
    pass

group, KINDS = None, {2: np.float64, 1: np.float32, 0: np.float16}

class NcclCommunicator:
    def __init__(self, size, unique, rank):
        assert unique == b"unique" and (size, rank) == (MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank)
        if len(sys.argv) > 3:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: invalid usage")

    def send(self, pointer, count, kind, peer, stream):
        array = np.empty(count, KINDS[kind])
        cupy.cuda.runtime.streamSynchronize(stream)
        cupy.cuda.runtime.memcpy(array.ctypes.data, pointer, array.nbytes, cupy.cuda.runtime.memcpyDeviceToHost)
        group.append(MPI.COMM_WORLD.Isend(array, peer))

    def recv(self, pointer, count, kind, peer, stream):
        array = np.empty(count, KINDS[kind])
        group.append((MPI.COMM_WORLD.Irecv(array, peer), array, pointer))

def groupStart():
    global group
    group = []

def groupEnd():
    global group
    for each in group:
        if isinstance(each, tuple):
            each[0].Wait()
            cupy.cuda.runtime.memcpy(each[2], each[1].ctypes.data, each[1].nbytes, cupy.cuda.runtime.memcpyHostToDevice)
        else:
            each.Wait()
    group = None

fake = types.ModuleType("cupy.cuda.nccl")
fake.__dict__.update(available=True, get_unique_id=lambda: b"unique", NCCL_FLOAT64=2, NCCL_FLOAT32=1, NCCL_FLOAT16=0,
                     **{f.__name__: f for f in (NcclCommunicator, NcclError, groupStart, groupEnd)})
sys.modules["cupy.cuda.nccl"] = cupy.cuda.nccl = fake
"""
SUMS = """
import sys
import numpy as np
import minigrad as mg
from minigrad.base import cli
from minigrad import distributed
{nccl}
@cli.command("sums")
def main(argv):
    device, out = argv[:2]
    with distributed.world() as world:
        shards, totals = distributed.Shards(world, 8), []
        for parts in {parts}:
            total = shards.sum(lambda part: part.reshape(-1) * 1, mg.tensor(parts, device=device))
            assert total.device == device
            totals.append(total.to("cpu").numpy())
        np.savez(f"{{out}}{{world.rank}}.npz", *totals)

cli.run(main)
"""
SIZES = (1, np.float32), (2, np.float64), (7, np.float32), (7, np.float32), (1000, np.float16), (100_003, np.float32)
PARTS = f"[mg.Generator(i).normal((8, n), t) for i, (n, t) in enumerate({[(n, t.__name__) for n, t in SIZES]})]"


def sums(n, route, tmp_path, *argv, device="cuda"):
    (tmp_path / "sums.py").write_text(SUMS.format(nccl=NCCL * (route == "nccl"), parts=PARTS))
    # The first to run on the rig compiles the kernels.
    return run(n, tmp_path / "sums.py", device, tmp_path / "rank", *argv, seconds=500, MINIGRAD_MPI=route)


@pytest.mark.gpu
@pytest.mark.needs("mpiexec")
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("route", routes.ROUTES)
def test_each_route_has_the_bits_of_the_tree(n, route, tmp_path):
    status, _, err, _ = sums(n, route, tmp_path)
    assert (status, err) == (0, "")
    for rank in range(n):
        found = np.load(tmp_path / f"rank{rank}.npz")
        for i, (size, dtype) in enumerate(SIZES):
            parts = mg.Generator(i).normal((8, size), dtype)
            assert np.array_equal(found[f"arr_{i}"], tree_sum(list(parts.copy()))), (route, rank, size)


@pytest.mark.gpu
@pytest.mark.needs("mpiexec")
@pytest.mark.parametrize("route", ["host", "cuda"])
def test_training_on_gpus_writes_the_files_of_one(route, tmp_path):
    (tmp_path / "book.txt").write_text(WORDS * 50)
    argv = "--text", tmp_path / "book.txt", *options(SETTINGS | dict(steps=3, shards=2)), "--device", "cuda"
    for n in (1, 2):
        status, _, err, _ = run(n, SCRIPT, *argv, "--out", tmp_path / str(n), seconds=500, MINIGRAD_MPI=route)
        assert (status, err) == (0, "")
    assert [(tmp_path / "1" / name).read_bytes() for name in FILES] == [
        (tmp_path / "2" / name).read_bytes() for name in FILES
    ]


@pytest.mark.gpu
@pytest.mark.needs("mpiexec")
def test_what_nccl_refuses_is_one_line(tmp_path):
    status, _, err, _ = sums(2, "nccl", tmp_path, "refused")
    assert status == 2 and err.count("MINIGRAD_MPI=nccl: NCCL_ERROR_INVALID_USAGE: invalid usage; each process") == 1


@pytest.mark.slow
@pytest.mark.needs("mpiexec")
@pytest.mark.parametrize("route", ["cuda", "nccl"])
def test_numbers_on_the_host_stay_there(route, tmp_path):
    (tmp_path / "sums.py").write_text(SUMS.format(nccl="", parts=PARTS))
    status, _, err, _ = run(2, tmp_path / "sums.py", "cpu", tmp_path / "rank", MINIGRAD_MPI=route)
    assert (status, err) == (0, "") and len(np.load(tmp_path / "rank1.npz")) == len(SIZES)


@pytest.mark.slow
@pytest.mark.needs("mpiexec")
def test_a_route_that_there_is_not(tmp_path):
    status, _, err, _ = sums(2, "tcp", tmp_path, device="cpu")
    assert status == 2 and err.count("sums: MINIGRAD_MPI=tcp: there are host, cuda, nccl") == 1


def test_the_default_and_one_process(monkeypatch):
    monkeypatch.delenv("MINIGRAD_MPI", raising=False)
    assert routes.name() == "host"
    monkeypatch.setenv("MINIGRAD_MPI", "tcp")
    with pytest.raises(RanksError, match="there are host, cuda, nccl"):
        routes.route(None)
