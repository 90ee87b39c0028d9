"""Finding and running the C++ compiler: whatever it does, minigrad computes, and one line says with what and why."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from minigrad.backend.runners.toolchain import (
    CompilerError,
    command,
    compiled,
    compiler,
    find_compiler,
    opened,
    progress,
)

from .. import ROOT
from .kernel_cache import FLAGS, SOURCE, WHICH, libraries, run, script


@pytest.fixture
def gxx(a_compiler):
    find_compiler.cache_clear()  # it may have been looked for only now, before a test sets CXX
    return a_compiler[-1]


@pytest.fixture(autouse=True)
def found_anew():
    find_compiler.cache_clear()
    yield
    find_compiler.cache_clear()


# ------------------------------------------------------------------------------------------------------ finding it


def test_cxx_may_have_arguments(cache, tmp_path, gxx, monkeypatch):
    """As in CXX="ccache g++"."""
    wrapper = script(tmp_path / "wrapper", f'echo "$1" >> {tmp_path}/used; exec "$@"')
    monkeypatch.setenv("CXX", f"{wrapper} '{gxx}' -DUNUSED='two words'")
    assert find_compiler() == (str(wrapper), gxx, "-DUNUSED=two words")
    assert opened(compiled(SOURCE, FLAGS, "answer")).answer() == 42
    assert (tmp_path / "used").read_text() == f"{gxx}\n"


def test_cxx_may_be_a_path_with_blanks(cache, tmp_path, gxx, monkeypatch):
    (tmp_path / "a folder").mkdir()
    program = script(tmp_path / "a folder/c++", f'exec {shlex.quote(gxx)} "$@"')
    monkeypatch.setenv("CXX", str(program))
    assert find_compiler() == (str(program),)
    assert opened(compiled(SOURCE, FLAGS, "answer")).answer() == 42


def test_a_program_that_looks_at_its_own_name_keeps_it(cache, tmp_path, gxx, monkeypatch):
    """/usr/lib/ccache/g++ is a link to ccache, which asks by what name it was called."""
    script(tmp_path / "ccache", f'[ "$(basename "$0")" = g++ ] && exec {shlex.quote(gxx)} "$@"; exit 1')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").symlink_to(tmp_path / "ccache")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler() == (f"{tmp_path}/bin/g++",)
    assert opened(compiled(SOURCE, FLAGS, "answer")).answer() == 42


@pytest.mark.parametrize("cxx", ["nowhere/g++", "no-such-ccache g++", "g++ 'unclosed"])
def test_a_cxx_that_is_no_command_is_told(monkeypatch, caplog, tmp_path, cxx):
    script(tmp_path / "c++", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", cxx)
    assert find_compiler() == (str(tmp_path / "c++"),)
    told = f"minigrad: CXX={cxx} is not a command that can be run here; looking for g++, c++, clang++"
    assert [record.message for record in caplog.records] == [told]


def test_another_compiler_behind_the_same_name_is_another_result(cache, tmp_path, gxx, monkeypatch):
    program = script(tmp_path / "c++", f'exec {shlex.quote(gxx)} "$@"')
    monkeypatch.setenv("CXX", f"env {program}")
    first = compiled(SOURCE, FLAGS, "answer")
    script(program, f'exec {shlex.quote(gxx)} -DNEWER "$@"')
    assert compiled(SOURCE, FLAGS, "answer") != first


# ---------------------------------------------------------------------------------------------- whatever goes wrong

OUTPUT = 'while [ "$1" != -o ]; do shift; done; shift; '  # then $1 is the file to write
WRONG = {
    "fails": ("echo 'error: broken' >&2; exit 1", "cannot compile answer: error: broken"),
    "fails in silence": ("exit 3", "cannot compile answer: its exit status is 3"),
    "crashes": ("kill -SEGV $$", "cannot compile answer: it was killed by SIGSEGV"),
    "is killed by a signal without a name": ("kill -40 $$", "cannot compile answer: it was killed by signal 40"),
    "writes nothing": ("exit 0", "ended without an error, but wrote no library for answer"),
    "writes an empty file": (f"{OUTPUT} : > $1", "ended without an error, but wrote no library for answer"),
    "writes too much": (f"{OUTPUT} truncate -s 300G $1", "the compiler wrote 322122547200 bytes for answer"),
    "writes a link": (f"{OUTPUT} ln -s /bin/sh $1", "ended without an error, but wrote no library for answer"),
    "writes garbage": (f"{OUTPUT} echo garbage > $1", "a compiled kernel cannot be loaded: "),
    "writes half a library": (
        'out="$(echo "$*" | sed "s/.*-o \\([^ ]*\\).*/\\1/")"; COMPILER "$@" && truncate -s 5000 "$out"',
        "a compiled kernel cannot be loaded: ",
    ),
    "cannot be started": (None, "cannot be run: Exec format error"),
    "floods": ("yes error | head -c 5000000; exit 1", "cannot compile answer: error"),
}


@pytest.mark.parametrize("how", WRONG)
def test_whatever_the_compiler_does_is_a_compiler_error(how, cache, tmp_path, request, monkeypatch):
    text, why = WRONG[how]
    if text and "COMPILER" in text:
        text = text.replace("COMPILER", shlex.quote(request.getfixturevalue("gxx")))
    program = script(tmp_path / "cxx", text or "")
    if text is None:
        program.write_bytes(b"\x7fELF and no more")
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(CompilerError, match=re.escape(why)):
        compiled(SOURCE, FLAGS, "answer")
    assert [p.name for p in cache.iterdir()] == [".lock"]


@pytest.mark.parametrize("how", ["crashes", "writes nothing", "writes garbage"])
def test_then_numpy_computes(how, cache, tmp_path):
    text, why = WRONG[how]
    printed, logged = run(WHICH, CXX=script(tmp_path / "cxx", text))
    assert printed == "numpy 20000.0"
    first, second = logged.splitlines()
    assert first == f"minigrad: compiling kernels for this CPU, once; they are kept in {cache}"
    assert why.replace("answer", "pool") in second and second.endswith("; computing with NumPy instead")


LIMITED = "from minigrad.backend.runners.toolchain import command; command.LIMIT = 1\n"


def test_a_compiler_that_hangs_is_stopped(tmp_path):
    """With its children, one of which holds what would be the end of a pipe."""
    program = script(tmp_path / "cxx", f"sleep 1000 & echo $! $$ > {tmp_path}/pids; wait")
    start = time.monotonic()
    printed, logged = run(LIMITED + WHICH, CXX=program, MINIGRAD_CACHE=tmp_path / "cache")
    assert printed == "numpy 20000.0" and time.monotonic() - start < 60
    assert logged.splitlines()[-1].endswith("was stopped after 1 seconds; computing with NumPy instead")
    pids, end = (tmp_path / "pids").read_text().split(), time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < end:  # SIGKILL takes a moment
        time.sleep(0.1)
    assert not any(map(alive, pids))


def alive(pid):
    stat = subprocess.run(["ps", "-o", "stat=", pid], capture_output=True, text=True).stdout
    return stat.strip()[:1] not in ("", "Z")


def test_a_disk_without_room_for_the_compilers_words(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", "exit 1")))
    monkeypatch.setattr(command, "FULL", 1 << 60)
    with pytest.raises(CompilerError, match=r"its exit status is 1, and there is no space left$"):
        compiled(SOURCE, FLAGS, "answer")


@pytest.mark.needs("g++")
def test_a_full_disk(tmp_path):
    """As far as one can have it without one: no file may grow beyond 4 kB."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + WHICH
    printed, logged = run(code, MINIGRAD_CACHE=tmp_path / "cache", PYTHONDONTWRITEBYTECODE=1)
    assert printed == "numpy 20000.0" and logged.endswith("; computing with NumPy instead")
    assert not libraries(tmp_path / "cache")


