"""Files that are written whole or not at all, and folders that one process claims for itself."""

import contextlib
import os

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def atomic_write(path, data, mode=0o666):
    """Replace the file `path` by `data` (bytes). A reader, also after a crash or a power cut, finds the old file or the
    new one, whole. mode: permissions of a new file, less the umask.

    Several processes and threads may write the same path at once: each writes a file of its own, and the last to finish
    wins. Raises OSError; if `path` is a folder, a device or a pipe, before anything is written."""
    path = os.path.realpath(path)  # a link stays a link
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is no ordinary file: it is not replaced by one")
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
            error.filename = path
        raise


@contextlib.contextmanager
def claimed(folder):
    """While the block runs, nobody else can claim `folder`: another process or thread gets a BlockingIOError at once.

    The lock is the system's, and ends with the process. On a file system without locks, every claim succeeds."""
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
