"""Compiling a source to a shared library, once per machine, and loading it."""

import ctypes
import functools
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

from ....base.errors import CompilerError
from . import cache
from .cache import log

FORMAT = 3  # of the files in the cache
LIMIT = 300  # seconds that a compiler may take for one file; the slowest takes about ten
NAMES = "g++", "c++", "clang++"


class Unit(NamedTuple):
    """What one shared library is made of. label names the file, for people who look into the cache; libraries are what
    the last arguments of the linker."""

    text: str
    flags: tuple
    label: str
    libraries: tuple = ()


@functools.cache
def find_compiler():
    """The command that runs the C++ compiler, as a tuple of words: $CXX, which may have arguments ("ccache g++"), or
    the first of g++, c++, clang++. Raises CompilerError if there is none."""
    wanted = os.environ.get("CXX", "").strip()
    for words in ([wanted], _words(wanted), *([name] for name in NAMES)):  # wanted: a path with blanks, perhaps
        if words == [NAMES[0]] and wanted:
            log.warning("minigrad: CXX=%s cannot be run here; looking for %s", wanted, ", ".join(NAMES))
        if path := shutil.which(words[0]):
            return (os.path.abspath(path), *words[1:])
    raise CompilerError("no C++ compiler (g++ or clang++) was found (apt install g++)")


def _words(command):
    try:
        return shlex.split(command) or [""]
    except ValueError:  # a quotation mark without its other half
        return [""]


@functools.cache
def machine():
    """What a result depends on beside its source: the compiler behind the command, and what -march=native looks at."""
    files = [os.stat(path) for word in find_compiler() if (path := shutil.which(word))]
    compiler = [*find_compiler(), *((about.st_size, about.st_mtime_ns) for about in files)]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = sorted({line for line in file if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        cpu = [platform.processor()]
    return [FORMAT, compiler, cpu, platform.machine(), sys.platform, platform.libc_ver()]


def load(text, flags, label, libraries=()):
    """The shared library of a C++ source as a ctypes.CDLL: from the cache, or compiled. Raises CompilerError."""
    return load_all([Unit(text, flags, label, libraries)])[0]


def load_all(units, threads=1):
    """[the ctypes.CDLL of each Unit]. What is not in the cache is compiled, several at a time. Raises CompilerError."""
    return [opened(path) for path in _compiled(units, threads)]


def compiled(text, flags, label, libraries=()):
    """The path of the shared library of a C++ source: from the cache, or compiled. Raises CompilerError."""
    return _compiled([Unit(text, flags, label, libraries)])[0]


def opened(path):
    """ctypes.CDLL, with a CompilerError in place of an OSError."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"a compiled kernel cannot be loaded: {error}") from error


def _compiled(units, threads=1):
    folder = cache.folder()
    try:
        paths = {unit: Path(folder, _name(unit)) for unit in units}
        missing = [(unit, path) for unit, path in paths.items() if cache.contents(path) is None]
        if missing:
            _say_once(folder)
        if min(threads, len(missing)) < 2 or not threading.main_thread().is_alive():  # then there is no pool any more
            for each in missing:
                _build(*each)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(_build, *zip(*missing)))
    except OSError as error:  # full, read-only, gone
        raise CompilerError(f"the cache folder {folder} cannot be used: {error.strerror}") from error
    return [paths[unit] for unit in units]


@functools.cache
def _say_once(folder):
    log.warning("minigrad: compiling kernels for this CPU, once (up to a minute); they are kept in %s", folder)


def _name(unit):
    key = json.dumps([unit, machine()])
    return f"{unit.label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.so"


def _build(unit, path):
    name = shlex.join(find_compiler())
    with tempfile.TemporaryDirectory() as scratch:
        source, result = Path(scratch, "kernel.cpp"), Path(scratch, "kernel.so")
        source.write_text(unit.text, encoding="utf-8")
        command = [*find_compiler(), *unit.flags, "-shared", "-fPIC", source, "-o", result, "-lm", *unit.libraries]
        try:
            run = subprocess.run(command, stdout=PIPE, stderr=STDOUT, errors="replace", timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise CompilerError(f"{name} was stopped after {LIMIT} seconds") from None
        except OSError as error:
            raise CompilerError(f"{name} cannot be run: {error.strerror}") from error
        if run.returncode:
            lines = [line.strip() for line in run.stdout.splitlines() if line.strip()]
            lines = [line for line in lines if "error" in line.lower()] or lines or [ended(run.returncode)]
            raise CompilerError(f"{name} cannot compile {unit.label}: {lines[0]}")
        if not result.is_file():
            raise CompilerError(f"{name} ended without an error, but wrote no library for {unit.label}")
        cache.keep(path, result.read_bytes())


def ended(status):
    return f"its exit status is {status}" if status > 0 else f"it was ended by signal {signal.strsignal(-status)}"
