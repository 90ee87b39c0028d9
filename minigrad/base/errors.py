"""Errors that several packages raise, and the wording of their messages."""

import sys
from collections.abc import Iterable
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, not minigrad's, or of another model; the message says which, and where."""


class TextError(ValueError):
    """A text cannot be trained on, or has characters that the vocabulary lacks; the message says where and why."""


class DeviceError(RuntimeError):
    """The requested device is not available; the message names the missing program or device."""


class CommandError(Exception):
    """An error that the user can put right; the message says how. It ends a command with one line and an exit
    status."""

    def __init__(self, message: Any, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class CompilerError(RuntimeError):
    """Kernels cannot be compiled or loaded here; the message says why."""


class UnknownName(KeyError):
    """A name does not exist. unknown() words the message."""

    def __str__(self) -> str:  # without the quotes that KeyError puts around the message
        return str(self.args[0])


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """The message "there is no layer 'atn'; did you mean attn?"; if no known name is similar, it lists all of them."""
    names = [str(each) for each in known]
    near = similar(str(name), names)
    there_is = f"did you mean {near}?" if near else f"there are {', '.join(names)}" if names else "there are none"
    return f"there is no {what} {name!r}; {there_is}"


def similar(name: str, names: Iterable[str], most: int = 3) -> str:
    """Up to `most` of the names that resemble this one, as in "scores or score"; "" if none does."""
    import difflib  # here, so that `import minigrad` stays fast

    return " or ".join(difflib.get_close_matches(name, list(names), most))


def devices_differ(what: str, one: Any, other: Any) -> RuntimeError:
    """The RuntimeError for an operation on tensors of two devices."""
    return RuntimeError(
        f"{what}: tensors on different devices, {one.device!r} and {other.device!r}; move one with .to(device)"
    )


def printable(text: object, but: str = "") -> str:
    """The text with control characters escaped, except those in `but`."""
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in str(text))


def encodable(text: str) -> str:
    """The text with those characters escaped that the encoding of the output, such as Latin-1, does not have."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