@pytest.mark.needs("g++")
@pytest.mark.parametrize("what", ["kernel.cpp", "sealed.so"])
def test_a_disk_that_is_full_when_we_write(cache, monkeypatch, what):
    mkdtemp = tempfile.mkdtemp

    def full(**where):
        made = mkdtemp(**where)
        os.symlink("/dev/full", os.path.join(made, what))
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setattr(os, "O_EXCL", 0)
    monkeypatch.setattr(os, "fchmod", lambda *args: None)  # of /dev/full
    with pytest.raises(CompilerError, match=f"the cache folder {cache} cannot be written to: No space left on device"):
        compiled(SOURCE, FLAGS, "answer")
    assert not libraries(cache)


@pytest.mark.needs("g++")
def test_a_folder_mounted_noexec(cache, monkeypatch):
    """dlopen's message, in the process that tries a new library and in ours."""
    why = "kernel.so: failed to map segment from shared object"
    monkeypatch.setattr(command, "LOAD", f"raise OSError({why!r})")
    hint = f"cannot be loaded: {why}; its folder may be mounted noexec: name another in MINIGRAD_CACHE"
    with pytest.raises(CompilerError, match=hint):
        compiled(SOURCE, FLAGS, "answer")
    assert not libraries(cache)
    monkeypatch.undo()

    def cdll(path):
        raise OSError(why)

    monkeypatch.setattr(compiler.ctypes, "CDLL", cdll)
    with pytest.raises(CompilerError, match=hint):
        opened("kernel.so")


