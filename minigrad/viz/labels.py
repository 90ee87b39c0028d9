"""The styles of boxes in Graphviz pictures, and short, printable labels."""

import html

from ..base.errors import printable

# Pictures must be readable on light and dark pages: the background is transparent, text and lines on it are mid-grey,
# and boxes are pale with dark text.
GREY, DARK, DIM = "#7d8590", "#1f2937", "#57606a"
FONT = {"fontname": "Helvetica,Arial,sans-serif"}
STYLES = {
    "op": {"fillcolor": "#e6eef8", "color": "#7f9cc4"},
    "leaf": {"fillcolor": "#fbf0d5", "color": "#cfa74e", "style": "filled,rounded"},
    "dot": {"fillcolor": GREY, "color": GREY, "shape": "circle", "label": "", "width": "0.07"},
    "start": {"fillcolor": "#dff1e3", "color": "#6fae82", "style": "filled,rounded"},
    "plus": {"fillcolor": "#dff1e3", "color": "#6fae82", "shape": "circle", "margin": "0"},
    "frame": {"fillcolor": GREY + "14", "color": GREY + "80", "style": "filled,rounded", "labeljust": "l"},
}


def line(text):
    """Return text as one printable line of at most 80 characters.

    DOT and XML allow no control characters, and graphviz expands \\N even in HTML labels."""
    text = printable(text) or "''"
    return (text if len(text) <= 80 else text[:79] + "…").replace("\\", "\\\\")


def small(text, colour):
    """The HTML of a line in a small font."""
    return f'<font point-size="9" color="{colour}">{html.escape(line(text))}</font>'


def boxed(title, lines):
    """The label of a box: a title, and lines [(text, colour)] below it."""
    rows = [f"<b>{html.escape(line(title))}</b>", *(small(text, colour) for text, colour in lines)]
    return f"<{'<br/>'.join(rows)}>"


def count(n, noun):
    """ "1 op", "2 ops", or "3 leaves"."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def parameter(value):
    """A parameter of an op as short text. Memory addresses, which differ from run to run, are left out."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(parameter, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        return ":".join("" if v is None else str(v) for v in (value.start, value.stop, value.step)).removesuffix(":")
    if getattr(value, "shape", ()):
        return f"array{tuple(value.shape)}"
    text = "..." if value is ... else str(value)
    return type(value).__name__ if " at 0x" in text else text
