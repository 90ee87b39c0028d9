"""Compiling a source to a shared library, once per machine, and loading it."""

import ctypes
import functools
import hashlib
import json
import logging
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from . import cache
from .command import CompilerError, compile_file, find_compiler, identity, not_loaded, try_loading
from .progress import each

log = logging.getLogger("minigrad")
FORMAT = 2  # of the files in the cache


class Unit(NamedTuple):
    """What one shared library is made of. label names the file, for people who look into the cache; libraries are what
    the linker is told last."""

    text: str
    flags: tuple
    label: str
    libraries: tuple = ()


@functools.cache
def cpu():
    """What -march=native depends on: a result compiled for one CPU may not run on another that shares the cache."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            wanted = ("model name", "flags", "Features")
            return "".join(sorted({line for line in file if line.startswith(wanted)}))
    except OSError:
        return platform.machine() + platform.processor()


@functools.cache
def libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return None


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
        raise CompilerError(not_loaded(str(error))) from error


def _compiled(units, threads=1):
    folder = cache.folder()
    try:
        paths = {unit: os.path.join(folder, _name(unit)) for unit in units}
        missing = [unit for unit, path in paths.items() if not cache.usable(path)]
        each(lambda unit, cancelled: _build(unit, paths[unit], cancelled), missing, threads, folder)
    except OSError as error:  # full, read-only, gone
        raise CompilerError(f"the cache folder {folder} cannot be written to: {error.strerror}") from error
    return [Path(paths[unit]) for unit in units]


def _name(unit):
    about = [FORMAT, unit.text, unit.flags, unit.libraries, identity(find_compiler())]
    key = json.dumps([*about, cpu(), platform.machine(), sys.platform, libc()])
    return f"{unit.label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.so"


def _build(unit, path, cancelled):
    with cache.scratch(os.path.dirname(path)) as scratch:
        source, result, sealed = (os.path.join(scratch, name) for name in ("kernel.cpp", "kernel.so", "sealed.so"))
        Path(source).write_text(unit.text, encoding="utf-8")
        compile_file(source, result, unit.flags, unit.libraries, unit.label, cancelled)
        if os.path.getsize(result) >= cache.LARGEST:
            raise CompilerError(f"the compiler wrote {os.path.getsize(result)} bytes for {unit.label}")
        cache.seal(sealed, os.path.basename(path), Path(result).read_bytes())
        try_loading(sealed, cancelled)
        cache.put(path, sealed)
    if not cache.intact(path):
        raise CompilerError(f"{path} is damaged as soon as it is written")
