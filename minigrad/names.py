"""Names and text in messages: what to say about a name that nobody knows, and how to show any text."""

import difflib


class UnknownName(KeyError):
    """A name that nobody knows; what `unknown` says about it is the message."""

    def __str__(self):  # without the quotes that KeyError puts around it
        return str(self.args[0])


def printable(text):
    """text with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def unknown(what, name, known):
    """'there is no layer \'atn\'; did you mean attn?', or all that there are, where none comes near."""
    known = [str(each) for each in known]
    near = difflib.get_close_matches(str(name), known)
    return f"there is no {what} {name!r}; " + (
        f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    )
