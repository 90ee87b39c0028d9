"""The threads that native kernels run on, shared with NumPy's OpenBLAS where that can be had."""

import contextlib
import ctypes
import os
from pathlib import Path

import numpy as np

from .compiler import compiled

FLAGS = ("-std=c++17", "-O2", "-fopenmp")
# How often a worker looks for the next job before it sleeps. libgomp's 300,000 are best on a machine of one's own;
# where others want the cores too, a worker that has waited so long has used up its share of time when the job comes.
SPIN = "20000"


def start():
    """Compile and start the pool; NumPy's OpenBLAS runs its jobs on it from now on. -> the number of threads.

    Another BLAS, or an OpenBLAS that cannot be told, keeps threads of its own: right, but slower beside ours."""
    path = compiled((Path(__file__).parent / "pool.cpp").read_text(), FLAGS, "pool")
    with _environment(GOMP_SPINCOUNT=SPIN):  # read when libgomp is loaded
        library = ctypes.CDLL(str(path))
    blas = _openblas()
    if blas is not None and blas.threads() <= library.thread_limit():
        blas.set_callback(library.run_jobs)
    if hasattr(os, "register_at_fork"):  # OpenMP's workers do not survive a fork, and waiting for them would hang
        os.register_at_fork(after_in_child=lambda: _alone(library, blas))
    return library.threads()


@contextlib.contextmanager
def _environment(**variables):
    """Sets environment variables that are not set, for a while."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    yield
    for name in added:
        del os.environ[name]


def _alone(library, blas):
    library.set_threads(1)
    if blas is not None:
        blas.set_callback(None)
        blas.set_threads(1)


class _OpenBlas:
    """The three functions of NumPy's OpenBLAS that matter here."""

    def __init__(self, library):
        self.threads = library.scipy_openblas_get_num_threads64_
        self.set_threads = library.scipy_openblas_set_num_threads64_
        self._set_callback = library.scipy_openblas_set_threads_callback_function64_
        self._set_callback.argtypes = [ctypes.c_void_p]

    def set_callback(self, function):
        self._set_callback(ctypes.cast(function, ctypes.c_void_p) if function else None)


def _openblas():
    """NumPy's own OpenBLAS, if that is what it came with and it can be told whose threads to use; else None."""
    for path in (Path(np.__file__).parent.parent / "numpy.libs").glob("libscipy_openblas64_*.so*"):
        try:
            return _OpenBlas(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            continue
    return None
