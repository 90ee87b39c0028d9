"""Locks between threads, and how they survive a fork.

A child process has only the thread that forked, so nobody would release another thread's lock: in the child these locks
are free. Each guards data that is consistent at every line. A product of NumPy's BLAS is not: a fork during one makes
OpenBLAS hang, even in the parent. So os.fork() waits for running products.
"""

import os
import threading
import weakref


def acquire_all(*locks):
    """Acquire all of them. An error from a signal handler (Ctrl-C) is raised at the end: Python ignores errors here and
    forks anyway, and must not hold only some of the locks."""
    raised = None
    for lock in locks:
        held = None  # did this thread hold it before?
        while True:
            try:
                if held is None:
                    held = lock._is_owned()
                if held or not lock._is_owned():  # a handler may have raised just after acquire()
                    lock.acquire()
                break
            except BaseException as error:
                raised = error
    if raised is not None:
        raise raised


def free(*locks):
    """In a child process: release the locks that other threads held."""
    for lock in locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


class _Mine:
    """The lock of one thread."""

    __slots__ = "lock", "__weakref__"

    def __init__(self):
        self.lock = threading.RLock()


class _Multiplying(threading.local):
    """Each thread multiplies `with multiplying.mine.lock`, its own lock: threads do not wait for each other, but a fork
    waits for all."""

    _threads: weakref.WeakSet = weakref.WeakSet()
    _door = threading.RLock()

    def __init__(self):  # at a thread's first use
        self.mine = _Mine()
        with self._door:
            self._threads.add(self.mine)

    def acquire(self):
        """Wait for every thread's product to end. Meanwhile threads get `door` instead of their own lock: a thread that
        multiplies without a pause would otherwise reacquire its lock before this one could."""
        try:
            acquire_all(self._door)
        finally:
            self._closed = [(mine, mine.lock) for mine in self._threads]
            for mine, _ in self._closed:
                mine.lock = self._door
            acquire_all(*(lock for _, lock in self._closed))

    def release(self):
        for mine, lock in self._closed:
            mine.lock = lock
            lock.release()
        del self._closed
        self._door.release()


drawing = threading.RLock()  # reserving random numbers: no two threads get the same ones
multiplying = _Multiplying()  # during a product of NumPy's BLAS
loading = threading.RLock()  # making a backend, or compiling and loading kernels: once for all threads
accumulating = threading.RLock()  # adding to a .grad: nothing that another thread adds is lost

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: free(drawing, loading, accumulating))
    os.register_at_fork(
        before=multiplying.acquire, after_in_parent=multiplying.release, after_in_child=multiplying.release
    )
