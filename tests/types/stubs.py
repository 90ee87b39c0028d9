"""minigrad/ops/signatures.pyi: what type checkers and editors know of the functions of ops, and so of Tensor's methods.

The sources of ops carry no annotations: ops know nothing of Tensor, and many of the functions are made by others. Their
types follow from the names of their arguments (vocabulary.py), from defaults, and from annotations where there are
any."""

import inspect
import re

from minigrad import ops
from minigrad.ops.args import numpy_names

from .. import ROOT
from .vocabulary import CALLS, KINDS, REFUSED, RETURNS

STUB = ROOT / "minigrad/ops/signatures.pyi"
HEAD = '''\
"""The types of the functions of ops. Written by `python -m tests.types`, from their names, defaults and docstrings."""

IMPORTS
class ValuesIndices(NamedTuple):
    """What sort, topk, and max and min with dim= return."""

    values: Tensor
    indices: Tensor
'''
IMPORTED = {
    "collections.abc": "Callable Iterable Sequence",
    "typing": "Any Literal NamedTuple overload",
    "..autograd": "Op",
    "..random": "Generator",
    "..tensor": "Tensor",
    "..typing": "Array Dims DType DTypeLike Index Number Operand Size",
}
WIDTH = 120
NUMPYS = numpy_names(lambda: None).__code__  # of functions that accept axis= and keepdims= too
WORDS = {name: kind for kind, names in KINDS.items() for name in names.split()}


left: list[str] = []  # what is to be said by hand before the stub is complete


class Unknown(Exception):
    """An argument whose type follows from nothing."""


def kind_of(function, p, beside=()):
    """The type of parameter p of a function, as text; `beside` are the names of all its parameters. Raises Unknown."""
    if p.annotation is not p.empty:
        return p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
    word = p.name + ("" if p.default is p.empty else "=" if p.default is None else "=…")
    for key in (f"{function}.{word}", word):
        if key in WORDS and not (key == "input" and {"other", "exponent"} & set(beside)):
            return WORDS[key]
    if word == "input":
        return "Operand"
    if isinstance(p.default, bool | int | float | str):
        return type(p.default).__name__
    raise Unknown(f"{function}({p}): of what type? Say so in tests/types/vocabulary.py, or annotate it")


def signatures(name, function):
    """The signatures "(…) -> …" of a function, several if what it returns or needs
    depends on the arguments."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in REFUSED]
    names = [p.name for p in parameters]
    if name in CALLS:
        for call in CALLS[name]:
            unknown = set(re.findall(r"(\w+):", call)) - {*names, "axis", "keepdims"}
            if unknown:
                left.append(f"{name} has no {unknown} any more: mend CALLS in tests/types/vocabulary.py")
        return list(CALLS[name])
    annotated = inspect.signature(function).return_annotation
    returned = RETURNS.get(name, "Tensor") if annotated is inspect.Signature.empty else annotated
    if not isinstance(returned, str):
        returned = inspect.formatannotation(returned)
    shown, star = [], False
    for p in parameters:
        star = star or p.kind is p.VAR_POSITIONAL
        if p.kind is p.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f" = {p.default!r}"
        try:
            kind = kind_of(name, p, names)
        except Unknown as error:
            kind = "Any"
            left.append(str(error))
        shown.append(f"{stars}{p.name}: {kind}{default}".replace("'", '"'))
    given = [f"({', '.join(shown)}) -> {returned}"]
    if function.__code__ is NUMPYS and "dim" in names:
        given.append(given[0].replace("keepdim:", "keepdims:").replace(" dim:", " axis:"))
    return given


def definition(line, doc):
    """A function's definition, as `ruff format` would have it."""
    if len(line) + 1 > WIDTH:
        start, inner, end = re.fullmatch(r"(def \w+\()(.*)(\) -> .*)", line).groups()
        parts = re.split(r", (?=[\w*]+(?::|,|$))", inner)
        inside = f"    {inner}\n" if len(inner) + 4 <= WIDTH else "".join(f"    {part},\n" for part in parts)
        line = f"{start}\n{inside}{end}"
    return f"{line}:\n    {doc}\n" if doc else f"{line}: ...\n"


def stub():
    """The text of the stub."""
    left.clear()
    text = definitions()
    return text.replace("IMPORTS", imports(text))


def imports(text):
    """The lines that import what the text of a stub mentions."""
    words = set(re.findall(r"\w+", re.sub(r'""".*?"""', "", text, flags=re.S)))
    lines = {module: [name for name in names.split() if name in words] for module, names in IMPORTED.items()}
    found = [f"from {module} import {', '.join(names)}\n" for module, names in lines.items() if names]
    at = sum(not line.startswith("from .") for line in found)
    return "".join([*found[:at], "\n", *found[at:]])


def definitions():
    """The text of the stub but for its imports."""
    parts = [HEAD]
    functions = {name: f for name, f in vars(ops).items() if inspect.isfunction(f)}
    for name, kind in vars(ops).items():
        if inspect.isclass(kind) and name != "ValuesIndices":
            parts.append(f'class {name}(Op):\n    """{kind.__doc__}"""\n')
    for name, function in functions.items():
        doc = '"""' + re.sub(r"\n(?! )(?=\S)", "\n    ", inspect.getdoc(function).replace("\\", "\\\\")) + '"""'
        calls = signatures(name, function)
        for call in calls:
            overload = "@overload\n" if len(calls) > 1 else ""
            parts.append(overload + definition(f"def {name}{call}", doc if call is calls[0] else ""))
    return "\n".join(parts).replace(": ...\n\n", ": ...\n")
