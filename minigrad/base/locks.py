"""Locks between threads. Each guards data that is consistent at every line.

A child process has only the thread that forked, so nobody would release another thread's lock: in the child these locks
are free.
"""

import os
import threading

drawing = threading.RLock()  # reserving random numbers: no two threads get the same ones
loading = threading.RLock()  # making a backend, or compiling and loading kernels: once for all threads
accumulating = threading.RLock()  # adding to a .grad: nothing that another thread adds is lost


def free(*locks):
    """In a child process: release the locks that other threads held."""
    for lock in locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: free(drawing, loading, accumulating))
