"""Locks between threads. The data that each guards is consistent at every line of the code that holds it.

After os.fork(), the child has only the thread that forked, so nobody would release a lock that another thread held. In
the child these locks are therefore free.
"""

import os
import threading

drawing = threading.RLock()  # held to reserve random numbers, so that no two threads get the same ones
loading = threading.RLock()  # held to make a backend, or to compile and load kernels, once for all threads
accumulating = threading.RLock()  # held to add to a .grad, so that no thread's gradient is lost


def free(*locks):
    """Release the locks that other threads held, in a child process."""
    for lock in locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: free(drawing, loading, accumulating))
