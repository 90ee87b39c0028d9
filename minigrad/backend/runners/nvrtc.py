"""NVRTC, CUDA's compiler, called by CuPy's function for it. Machine code for a GPU is kept in the cache folder.

(CuPy's RawModule cannot be used to compile: it adds -ftz=true, and float32 numbers below 1e-38 would become 0.)
"""

import contextlib
import functools
import hashlib
import json
import os
from pathlib import Path

from ..launch.source import source
from .compiler import CompilerError, folder, keep, kept, log

OPTIONS = ("-std=c++17",)


def text(file, dtype, entry=None):
    """The text that NVRTC gets for kernels/<file>.cu on arrays of a dtype, given by its name. entry: the only
    elementwise kernel to generate, since all of them take seven seconds to compile."""
    return f"#include <cuda_fp16.h>\n{source(file, dtype, only=entry)}"


def compile_source(code, label, arch=None, options=(), log_stream=None):
    """Return compiled CUDA C++ as bytes. Raises CompilerError with the message of NVRTC.

    The bytes are machine code for the compute capability `arch`, such as '90' (None: of this machine's GPU). They are
    PTX if `arch` is newer than this NVRTC, or if CUPY_COMPILE_WITH_PTX=1."""
    from cupy.cuda import compiler

    options = (*OPTIONS, *options, *(f"-I{folder}" for folder in [headers()] if folder))
    try:
        return compiler.compile_using_nvrtc(code, options, arch, f"{label}.cu", log_stream=log_stream)[0]
    except compiler.CompileException as error:
        raise CompilerError(f"NVRTC cannot compile {label}:\n{error.get_message().strip()}") from None


def binary(file, dtype, entry, arch):
    """kernels/<file>.cu compiled for a dtype, given by its name: from the cache, or compiled now. entry: see text(). If
    the cache cannot be used, a warning says why."""
    import cupy

    code, label = text(file, dtype, entry), "-".join([*file.split(), *([entry] if entry else []), dtype, arch])
    ptx = os.environ.get("CUPY_COMPILE_WITH_PTX", "")
    key = json.dumps([code, OPTIONS, arch, ptx, cupy.__version__, cupy.cuda.nvrtc.getVersion(), headers()])
    try:
        path = Path(folder(), f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.image")  # cubin or PTX
        image = kept(path)
        if image is not None:
            return image
    except (CompilerError, OSError) as error:
        _warn_once(str(error))
        return compile_source(code, label, arch)
    made = compile_source(code, label, arch)
    try:
        keep(path, made)
    except OSError as error:  # the disk is full, read-only or gone
        _warn_once(str(error))
    return made


@functools.cache
def _warn_once(why):
    log.warning("minigrad: compiled GPU kernels cannot be kept: %s", why)


@functools.cache
def headers():
    """The folder of CUDA's headers that CuPy would find: in a wheel beside CuPy, or in a toolkit. None if there is
    none."""
    import cupy

    places = []
    with contextlib.suppress(Exception):  # not installed; or nothing found, which has exceptions of its own
        from cuda.pathfinder import find_nvidia_header_directory

        places.append(find_nvidia_header_directory("cudart"))
    places.append(os.path.join(cupy.cuda.get_cuda_path() or "", "include"))
    return next((place for place in places if place and os.path.isfile(os.path.join(place, "cuda_fp16.h"))), None)
