"""The C++ compiler, and the cache folder of compiled kernels: a source is compiled once per machine.

The files of the folder are loaded and run, so nobody else may write there. Each is written whole or not at all.
"""

import ctypes
import functools
import hashlib
import json
import logging
import os
import platform
import shlex
import shutil
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
    """Write a file of the cache folder, readable by its owner alone. Raises OSError."""
    atomic_write(path, data, mode=0o600)


@functools.cache
def find_compiler():
    """The command that runs the C++ compiler, as a tuple of words: $CXX, which may have arguments ("ccache g++"), or
    the first of g++, c++, clang++ that there is. Raises CompilerError if there is none."""
    wanted = shlex.split(os.environ.get("CXX", ""))
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
    missing = {path: source for path, source in zip(paths, sources) if not path.exists()}
    if missing:
        _announce(place)
        with ThreadPoolExecutor(threads) as pool:

            def build(source, path):
                try:
                    _build(source, path)
                except CompilerError:  # Ctrl-C ends the compiler too, so this may come before the KeyboardInterrupt
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise

            list(pool.map(build, missing.values(), missing))
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


def _build(source, path):
    """Compile a Source and store the library at `path`, in the cache. Raises CompilerError."""
    name = shlex.join(find_compiler())
    with tempfile.TemporaryDirectory() as scratch:
        text, result = Path(scratch, "kernel.cpp"), Path(scratch, "kernel.so")
        text.write_text(source.text, encoding="utf-8")
        command = [*find_compiler(), *source.flags, "-shared", "-fPIC", text, "-o", result, "-lm"]
        try:
            run = subprocess.run(command, stdout=PIPE, stderr=STDOUT, errors="replace", timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise CompilerError(f"{name} was stopped after {LIMIT} seconds") from None
        except OSError as error:
            raise CompilerError(f"{name} cannot be run: {error.strerror}") from error
        if run.returncode or not result.is_file():
            said = [line.strip() for line in run.stdout.splitlines() if "error" in line.lower()]
            why = said[0] if said else f"it ended with status {run.returncode}"
            raise CompilerError(f"{name} cannot compile {source.label}: {why}")
        try:
            keep(path, result.read_bytes())
        except OSError as error:  # the disk is full, read-only or gone
            raise CompilerError(f"the cache folder {path.parent} cannot be used: {error.strerror}") from error
