"""Errors that several rooms share, and the wording of their messages."""

import difflib


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, not minigrad's, or of another model; the message says which and where."""


class TextError(ValueError):
    """A text that cannot be trained on, or that has characters a vocabulary lacks; the message says where and why."""


class UnknownName(KeyError):
    """Something was asked for by a name that does not exist. `unknown` words the message."""

    def __str__(self):  # without the quotes that KeyError puts around it
        return str(self.args[0])


def unknown(what, name, known):
    """\"there is no layer 'atn'; did you mean attn?\", or all that there are, if no name comes near."""
    known = [str(each) for each in known]
    near = difflib.get_close_matches(str(name), known)
    return f"there is no {what} {name!r}; " + (
        f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    )


def devices_differ(what, one, other):
    """The RuntimeError for an operation on tensors of two backends."""
    return RuntimeError(
        f"{what}: tensors on different devices, {one.device!r} and {other.device!r}; move one with .to(device)"
    )


def printable(text):
    """text with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
