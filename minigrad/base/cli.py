"""What all command lines share: numbers with limits, outputs tried before the work, one line for an error, quiet ends.

    @cli.command("kv_cache")
    def main(argv=()):
        parser = cli.Parser(description=__doc__)
        parser.add_argument("--tokens", type=cli.number(int, at_least=1), default=64)
        args = parser.parse_args(argv)
        ...

    if __name__ == "__main__":
        cli.run(main)

What the user can put right is one line on stderr, "kv_cache: …", and exit status 2. Status 1 means that the work was
done and found something wrong. A bug in minigrad is neither: it keeps its traceback.
"""

import argparse
import atexit
import contextlib
import errno
import functools
import importlib.util
import math
import operator
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from .errors import CheckpointError, CommandError, CompilerError, DeviceError, TextError, UnknownName, printable

LARGEST = 10**15  # of all whole numbers that can be typed: no loop gets that far, and floats count not much further
LIMITS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
EXPECTED = CommandError, CheckpointError, TextError, UnknownName, DeviceError, CompilerError


# ------------------------------------------------------------------------------------------------------- what is typed


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are CommandErrors: one line, without the usage."""

    def __init__(self, *args, **options):
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **options)

    def error(self, message):
        # argparse's "argument --steps: must be at least 1" reads better without two of its words.
        raise CommandError(message.removeprefix("argument ").replace(": must ", " must ", 1))


def number(kind, **limits):
    """A `type` for add_argument: an int or a finite float within limits, such as number(float, above=0, at_most=1)."""

    def read(typed):
        try:
            value = kind(typed)
        except (ValueError, OverflowError):
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what}, not {typed[:40]!r}") from None
        if wrong := out_of_limits(value, **limits):
            raise argparse.ArgumentTypeError(wrong)
        return value

    return read


COUNT, WHOLE, SEED = number(int, at_least=1), number(int, at_least=0), number(int, at_least=0, below=2**32)


def out_of_limits(value, **limits):
    """What is wrong with a number, as 'must be …, not …'; '' if it is within limits, finite, and not absurdly large."""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value) if abs(value) < 10**20 else f"{str(value)[:20]}…"
    if not all(LIMITS[name](value, limit) for name, limit in limits.items()):
        said = " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in limits.items())
        return f"must be {said}, not {shown}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {shown}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"must be at most {LARGEST:.0e}, not {shown}"
    return ""


def numbers(**limits):
    """A `type` for add_argument: whole numbers with commas between them, each within limits, as a list."""
    each = number(int, **limits)

    def read(typed):
        if not all(part.strip().removeprefix("-").isdecimal() for part in typed.split(",")):
            raise argparse.ArgumentTypeError(f"must be whole numbers, such as 2,3, not {typed[:40]!r}")
        return [each(part) for part in typed.split(",")]

    return read


DEVICE: dict[str, Any] = dict(
    type=lambda typed: typed.removesuffix(":0"),  # PyTorch's cuda:0
    choices=("cpu", "cuda"),
    default="cpu",
    help="where to compute (default: cpu)",
)


def path(typed):
    """A `type` for add_argument: a Path. An empty one, as from an unset variable of a shell, is an error."""
    if not typed:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(typed)


# ----------------------------------------------------------------------------------------------- before the work starts


def folder_to_write(folder, option):
    """Make a folder, if there is none, and try to write there: before the work, not after. Raises CommandError."""
    folder = Path(folder)
    above = next(place for place in (folder, *folder.parents) if os.path.lexists(place) or place == place.parent)
    if not above.is_dir():
        raise CommandError(f"{option} {folder}: {above} is not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # more certain than os.access: root, read-only disks, /proc
            pass
    except OSError as error:
        raise CommandError(f"{option}: cannot write in {folder}: {error.strerror}") from None
    return folder


def file_to_write(file, option, example, *suffixes):
    """Like folder_to_write, for a file. example: the name to suggest if a folder was given. suffixes: what its name may
    end with, such as ".html", and "" for no suffix; without them, anything."""
    file = Path(file)
    if file.is_dir():
        raise CommandError(f"{option} {file} is a folder: give a file, such as {file / example}")
    if file.exists() and not file.is_file():  # writing would replace the device or the pipe by a file
        raise CommandError(f"{option} {file} is a device or a pipe: give an ordinary file")
    if suffixes and file.suffix not in suffixes:
        ends = " or ".join(filter(None, suffixes))
        raise CommandError(f"{option} {file}: the file's name must end with {ends}, such as {example}")
    folder_to_write(os.path.dirname(os.path.realpath(file)) if file.is_symlink() else file.parent, option)
    return file


def picture(example, *suffixes, package="matplotlib"):
    """A `type` for add_argument: the file of a picture, which can be written, and the package that draws it is here."""

    def read(typed):
        needs(package, "--out")
        return file_to_write(path(typed), "--out", example, *suffixes)

    return read


def needs(package, what):
    """Raise a CommandError unless an optional package is installed. what: the thing that needs it."""
    if importlib.util.find_spec(package) is None:
        raise CommandError(f"{what} needs the package {package}: pip install {package}")


@contextlib.contextmanager
def refusing(*errors):
    """Around a call that checks what was typed: its errors of these types become CommandErrors."""
    try:
        yield
    except errors as error:
        raise CommandError(error) from None


def typed(*words):
    """The line to type, from here, to run `minigrad` with these words."""
    program = sys.argv[0]
    if Path(program).stem != "minigrad":  # which pip makes
        start = [sys.executable or "python", "-m", "minigrad"]
    else:
        start = ["minigrad" if shutil.which("minigrad") == program else program]
    return " ".join(shlex.quote(_from_here(str(word))) for word in (*start, *words))


def _from_here(word):
    """An absolute path below the working directory as a relative one."""
    try:
        return word.removeprefix(os.path.join(os.getcwd(), ""))
    except OSError:  # it was deleted
        return word


# -------------------------------------------------------------------------------------------------------------- the end

_running = ""  # the command


def note(text):
    """Print a note on stderr."""
    print(f"{_running}: note: {text}", file=sys.stderr)


@contextlib.contextmanager
def busy(words=""):
    """Show on a terminal's stderr what the command is doing: these words, or the latest of say(words). They are erased
    at the end."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    width = shutil.get_terminal_size().columns - 1 if terminal and os.environ.get("TERM") != "dumb" else 0
    shown = ""

    def say(words):
        nonlocal shown
        if width > 0 and (words or shown):
            print(f"\r{words[:width]:{width}}", end="\r" * (not words), file=sys.stderr, flush=True)
            shown = words

    if words:
        say(words)
    try:
        yield say
    finally:
        say("")


