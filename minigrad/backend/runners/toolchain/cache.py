"""The folder of compiled kernels: private, and each file in it proves to be as it was written.

What lies there is loaded and run. So nobody else may be able to put anything into it, not even between the
check and the use of a file. And a file that a crash, a full disk or a failing disk has changed must be noticed before
it is loaded.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile

from .command import CompilerError

try:
    import fcntl
    import grp
    import pwd
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("minigrad")
MAKING = "making-"  # what the folders in which a compiler is at work are called
LARGEST = 1 << 28  # bytes; no library of ours is near it
LINKS = 40  # symbolic links on the way to a folder, after which Linux gives up too


# ------------------------------------------------------------------------------------------------------- the folder


def folder():
    """The path of the cache folder, which is made if it is missing, and checked at each call. Raises CompilerError if
    others could change what is in it, or if it cannot be made."""
    named = os.path.expanduser(os.environ.get("MINIGRAD_CACHE") or "")
    xdg = os.environ.get("XDG_CACHE_HOME") or ""
    base = xdg if os.path.isabs(xdg) else os.path.expanduser("~/.cache")  # XDG: a relative path is to be ignored
    path = named or os.path.join(base, "minigrad")
    if fcntl is None:
        raise CompilerError("the kernel cache needs POSIX's owners and modes of files")
    if path.startswith("~"):
        raise CompilerError("there is no home folder for the kernel cache: name a folder in MINIGRAD_CACHE")
    try:
        return private(path)
    except OSError as error:
        raise CompilerError(f"the cache folder {path} cannot be made: {error.strerror}") from error


def private(path):
    """The path of a folder without symbolic links, made if missing, with mode 0700. Raises CompilerError unless it and
    all on the way to it belong to root or us, and nobody else may write there.

    As OpenSSH does with the files of its keys, from / on and link by link. A folder in which all may write is passed
    if its sticky bit keeps them from what is not theirs, as in /tmp. Where nobody else can change any step, the path
    leads to the same place afterwards, so that it can be used by name."""
    if os.getuid() != os.geteuid():  # as Python itself ignores the user's site-packages then
        raise CompilerError(f"no kernels for a process of user {os.getuid()} with the rights of user {os.geteuid()}")
    at, links = "/", 0
    rest = os.path.join("" if os.path.isabs(path) else os.getcwd(), path).split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":  # exact, since `at` has no links in it
            at = os.path.dirname(at)
            continue
        step = os.path.join(at, part)
        about = _made(step)
        if about.st_uid not in (0, os.geteuid()):
            raise _refused(path, step, f"belongs to another user (uid {about.st_uid})")
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > LINKS:
                raise _refused(path, step, "is one of too many symbolic links")
            target = os.readlink(step)
            rest += target.split("/")[::-1]
            at = "/" if target.startswith("/") else at
        elif not stat.S_ISDIR(about.st_mode):
            raise _refused(path, step, "is not a folder")
        elif _open_to_others(about):
            raise _refused(path, step, _WRITABLE)
        else:
            at = step
    if os.lstat(at).st_mode & 0o022:
        raise _refused(path, at, _WRITABLE)
    return at


_WRITABLE = "may be written to by others: take it from them (chmod go-w), or name another folder in MINIGRAD_CACHE"


def _refused(path, step, why):
    return CompilerError(f"the cache folder {path}{'' if step == path else f': {step}'} {why}")


def _made(step):
    try:
        return os.lstat(step)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(step, 0o700)
            os.chmod(step, 0o700)  # whatever the umask
        return os.lstat(step)


def _open_to_others(about):
    if about.st_mode & stat.S_ISVTX:
        return False
    if about.st_mode & stat.S_IWOTH:
        return True
    return bool(about.st_mode & stat.S_IWGRP) and not _private_group(about.st_gid)


def _private_group(gid):
    """Is it the group that many systems give each user, with nobody else in it? (With those goes a umask of 002.)"""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


# -------------------------------------------------------------------------------------------------------- the files


def _digest(name):
    """A hash of a file's name and contents: with the name, one file in the place of another is noticed too."""
    return hashlib.sha256(name.encode() + b"\0")


def intact(path):
    """Is the file what put() wrote? None if there is none; False if it is damaged, not ours, or not a file at all.

    A file ends in the SHA-256 of what comes before, which a loader of libraries ignores. Were it in a file of its own,
    that one might belong to another process's library, after a crash or when two processes compile at once. Raises
    OSError where the system has no room left to look: that says nothing about the file."""
    try:
        # O_NONBLOCK: an open of a FIFO would wait for somebody to write to it
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return False
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
            return False
        digest = _digest(os.path.basename(path))
        rest = about.st_size - digest.digest_size
        if not 0 < rest < LARGEST:
            return False
        while rest > 0 and (piece := os.read(descriptor, min(rest, 1 << 20))):
            digest.update(piece)
            rest -= len(piece)
        return rest == 0 and os.read(descriptor, 1 << 10) == digest.digest()
    except OSError:
        return False
    finally:
        os.close(descriptor)


def usable(path):
    """intact(), and a line of log about a damaged file."""
    found = intact(path)
    if found is False:
        log.warning("minigrad: %s is damaged; compiling it again", path)
    return found


def contents(path):
    """What keep() wrote to a file; None if there is none, or it is damaged. Raises OSError as intact() does."""
    if not usable(path):
        return None
    with open(path, "rb") as file:
        return file.read()[: -_digest("").digest_size]


def keep(path, written):
    """Write a file of the cache, so that others find all of it or nothing. Raises OSError where there is no room or no
    right to."""
    with scratch(os.path.dirname(path)) as folder:
        sealed = os.path.join(folder, "sealed")
        seal(sealed, os.path.basename(path), written)
        put(path, sealed)


def seal(path, name, contents):
    """Write a file that will be called `name` in the cache, with its digest, down to the disk."""
    digest = _digest(name)
    digest.update(contents)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # whatever the umask
        file.write(contents + digest.digest())
        file.flush()
        os.fsync(descriptor)


def put(path, sealed):
    """Move a sealed file to its place in one step: others find all of it or nothing. It replaces what was there."""
    try:
        os.replace(sealed, path)
    except IsADirectoryError:
        os.rename(path, sealed + "-instead-of")  # in the scratch folder, which goes with all that is in it
        os.replace(sealed, path)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems have no fsync for folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def scratch(path):
    """A folder in the cache folder, to compile in. Folders that killed processes have left behind are removed.

    A process that compiles holds a shared lock, which the system releases when the process dies. So a process that
    gets the exclusive lock knows that no such folder is in use."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no locks on this file system: leftovers stay, then
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = stack.enter_context(open(os.open(os.path.join(path, ".lock"), flags, 0o600), "rb+", buffering=0))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _sweep(path)
            fcntl.flock(lock, fcntl.LOCK_SH)
        made = tempfile.mkdtemp(prefix=MAKING, dir=path)
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        yield made


def _sweep(path):
    with os.scandir(path) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(MAKING)]
    for each in left:
        shutil.rmtree(each, ignore_errors=True)
