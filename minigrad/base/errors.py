"""Errors that several packages share, and the wording of their messages."""

from collections.abc import Iterable
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, not minigrad's, or of another model; the message says which and where."""


class TextError(ValueError):
    """A text that cannot be trained on, or that has characters a vocabulary lacks; the message says where and why."""


class DeviceError(RuntimeError):
    """The requested device is not available; the message says what is missing."""


class CommandError(Exception):
    """An error that the user can put right; the message says how. It ends a command with one line and a status."""

    def __init__(self, message: Any, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class CompilerError(RuntimeError):
    """Kernels cannot be compiled or loaded here; the message says why."""


class UnknownName(KeyError):
    """A name that does not exist. `unknown` words the message."""

    def __str__(self) -> str:  # without the quotes that KeyError puts around it
        return str(self.args[0])


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """The message "there is no layer 'atn'; did you mean attn?", or with all known names if none is similar."""
    names = [str(each) for each in known]
    near = similar(str(name), names)
    there_is = f"did you mean {near}?" if near else f"there are {', '.join(names)}" if names else "there are none"
    return f"there is no {what} {name!r}; {there_is}"


def similar(name: str, names: Iterable[str], most: int = 3) -> str:
    """Those of the names, `most` at most, that are much like this one, as "scores or score"; "" if none is."""
    import difflib  # here, as importing minigrad should cost as little as possible

    return " or ".join(difflib.get_close_matches(name, list(names), most))


def devices_differ(what: str, one: Any, other: Any) -> RuntimeError:
    """The RuntimeError for an operation on tensors of two backends."""
    return RuntimeError(
        f"{what}: tensors on different devices, {one.device!r} and {other.device!r}; move one with .to(device)"
    )


def printable(text: object, but: str = "") -> str:
    """text with its control characters escaped, but for these."""
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in str(text))
