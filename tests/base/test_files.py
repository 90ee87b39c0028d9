"""Files that are replaced whole or not at all, by any number of writers, and read without ever waiting."""

import errno
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from minigrad.base import files
from minigrad.training import checkpoint

fcntl = pytest.importorskip("fcntl", reason="Windows has other locks, and no FIFOs")
WORDS = "it is a folder, a FIFO, a socket or a device, not a regular file"
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.safetensors"


def listing(folder):
    return sorted(os.listdir(folder))


# ------------------------------------------------------------------------------------------------ what is no file


@pytest.fixture(params=["FIFO", "device", "folder", "socket", "link to a FIFO", "link to itself"])
def special(request, tmp_path):
    """(path, what the error says of it)"""
    path = tmp_path / "special"
    if request.param == "device":
        return "/dev/zero", WORDS
    if request.param == "folder":
        path.mkdir()
        return path, WORDS
    if request.param == "socket":
        path = f"{os.path.relpath(tmp_path)}/special"  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
        return path, WORDS
    if request.param == "link to itself":
        path.symlink_to(path)
        return path, "Too many levels of symbolic links"
    os.mkfifo(tmp_path / "fifo")
    path.symlink_to(tmp_path / "fifo")
    return path if "link" in request.param else tmp_path / "fifo", WORDS


@pytest.mark.parametrize("load", [checkpoint.load, checkpoint.load_tensors])
def test_what_is_no_file_is_refused_before_it_is_read(special, load):
    path, words = special
    with pytest.raises(checkpoint.CheckpointError, match=f"cannot read checkpoint {path}: {words}") as error:
        load(path)
    assert isinstance(error.value.__cause__, OSError)


def sparse(path, begin=b""):
    with open(path, "wb") as file:
        file.write(begin)
        file.truncate(4 << 30)
    return path


@pytest.mark.parametrize("begin", [
    b"", b"\x40" + b"\0" * 7 + b"{}" + b" " * 62, (99_000_000).to_bytes(8, "little") + b"{",
    (100_000_001).to_bytes(8, "little") + b"{",
], ids=["zeros", "header of no tensors", "header of zeros", "large header"])  # fmt: skip
def test_four_gigabytes_of_nothing_are_refused_before_they_are_read(path, begin):
    sparse(path, begin)
    tracemalloc.start()
    try:
        with pytest.raises(checkpoint.CheckpointError, match="is damaged, cut short or no checkpoint at all"):
            checkpoint.load(path)
        large = begin.startswith((99_000_000).to_bytes(8, "little"))  # a header that could be one is read
        assert tracemalloc.get_traced_memory()[1] < (400e6 if large else 1e6)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["FIFO", "socket"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path, kind):
    path = tmp_path / "special"
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.relpath(path))
    before = os.stat(path).st_ino
    with pytest.raises(OSError, match=WORDS):
        checkpoint.save(path, {}, {})
    assert os.stat(path).st_ino == before and listing(tmp_path) == ["special"]


def test_a_folder_in_the_way(tmp_path):
    (tmp_path / "c").mkdir()
    with pytest.raises(IsADirectoryError):
        checkpoint.save(tmp_path / "c", {}, {})
    assert listing(tmp_path) == ["c"]


# --------------------------------------------------------------------------------------------------- what is written


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
def test_the_mode_is_that_of_any_other_file(path, umask):
    before = os.umask(umask)
    try:
        checkpoint.save(path, {}, {})
        first = stat.S_IMODE(path.stat().st_mode)
        checkpoint.save(path, {}, {})
    finally:
        os.umask(before)
    assert first == stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    link, target = tmp_path / "link", tmp_path / "disk" / "c"
    link.symlink_to(target)
    for n in (1, 2):
        checkpoint.save(link, {}, {"n": n})
        assert link.is_symlink() and checkpoint.load(target)[1] == {"n": n}
    assert listing(tmp_path / "disk") == ["c"]


