"""Checks in several threads, and in a child that was forked in the middle of one."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck
from minigrad.nn import functional as F


@pytest.fixture(autouse=True)
def _many_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(check):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: bool(check()), range(4)))


def test_the_same_module_in_several_threads():
    model, x = nn.Linear(3, 2), mg.randn(4, 3)
    before = [(p.array, p.dtype, p.detach().numpy().copy()) for p in model.parameters()]
    quick = {"probes": (), "raise_on_fail": False}
    assert all(in_threads(lambda: gradcheck(lambda m, x: m(x).tanh(), model, x, **quick)))
    for p, (array, dtype, numbers) in zip(model.parameters(), before):
        assert p.array is array and p.dtype == dtype
        np.testing.assert_array_equal(p.detach().numpy(), numbers)


def test_functions_that_draw_in_several_threads():
    x = mg.randn(3, 4)
    state = mg.default_generator.state
    checked = {"probes": ("repeatable", "linearity"), "raise_on_fail": False}
    assert all(in_threads(lambda: gradcheck(lambda x: F.dropout(x.sin(), 0.5, training=True), x, **checked)))
    assert mg.default_generator.state == state


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_checks():
    inside, done = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        done.wait(60)
        return x * x

    thread = threading.Thread(target=gradcheck, args=(slow, mg.randn(2)), kwargs={"probes": ()})
    thread.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if gradcheck(lambda x: x * x, mg.tensor([1.0, 2.0]), probes=()) else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
