"""The C++ compiler and the cache folder: kernels are compiled once, the folder is private, and errors are explained."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minigrad.backend.runners import compiler
from minigrad.backend.runners.compiler import (
    CompilerError,
    Source,
    find_compiler,
    folder,
    kept,
    load,
    load_all,
    machine,
)
from minigrad.backend.runners.native import Native, native

from .. import ROOT

ANSWER = Source('extern "C" int answer() { return 42; }', ("-O0",), "answer")


@pytest.fixture
def gxx(a_compiler):
    find_compiler.cache_clear()  # it may have been looked for only now, before a test sets CXX
    return a_compiler[-1]


@pytest.fixture(autouse=True)
def found_anew():
    find_compiler.cache_clear(), machine.cache_clear()
    yield
    find_compiler.cache_clear(), machine.cache_clear()


def start(code, **env):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **{key: str(value) for key, value in env.items()}}
    env.pop("MINIGRAD_CPU", None)
    pipes = dict(text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    return subprocess.Popen([sys.executable, "-c", code], env=env, **pipes)


def end(process):
    """(what it printed, what it logged), once it has ended well."""
    printed, logged = process.communicate(timeout=120)
    assert process.returncode == 0, (process.returncode, printed, logged)
    return printed.strip(), logged.strip()


def script(path, text):
    """Make an executable file that takes the place of a compiler."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def libraries(cache):
    return sorted(cache.glob("*.so"))


# ------------------------------------------------------------------------------------------------------ the folder


@pytest.mark.needs("g++")
def test_compiles_once(cache):
    assert load(ANSWER).answer() == 42
    (path,) = cache.iterdir()  # nothing half made
    assert cache.stat().st_mode & 0o777 == 0o700 and path.stat().st_mode & 0o077 == 0
    before = path.stat().st_ino
    assert load(ANSWER).answer() == 42 and path.stat().st_ino == before
    load_all([ANSWER._replace(flags=("-O2",)), ANSWER._replace(text=ANSWER.text + "\n")], 2)
    assert len(libraries(cache)) == 3  # other flags, another result


