"""The cache of compiled kernels: what is damaged is found out and made again; processes and threads share it."""

import os
import random
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from minigrad.backend.runners.toolchain import compiled, find_compiler

from .kernel_cache import ANSWER, FLAGS, SOURCE, end, libraries, run, script, start

pytestmark = pytest.mark.needs("g++")


def test_compiles_once(cache):
    path = compiled(SOURCE, FLAGS, "answer")
    assert path.parent == cache and cache.stat().st_mode & 0o777 == 0o700
    before = path.stat().st_ino
    assert compiled(SOURCE, FLAGS, "answer") == path and path.stat().st_ino == before
    assert compiled(SOURCE, ("-O2",), "answer") != path  # other flags, another result
    assert compiled(SOURCE + "\n", FLAGS, "answer") != path
    assert compiled(SOURCE, FLAGS, "answer", ("-O2",)) != compiled(SOURCE, (*FLAGS, "-O2"), "answer")
    assert sorted(cache.iterdir()) == libraries(cache)  # nothing half made


# ----------------------------------------------------------------------------------------------------------- damage

# Compiles many small libraries at once, loads each and checks what it computes.
MANY = """
import ctypes
from concurrent.futures import ThreadPoolExecutor
from minigrad.backend.runners.toolchain import compiled
def answer(i):
    path = compiled('extern "C" int answer() { return %d; }' % i, ("-O0",), "answer%03d" % i)
    return ctypes.CDLL(str(path)).answer() == i
with ThreadPoolExecutor(4) as threads:
    print(sum(threads.map(answer, range(COUNT))))
"""


def truncated(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def flipped(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def zeroed(path, rng):
    """A page that never came to the disk, as after a power failure."""
    data = bytearray(path.read_bytes())
    page = rng.randrange(0, len(data), 4096)
    data[page : page + 4096] = bytes(len(data[page : page + 4096]))
    path.write_bytes(data)


def empty(path, rng):
    os.truncate(path, 0)


def garbage(path, rng):
    path.write_bytes(rng.choice([b"", b"\x7fELF"]) + rng.randbytes(rng.randrange(1, 20_000)))


def longer(path, rng):
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 5000)))


def another(path, rng):
    """A good file in the place of another."""
    path.write_bytes(rng.choice([p for p in libraries(path.parent) if p != path and p.is_file()]).read_bytes())


KINDS = [truncated, flipped, zeroed, empty, garbage, longer, another]


@pytest.mark.slow
@pytest.mark.parametrize("count", [28])
def test_damaged_files_are_made_again(cache, count):
    """No crash, no hang, and every one of them rebuilt. ("another" may come upon one that is damaged already.)"""
    code = MANY.replace("COUNT", str(count))
    assert run(code)[0] == str(count)
    files, rng = libraries(cache), random.Random(count)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}
    for i, path in enumerate(files):
        KINDS[i % len(KINDS)](path, rng)
    printed, logged = run(code)
    assert printed == str(count)
    assert logged.count("is damaged; compiling it again") == count
    assert libraries(cache) == files
    for path in files:
        now = path.lstat()  # a new file may get the inode of one that is gone
        assert stat.S_ISREG(now.st_mode) and (now.st_ino, now.st_mtime_ns) != before[path]
    assert run(code) == (str(count), "")  # all of them are good now


def test_contents_are_on_the_disk_before_the_name_is(cache, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("fsync") or fsync(fd))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("rename") or replace(*names))
    compiled(SOURCE, FLAGS, "answer")
    assert done == ["fsync", "rename"]


# ------------------------------------------------------------------------------------------------ processes, threads


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.01)


@pytest.fixture
def slow(tmp_path):
    """A compiler that says it has begun, and compiles once it may."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.mkdir()
    wait = f"touch {begun}/$$; while ! [ -e {go} ]; do sleep 0.05; done"
    yield script(tmp_path / "slow", f'{wait}; exec {" ".join(find_compiler())} "$@"'), begun, go
    go.touch()  # those whose parent was killed end too


@pytest.mark.slow
def test_processes_compile_at_once(cache, slow):
    program, begun, go = slow
    processes = [start(ANSWER, CXX=program) for _ in range(4)]
    wait_for(lambda: len(list(begun.iterdir())) == 4)
    go.touch()
    assert [end(process)[0] for process in processes] == ["42"] * 4
    assert len(libraries(cache)) == 1
    assert run(ANSWER, CXX=program) == ("42", "")


def test_threads_compile_at_once(cache):
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: compiled(SOURCE, FLAGS, "answer"), range(4)))) == 1


INTERRUPTED = """
from minigrad.backend.runners.toolchain import compiler
units = [compiler.Unit("int x;", (), str(i)) for i in range(6)]
try: compiler.load_all(units, 2)
except KeyboardInterrupt: print("interrupted")
"""


def test_ctrl_c_ends_the_compiling(cache, slow):
    """Those that wait for their turn are not begun. A terminal sends Ctrl-C to the compilers that run, too."""
    program, begun, _ = slow
    process = start(INTERRUPTED, start_new_session=True, CXX=program)
    wait_for(lambda: len(list(begun.iterdir())) == 2)
    os.killpg(process.pid, signal.SIGINT)
    assert end(process, timeout=20)[0] == "interrupted"
    assert len(list(begun.iterdir())) == 2 and not libraries(cache)