def command(name):
    """A decorator for main(argv): expected errors end it with one line, after `name`, and SystemExit."""

    def decorate(main):
        @functools.wraps(main)
        def decorated(*args):
            global _running
            _running = name
            try:
                status = main(*args)
                if sys.stdout is not None:
                    sys.stdout.flush()  # a full disk, or a closed pipe, shows here at the latest
                return status
            except (Exception, KeyboardInterrupt) as error:
                line = line_of(error)
                if line is None:
                    raise
                _end(name, line, status_of(error))

        return decorated

    return decorate


def line_of(error):
    """The message for an expected error, '' for none; None if it is a bug in minigrad or in the caller."""
    if isinstance(error, SystemExit | BrokenPipeError):  # `| head` has read enough
        return ""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    if isinstance(error, OSError):
        return said(error)
    return str(error) if isinstance(error, EXPECTED) else None


def status_of(error):
    """The exit status of a command that ends by this error."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        return 128 + getattr(signal, "SIGPIPE", 13)
    return getattr(error, "status", 2) if isinstance(error, (*EXPECTED, MemoryError, OSError)) else 1


def said(error):
    """An OSError in words, with the name of its file."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{'cannot write' if error.filename is None else error.filename}: {reason}"


def _end(name, message, status):
    line = printable(" ".join(str(message).splitlines()))
    if line:
        line = line if len(line) < 900 else f"{line[:600]} … {line[-200:]}"  # it may quote a long word that was typed
        with contextlib.suppress(OSError):  # a terminal that was closed
            print(f"{name}: {line}", file=sys.stderr)
    raise SystemExit(int(status)) from None


def run(main):
    """Call main with what was typed, and end the process: what is under `if __name__ == "__main__"`.

    A status above 128 means a signal, and the process kills itself with that signal, so that a shell's loop stops too;
    $? is the same."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by `>&-`
            setattr(sys, name, stream := open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            atexit.register(stream.close)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # characters that this terminal cannot show are escaped
    try:
        status = main(sys.argv[1:])
    except SystemExit as stop:
        status = stop.code
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:  # Python would try again at exit and complain: let it write to nowhere
            if error.errno != errno.EBADF:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if os.name == "posix" and isinstance(status, int) and status > 128:
        signal.signal(status - 128, signal.SIG_DFL)
        os.kill(os.getpid(), status - 128)
    sys.exit(status)
