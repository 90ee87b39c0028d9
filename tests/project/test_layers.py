"""A package imports only from rows above its own in the table of minigrad/README.md, and no import runs in a circle.

Imports within functions and under TYPE_CHECKING count too. A package is a folder of minigrad/, or a file in it."""

import ast
import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sorted(ROOT.glob("minigrad/**/*.py"))}
KNOWN = {name.removesuffix(".__init__"): name for name in FILES}  # as it is imported: as the file is called


def layers():
    """{package: its row in the table}"""
    table = (ROOT / "minigrad" / "README.md").read_text(encoding="utf-8").partition("## The layers")[2]
    rows = re.findall(r"^\| (`.*?`) \|", table.partition("\n## ")[0], re.M)
    return {name.rstrip("/"): i for i, row in enumerate(rows) for name in re.findall(r"`(.*?)`", row)}


def package(name):
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


def test_every_package_has_a_row():
    assert layers().keys() == {package(name) for name in FILES}


def test_no_import_runs_up():
    row = layers()
    up = [(a, b, line) for a, line, b in ARROWS if package(a) != package(b) and row[package(b)] >= row[package(a)]]
    assert not up, "\n".join(f"{FILES[a].relative_to(ROOT)}:{line} imports {b}" for a, b, line in up)


def test_no_imports_run_in_a_circle():
    sorter = graphlib.TopologicalSorter()
    for a, _, b in ARROWS:
        sorter.add(a, b)
    sorter.prepare()  # raises CycleError, which names the circle


def test_few_files_work_for_captured_steps():
    """The session is of a higher layer than those that tell and ask it: a call that runs up, which no import shows."""
    texts = {p: p.read_text(encoding="utf-8") for p in FILES.values() if "replay" not in p.parts}
    telling = [p for p, text in texts.items() if "thread.session" in text and p.name != "capturing.py"]
    assert len(telling) <= 5, telling


def written(tree):
    """(line) of each call that writes a file, but for rows added to one, and files of a temporary folder."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.With) and "TemporaryDirectory(" in ast.unparse(node.items[0]):
            continue
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            modes = [ast.unparse(x) for x in (*node.args, *(k.value for k in node.keywords if k.arg == "mode"))]
            opens = name == "open" and any(re.fullmatch("'[rwxabt+]+'", x) and {*x} & {*"wx+"} for x in modes)
            if name in ("write_text", "write_bytes") or (opens and modes[0] != "os.devnull"):
                yield node.lineno
        yield from written(node)


def test_every_file_is_written_whole_by_one_function():
    """base/files.py: beside it, then renamed. A full disk leaves the old one."""
    found = {name: list(written(ast.parse(path.read_text(encoding="utf-8")))) for name, path in FILES.items()}
    assert {name for name, lines in found.items() if lines} == {"minigrad.base.files"}, found
    assert list(written(ast.parse("with open(p, 'wb') as f: Path(q).write_text(f)"))) == [1, 1]
