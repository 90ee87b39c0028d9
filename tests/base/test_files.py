"""Files that are replaced whole or not at all, by any number of writers."""

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from minigrad.base import files

DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.bin"


def listing(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a pipe"])
def test_folders_and_pipes_are_not_replaced_by_files(tmp_path, path, kind):
    os.mkdir(path) if kind == "folder" else os.mkfifo(path)
    if kind == "link to a pipe":
        (tmp_path / "link").symlink_to(path)
    before = os.stat(path).st_ino, listing(tmp_path)
    with pytest.raises(OSError, match="is not an ordinary file"):
        files.atomic_write(tmp_path / "link" if "link" in kind else path, b"x")
    assert (os.stat(path).st_ino, listing(tmp_path)) == before


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_the_mode_is_that_of_any_other_file(path, umask):
    before = os.umask(umask)
    try:
        files.atomic_write(path, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    link, target = tmp_path / "link", tmp_path / "disk" / "c"
    link.symlink_to(target)
    for data in b"1", b"2":
        files.atomic_write(link, data)
        assert link.is_symlink() and target.read_bytes() == data
    assert listing(tmp_path / "disk") == ["c"]


@pytest.mark.parametrize("size", [10, 100_000])  # the first waits in Python's buffer
def test_the_bytes_first_and_then_the_name(path, monkeypatch, size):
    """The order in which a power cut can lose neither the old file nor the new."""
    steps, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(os.fstat(fd).st_size), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append(os.path.basename(b)), replace(a, b)))
    files.atomic_write(path, b"x" * size)
    assert steps == [size, "c.bin"]


@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_one_and_nothing_else(path, monkeypatch, error, where):
    files.atomic_write(path, b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, where, fail)
    with pytest.raises(type(error)):
        files.atomic_write(path, b"new")
    assert path.read_bytes() == b"old" and listing(path.parent) == [path.name]


SAVER = """
import sys
from minigrad.base import files

print("ready", flush=True)
sys.stdin.readline()
for i in range(15):
    files.atomic_write(sys.argv[1], sys.argv[2].encode() * 100_000)
"""


def test_many_processes_and_threads_save_to_one_path(path):
    command = [sys.executable, "-c", SAVER, str(path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    errors = []

    def save(n):
        for _ in range(15):
            files.atomic_write(path, n * 100_000)
            data = path.read_bytes()
            if data != data[:1] * 100_000:
                errors.append(data)

    savers = [subprocess.Popen([*command, n], **pipes) for n in "ab"]
    try:
        for saver in savers:
            assert saver.stdout.readline() == "ready\n"
        threads = [threading.Thread(target=save, args=(n,)) for n in (b"c", b"d")]
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
