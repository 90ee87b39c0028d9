"""The C++ compiler, and the cache folder of compiled kernels: a source is compiled once per machine.

The files of the folder are loaded and run, so nobody else may write there. Each is written whole or not at all, and
ends with a checksum: one that a failing disk or an interrupted copy has cut short is compiled again.
"""

import contextlib
import ctypes
import functools
import hashlib
import json
import logging
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

from ...base.errors import CompilerError
from ...base.files import atomic_write

log = logging.getLogger("minigrad")
NAMES = "g++", "c++", "clang++"
MARK = b"minigrad"  # before the checksum at the end of a file of the cache; what loads a library ignores both
LIMIT = 600  # seconds after which the compiler is stopped; a source usually takes about ten


class Source(NamedTuple):
    """The source of one shared library. label: the begin of the file's name, for people who look into the cache."""

    text: str
    flags: tuple
    label: str


def folder():
    """Return the path of the cache folder, and make it if it is missing: $MINIGRAD_CACHE, or minigrad/ in
    $XDG_CACHE_HOME or ~/.cache.

    Raises CompilerError if it cannot be made, belongs to another user, or can be written to by others."""
    if os.name != "posix":
        raise CompilerError("the kernel cache needs POSIX file owners and modes")
    xdg = os.environ.get("XDG_CACHE_HOME") or ""
    base = xdg if os.path.isabs(xdg) else "~/.cache"  # the XDG specification says to ignore a relative path
    path = os.path.realpath(os.path.expanduser(os.environ.get("MINIGRAD_CACHE") or f"{base}/minigrad"))
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        about = os.stat(path)
    except OSError as error:
        why = f"{error.strerror}; name another folder in MINIGRAD_CACHE"
        raise CompilerError(f"the cache folder {path} cannot be made: {why}") from error
    if about.st_uid not in (0, os.geteuid()):
        raise CompilerError(f"the cache folder {path} belongs to another user: name another folder in MINIGRAD_CACHE")
    if about.st_mode & 0o022:
        raise CompilerError(f"the cache folder {path} can be written to by others: chmod go-w {path}")
    return path


def keep(path, data):
    """Write data (bytes) to a file of the cache folder, readable by its owner alone. Raises OSError."""
    if path.exists() and not path.is_file():
        path.unlink()  # a pipe, say
    atomic_write(path, data + _checksum(data), mode=0o600)


def kept(path):
    """Return the data of a file of the cache folder as bytes; None if there is no such file, or if it is damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # to open a pipe would wait for a writer
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        content = file.read()
    size = len(content) - len(_checksum(b""))
    data = content[: max(0, size)]
    return data if content[len(data) :] == _checksum(data) else None


def _checksum(data):
    return MARK + hashlib.sha256(data).digest()


@functools.cache
def find_compiler():
    """The command that runs the C++ compiler, as a tuple of words: $CXX, which may have arguments ("ccache g++"), or
    the first of g++, c++, clang++ that there is. Raises CompilerError if there is none."""
    try:
        wanted = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise CompilerError(f"CXX={os.environ['CXX']} cannot be read: {error}") from error
    for words in [wanted] if wanted else [[name] for name in NAMES]:
        path = shutil.which(words[0])
        if path:
            return (os.path.abspath(path), *words[1:])
    if wanted:
        raise CompilerError(f"CXX={shlex.join(wanted)} cannot be run")
    raise CompilerError("no C++ compiler (g++ or clang++) was found (apt install g++)")


@functools.cache
def machine():
    """Everything besides its source that a compiled kernel depends on: the compiler, and the CPU that -march=native
    finds. A part of its file's name."""
    files = [os.stat(path) for word in find_compiler() if (path := shutil.which(word))]
    compiler = [*find_compiler(), *((about.st_size, about.st_mtime_ns) for about in files)]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = sorted({line for line in file if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        cpu = [platform.processor()]
    return [compiler, cpu, platform.machine(), sys.platform, platform.libc_ver()]


def load(source):
    """The shared library of a Source as a ctypes.CDLL, from the cache or compiled now. Raises CompilerError."""
    return load_all([source])[0]


def load_all(sources, threads=1):
    """The ctypes.CDLL of each Source, as a list. Sources that are not in the cache are compiled, several at a time.
    Raises CompilerError."""
    place = folder()
    paths = [Path(place, _name(source)) for source in sources]
    missing = {path: source for path, source in zip(paths, sources) if kept(path) is None}
    if missing:
        _announce(place)
        compilers = _Compilers()
        with ThreadPoolExecutor(threads) as pool:
            try:
                list(pool.map(functools.partial(_build, compilers), missing.values(), missing))
            except CompilerError as error:
                raise compilers.first_error or error from None
            except BaseException as interrupt:  # Ctrl-C
                compilers.stop(interrupt)
                raise
    try:
        return [ctypes.CDLL(str(path)) for path in paths]
    except OSError as error:
        raise CompilerError(f"a compiled kernel cannot be loaded: {error}") from error


@functools.cache
def _announce(place):
    log.warning("minigrad: compiling kernels for this CPU, once (up to a minute); they are kept in %s", place)


def _name(source):
    key = json.dumps([source, machine()])
    return f"{source.label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.so"


class _Compilers:
    """The compilers that run at the same time. When one fails, the others are stopped, and no further one is started.

    Each is a process group of its own, since a compiler starts others."""

    def __init__(self):
        self._running: set = set()
        self.first_error: BaseException | None = None  # why all were stopped

    def run(self, command):
        """Return (the exit status, what it wrote) of a command. Raises OSError if it cannot be started, and
        TimeoutExpired after LIMIT seconds."""
        if self.first_error is not None:
            raise CompilerError("another source could not be compiled")
        with subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, errors="replace", process_group=0) as process:
            self._running.add(process)
            try:
                if self.first_error is not None:  # stop() has come before this one was known
                    _kill(process)
                said, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise
            finally:
                self._running.discard(process)
        return process.returncode, said

    def stop(self, error):
        self.first_error = self.first_error or error
        for process in list(self._running):
            _kill(process)


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _build(compilers, source, path):
    """Compile a Source and store the library at `path`, in the cache. Raises CompilerError, and stops the other
    compilers then."""
    what = "the temporary folder"
    try:
        with tempfile.TemporaryDirectory() as scratch:
            text = Path(scratch, "kernel.cpp")
            text.write_text(source.text, encoding="utf-8")
            library = _compiled(source, text, compilers)
        what = f"the cache folder {path.parent}"
        keep(path, library)
    except OSError as why:  # the disk is full, read-only or gone
        error = CompilerError(f"{what} cannot be used: {why.strerror or why}")
        compilers.stop(error)
        raise error from why
    except CompilerError as error:
        compilers.stop(error)
        raise


def _compiled(source, text, compilers):
    """Return the library of a Source as bytes, compiled from the file `text` in a temporary folder. Raises
    CompilerError, and OSError if the library cannot be read."""
    name, result = shlex.join(find_compiler()), text.with_suffix(".so")
    command = [*find_compiler(), *source.flags, "-shared", "-fPIC", text, "-o", result, "-lm"]
    try:
        status, output = compilers.run(command)
    except subprocess.TimeoutExpired:
        raise CompilerError(f"{name} was stopped after {LIMIT} seconds") from None
    except OSError as error:
        raise CompilerError(f"{name} cannot be run: {error.strerror}") from error
    if status or not result.is_file():
        said = [line.strip() for line in output.splitlines() if "error" in line.lower()]
        raise CompilerError(
            f"{name} cannot compile {source.label}: {said[0] if said else f'it ended with status {status}'}"
        )
    return result.read_bytes()
