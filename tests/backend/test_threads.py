"""Threads, forks and processes: the results are those that one thread alone computes."""

import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend
from minigrad.base import locks

from .. import ROOT

PROGRAMS = ROOT / "tests/backend/in_threads.py"
BACKENDS = "native", "numpy"


def run(*arguments, on):
    """The output of a program of in_threads.py, on all cores. (A worker of pytest has only one.)"""
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    env |= {"PYTHONPATH": str(ROOT), "MINIGRAD_CPU": on, "OMP_NUM_THREADS": str(max(2, os.cpu_count() or 1))}
    command = [sys.executable, "-W", "ignore:.*fork:DeprecationWarning", str(PROGRAMS), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("on", BACKENDS)
@pytest.mark.parametrize("threads", ["2", "4", "8"])
def test_threads_compute_what_one_does(on, threads):
    """Products, losses and gradients of minigrad, and products of plain NumPy beside it, to the bit."""
    found = run("bits", threads, on=on)
    assert found == {"compared": 3000, "wrong": 0}  # 18,000 in the six runs


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_small_rows_are_not_worth_another_thread():
    started = run("workers", "", on="native")
    assert started["small"] == 0 < started["large"]


@pytest.mark.slow
@pytest.mark.parametrize("on", BACKENDS)
def test_the_first_use_from_many_threads_makes_one_backend(on):
    assert run("first_use", "8", on=on) == {"backends": 1, "sum": 6.0 * sum(range(8))}


def test_a_backend_is_made_once_however_many_ask_for_it():
    made = []

    @backend.once
    def make(name):
        time.sleep(0.05)  # for the others to come
        made.append(name)
        return object()

    found = []
    threads = [threading.Thread(target=lambda: found.append(make("cpu"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["cpu"] and len(set(map(id, found))) == 1


@pytest.mark.parametrize("on", ["native", pytest.param("numpy", marks=pytest.mark.slow)])
def test_no_gradient_of_a_shared_leaf_is_lost(on):
    assert run("shared_leaves", "8", on=on) == {"w": [[4.0, 4.0], [6.0, 6.0]], "v": [2.0]}


class Meet(mg.Op):
    """y = a b. Its backward waits until the other thread runs it too, so that two walks run it at the same time."""

    cases = [mg.case((2,), (2,))]
    meeting = None

    def forward(self, a, b):
        self.save_inputs(a, b)
        return a * b

    def backward(self, dy):
        a, b = self.saved_inputs()
        if Meet.meeting is not None:
            Meet.meeting.wait(10)
        needs = self.needs
        if Meet.meeting is not None:
            Meet.meeting.wait(10)
        return dy * b if needs[0] else None, dy * a if needs[1] else None


def both(work):
    """[work(0), work(1)], at the same time."""
    found = [None, None]

    def put(i):
        found[i] = work(i)

    threads = [threading.Thread(target=put, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_walks_over_one_graph_ask_for_what_they_need(monkeypatch):
    a, b = mg.tensor([2.0, 3.0], requires_grad=True), mg.tensor([5.0, 7.0], requires_grad=True)
    y = Meet.apply(a, b).sum()
    monkeypatch.setattr(Meet, "meeting", threading.Barrier(2))
    da, db = both(lambda i: mg.grad(y, (a, b)[i], retain_graph=True)[0].tolist())
    assert (da, db) == ([5.0, 7.0], [2.0, 3.0])


def test_two_walks_over_one_graph_have_one_node_for_an_output():
    """exp's backward wraps its output again. The two gradients can be differentiated together afterwards."""
    x = mg.tensor(0.5, requires_grad=True, dtype=mg.float64)
    y = (x * 1).exp() * 1
    first, second = both(lambda i: mg.grad(y, x, create_graph=True)[0])
    (ddx,) = mg.grad(first * 2 + second * 3, x)
    assert ddx.item() == pytest.approx(5 * np.exp(0.5), rel=1e-12)


def test_a_walk_whose_graph_another_one_frees_is_told(monkeypatch):
    a, b = mg.ones(2, requires_grad=True), mg.ones(2, requires_grad=True)
    y = Meet.apply(a, b)
    between = Meet.saved_inputs

    def late(self):  # another walk goes first, just as this one is about to read what the op saved
        monkeypatch.setattr(Meet, "saved_inputs", between)
        y.backward(mg.ones(2))
        return between(self)

    monkeypatch.setattr(Meet, "saved_inputs", late)
    with pytest.raises(mg.GraphError, match=r"meet.*were freed; pass retain_graph=True"):
        mg.grad(y.sum(), [a, b])


def test_a_walk_is_newer_than_every_array_made_before_it(monkeypatch):
    """Otherwise .grad might get the memory of an array that another thread holds."""
    x, before = mg.ones(1), mg.autograd.Storage.begin_walk()
    monkeypatch.setattr(mg.autograd.Storage, "walk", 0)  # as a slow thread leaves it, which had begun an older one
    assert mg.autograd.Storage.begin_walk() == before + 1 > x.storage.born


def test_random_numbers_are_set_aside_by_one_thread_at_a_time():
    """No random number is given out twice."""
    generator, begun = mg.Generator(1), threading.Event()
    found = []

    def take():
        begun.set()
        found.append(generator.reserve(5).offset)

    thread = threading.Thread(target=take)
    with locks.drawing:
        thread.start()
        begun.wait()
        time.sleep(0.05)
        assert found == []
    thread.join()
    assert found == [0] and generator.reserve(1).offset == 2


@pytest.mark.slow
def test_a_fork_beside_threads_that_compute():
    """(With the numpy backend, a fork during a product of NumPy's BLAS may hang, as it does without minigrad.)"""
    assert run("fork", "2", on="native") == {"hung": 0, "wrong": 0, "children": 25}


@pytest.mark.parametrize("name", ["accumulating", "loading", "drawing"])
def test_a_child_finds_no_lock_taken(name):
    """A fork does not wait for a thread that holds a lock; that thread and the forking thread keep their locks."""
    lock, ended = getattr(locks, name), []

    def fork(mine):
        if (child := os.fork()) == 0:
            os._exit(0 if lock._is_owned() == mine and lock.acquire(timeout=5) else 1)
        ended.append(os.waitpid(child, 0)[1])

    with lock:
        fork(mine=True)
        thread = threading.Thread(target=fork, args=(False,))
        thread.start()
        thread.join()
        assert ended == [0, 0] and lock._is_owned()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("on", BACKENDS)
def test_multiprocessing(on, method):
    assert run("processes", method, on=on) == {"wrong": 0, "jobs": 5}