@pytest.mark.needs("g++")
def test_an_error_of_the_compiler_is_told(cache):
    with pytest.raises(CompilerError, match=r"cannot compile answer: .*error"):
        compiled("not C++", FLAGS, "answer")
    assert not libraries(cache)


def test_without_a_compiler_numpy_computes(tmp_path):
    printed, logged = run(WHICH, PATH=tmp_path, CXX="")
    assert printed == "numpy 20000.0"
    line = "minigrad: no native kernels: no C++ compiler (g++ or clang++) was found; computing with NumPy instead"
    assert logged == line


# ------------------------------------------------------------------------------------------------------- the counter

COUNTED = """
from minigrad.backend.runners.toolchain import compiler, progress
units = [compiler.Unit('extern "C" int answer() { return %d; }' % i, ("-O0",), "answer") for i in range(3)]
print([library.answer() for library in compiler.load_all([*units, units[0]], 2)])
"""


def on_a_terminal(code, **env):
    """(what it prints, what its terminal shows)"""
    terminal, stderr = os.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, text=True, stdout=subprocess.PIPE, stderr=stderr)
    os.close(stderr)
    shown = b""
    try:
        while piece := os.read(terminal, 1000):
            shown += piece
    except OSError:  # so ends a terminal on Linux
        pass
    os.close(terminal)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return printed, shown.decode()


@pytest.mark.slow
@pytest.mark.needs("g++")
def test_a_counter_on_a_terminal(cache):
    """One line, updated in place, which is gone in the end; nothing where nothing is compiled, and never on stdout."""
    printed, shown = on_a_terminal(COUNTED)
    assert printed == "[0, 1, 2, 0]\n"
    lines = [f"minigrad: compiling kernels for this CPU, once: {i} of 3" for i in range(4)]
    assert shown.split("\r") == ["", *lines, " " * len(lines[0]), ""]
    libraries(cache)[0].unlink()
    assert "1 of 1" in on_a_terminal(COUNTED)[1]
    assert on_a_terminal(COUNTED) == ("[0, 1, 2, 0]\n", "")


@pytest.mark.slow
@pytest.mark.needs("g++")
@pytest.mark.parametrize("env, before", [({"TERM": "dumb"}, ""), ({}, "import logging; logging.basicConfig()\n")])
def test_lines_of_the_log_elsewhere(cache, env, before):
    _, shown = on_a_terminal(before + COUNTED, **env)
    assert "\r" not in shown.replace("\r\n", "\n")
    (line,) = shown.splitlines()
    assert line.endswith(f"minigrad: compiling kernels for this CPU, once; they are kept in {cache}")


def test_lines_of_the_log_come_now_and_then(caplog, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0)
    with progress.counter(3, "/somewhere") as count:
        for _ in range(3):
            count()
    assert [record.message[-6:] for record in caplog.records if " of " in record.message] == ["1 of 3", "2 of 3"]
    caplog.clear()
    monkeypatch.setattr(progress, "EVERY", 1000)
    with progress.counter(3, "/somewhere") as count:
        for _ in range(3):
            count()
    assert not [record for record in caplog.records if " of " in record.message]


@pytest.mark.needs("g++")
def test_the_first_error_ends_all(cache, monkeypatch):
    """Others are not compiled for nothing, before NumPy takes over."""
    begun = []

    def work(i, cancelled):
        begun.append(i)
        if i == 0:
            raise CompilerError("broken")
        assert cancelled.wait(60)

    with pytest.raises(CompilerError, match="broken"):
        progress.each(work, range(10), 2, "")
    assert len(begun) < 10


def test_results_are_in_the_order_of_the_items():
    """Not in that in which threads are done with them."""
    assert progress.each(lambda i, _: time.sleep(0.2 * (i == 0)) or 2 * i, range(5), 4, "") == [0, 2, 4, 6, 8]


LATE = f"""
import atexit, threading, time
from minigrad.backend.runners.toolchain import compiled

def work():
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join()
        time.sleep(0.1)
    print(compiled({SOURCE!r}, {FLAGS!r}, "answer").exists(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.needs("g++")
@pytest.mark.parametrize("how", ["threading.Thread(target=work).start()", "atexit.register(work)"])
def test_compiling_after_the_main_thread_has_ended(cache, how):
    """Where concurrent.futures has no threads any more."""
    assert run(LATE + how)[0] == "True"


def test_where_no_thread_can_be_had_the_caller_works(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert progress.each(lambda i, _: 2 * i, range(5), 4, "") == [0, 2, 4, 6, 8]

    def broken(i, cancelled):
        begun.append(i)
        raise CompilerError("broken")

    begun = []
    with pytest.raises(CompilerError, match="broken"):
        progress.each(broken, range(5), 4, "")
    assert begun == [0]
