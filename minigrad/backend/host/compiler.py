"""Compiling a source to a shared library, once per machine."""

import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

log = logging.getLogger("minigrad")


class CompilerError(RuntimeError):
    """Kernels cannot be compiled here; the message says why."""


@functools.cache
def find_compiler():
    """The path of the C++ compiler: $CXX, or the first of g++, c++, clang++. Raises CompilerError if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        if path := shutil.which(name):
            return os.path.realpath(path)
    raise CompilerError("no C++ compiler (g++ or clang++) was found")


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
def cache_folder():
    """The folder of compiled kernels, made if it is missing; private, since whatever lies there is loaded and run.

    Raises CompilerError if it belongs to someone else or someone else may write to it."""
    base = os.environ.get("MINIGRAD_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "minigrad"
    )
    folder = Path(base)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise CompilerError(f"the cache folder {folder} cannot be made: {error.strerror}") from error
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise CompilerError(f"the cache folder {folder} belongs to another user (uid {found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompilerError(f"the cache folder {folder} may be written to by others: chmod 700 {folder}")
    return folder


@functools.cache
def _say(folder):
    log.warning("minigrad: compiling kernels for this CPU, once; they are kept in %s", folder)


def compiled(text, flags, label, libraries=()):
    """The path of the shared library made of a C++ source; compiles it unless an earlier result is in the cache.

    label names the file, for people who look into the cache. Raises CompilerError."""
    compiler, folder = find_compiler(), cache_folder()
    about = os.stat(compiler)
    key = "\0".join([text, *flags, *libraries, compiler, f"{about.st_size} {about.st_mtime_ns}", cpu(), sys.platform])
    target = folder / f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.so"
    if target.exists() and target.stat().st_uid == folder.stat().st_uid:
        return target
    _say(folder)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        (made := Path(scratch) / "kernel.cpp").write_text(text, encoding="utf-8")
        result = Path(scratch) / "kernel.so"
        command = [compiler, *flags, "-shared", "-fPIC", str(made), "-o", str(result), "-lm", *libraries]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if run.returncode:
            lines = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines()
            raise CompilerError(f"{compiler} cannot compile {label}: {lines[0].strip() if lines else run.returncode}")
        os.replace(result, target)  # atomic: another process finds all of it or nothing
    return target
