"""The folder of compiled kernels. Its files are loaded and run. So nobody else may write there, and each file ends
with its digest, which shows what a crash or a full disk has damaged."""

import hashlib
import logging
import os

from ....base.errors import CompilerError
from ....base.files import atomic_write

log = logging.getLogger("minigrad")
DIGEST = 32  # bytes


def folder():
    """The path of the cache folder: $MINIGRAD_CACHE, or minigrad/ in $XDG_CACHE_HOME or ~/.cache. It is made
    if missing.

    Raises CompilerError if it cannot be made, if it is someone else's, or if others may write there."""
    if os.name != "posix":
        raise CompilerError("the kernel cache needs POSIX's owners and modes of files")
    xdg = os.environ.get("XDG_CACHE_HOME") or ""
    base = xdg if os.path.isabs(xdg) else "~/.cache"  # a relative path is to be ignored, says XDG
    path = os.path.realpath(os.path.expanduser(os.environ.get("MINIGRAD_CACHE") or f"{base}/minigrad"))
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        about = os.stat(path)
    except OSError as error:
        raise CompilerError(
            f"the cache folder {path} cannot be made: {error.strerror}; name another in MINIGRAD_CACHE"
        ) from error
    if about.st_uid not in (0, os.geteuid()):
        raise CompilerError(f"the cache folder {path} belongs to another user: name another in MINIGRAD_CACHE")
    if about.st_mode & 0o022:
        raise CompilerError(f"the cache folder {path} may be written to by others: chmod go-w {path}")
    return path


def _digest(path, data):
    """A digest of the name too, so that a file under another's name counts as damaged."""
    return hashlib.sha256(os.path.basename(path).encode() + b"\0" + data).digest()


def contents(path):
    """What keep() wrote to a file; None if there is none, or if it is damaged, which a line of log says."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if data[-DIGEST:] == _digest(path, data[:-DIGEST]):
        return data[:-DIGEST]
    log.warning("minigrad: %s is damaged; compiling it again", path)
    return None


def keep(path, data):
    """Write a file of the cache, for its owner alone. Others find all of it or nothing. Raises OSError."""
    atomic_write(path, data + _digest(path, data), mode=0o600)
