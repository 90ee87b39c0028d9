"""The cache of compiled kernels: what is damaged is found out and made again, what is killed leaves nothing behind."""

import os
import random
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from minigrad.backend.runners.toolchain import compiled, compiler, find_compiler

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
    assert {p.name for p in cache.iterdir()} == {p.name for p in libraries(cache)} | {".lock"}  # nothing half made


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


def flipped(path, rng, first=0, last=None):
    data = bytearray(path.read_bytes())
    data[rng.randrange(first, last or len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flipped_in_header(path, rng):
    flipped(path, rng, 0, 64)


def flipped_at_end(path, rng):
    flipped(path, rng, path.stat().st_size - 32)


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


def huge(path, rng):
    os.truncate(path, 1 << 33)  # with a hole


def another(path, rng):
    """A good file in the place of another."""
    path.write_bytes(rng.choice([p for p in libraries(path.parent) if p != path and p.is_file()]).read_bytes())


def directory(path, rng):
    path.unlink()
    path.mkdir()
    (path / "in it").touch()


def fifo(path, rng):
    path.unlink()
    os.mkfifo(path)


def link(path, rng):
    """To the very file, elsewhere: who owns that folder could change it."""
    (elsewhere := path.parent / "elsewhere").mkdir(exist_ok=True)
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)


def dangling(path, rng):
    path.unlink()
    path.symlink_to("nowhere")


def writable(path, rng):
    path.chmod(0o666)


KINDS = [
    truncated, flipped, flipped_in_header, flipped_at_end, zeroed, empty, garbage, longer, huge, another, directory,
    fifo, link, dangling, writable,
]  # fmt: skip


@pytest.mark.parametrize("count", [pytest.param(30, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)])
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


def test_what_is_damaged_as_soon_as_it_is_written_is_an_error(cache, monkeypatch):
    real = compiler.cache.put

    def bad_disk(path, sealed):
        real(path, sealed)
        os.truncate(path, 1000)

    monkeypatch.setattr(compiler.cache, "put", bad_disk)
    with pytest.raises(compiler.CompilerError, match="damaged as soon as it is written"):
        compiled(SOURCE, FLAGS, "answer")


def test_contents_are_on_the_disk_before_the_name_is(cache, monkeypatch):
    """fsync of the file, the rename, fsync of the folder: no power failure leaves a name without its contents."""
    done = []
    fsync, replace = os.fsync, os.replace

    def is_folder(descriptor):
        return stat.S_ISDIR(os.fstat(descriptor).st_mode)

    monkeypatch.setattr(os, "fsync", lambda fd: done.append("folder" if is_folder(fd) else "file") or fsync(fd))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("rename") or replace(*names))
    compiled(SOURCE, FLAGS, "answer")
    assert done == ["file", "rename", "folder"]


# --------------------------------------------------------------------------------------------- processes and leftovers


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
def test_leftovers_of_killed_compilations_are_removed(cache, slow):
    program, begun, _ = slow
    killed = [start(ANSWER, CXX=program) for _ in range(4)]
    wait_for(lambda: len(list(begun.iterdir())) == 4)
    for process in killed:
        process.kill()
        process.communicate()
    assert len([p for p in cache.iterdir() if p.is_dir()]) == 4
    assert run(ANSWER)[0] == "42"
    assert not [p for p in cache.iterdir() if p.is_dir()]


@pytest.mark.slow
def test_what_another_process_is_at_is_left_to_it(cache, slow):
    program, begun, go = slow
    killed, living = (start(ANSWER, CXX=program) for _ in range(2))
    wait_for(lambda: len(list(begun.iterdir())) == 2)
    killed.kill()
    killed.communicate()
    assert run(ANSWER)[0] == "42"  # with another compiler, so it is another file
    go.touch()
    assert end(living)[0] == "42"


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


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ctrl_c_ends_all_compilers(cache, slow):
    """Not only that which is waited for, and those that wait for their turn are not begun."""
    program, begun, _ = slow
    process = start(INTERRUPTED, CXX=program)
    wait_for(lambda: len(list(begun.iterdir())) == 2)
    process.send_signal(signal.SIGINT)
    assert end(process, timeout=20)[0] == "interrupted"
    pids = [int(p.name) for p in begun.iterdir()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(alive, pids)))
    assert not libraries(cache) and not [p for p in cache.iterdir() if p.is_dir()]
