"""A room imports only from rows above its own in the table of minigrad/README.md, and no import runs in a circle.

Imports within functions and under TYPE_CHECKING count too. A room is a folder of minigrad/, or a file beside them."""

import ast
import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sorted(ROOT.glob("minigrad/**/*.py"))}
KNOWN = {name.removesuffix(".__init__"): name for name in FILES}  # as it is imported: as the file is called


def floors():
    """{room: its row of the table}"""
    table = (ROOT / "minigrad" / "README.md").read_text(encoding="utf-8").partition("## The layers")[2]
    rows = re.findall(r"^\| (`.*?`) \|", table.partition("\n## ")[0], re.M)
    return {name.rstrip("/"): i for i, row in enumerate(rows) for name in re.findall(r"`(.*?)`", row)}


def room(name):
    """minigrad.nn.attention -> nn; minigrad.typing -> typing.py"""
    first, *rest = name.split(".")[1:]
    return first if rest else f"{first}.py"


def imported(name):
    """(module, line) of each import in a module."""
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [*name.split(".")[: -node.level], node.module])) if node.level else node.module
            wanted = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in KNOWN else base for alias in node.names]
        else:
            wanted = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from ((KNOWN[each], node.lineno) for each in wanted if each in KNOWN and KNOWN[each] != name)


ARROWS = [(a, line, b) for a in FILES for b, line in imported(a)]


def test_every_room_has_a_row():
    assert floors().keys() == {room(name) for name in FILES}


def test_no_import_runs_up():
    row = floors()
    up = [(a, b, line) for a, line, b in ARROWS if room(a) != room(b) and row[room(b)] >= row[room(a)]]
    assert not up, "\n".join(f"{FILES[a].relative_to(ROOT)}:{line} imports {b}" for a, b, line in up)


def test_no_imports_run_in_a_circle():
    sorter = graphlib.TopologicalSorter()
    for a, _, b in ARROWS:
        sorter.add(a, b)
    sorter.prepare()  # raises CycleError, which names the circle
