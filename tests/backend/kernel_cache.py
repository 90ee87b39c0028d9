"""What the tests of the kernel cache share: a source, and Pythons of their own that compile it."""

import os
import subprocess
import sys

import pytest

from .. import ROOT

SOURCE = 'extern "C" int answer() { return 42; }'
FLAGS = ("-O0",)
# A Python that is told nothing else compiles SOURCE and prints what it computes.
ANSWER = f"""
import ctypes
from minigrad.backend.runners.toolchain import compiled
print(ctypes.CDLL(str(compiled({SOURCE!r}, {FLAGS!r}, "answer"))).answer())
"""
# What becomes of a computation: with which backend it ran, and whether it is right.
WHICH = """
import minigrad as mg
y = (mg.ones(100, 100) + 1).sum().item()
on = mg.backend.cpu()
print("native" if getattr(on, "failed", on) is None else "numpy", y)
"""
# As above, but as a user without any rights to what is root's; all that must be read is read before.
AS_NOBODY = """
import os, ctypes, minigrad as mg, minigrad.backend.runners.native
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


def start(code, start_new_session=False, **env):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **{key: str(value) for key, value in env.items()}}
    env.pop("MINIGRAD_CPU", None)
    pipes = dict(text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=start_new_session)
    return subprocess.Popen([sys.executable, "-c", code], env=env, **pipes)


def end(process, timeout=120):
    """(what it printed, what it logged), once it has ended well."""
    try:
        printed, logged = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, (process.returncode, printed, logged)
    return printed.strip(), logged.strip()


def run(code, **env):
    return end(start(code, **env))


def libraries(cache):
    return sorted(cache.glob("*.so"))


def script(path, text):
    """An executable file, to stand for a compiler."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
