"""What a wrong gradient looks like, in words, and the lines of Python that show it again."""

import math
import re

import numpy as np

from ..tensor import Tensor
from .inputs import label_of, op_of, plain
from .subject import host

LITERAL = 256  # inputs of as many elements are written out in a snippet


def ratio_hint(analytic, numeric, sizes):
    """What an error of this ratio usually comes from, or "". sizes: those of the dims around."""
    if analytic == 0:
        return "no gradient arrives: a contribution is missing, a mask is the wrong way round, or it was not recorded"
    if numeric == 0:
        return "a gradient where the function does not change"
    r = analytic / numeric
    causes = {0.5: "half: one of two uses or contributions is missing", 2.0: "double: a contribution is counted twice"}
    causes[-1.0] = "the sign is wrong"
    for n in sorted({n for n in sizes if n > 1}):
        causes.setdefault(n, f"{n} times too large: a sum where a mean over {n} is meant, or counted {n} times")
        causes.setdefault(
            1 / n, f"{n} times too small: a mean where a sum over {n} is meant, or one of {n} contributions"
        )
        causes.setdefault(math.sqrt(n), f"√{n} times too large: a scale of 1/√{n} was left out")
        causes.setdefault(1 / math.sqrt(n), f"√{n} times too small: a scale of 1/√{n} was applied twice")
    for value, cause in causes.items():
        if math.isclose(r, value, rel_tol=1e-6):
            return cause
    return f"off by {r - 1:.3g} of itself: a constant or a small term is wrong" if abs(r - 1) < 1e-2 else ""


def patterns(leaf, analytic, numeric, wrong, others):
    """What the wrong elements of a Jacobian (outputs, inputs) have in common. others: {leaf name: its numeric one}."""
    found = []
    for name, theirs in others.items():
        if name != leaf.name and _alike(analytic, theirs) and not _alike(numeric, theirs):
            found.append(f"this is the gradient of {name}: two inputs are swapped")
    shape = leaf.array.shape
    if len(shape) > 1 and shape[-1] == shape[-2]:
        square = (-1, *shape)
        if _alike(analytic.reshape(square).swapaxes(-1, -2), numeric.reshape(square)):
            found.append("this is the gradient transposed")
    difference = (analytic - numeric)[wrong]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (analytic / numeric)[wrong]
    if ratio.size > 1 and np.isfinite(ratio).all() and np.ptp(ratio) <= 1e-6 * abs(ratio[0]):
        found.append(f"all of them are off by the same factor {ratio[0]:.9g}")
    elif difference.size > 1 and np.ptp(difference) <= 1e-6 * abs(difference[0]):
        found.append(f"all of them are off by the same amount {difference[0]:.9g}")
    places = np.unravel_index(np.flatnonzero(wrong.any(axis=0)), shape) if shape else ()
    same = [str(int(p[0])) if n > 1 and (p == p[0]).all() else ":" for p, n in zip(places, shape)]
    if set(same) - {":"}:
        found.append(f"only {leaf.name}[{', '.join(same)}] is wrong")
    return found


def _alike(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9 * np.abs(b).max(initial=0))


def snippet(fn, inputs, options):
    """Python that repeats a check. Large inputs and Modules are left as names to fill in."""
    wrapped, fn = fn, op_of(fn) or plain(fn)
    name = getattr(fn, "__qualname__", "<unnamed>")
    if "<" in name or " " in name or getattr(fn, "__module__", "__main__") == "__main__":
        source, called = "", "fn"
    else:
        source, called = f"from {fn.__module__} import {name.split('.')[0]}\n", name
    keywords = getattr(wrapped, "keywords", {})
    if keywords:  # of functools.partial
        source += "from functools import partial\n"
        called = f"partial({called}, {', '.join(f'{key}={value!r}' for key, value in keywords.items())})"
    written = [_written(x, f"inputs_{i}") for i, x in enumerate(inputs)]
    said = [f"{key}={value!r}" for key, value in options.items() if value is not None]
    missing = [text for text in written if text.startswith("inputs_")]
    missing += [f"fn = {label_of(fn)}"] if called.startswith(("fn", "partial(fn")) else []
    lines = ["import minigrad as mg", "from minigrad.gradcheck import gradcheck"]
    lines += ["from math import inf, nan"] if re.search(r"\b(inf|nan)\b", " ".join(written)) else []
    lines += source.splitlines()
    lines += [f"# and, as in the failing call: {', '.join(missing)}"] if missing else []
    return "\n".join([*lines, f"gradcheck({', '.join([called, *written, *said])})"])


def _written(x, name):
    """An input as Python, or `name` if it is too large or cannot be written."""
    if isinstance(x, Tensor):
        dtype = "bool_" if x.dtype.kind == "b" else x.dtype.name
        return f"mg.tensor({host(x).tolist()!r}, dtype=mg.{dtype})" if x.numel() <= LITERAL else name
    if type(x) in (list, tuple):
        parts = [_written(value, name) for value in x]
        return name if name in parts else f"[{', '.join(parts)}]" if type(x) is list else f"({', '.join(parts)},)"
    return repr(x) if isinstance(x, (int, float, str, type(None))) else name
