"""Files that are opened without waiting and written whole or not at all; folders that one process claims for itself."""

import contextlib
import errno
import os
import re
import stat

try:
    import fcntl
except ImportError:  # Windows, where nobody can delete a file that is open for writing anyway
    fcntl = None  # type: ignore[assignment]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# A FIFO would wait for a writer, and a terminal would become the process's own.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path):
    """A regular file, opened to read bytes. Raises OSError for anything else, at once: FIFO, device, folder, socket."""
    fd = os.open(path, _READ)
    try:
        _check_regular(os.fstat(fd), path)
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _check_regular(status, path):
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", os.fspath(path))


def atomic_write(path, data):
    """Replace the file `path` by `data` (bytes): see `replacing`."""
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path):
    """A binary file to write to, which takes the place of `path` when the with-block ends. A reader, also after a crash
    or a power cut, finds the old file or the new one, whole. If the block raises, `path` stays as it was.

    Several processes and threads may write the same path at once: each writes a file of its own, and the last to finish
    wins. Files that killed writers left behind are removed. Raises OSError; if `path` is a folder, a device, a FIFO or
    a socket, before anything is written. If only the last step fails, syncing the folder, `path` is the new file.
    """
    path = os.path.realpath(path)  # a link stays a link
    with contextlib.suppress(FileNotFoundError):
        _check_regular(os.stat(path), path)
    folder, name = os.path.split(path)
    _remove_leftovers(folder, name)
    try:
        temp, fd = _new_file(folder, name)
    except OSError as error:
        error.filename = path  # which was asked for, not the temporary file
        raise
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)  # the bytes first, then the name: after a power cut the name must not point at nothing
            if fcntl is not None:  # while it is locked: see _remove_leftovers
                os.replace(temp, path)
        if fcntl is None:  # Windows renames no file that is open
            os.replace(temp, path)
    except BaseException:  # KeyboardInterrupt too
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        raise
    _sync_folder(folder)


@contextlib.contextmanager
def claimed(folder):
    """While the block runs, nobody else can claim `folder`: another process or thread gets a BlockingIOError at once.

    The lock is the system's, and it ends with the process, however that ends. On a file system without locks, every
    claim succeeds."""
    if fcntl is None:
        yield
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(fd)


# A writer holds a lock (flock) on its temporary file until the file has its final name. The system releases the lock
# of a process that dies, so nobody writes to a temporary file that can be locked.


def _new_file(folder, name):
    """(path, descriptor) of a new temporary file for `name`, locked."""
    while True:
        temp = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
        # Not tempfile, whose files are 0600: a checkpoint gets the mode that the umask gives to any other file.
        fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if fcntl is None:
            return temp, fd
        with contextlib.suppress(OSError):  # a file system without locks, where no leftovers are removed either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.path.lexists(temp):
            return temp, fd
        os.close(fd)  # before it was locked, another writer removed it as a leftover


def _remove_leftovers(folder, name):
    """Delete the temporary files of `name` whose writers are gone."""
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]+\.tmp")
    with contextlib.suppress(OSError):  # raised for a folder that may be written but not listed
        for temp in [os.path.join(folder, found) for found in os.listdir(folder) if ours.fullmatch(found)]:
            with contextlib.suppress(OSError):  # locked, not ours to delete, or gone already
                _remove_unless_locked(temp)


def _remove_unless_locked(temp):
    if fcntl is None:
        return
    fd = os.open(temp, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(temp)
    finally:
        os.close(fd)


def _sync_folder(folder):
    """Make a rename in `folder` last through a power cut, where the system can."""
    if os.name != "posix":
        return
    try:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:  # some network file systems cannot sync a folder, and some folders may not be read
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise
