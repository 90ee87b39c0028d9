"""Files that are written whole or not at all, and read without waiting; folders that one process claims for itself."""

import contextlib
import errno
import os
import stat

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def open_regular(path):
    """A regular file, opened to read bytes. Raises OSError for others, such as a FIFO, where opening would block."""
    check_regular(path)
    return open(path, "rb")


def check_regular(path):
    """Raise OSError for anything but a regular file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is a folder, a FIFO, a socket or a device, not a regular file", os.fspath(path))


def atomic_write(path, data, mode=0o666):
    """Replace the file `path` by `data` (bytes). A reader, also after a crash or a power cut, finds the old file or the
    new one, whole. mode: permissions of a new file, less the umask.

    Several processes and threads may write the same path at once: each writes a file of its own, and the last to finish
    wins. Raises OSError; if `path` is a folder, a device, a FIFO or a socket, before anything is written.
    """
    path = os.path.realpath(path)  # a link stays a link
    with contextlib.suppress(FileNotFoundError):
        check_regular(path)
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")  # not tempfile, whose files only we could read
    try:
        with open(temp, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the bytes first, then the name: it must never point at nothing
        os.replace(temp, path)
    except BaseException as error:  # KeyboardInterrupt too
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        if isinstance(error, OSError) and error.filename == temp:
            error.filename = path  # not the temporary one
        raise
    if os.name == "posix":
        _sync_folder(folder)


def _sync_folder(folder):
    """Make a rename in `folder` survive a power cut, where the system can."""
    with contextlib.suppress(OSError):  # some network file systems cannot, and some folders may not be read
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


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
