"""The C++ compiler: finding it, and running it within a time limit."""

import contextlib
import functools
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

from ....base.errors import CompilerError

log = logging.getLogger("minigrad")
LIMIT = 300  # seconds that a compiler may take for one file; the slowest of ours takes about ten
FULL = 1 << 20  # with fewer bytes free, a failure is put down to the full disk: there was no room to say so
NAMES = "g++", "c++", "clang++"
LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


@functools.cache
def find_compiler():
    """The command that runs the C++ compiler, as a tuple of words: $CXX, which may have arguments ("ccache g++"), or
    the first of g++, c++, clang++. Raises CompilerError if there is none."""
    wanted = os.environ.get("CXX", "").strip()
    if wanted:
        if found := _command(wanted):
            return found
        log.warning("minigrad: CXX=%s is not a command that can be run here; looking for %s", wanted, ", ".join(NAMES))
    for name in NAMES:
        if path := shutil.which(name):
            return (os.path.abspath(path),)
    raise CompilerError("no C++ compiler (g++ or clang++) was found")


def _command(text):
    """The words of a command, its program by an absolute path; None if there is no such program."""
    if path := shutil.which(text):  # a path with blanks in it, perhaps
        return (os.path.abspath(path),)
    try:
        program, *arguments = shlex.split(text)
    except ValueError:  # a quotation mark without its other half
        return None
    path = shutil.which(program)
    return (os.path.abspath(path), *arguments) if path else None


def identity(command):
    """What changes when another compiler stands behind the same command."""
    found = []
    for word in command:
        path = shutil.which(word)
        about = os.stat(path) if path else None
        found.append([word, os.path.realpath(path), about.st_size, about.st_mtime_ns] if about else word)
    return found


def run(command, scratch, cancelled=None):
    """Run a command to its end -> (its exit status, what it said). Raises CompilerError if it takes longer than LIMIT
    seconds, OSError if it cannot be started. scratch: a folder for its temporary files.

    A compiler is several processes, so it gets a session of its own, and all of it is killed at the limit, when the
    threading.Event `cancelled` is set, and at Ctrl-C. Its output goes to a file: the end of a pipe might never come."""
    said = os.path.join(scratch, "said")
    environment = {**os.environ, "TMPDIR": scratch, "LC_ALL": "C"}
    cancelled = cancelled or threading.Event()
    with open(said, "wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        try:
            end = time.monotonic() + LIMIT
            while process.poll() is None:
                if cancelled.wait(0.02):
                    raise CompilerError(f"{command[0]} was stopped")
                if time.monotonic() > end:
                    raise CompilerError(f"{shlex.join(command[:2])} … was stopped after {LIMIT} seconds")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for a disk or a network
                    process.wait(10)
    with open(said, "rb") as file:
        return process.returncode, file.read(1 << 20).decode(errors="replace")


def compile_file(source, result, flags, libraries, label, cancelled=None):
    """Make a shared library of a C++ file. Raises CompilerError, saying what the compiler said, if it makes none."""
    compiler = find_compiler()
    command = [*compiler, *flags, "-shared", "-fPIC", source, "-o", result, "-lm", *libraries]
    name = shlex.join(compiler)
    try:
        status, said = run(command, os.path.dirname(result), cancelled)
    except OSError as error:
        raise CompilerError(f"{name} cannot be run: {error.strerror}") from error
    if status:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        lines = [line for line in lines if "error" in line.lower()] or lines
        full = ", and there is no space left" if shutil.disk_usage(os.path.dirname(result)).free < FULL else ""
        raise CompilerError(f"{name} cannot compile {label}: {lines[0] if lines else ended(status)}{full}")
    if not os.path.isfile(result) or os.path.islink(result) or not os.path.getsize(result):
        raise CompilerError(f"{name} ended without an error, but wrote no library for {label}")


def ended(status):
    if status >= 0:
        return f"its exit status is {status}"
    with contextlib.suppress(ValueError):  # one of the real-time signals has no name
        return f"it was killed by {signal.Signals(-status).name}"
    return f"it was killed by signal {-status}"


def try_loading(library, cancelled=None):
    """Load a fresh library in a process of its own, which a bad one may crash. Raises CompilerError if that fails.

    It is not tried where no Python can be started, as in an application that embeds one."""
    if not os.path.basename(sys.executable or "").startswith("python") or hasattr(sys, "frozen"):
        return
    try:
        status, said = run([sys.executable, "-I", "-S", "-c", LOAD, library], os.path.dirname(library), cancelled)
    except OSError:
        return
    if status < 0 or "OSError" in said:
        why = said.strip().splitlines()[-1].removeprefix("OSError: ") if status > 0 else ended(status)
        raise CompilerError(not_loaded(why))


def not_loaded(why):
    hint = "; its folder may be mounted noexec: name another in MINIGRAD_CACHE" if "failed to map" in why else ""
    return f"a compiled kernel cannot be loaded: {why}{hint}"
