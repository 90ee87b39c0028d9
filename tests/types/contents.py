"""minigrad/__init__.py: its docstring, a table of contents that help(minigrad) begins with, and its `__all__`; and such
tables of other modules.

All follow from what it imports. The line of a name is the first sentence of its docstring; its theme is that of the
module that it comes from."""

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import numpy as np

import minigrad

from .. import ROOT
from . import public

FILE = ROOT / "minigrad/__init__.py"
WIDTH = 120
CUSTOM = (
    "Beside these, ValueError is for shapes, sizes and options that do not fit, TypeError for dtypes and types, "
    "IndexError for dims and indices out of range, and RuntimeError for tensors on different devices."
)
TENSOR = {  # the files of Tensor, by what their methods are for
    **dict.fromkeys(("attributes", "core"), "What it is, in another dtype or place, or like another"),
    "interop": "As Python's and NumPy's",
    "inplace": "In place",
}
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
    **dict.fromkeys(("module", "containers"), "Modules and parameters"),
    "layers": "Layers",
    "activations": "Activations",
    **dict.fromkeys(("norm", "dropout"), "Norms and dropout"),
    **dict.fromkeys(("loss", "losses"), "Losses"),
    **dict.fromkeys(("attention", "cache", "transformer"), "Attention and transformers"),
    **dict.fromkeys(("config", "gpt", "generate", "recompute"), "GPT"),
}
PAGES = {  # further modules whose docstring ends with a table, and whether by themes
    **dict.fromkeys(("nn", "nn.functional"), True),
    **dict.fromkeys(("optim", "optim.lr_scheduler", "utils.data", "viz", "distributed"), False),
}
FIRST = "starting", "launched"  # what prepares the process before NumPy is imported
OF_NUMPY = "Size", "dtype", "finfo", "iinfo"  # other libraries' classes, which stand beside the dtypes
PRIVATE = *FIRST, "explaining", "listing", "__version__"  # imported for the module's own use
VALUES = {  # what is no function or class, and so has no docstring: the module that it belongs to, and what it is
    "default_generator": ("random", "the Generator that initialisation, dropout and random tensors draw from"),
    "registry": ("registry", "{name: Declaration} of every op and composite"),
}


def names():
    """What minigrad/__init__.py offers: the names that it imports, but for modules and what begins with _."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom) and n.level]
    found = [alias.asname or alias.name for n in nodes for alias in n.names]
    return [name for name in found if not inspect.ismodule(getattr(minigrad, name)) and name not in PRIVATE]


def modules():
    """The packages that minigrad/__init__.py imports."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom) and n.level and not n.module]
    return [alias.name for n in nodes for alias in n.names if alias.name not in FIRST]


def packages():
    """What is to be imported from minigrad: modules with an `__all__` that stand at most two folders deep."""
    found = [each.__name__.removeprefix("minigrad.") for each in public.modules() if each is not minigrad]
    return [name for name in found if name.count(".") < 2 and name not in ("tensor", "replay.captured")]


def sentence(doc):
    """The first sentence of a docstring, or the formula before its derivative."""
    paragraph = inspect.cleandoc(doc).split("\n\n")[0].replace("\n", " ")
    return re.split(r";   |(?<!et al)\.\s|[.:]$", paragraph)[0]


def entries(module, names):
    """(theme, name, what it is) of what a module offers."""
    seen = {}
    for name in names:
        value = getattr(module, name)
        if name in OF_NUMPY or isinstance(value, np.dtype):
            yield "dtypes", name, ""
        elif inspect.isclass(value) and issubclass(value, Exception):
            yield "Errors", name, sentence(value.__doc__)
        elif name in VALUES:
            home, said = VALUES[name]
            yield THEMES[home], name, said
        else:
            home = importlib.import_module(inspect.unwrap(value).__module__)
            theme = THEMES.get(home.__name__.rpartition(".")[2]) or sentence(home.__doc__)
            first = seen.setdefault(id(value), name)
            yield theme, name, sentence(value.__doc__) if first == name else f"another name of {first}"


