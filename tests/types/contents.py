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

FILE = ROOT / "minigrad/__init__.py"
WIDTH = 120
THEMES = {  # in the order of the page; what comes from a module that is not listed stands under its docstring's title
    "minigrad.tensor.core": "Tensors",
    "minigrad.tensor.creation": "Tensors",
    "minigrad.ops.elementwise": "Element by element",
    "minigrad.ops.activation": "Element by element",
    "minigrad.ops.select": "Comparing and choosing",
    "minigrad.ops.reduce": "Along dims",
    "minigrad.ops.softmax": "Along dims",
    "minigrad.ops.movement": "Shapes",
    "minigrad.ops.index": "Indexing",
    "minigrad.ops.matmul": "Products",
    "minigrad.tensor.gradients": "Gradients",
    "minigrad.autograd.modes": "Gradients",
    "minigrad.autograd.op": "Ops of your own",
    "minigrad.autograd.cases": "Ops of your own",
    "minigrad.autograd.registry": "Ops of your own",
    "minigrad.captured": "Speed",
    "minigrad.random": "Random numbers",
}
VALUES = {  # what is no function or class, and so has no docstring
    "default_generator": "the Generator that initialisation, dropout and random tensors draw from",
    "registry": "{name: Declaration} of every op and composite",
}
PACKAGES = [
    "nn",
    "nn.functional",
    "nn.init",
    "optim",
    "gradcheck",
    "study",
    "viz",
    "training",
    "distributed",
    "autograd",
    "ops",
    "doctor",
]


def names():
    """What minigrad/__init__.py offers: the names that it imports, but for modules and what begins with _."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom)]
    found = [alias.asname or alias.name for n in nodes for alias in n.names]
    return [name for name in found if not inspect.ismodule(getattr(minigrad, name)) and name != "launched"]


def modules():
    """The packages that minigrad/__init__.py imports."""
    nodes = [n for n in ast.parse(FILE.read_text()).body if isinstance(n, ast.ImportFrom) and n.module is None]
    return [alias.name for n in nodes for alias in n.names if alias.name != "launched"]


def sentence(doc):
    """The first sentence of a docstring, or the formula before its derivative."""
    paragraph = inspect.cleandoc(doc).split("\n\n")[0].replace("\n", " ")
    return re.split(r";   |\.\s|[.:]$", paragraph)[0]


def contents():
    """The table: themes with a line for each name."""
    themes = {theme: [] for theme in THEMES.values()}
    errors, dtypes = [], []
    for name in names():
        value = getattr(minigrad, name)
        if isinstance(value, np.dtype | type) and value in (*minigrad.dtypes.ALL, bool, int, float):
            dtypes.append(name)
        elif inspect.isclass(value) and issubclass(value, Exception):
            errors.append((name, sentence(value.__doc__)))
        elif name in VALUES:
            home = "minigrad.random" if "generator" in name else "minigrad.autograd.registry"
            themes[THEMES[home]].append((name, VALUES[name]))
        else:
            home = importlib.import_module(inspect.unwrap(value).__module__)
            theme = THEMES.get(home.__name__) or sentence(home.__doc__)
            themes.setdefault(theme, []).append((name, sentence(value.__doc__)))
    packages = [(name, sentence(importlib.import_module(f"minigrad.{name}").__doc__)) for name in PACKAGES]
    parts = [section(theme, rows) for theme, rows in themes.items()]
    parts += [f"dtypes\n{textwrap.fill(', '.join(dtypes), WIDTH, initial_indent='    ', subsequent_indent='    ')}"]
    return "\n\n".join([*parts, section("Errors", errors), section("Packages: import minigrad.…", packages)])


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
