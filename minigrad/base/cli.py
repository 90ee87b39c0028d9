"""The parts that all commands of `minigrad` share: options within limits, output files, and errors in one line.

An error that the user can put right is one line on stderr and exit status 2. Status 1 means that the command did its
work and found something wrong. A bug in minigrad keeps its traceback.
"""

import argparse
import contextlib
import io
import operator
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from . import ranks
from .errors import CheckpointError, CommandError, CompilerError, DeviceError, TextError, UnknownName, printable
from .progress import busy as busy

LIMITS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
EXPECTED = CommandError, CheckpointError, TextError, UnknownName, DeviceError, CompilerError, MemoryError, OSError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are CommandErrors: one line, without the usage."""

    def __init__(self, *args, **options):
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **options)

    def error(self, message):
        # argparse says "argument --steps: must be at least 1"; we say "--steps must be at least 1".
        raise CommandError(message.removeprefix("argument ").replace(": must ", " must ", 1))


def number(kind, **limits):
    """Return a `type` for add_argument: an int or a float within limits, such as number(float, above=0, at_most=1)."""

    def read(typed):
        try:
            value = kind(typed)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what}, not {typed!r}") from None
        if not all(LIMITS[name](value, limit) for name, limit in limits.items()):  # NaN is within no limit
            within = " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in limits.items())
            raise argparse.ArgumentTypeError(f"must be {within}, not {typed}")
        return value

    return read


COUNT, WHOLE, SEED = number(int, at_least=1), number(int, at_least=0), number(int, at_least=0, below=2**32)
DEVICE: dict[str, Any] = dict(choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
path = Path  # a `type` for add_argument


def numbers(**limits):
    """Return a `type` for add_argument: a list of whole numbers, typed with commas between them, each within limits."""
    each = number(int, **limits)
    return lambda typed: [each(part) for part in typed.split(",")]


def file_to_write(file, option, example, *suffixes):
    """Make the folder of an output file, so that errors come before the work, and return the file's Path.

    option: the option that names the file. example: a good name, for the errors. suffixes: the endings that the name
    may have, such as ".html", or "" for none; if none are given, all names are allowed. Raises CommandError, or
    OSError, if the file cannot be written."""
    file = Path(file)
    if suffixes and file.suffix not in suffixes:
        ends = " or ".join(filter(None, suffixes))
        raise CommandError(f"{option} {file}: the file's name must end with {ends}, such as {example}")
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise CommandError(f"{option} {file} cannot be written: give a file, such as {example}")
    return file


@contextlib.contextmanager
def as_command_errors(*errors):
    """Within the with-block, errors of these types become CommandErrors: the call in it checks the user's options."""
    try:
        yield
    except errors as error:
        raise CommandError(error) from None


def command_line(*words):
    """Return the command line that runs `minigrad` with these words, in the way in which this program was started."""
    program = [sys.argv[0]]
    if Path(sys.argv[0]).stem != "minigrad":
        program = [sys.executable, "-m", "minigrad"]
    elif shutil.which("minigrad") == sys.argv[0]:
        program = ["minigrad"]
    return shlex.join([*program, *map(str, words)])


def note(text):
    """Print a note on stderr."""
    print(f"note: {text}", file=sys.stderr)


def discard_output():
    """Let all that is printed from now on go nowhere."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def prepare_output():
    """Let characters be printed that the output's encoding lacks, escaped; and any, if the shell has closed it."""
    if sys.stdout is None:
        discard_output()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def one_line(name):
    """Within the with-block, an expected error ends the program with an exit status and one line on stderr, which
    begins with `name`, the command's name."""
    try:
        yield
        sys.stdout.flush()  # a full disk or a closed pipe raises here at the latest
    except KeyboardInterrupt:
        line, status = "stopped", 128 + signal.SIGINT
    except BrokenPipeError:  # `| head` has ended. Python would write the rest at exit, and fail again
        discard_output()
        sys.exit(141)
    except EXPECTED as error:
        line = describe_os_error(error) if isinstance(error, OSError) else str(error) or "not enough memory"
        status = getattr(error, "status", 2)
    else:
        return
    ranks.after_first()
    print(f"{name}: {printable(' '.join(line.splitlines()))}", file=sys.stderr)
    sys.exit(status)


def describe_os_error(error):
    """An OSError in words, with the name of its file."""
    return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part is not None)
