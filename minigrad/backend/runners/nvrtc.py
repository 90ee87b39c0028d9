"""NVRTC, CUDA's compiler, by CuPy's own function for it: kernels as a GPU's machine code, kept in the cache on disk.

CuPy's RawModule would put -ftz=true after all options, so that float32 numbers below 1e-38 became 0 on a GPU alone.
"""

import contextlib
import functools
import hashlib
import json
import os
from pathlib import Path

from ..launch.source import source
from .compiler import CompilerError, folder, keep, log

OPTIONS = ("-std=c++17",)


def text(file, dtype, entry=None):
    """What NVRTC gets for kernels/<file>.cu on arrays of a dtype, by its name. entry: of elementwise kernels this one
    alone, since all take seven seconds."""
    return f"#include <cuda_fp16.h>\n{source(file, dtype, only=entry)}"


def compiled(code, label, arch=None, options=(), log_stream=None):
    """CUDA C++ as bytes: machine code for compute capability `arch` ('90'; None: of the GPU here), or PTX if that is
    newer than this NVRTC, or where CUPY_COMPILE_WITH_PTX=1. Raises CompilerError with what NVRTC says."""
    from cupy.cuda import compiler

    options = (*OPTIONS, *options, *(f"-I{folder}" for folder in [headers()] if folder))
    try:
        return compiler.compile_using_nvrtc(code, options, arch, f"{label}.cu", log_stream=log_stream)[0]
    except compiler.CompileException as error:
        raise CompilerError(f"NVRTC cannot compile {label}:\n{error.get_message().strip()}") from None


def binary(file, dtype, entry, arch):
    """kernels/<file>.cu compiled for a dtype, by its name: from the cache, or compiled. entry: see text. Where nothing
    can be kept, a line of log says why."""
    import cupy

    code, label = text(file, dtype, entry), "-".join([*file.split(), *([entry] if entry else []), dtype, arch])
    ptx = os.environ.get("CUPY_COMPILE_WITH_PTX", "")
    key = json.dumps([code, OPTIONS, arch, ptx, cupy.__version__, cupy.cuda.nvrtc.getVersion(), headers()])
    try:
        path = Path(folder(), f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.image")  # cubin or PTX
        if path.exists():
            return path.read_bytes()
    except (CompilerError, OSError) as error:
        _complain(str(error))
        return compiled(code, label, arch)
    made = compiled(code, label, arch)
    try:
        keep(path, made)
    except OSError as error:  # full, read-only, gone
        _complain(str(error))
    return made


@functools.cache
def _complain(why):
    log.warning("minigrad: compiled GPU kernels cannot be kept: %s", why)


@functools.cache
def headers():
    """The folder of CUDA's headers, where CuPy finds it: in a wheel beside it, or in a toolkit. None: nowhere."""
    import cupy

    places = []
    with contextlib.suppress(Exception):  # it is not installed, or finds nothing, with exceptions of its own
        from cuda.pathfinder import find_nvidia_header_directory

        places.append(find_nvidia_header_directory("cudart"))
    places.append(os.path.join(cupy.cuda.get_cuda_path() or "", "include"))
    return next((place for place in places if place and os.path.isfile(os.path.join(place, "cuda_fp16.h"))), None)
