"""Locks that a fork waits for.

A child process begins with the one thread that forked. What another thread was doing at that moment stays half done in
it for ever, and a lock that thread held is never released; NumPy's OpenBLAS, forked within a product, even hangs the
parent. So os.fork() takes all of these locks first: it waits until nobody is at work behind one, and holds them until
both processes go on. A thread may take them only in the order in which the fork does: accumulating, loading,
emulating, multiplying, drawing.
"""

import functools
import os
import threading
import weakref


def acquire_all(*locks):
    """Take them all. What the handler of a signal raises meanwhile, at Ctrl-C say, is raised in the end: the fork goes
    on after an error, which Python says it ignores, and must not find some of them taken."""
    raised = None
    for lock in locks:
        held = None  # by this thread, before
        while True:
            try:
                if held is None:
                    held = lock._is_owned()
                if held or not lock._is_owned():  # a handler may have raised as soon as it was taken
                    lock.acquire()
                break
            except BaseException as error:
                raised = error
    if raised is not None:
        raise raised


class _Mine:
    """The lock of one thread."""

    __slots__ = "lock", "__weakref__"

    def __init__(self):
        self.lock = threading.RLock()


class _Multiplying(threading.local):
    """A thread multiplies `with multiplying.mine.lock`, a lock of its own: threads do not wait for each other, only
    a fork for all of them."""

    _threads: weakref.WeakSet = weakref.WeakSet()
    _door = threading.RLock()

    def __init__(self):  # at a thread's first use
        self.mine = _Mine()
        with self._door:
            self._threads.add(self.mine)

    def acquire(self):
        """Wait for every thread's product to end. From now on they find the door in place of their lock: a thread that
        multiplies without a pause would otherwise take its own again before this one could."""
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


drawing = threading.RLock()  # setting random numbers aside: no two threads get the same
multiplying = _Multiplying()  # within a product of NumPy's BLAS
emulating = threading.RLock()  # a launch of the emulator, which runs one at a time
loading = threading.RLock()  # making a backend, or compiling and loading kernels: once for all threads
accumulating = threading.RLock()  # adding to a .grad: no sum of another thread is lost

if hasattr(os, "register_at_fork"):
    for _lock in (drawing, multiplying, emulating, loading, accumulating):  # the last is taken first
        _before = _lock.acquire if _lock is multiplying else functools.partial(acquire_all, _lock)
        os.register_at_fork(before=_before, after_in_parent=_lock.release, after_in_child=_lock.release)
