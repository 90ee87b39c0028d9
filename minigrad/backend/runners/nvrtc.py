"""NVRTC, CUDA's compiler: kernels as a GPU's machine code, kept in the cache on disk. It needs no GPU.

CuPy's RawModule would put -ftz=true after all options, so that float32 numbers below 1e-38 became 0 on a GPU alone.
Here they are what they are on every other device.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os

from ..launch.source import source
from .toolchain import CompilerError, cache

log = logging.getLogger("minigrad")
OPTIONS = ("-std=c++17", "-default-device")
FORMAT = 1  # of the files in the cache


def text(file, dtype, entry=None):
    """What NVRTC gets for kernels/<file>.cu on arrays of a dtype, by its name. entry: of elementwise kernels this one
    alone, since all take seven seconds."""
    return f"#include <cuda_fp16.h>\n{source(file, dtype, only=entry)}"


def target(cupy, capability):
    """'sm_90' for a GPU of compute capability '90', as CuPy says it: machine code for it. 'compute_90' is PTX, which
    the driver translates: for a GPU newer than this NVRTC, and where CUPY_COMPILE_WITH_PTX=1. Raises CompilerError for
    one too old."""
    nvrtc = cupy.cuda.nvrtc
    wanted, known = int(capability), nvrtc.getSupportedArchs()
    usable = [arch for arch in known if arch <= wanted]
    if not usable:
        version = ".".join(map(str, nvrtc.getVersion()))
        raise CompilerError(f"NVRTC {version} compiles for compute capability {min(known)} and newer, not for {wanted}")
    virtual = wanted not in known or os.environ.get("CUPY_COMPILE_WITH_PTX") == "1"
    return f"compute_{max(usable)}" if virtual else f"sm_{wanted}"


class Nvrtc:
    """The NVRTC that a CuPy has found, compiling for one target()."""

    def __init__(self, cupy, target):
        self.nvrtc, self.target, self.headers = cupy.cuda.nvrtc, target, headers(cupy)

    def binary(self, file, dtype, entry=None):
        """kernels/<file>.cu compiled for a dtype, by its name, as bytes: from the cache, or compiled. entry: see text.

        Raises CompilerError if it does not compile. Where nothing can be kept, a line of log says why."""
        code = text(file, dtype, entry)
        key = json.dumps([FORMAT, code, OPTIONS, self.target, self.build, self.headers])
        label = "-".join([*file.split(), *([entry] if entry else []), dtype, self.target])
        try:
            path = os.path.join(cache.folder(), f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.cubin")
            found = cache.contents(path)
        except (CompilerError, OSError) as error:
            _not_kept(error)
            return self.compiled(code, label)[0]
        if found is None:
            found, _ = self.compiled(code, label)
            try:
                cache.keep(path, found)
            except OSError as error:  # full, read-only, gone
                _not_kept(error)
        return found

    def compiled(self, code, label, *options):
        """CUDA C++ as (bytes of machine code or PTX, what NVRTC said). Raises CompilerError with what it says."""
        if self.headers is not None:
            options = f"-I{self.headers[0]}", *options
        nvrtc, program = self.nvrtc, self.nvrtc.createProgram(code, f"{label}.cu", (), ())
        try:
            nvrtc.compileProgram(program, (*OPTIONS, f"-arch={self.target}", *options))
            take = nvrtc.getCUBIN if self.target.startswith("sm_") else nvrtc.getPTX
            return take(program), nvrtc.getProgramLog(program)
        except nvrtc.NVRTCError:
            raise CompilerError(f"NVRTC cannot compile {label}:\n{nvrtc.getProgramLog(program).strip()}") from None
        finally:
            nvrtc.destroyProgram(program)

    @functools.cached_property
    def build(self):
        """What changes with every build of NVRTC: the PTX of nothing, which names it in a comment."""
        program = self.nvrtc.createProgram("", "nothing.cu", (), ())
        try:
            self.nvrtc.compileProgram(program, ())
            return self.nvrtc.getPTX(program).decode()
        finally:
            self.nvrtc.destroyProgram(program)


def headers(cupy):
    """(the folder of CUDA's headers, the size of one of them, when it was written), where CuPy finds them: in a wheel
    beside it, or in a toolkit. None: nowhere."""
    for folder in _places(cupy):
        with contextlib.suppress(OSError):
            about = os.stat(os.path.join(folder, "cuda_fp16.h"))
            return folder, about.st_size, about.st_mtime_ns
    return None


def _places(cupy):
    with contextlib.suppress(Exception):  # it is not installed, or finds nothing, with exceptions of its own
        from cuda.pathfinder import find_nvidia_header_directory

        if found := find_nvidia_header_directory("cudart"):
            yield found
    if root := cupy.cuda.get_cuda_path():
        yield os.path.join(root, "include")


@functools.cache
def _complain(why):
    log.warning("minigrad: compiled GPU kernels cannot be kept: %s", why)


def _not_kept(error):
    _complain(getattr(error, "strerror", None) or str(error))