def contents(module, names, below):
    """The table of a module: themes with a line for each name, then errors, and the packages `below`."""
    themes = {theme: [] for theme in THEMES.values()}
    for theme, name, said in entries(module, names):
        themes.setdefault(theme, []).append((name, said))
    last = {title: themes.pop(title, []) for title in ("dtypes", "Errors")}
    parts = [section(theme, rows) for theme, rows in themes.items() if rows]
    if last["dtypes"]:
        listed = ", ".join(name for name, _ in last["dtypes"])
        parts += [f"dtypes\n{textwrap.fill(listed, WIDTH, initial_indent='    ', subsequent_indent='    ')}"]
    if last["Errors"]:
        parts += [
            section("Errors", last["Errors"]) + "\n\n" + textwrap.indent(textwrap.fill(CUSTOM, WIDTH - 4), "    ")
        ]
    if below:
        doc = {name: importlib.import_module(f"{module.__name__}.{name}").__doc__ for name in below}
        parts += [section("Modules", [(name, sentence(said)) for name, said in doc.items()])]
    return "\n\n".join(parts)


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
    rest = rest.replace("\nif TYPE_CHECKING:", f"\n__all__ = [\n{block}\n]  # fmt: skip\n\nif TYPE_CHECKING:")
    return f'"""{head}\n\n{contents(minigrad, names(), packages())}\n"""{rest}'


# --------------------------------------------------------------------------------------------------------- other pages


def page(name):
    """The table of a module of PAGES."""
    module = importlib.import_module(f"minigrad.{name}")
    below = [each for each in module.__all__ if inspect.ismodule(getattr(module, each))]
    offered = [each for each in module.__all__ if each not in below]
    if PAGES[name]:
        return contents(module, offered, below)
    lines = [(name, said) for _, name, said in entries(module, offered)]
    return section("Contents", lines + [(each, sentence(getattr(module, each).__doc__)) for each in below])


def with_page(name):
    """(file, text) of a module of PAGES with its table, which is the end of its docstring."""
    path = Path(importlib.import_module(f"minigrad.{name}").__file__)
    before, doc, rest = path.read_text().split('"""', 2)
    said = re.split(r"\n\nContents\n", doc)[0].rstrip("\n")
    table = page(name)
    return path, f'{before}"""{said}\n\n{"Contents" + 2 * chr(10) if PAGES[name] else ""}{table}\n"""{rest}'


def methods():
    """The table of Tensor's methods: names by theme."""
    themes = {theme: [] for theme in (TENSOR["core"], *THEMES.values())}
    for name, method in public.members(minigrad.Tensor):
        if name.startswith("__"):
            continue
        function = method.fget if isinstance(method, property) else inspect.unwrap(method)
        home = getattr(function, "__module__", None) or "core"  # of shape and the like, which read an attribute
        home = "gradients" if "Gradients." in getattr(function, "__qualname__", "") else home.rpartition(".")[2]
        themes.setdefault(TENSOR.get(home) or THEMES.get(home, TENSOR["core"]), []).append(name)
    lines = (f"{theme}: {', '.join(sorted(names))}" for theme, names in themes.items() if names)
    wrapped = (textwrap.wrap(line, WIDTH - 4, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(line for lines in wrapped for line in lines)


def with_methods():
    """(file, text) of Tensor with the table of its methods, which is the end of its docstring."""
    path = ROOT / "minigrad/tensor/core.py"
    before, start, text = path.read_text().partition("\nclass Tensor(")
    line, doc, rest = text.split('"""', 2)
    said = re.split(r"\n\n    Methods\n", doc)[0].rstrip()
    table = textwrap.indent(f"Methods\n\n{methods()}", "    ")
    return path, f'{before}{start}{line}"""{said}\n\n{table}\n    """{rest}'