@pytest.mark.needs("g++")
@pytest.mark.parametrize("damage", ["half", "one byte", "empty", "noise", "a pipe"])
def test_a_damaged_library_is_compiled_again(damage, cache):
    load(ANSWER)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.unlink()
    if damage == "a pipe":
        os.mkfifo(path)
    else:
        at = len(whole) // 2
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        path.write_bytes({"half": whole[:at], "one byte": flipped, "empty": b"", "noise": b"x" * 5000}[damage])
    assert kept(path) is None
    assert load(ANSWER).answer() == 42  # where dlopen would have found half of a library, it would be SIGBUS
    assert kept(path) is not None and libraries(cache) == [path]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(cache, mode):
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(CompilerError, match="can be written to by others"):
        folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_a_folder_of_someone_else_is_refused(cache):
    cache.mkdir(mode=0o700)
    os.chown(cache, 12345, -1)
    with pytest.raises(CompilerError, match="belongs to another user"):
        folder()


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    for name in ("MINIGRAD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == str(tmp_path / ".cache/minigrad")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says XDG
    assert folder() == str(tmp_path / ".cache/minigrad")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder() == str(tmp_path / "xdg/minigrad")
    monkeypatch.setenv("MINIGRAD_CACHE", "~/own")
    assert folder() == str(tmp_path / "own")


@pytest.mark.needs("g++")
def test_threads_and_processes_compile_at_once(cache):
    code = f"from minigrad.backend.runners.compiler import Source, load\nprint(load({ANSWER!r}).answer())"
    processes = [start(code, MINIGRAD_CACHE=cache) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        assert [library.answer() for library in threads.map(lambda _: load(ANSWER), range(4))] == [42] * 4
    assert [end(process)[0] for process in processes] == ["42"] * 2
    assert len(libraries(cache)) == 1


INTERRUPTED = """
from minigrad.backend.runners.compiler import Source, load_all
try: load_all([Source("int x;", (), str(i)) for i in range(6)], 2)
except KeyboardInterrupt: print("interrupted")
"""


def test_after_a_failure_nothing_is_begun(cache, tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", f"echo >> {begun}; sleep 0.05; exit 1")))
    with pytest.raises(CompilerError):
        load_all([ANSWER._replace(label=str(i)) for i in range(12)], 2)
    assert len(begun.read_text()) <= 2


@pytest.mark.parametrize("to", ["group", "process"])
def test_ctrl_c_ends_the_compiling(to, cache, tmp_path):
    """Sources that wait for their turn are not compiled. (A terminal sends Ctrl-C to a group of processes.)"""
    begun = tmp_path / "begun"
    begun.mkdir()
    process = start(INTERRUPTED, CXX=script(tmp_path / "slow", f"touch {begun}/$$; sleep 60"), MINIGRAD_CACHE=cache)
    while len(list(begun.iterdir())) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    (os.killpg if to == "group" else os.kill)(process.pid, signal.SIGINT)
    assert end(process)[0] == "interrupted"
    assert len(list(begun.iterdir())) == 2 and not libraries(cache)


# ------------------------------------------------------------------------------------------------------ the compiler


def test_cxx_may_have_arguments(cache, tmp_path, gxx, monkeypatch):
    """As in CXX="ccache g++"."""
    wrapper = script(tmp_path / "wrapper", f'echo "$1" >> {tmp_path}/used; exec "$@"')
    monkeypatch.setenv("CXX", f"{wrapper} '{gxx}' -DUNUSED='two words'")
    assert find_compiler() == (str(wrapper), gxx, "-DUNUSED=two words")
    assert load(ANSWER).answer() == 42
    assert (tmp_path / "used").read_text() == f"{gxx}\n"


def test_another_compiler_behind_the_same_name_is_another_result(cache, tmp_path, gxx, monkeypatch):
    program = script(tmp_path / "c++", f'exec {shlex.quote(gxx)} "$@"')
    monkeypatch.setenv("CXX", f"env {program}")
    load(ANSWER)
    script(program, f'exec {shlex.quote(gxx)} -DNEWER "$@"')
    machine.cache_clear()
    load(ANSWER)
    assert len(libraries(cache)) == 2


WRONG = {
    "fails": ("echo 'error: broken' >&2; exit 1", "cannot compile answer: error: broken"),
    "fails in silence": ("exit 3", "cannot compile answer: it ended with status 3"),
    "crashes": ("kill -SEGV $$", "cannot compile answer: it ended with status -11"),
    "writes nothing": ("exit 0", "cannot compile answer: it ended with status 0"),
    "hangs": ("exec sleep 60", "was stopped after 0.5 seconds"),
    "writes garbage": ("while [ $1 != -o ]; do shift; done; echo garbage > $2", "a compiled kernel cannot be loaded: "),
    "cannot be started": (None, "cannot be run: Exec format error"),
}


@pytest.mark.parametrize("how", WRONG)
def test_whatever_the_compiler_does_is_a_compiler_error(how, cache, tmp_path, monkeypatch):
    text, why = WRONG[how]
    if how == "hangs":
        monkeypatch.setattr(compiler, "LIMIT", 0.5)
    program = script(tmp_path / "cxx", text or "")
    if text is None:
        program.write_bytes(b"\x7fELF and no more")
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(CompilerError, match=re.escape(why)):
        load(ANSWER)
    assert how == "writes garbage" or not list(cache.iterdir())


def test_without_room_it_is_a_compiler_error(cache, monkeypatch, gxx):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiler, "atomic_write", full)
    with pytest.raises(CompilerError, match=f"the cache folder {cache} cannot be used: No space left on device"):
        load(ANSWER)


def test_without_a_temporary_folder_it_is_a_compiler_error(cache, monkeypatch, tmp_path, gxx):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(CompilerError, match="the temporary folder cannot be used: No such file or directory"):
        load(ANSWER)


WHICH = """
import minigrad as mg
print(type(mg.backend.cpu()).__name__, (mg.ones(100, 100) + 1).sum().item())
"""


@pytest.mark.parametrize(
    "how, why",
    [
        (dict(PATH="/nowhere", CXX=""), "no C++ compiler (g++ or clang++) was found (apt install g++)"),
        (dict(CXX="no-such-ccache g++"), "CXX=no-such-ccache g++ cannot be run"),
        (dict(CXX="g++ 'x"), "CXX=g++ 'x cannot be read: No closing quotation"),
        (dict(MINIGRAD_CACHE="/dev/null/x"), "the cache folder /dev/null/x cannot be made: Not a directory"),
    ],
)
def test_without_one_numpy_computes(how, why):
    printed, logged = end(start(WHICH, **how))
    assert printed == "Numpy 20000.0" and len(logged.splitlines()) == 1
    assert logged.startswith(f"minigrad: no native kernels: {why}") and logged.endswith("computing with NumPy instead")


@pytest.mark.needs("g++")
def test_a_kernel_that_cannot_be_compiled_is_told_and_nothing_else_computes(monkeypatch):
    on = Native(any_size=True)

    def fails(*args):
        raise CompilerError("no space left")

    monkeypatch.setattr(native, "load_all", fails)
    with pytest.raises(CompilerError, match="no space left"):
        on.softmax(np.ones((3, 4), np.float32), 1)