@pytest.mark.parametrize("size", [10, 100_000])  # the first waits in Python's buffer
def test_bytes_then_file_then_name_then_folder(path, monkeypatch, size):
    """The order in which a power cut can lose neither the old file nor the new."""
    steps, fsync, replace = [], os.fsync, os.replace

    def seen_fsync(fd):
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        steps.append("sync folder" if folder else f"sync file of {os.fstat(fd).st_size}")
        fsync(fd)

    def seen_replace(source, target):
        steps.append(f"rename {os.path.getsize(source)} {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    files.atomic_write(path, b"x" * size)
    assert steps == [f"sync file of {size}", f"rename {size} c.safetensors", "sync folder"]


@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_one_and_nothing_else(path, monkeypatch, error, where):
    checkpoint.save(path, {}, {"old": True})

    def fail(*args):
        raise error

    monkeypatch.setattr(os, where, fail)
    with pytest.raises(type(error)):
        checkpoint.save(path, {}, {"old": False})
    monkeypatch.undo()
    assert checkpoint.load(path)[1] == {"old": True} and listing(path.parent) == [path.name]


# ------------------------------------------------------------------------------------------------------ many writers


def test_a_save_within_a_save(path, monkeypatch):
    """Before the first file is synced, somebody else saves; the first is the last to end, and stays."""
    fsync, saves = os.fsync, []

    def save_another(fd):
        if not saves:
            saves.append(1)
            checkpoint.save(path, {}, {"n": 2})
        fsync(fd)

    monkeypatch.setattr(os, "fsync", save_another)
    checkpoint.save(path, {}, {"n": 1})
    assert checkpoint.load(path)[1] == {"n": 1} and listing(path.parent) == [path.name]


SAVER = """
import sys
import numpy as np
from minigrad.training import checkpoint

path, n = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for i in range(15):
    checkpoint.save(path, {"x": np.full(20_000, n)}, {"n": n})
"""


def test_many_processes_and_threads_save_to_one_path(path):
    command = [sys.executable, "-c", SAVER, str(path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    errors = []

    def save(n):
        try:
            for _ in range(15):
                checkpoint.save(path, {"x": np.full(20_000, n)}, {"n": n})
                tensors, meta = checkpoint.load(path)
                assert (tensors["x"] == meta["n"]).all()
        except BaseException as error:
            errors.append(error)

    savers = [subprocess.Popen([*command, str(n)], **pipes) for n in range(2)]
    try:
        for saver in savers:
            assert saver.stdout.readline() == "ready\n"
        threads = [threading.Thread(target=save, args=(n,)) for n in (2, 3)]
        for thread in threads:
            thread.start()
        for saver in savers:
            _, err = saver.communicate("go\n", timeout=120)
            assert saver.returncode == 0, err
        for thread in threads:
            thread.join()
    finally:
        for saver in savers:
            saver.kill()
            saver.wait()
    assert not errors and listing(path.parent) == [path.name]
    tensors, meta = checkpoint.load(path)
    assert (tensors["x"] == meta["n"]).all()


def test_a_path_may_be_relative_bytes_free_or_odd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("c", "./c", "ä ö", "-c", "a\nb"):
        checkpoint.save(name, {}, {"n": 1})
        assert checkpoint.load(name)[1] == {"n": 1}
    with pytest.raises(checkpoint.CheckpointError, match=re.escape("a\0b")):
        checkpoint.load("a\0b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_a_folder_that_may_be_written_but_not_listed():
    code = "import os, sys; from minigrad.base import files; os.setuid(65534); files.atomic_write(sys.argv[1], b'x')"
    with tempfile.TemporaryDirectory(dir="/tmp") as public:
        os.chmod(public, 0o333)
        done = subprocess.run([sys.executable, "-c", code, f"{public}/c"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "") and Path(public, "c").read_bytes() == b"x"
