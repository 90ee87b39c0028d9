"""Writes annotations into the sources where public functions outside of ops lack them: types that follow from names of
arguments (vocabulary.py) and from defaults, and -> None of __init__. What follows from nothing is left to people."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

from .public import functions
from .stubs import Unknown, kind_of

IMPORTS = {  # where the names of types come from, below minigrad
    "Tensor": "tensor",
    "Generator": "random",
    **dict.fromkeys(("Array", "DType", "DTypeLike", "Dims", "Index", "Number", "Operand", "Size"), "typing"),
}
ANNOTATED_BY_STUB = "minigrad.ops."
SELF = "self", "cls"
RETURNS = {"__init__": "None", "extra_repr": "str", "__len__": "int", "__str__": "str"}


def lacking():
    """(name, function, missing arguments, whether the result is missing) for functions that lack annotations."""
    for name, function in functions():
        if function.__module__.startswith(ANNOTATED_BY_STUB):
            continue
        signature = inspect.signature(function)
        missing = [
            p for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")
        ]
        result = signature.return_annotation is signature.empty
        if function.__name__ == "__init__" and len(missing) < len(signature.parameters) - 1:
            result = False  # to type checkers, one annotation is enough for an __init__ to return None
        if missing or result:
            yield name, function, missing, result


def annotate():
    """Fill in what follows, in place. Returns a list of what does not, each as "file:line name: what"."""
    edits, left, used = defaultdict(list), [], defaultdict(set)
    for name, function, missing, result in lacking():
        path = Path(function.__code__.co_filename)
        node = _definition(path, function.__code__.co_firstlineno)
        where = f"{path}:{node.lineno} {name}"
        places = {a.arg: a for a in _arguments(node)}
        for p in missing:
            try:
                kind = kind_of(function.__qualname__, p)
            except Unknown:
                left.append(f"{where}: {p}")
                continue
            place = places[p.name]
            edits[path].append((place.end_lineno, place.end_col_offset, f": {kind}"))
            used[path].add(kind)
        if result:
            kind = RETURNS.get(function.__name__) or ("Tensor" if function.__name__ == "forward" else None)
            if kind is None:
                left.append(f"{where}: what it returns")
                continue
            used[path].add(kind)
            edits[path].append((*_end_of_signature(path, node), f" -> {kind}"))
    for path, found in edits.items():
        _write(path, found, used[path])
    return left


def _arguments(node):
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]


def _definition(path, line):
    """The def that begins, with its decorators, at a line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and line in (node.lineno, *(d.lineno for d in node.decorator_list)):
            return node
    raise LookupError(f"{path}:{line} is no function")


def _end_of_signature(path, node):
    """(line, column in bytes) of the colon after a function's signature."""
    lines = [line.encode() for line in path.read_text().split("\n")]
    line = node.body[0].lineno - 1
    while line >= node.lineno:  # the last line before the body that ends in a colon; comments may follow it
        at = lines[line - 1].rfind(b"):")
        if at >= 0:
            return line, at + 1
        line -= 1
    at = lines[node.lineno - 1].index(b"):")  # the body stands on the same line
    return node.lineno, at + 1


def _write(path, edits, kinds):
    """Apply (line, column, text) to a file, and import the names of types."""
    text = path.read_text()
    lines = [line.encode() for line in text.split("\n")]
    for line, column, added in sorted(edits, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + added.encode() + old[column:]
    names = {word for kind in kinds for word in IMPORTS if word in _words(kind)}
    known = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} | _bound(text)
    wanted = defaultdict(list)
    for word in sorted(names - known):
        wanted[IMPORTS[word]].append(word)
    depth = len(path.parts) - path.parts.index("minigrad", len(path.parts) - 6) - 1
    after = max(n.end_lineno for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom))
    for module, words in wanted.items():
        lines.insert(after, f"from {'.' * depth}{module} import {', '.join(words)}".encode())
    path.write_text(b"\n".join(lines).decode())


def _words(kind):
    return {n.id for n in ast.walk(ast.parse(kind, mode="eval")) if isinstance(n, ast.Name)}


def _bound(text):
    nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name for n in nodes for alias in n.names}
