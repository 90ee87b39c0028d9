"""Programs that compute in several threads and processes, for test_threads.py: each runs in a Python of its own.

    python tests/backend/in_threads.py bits 8       compares results of 8 threads with those of one, to the bit
A program prints one line of JSON. The backend is the one that MINIGRAD_CPU names."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import numpy as np

import minigrad as mg

CASES = [(4, 8, 3), (33, 65, 17), (48, 128, 96), (20, 1100, 130), (192, 192, 192)]  # n, k, m of x @ w; the last
# three are large enough for BLAS to cut up, or for kernels to run in several blocks
LIMIT = 20  # seconds after which a child is taken to hang


def inputs(case, dtype):
    n, k, m = CASES[case]
    rng = np.random.default_rng(case)
    return rng.standard_normal((n, k)).astype(dtype), rng.standard_normal((k, m)).astype(dtype)


def compute(case, dtype="float32"):
    """(y = x @ w, a loss of y, its gradients for x and w), as arrays."""
    x, w = (mg.tensor(a, requires_grad=True) for a in inputs(case, dtype))
    y = x @ w
    loss = (y.softmax(1) ** 2).sum()
    loss.backward()
    return [y.detach().numpy(), loss.detach().numpy(), x.grad.numpy(), w.grad.numpy()]


def compute_beside_numpy(case, dtype):
    """compute(), and NumPy's own product of the same."""
    a, b = inputs(case, dtype)
    return [*compute(case, dtype), a @ b]


def in_threads(n, work):
    """work(i) in n threads at once -> what they return. Raises the first error that one of them raised."""
    gate, errors, results = threading.Barrier(n), [], [None] * n

    def run(i):
        try:
            gate.wait()
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def bits(threads, rounds=600):
    """Results of threads that each have their own tensors."""
    todo = [(case, dtype) for case in range(len(CASES)) for dtype in ("float32", "float64")]
    expected = {key: compute_beside_numpy(*key) for key in todo}
    compared, wrong = [0] * threads, [0] * threads

    def work(i):
        for round in range(rounds // threads):
            key = todo[(round // 8 + i) % len(todo) if round % 8 == 0 else (round + i) % 4]  # mostly the small ones
            for y, wanted in zip(compute_beside_numpy(*key), expected[key]):
                compared[i] += 1
                wrong[i] += not np.array_equal(y, wanted)

    in_threads(threads, work)
    return {"compared": sum(compared), "wrong": sum(wrong)}


def first_use(threads):
    """Tensors that were made by the first op of each thread can be added."""
    made = [None] * threads

    def work(i):
        made[i] = mg.ones(2, 3) * i

    in_threads(threads, work)
    return {"backends": len({id(x.storage.backend) for x in made}), "sum": sum(made[1:], made[0]).sum().item()}


def shared_leaves(threads, steps=40):
    """.grad of leaves that all threads use is the sum of all their gradients. Whole numbers, so that sums are exact."""
    w, v = mg.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True), mg.ones(3000, requires_grad=True)

    def work(i):
        for _ in range(steps):
            ((mg.tensor([[1.0, 2.0], [0.0, 1.0]]) @ w).sum() + (v * 2).sum()).backward()
            (w * 3).sum().backward(inputs=[w])

    in_threads(threads, work)
    return {"w": (w.grad / (steps * threads)).tolist(), "v": np.unique(v.grad.numpy() / (steps * threads)).tolist()}


def fork(threads, children=25):
    """Children of a process whose other threads compute: how many hung, and how many computed something else.

    (Beside threads that multiply in plain NumPy, os.fork() hangs the parent, whether minigrad is there or not.)"""
    expected, stop = compute(4), threading.Event()

    def work():
        while not stop.is_set():
            for case in range(len(CASES)):
                compute(case)

    busy = [threading.Thread(target=work) for _ in range(threads)]
    for thread in busy:
        thread.start()
    ended = []
    for _ in range(children):
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            same = all(np.array_equal(y, wanted) for y, wanted in zip(compute(4), expected))
            os._exit(0 if same else 1)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        time.sleep(0.01)
    stop.set()
    for thread in busy:
        thread.join()
    return {"hung": ended.count(-signal.SIGALRM), "wrong": len(ended) - ended.count(0), "children": len(ended)}


def _job(case):
    return [y.tobytes() for y in compute(case)]


def processes(method):
    """Workers of multiprocessing, started while this process has a backend and a pool of threads."""
    expected = [_job(case) for case in range(len(CASES))]
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map_async(_job, range(len(CASES))).get(timeout=LIMIT * 3)
    return {"wrong": sum(a != b for a, b in zip(found, expected)), "jobs": len(found)}


def workers(_):
    """The number of threads that have been started by kernels on small rows, and on large ones."""
    counts = [len(os.listdir("/proc/self/task"))]
    for n in (8, 4096):
        x = mg.ones(32, n)
        x.softmax(1), x.sum(1), mg.nn.functional.layer_norm(x, (n,))
        counts.append(len(os.listdir("/proc/self/task")))
    return {"small": counts[1] - counts[0], "large": counts[2] - counts[0]}


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)  # threads take turns 500 times as often
    program, argument = sys.argv[1:]
    print(json.dumps(globals()[program](int(argument) if argument.isdecimal() else argument)))
