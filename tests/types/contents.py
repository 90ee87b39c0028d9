"""minigrad/__init__.py: its docstring, a table of contents that help(minigrad) begins with, and its `__all__`.

Both follow from what it imports. The line of a name is the first sentence of its docstring; its theme is that of the
module that it comes from."""

import ast
import importlib
import inspect
import re
import textwrap

import numpy as np

import minigrad

from .. import ROOT
from . import public

FILE = ROOT / "minigrad/__init__.py"
WIDTH = 120
THEMES = {  # modules by the last part of their names, in the order of the page; others follow, under their own titles
    **dict.fromkeys(("core", "creation", "sampling"), "Tensors"),
    **dict.fromkeys(("elementwise", "activation", "functions", "rounding"), "Element by element"),
    **dict.fromkeys(("select", "compare"), "Comparing and choosing"),
    **dict.fromkeys(("reduce", "softmax", "product"), "Along dims"),
    "movement": "Shapes",
    "index": "Indexing",
    "matmul": "Products",
    **dict.fromkeys(("gradients", "modes"), "Gradients"),
    **dict.fromkeys(("op", "cases", "registry"), "Ops of your own"),
    "captured": "Speed",
    "random": "Random numbers",
}
FIRST = "starting", "launched"  # what prepares the process before NumPy is imported
OF_NUMPY = "Size", "dtype", "finfo", "iinfo"  # other libraries' classes, which stand beside the dtypes
VALUES = {  # what is no function or class, and so has no docstring: the module that it belongs to, and what it is
    "default_generator": ("random", "the Generator that initialisation, dropout and random tensors draw from"),
    "registry": ("registry", "{name: Declaration} of every op and composite"),
}


def names():
    """What minigrad/__init__.py offers: the names that it imports, but for modules and what begins with _."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom) and n.level]
    found = [alias.asname or alias.name for n in nodes for alias in n.names]
    return [name for name in found if not inspect.ismodule(getattr(minigrad, name)) and name not in FIRST]


def modules():
    """The packages that minigrad/__init__.py imports."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom) and n.level and not n.module]
    return [alias.name for n in nodes for alias in n.names if alias.name not in FIRST]


def packages():
    """What is to be imported from minigrad: modules with an `__all__` that stand at most two folders deep."""
    found = [each.__name__.removeprefix("minigrad.") for each in public.modules() if each is not minigrad]
    return [name for name in found if name.count(".") < 2 and name not in ("tensor", "captured")]


def sentence(doc):
    """The first sentence of a docstring, or the formula before its derivative."""
    paragraph = inspect.cleandoc(doc).split("\n\n")[0].replace("\n", " ")
    return re.split(r";   |\.\s|[.:]$", paragraph)[0]


def contents():
    """The table: themes with a line for each name."""
    themes = {theme: [] for theme in THEMES.values()}
    errors, dtypes, seen = [], [], {}
    for name in names():
        value = getattr(minigrad, name)
        if name in OF_NUMPY or isinstance(value, np.dtype):
            dtypes.append(name)
        elif inspect.isclass(value) and issubclass(value, Exception):
            errors.append((name, sentence(value.__doc__)))
        elif name in VALUES:
            home, said = VALUES[name]
            themes[THEMES[home]].append((name, said))
        else:
            home = importlib.import_module(inspect.unwrap(value).__module__)
            theme = THEMES.get(home.__name__.rpartition(".")[2]) or sentence(home.__doc__)
            first = seen.setdefault(id(value), name)
            said = sentence(value.__doc__) if first == name else f"another name of {first}"
            themes.setdefault(theme, []).append((name, said))
    below = [(name, sentence(importlib.import_module(f"minigrad.{name}").__doc__)) for name in packages()]
    parts = [section(theme, rows) for theme, rows in themes.items()]
    parts += [f"dtypes\n{textwrap.fill(', '.join(dtypes), WIDTH, initial_indent='    ', subsequent_indent='    ')}"]
    return "\n\n".join([*parts, section("Errors", errors), section("Modules", below)])


def section(title, rows):
    width = max(len(name) for name, _ in rows) + 3
    lines = [f"    {name:{width}}{said}" for name, said in rows]
    short = (line if len(line) <= WIDTH else line[: WIDTH - 2].rsplit(" ", 1)[0] + " …" for line in lines)
    return "\n".join([title, *short])


def init():
    """The text that minigrad/__init__.py should have."""
    text = FILE.read_text()
    head = text.split('"""')[1].split("\n")[0]
    listed = ", ".join(f'"{name}"' for name in [*modules(), *names()])
    block = textwrap.indent(textwrap.fill(listed + ",", WIDTH - 4), "    ")
    rest = text.split('"""', 2)[2]
    rest = re.sub(r"\n__all__ = \[.*?\]  # fmt: skip\n", "", rest, flags=re.S)
    rest = rest.replace("\n__version__", f"\n__all__ = [\n{block}\n]  # fmt: skip\n\n__version__")
    return f'"""{head}\n\n{contents()}\n"""{rest}'
