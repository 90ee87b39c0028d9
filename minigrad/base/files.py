"""Files that are written whole or not at all."""

import contextlib
import os


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
