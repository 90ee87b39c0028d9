"""Writing a file whole or not at all, and claiming a folder for one process."""

import contextlib
import os

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def atomic_write(path, data, mode=0o666):
    """Replace the file `path` by `data` (bytes). A reader finds the old file or the new one, whole, also after a crash
    or a power cut. mode: the permissions of a new file, before the umask.

    Several processes and threads may write to the same path at the same time: each writes a file of its own, and the
    last to finish wins. Raises OSError. If `path` is a folder, a device or a pipe, nothing is written."""
    path = os.path.realpath(path)  # a link stays a link
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is not an ordinary file, so it is not replaced by one")
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")  # tempfile's would be readable by us alone
    try:
        with open(temp, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the bytes must be on disk before the name points to them
        os.replace(temp, path)
    except BaseException as error:  # KeyboardInterrupt too
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        if isinstance(error, OSError) and error.filename == temp:
            error.filename = path
        raise


@contextlib.contextmanager
def claimed(folder):
    """Claim `folder` while the block runs: another process or thread that tries gets a BlockingIOError at once.

    The operating system holds the lock, and frees it when the process ends. On a file system without locks, every claim
    succeeds."""
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
