"""Programs on several processes: under mpiexec, and, where only sums matter, as threads with queues between them."""

import os
import queue
import shutil
import subprocess
import sys
import threading
import time

# Of an environment that is not active too: mpi4py finds the MPI beside it.
MPIEXEC = shutil.which("mpiexec", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))

# Open MPI asks to be told of root, and of more ranks than cores; MPICH takes no notice.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def start(n, *argv, **environment):
    """mpiexec -n n python argv, with a thread for each rank; one process without mpiexec."""
    env = {**os.environ, **OPEN_MPI, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [MPIEXEC, "-n", str(n)] if n > 1 else []
    command += [sys.executable, *map(str, argv)]
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # In a session of its own, so that no signal to a group of processes reaches the one that runs the tests.
    return subprocess.Popen(command, env=env | environment, start_new_session=True, **piped)


def run(n, *argv, seconds=60, **environment):
    """(exit status, stdout, stderr, seconds that it took)."""
    began = time.monotonic()
    process = start(n, *argv, **environment)
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err, time.monotonic() - began


class Thread:
    """A communicator between threads: what `exchange` uses of mpi4py's."""

    def __init__(self, rank, size, queues):
        self.rank, self.size, self.queues, self.sent = rank, size, queues, 0

    def Sendrecv(self, sent, to, recvbuf, source):
        self.sent += sent.size
        self.queues[self.rank, to].put(sent.copy())
        recvbuf[:] = self.queues[source, self.rank].get(timeout=10)


def on_threads(n, function):
    """[function(comm) for each of n ranks], at the same time."""
    queues = {(i, j): queue.Queue() for i in range(n) for j in range(n)}
    results = [None] * n

    def call(rank):
        results[rank] = function(Thread(rank, n, queues))

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
