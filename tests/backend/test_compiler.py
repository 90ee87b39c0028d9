"""Finding and running the C++ compiler: whatever it does, minigrad computes, and one line says with what and why."""

import os
import re
import shlex

import pytest

from minigrad.backend.runners.toolchain import CompilerError, compiled, find_compiler, opened
from minigrad.backend.runners.toolchain.compiler import machine

from .kernel_cache import FLAGS, SOURCE, WHICH, libraries, run, script


@pytest.fixture
def gxx(a_compiler):
    find_compiler.cache_clear()  # it may have been looked for only now, before a test sets CXX
    return a_compiler[-1]


@pytest.fixture(autouse=True)
def found_anew():
    find_compiler.cache_clear(), machine.cache_clear()
    yield
    find_compiler.cache_clear(), machine.cache_clear()


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
    told = f"minigrad: CXX={cxx} cannot be run here; looking for g++, c++, clang++"
    assert [record.message for record in caplog.records] == [told]


def test_another_compiler_behind_the_same_name_is_another_result(cache, tmp_path, gxx, monkeypatch):
    program = script(tmp_path / "c++", f'exec {shlex.quote(gxx)} "$@"')
    monkeypatch.setenv("CXX", f"env {program}")
    first = compiled(SOURCE, FLAGS, "answer")
    script(program, f'exec {shlex.quote(gxx)} -DNEWER "$@"')
    machine.cache_clear()
    assert compiled(SOURCE, FLAGS, "answer") != first


# ---------------------------------------------------------------------------------------------- whatever goes wrong

OUTPUT = 'while [ "$1" != -o ]; do shift; done; shift; '  # then $1 is the file to write
WRONG = {
    "fails": ("echo 'error: broken' >&2; exit 1", "cannot compile answer: error: broken"),
    "fails in silence": ("exit 3", "cannot compile answer: its exit status is 3"),
    "crashes": ("kill -SEGV $$", "cannot compile answer: it was ended by signal Segmentation fault"),
    "writes nothing": ("exit 0", "ended without an error, but wrote no library for answer"),
    "writes garbage": (f"{OUTPUT} echo garbage > $1", "a compiled kernel cannot be loaded: "),
    "cannot be started": (None, "cannot be run: Exec format error"),
    "floods": ("yes error | head -c 5000000; exit 1", "cannot compile answer: error"),
}


@pytest.mark.parametrize("how", WRONG)
def test_whatever_the_compiler_does_is_a_compiler_error(how, cache, tmp_path, monkeypatch):
    text, why = WRONG[how]
    program = script(tmp_path / "cxx", text or "")
    if text is None:
        program.write_bytes(b"\x7fELF and no more")
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(CompilerError, match=re.escape(why)):
        opened(compiled(SOURCE, FLAGS, "answer"))
    assert how == "writes garbage" or not list(cache.iterdir())


@pytest.mark.parametrize("how", ["crashes", "writes nothing", "writes garbage"])
def test_then_numpy_computes(how, cache, tmp_path):
    text, why = WRONG[how]
    printed, logged = run(WHICH, CXX=script(tmp_path / "cxx", text))
    assert printed == "numpy 20000.0"
    first, second = logged.splitlines()
    assert first.startswith("minigrad: compiling kernels") and first.endswith(f"they are kept in {cache}")
    assert why.replace("answer", "pool") in second and second.endswith("; computing with NumPy instead")


LIMITED = "from minigrad.backend.runners.toolchain import compiler; compiler.LIMIT = 1\n"


def test_a_compiler_that_hangs_is_stopped(tmp_path):
    program = script(tmp_path / "cxx", "exec sleep 1000")
    printed, logged = run(LIMITED + WHICH, CXX=program, MINIGRAD_CACHE=tmp_path / "cache")
    assert printed == "numpy 20000.0"
    assert logged.splitlines()[-1].endswith("was stopped after 1 seconds; computing with NumPy instead")


@pytest.mark.needs("g++")
def test_a_full_disk(tmp_path):
    """As far as one can have it without one: no file may grow beyond 4 kB."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + WHICH
    printed, logged = run(code, MINIGRAD_CACHE=tmp_path / "cache", PYTHONDONTWRITEBYTECODE=1)
    assert printed == "numpy 20000.0" and logged.endswith("; computing with NumPy instead")
    assert not libraries(tmp_path / "cache")


@pytest.mark.needs("g++")
def test_an_error_of_the_compiler_is_told(cache):
    with pytest.raises(CompilerError, match=r"cannot compile answer: .*error"):
        compiled("not C++", FLAGS, "answer")
    assert not libraries(cache)


def test_without_a_compiler_numpy_computes(tmp_path):
    printed, logged = run(WHICH, PATH=tmp_path, CXX="")
    assert printed == "numpy 20000.0"
    why = "no C++ compiler (g++ or clang++) was found (apt install g++)"
    assert logged == f"minigrad: no native kernels: {why}; computing with NumPy instead"


LATE = f"""
import threading, time
from minigrad.backend.runners.toolchain import compiler

def work():
    threading.main_thread().join()
    time.sleep(0.1)
    units = [compiler.Unit({SOURCE!r}, {FLAGS!r}, str(i)) for i in range(2)]
    print(len(compiler.load_all(units, 2)), flush=True)
threading.Thread(target=work).start()
"""


@pytest.mark.slow
@pytest.mark.needs("g++")
def test_compiling_after_the_main_thread_has_ended(cache):
    """Where concurrent.futures has no threads any more."""
    assert run(LATE)[0] == "2"
