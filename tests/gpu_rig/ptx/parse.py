"""The text of PTX as Python objects: the module's variables and functions, and the statements of a body."""

import re
from dataclasses import dataclass, field

SIZES = {
    **{kind + str(bits): bits // 8 for kind in "bsu" for bits in (8, 16, 32, 64)},
    **{"f16": 2, "f32": 4, "f64": 8, "pred": 1},
}


class UnknownPTX(Exception):
    """PTX that the rig does not know. It is never guessed at."""


@dataclass
class Variable:
    """A .param, .shared, .local, .global or .const: `count` elements of a type; None, as many as the launch says."""

    name: str
    type: str
    align: int
    count: int | None
    values: str = ""

    @property
    def size(self):
        return SIZES[self.type] * self.count


@dataclass
class Function:
    name: str
    is_entry: bool
    results: list[Variable]
    parameters: list[Variable]
    body: list[tuple[str, str]]
    max_threads: int = 256  # without __launch_bounds__, as a thread may then have 255 of 65,536 registers


@dataclass
class Module:
    functions: dict[str, Function] = field(default_factory=dict)
    constants: list[Variable] = field(default_factory=list)  # .global and .const
    shared: list[Variable] = field(default_factory=list)


_VARIABLE = re.compile(
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+[^%,]*?)?(?P<name>[\w$%]+)"
    r"(?P<array>\[(?P<count>\d*)\])?(?:\s*=\s*\{?(?P<values>[^}]*)\}?)?$"
)
_FUNCTION = re.compile(r"\.(entry|func)\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)$")
_QUALIFIERS = re.compile(r"^(\.(visible|extern|weak|common)\s+)*")


def variable(text):
    """A declaration without its state space: `.align 4 .b8 tile[1024]`, `.u32 N = 5`."""
    found = _VARIABLE.match(text.strip())
    if not found or found["type"] not in SIZES:
        raise UnknownPTX(f"declaration: {text.strip()}")
    count = 1 if found["array"] is None else int(found["count"]) if found["count"] else None
    align = int(found["align"] or SIZES[found["type"]])
    return Variable(found["name"], found["type"], align, count, (found["values"] or "").strip())


def split(text, separator=","):
    """Parts between commas, but for commas within brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if c == separator and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def parameters(text):
    return [variable(re.sub(r"^\.(param|reg)\s+", "", each)) for each in split(text or "")]


def statements(text):
    """[(kind, text)] of a body: kind is "{", "}", "label" or "statement"."""
    found, start = [], 0
    for match in re.finditer(r"[{};:]", text):
        before, c = text[start : match.start()].strip(), match[0]
        if c == ";":
            if before:
                found.append(("statement", " ".join(before.split())))
        elif c == ":":
            if not re.fullmatch(r"[\w$]+", before):
                continue
            found.append(("label", before))
        elif before:  # a brace within an instruction
            continue
        else:
            found.append((c, ""))
        start = match.end()
    if text[start:].strip():
        raise UnknownPTX(f"the end of a body: {text[start:].strip()}")
    return found


def _closing(text, start):
    depth = 0
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return start + match.start()
    raise UnknownPTX("a body without an end")


def parse(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*\.(version|target|address_size|file|loc)\b[^\n]*", "", text, flags=re.M)
    module, at = Module(), 0
    while text[at:].strip():
        end = re.compile(r"[{;]").search(text, at)
        head = _QUALIFIERS.sub("", text[at : end.start()].strip())
        space = re.match(r"\.(\w+)", head)
        if not space:
            raise UnknownPTX(f"directive: {head[:80]}")
        if space[1] in ("entry", "func"):
            at = _function(module, head, text, end)
            continue
        stop = text.index(";", at)
        declared = _QUALIFIERS.sub("", text[at:stop].strip()).removeprefix("." + space[1])
        if space[1] in ("global", "const"):
            module.constants.append(variable(declared))
        elif space[1] == "shared":
            module.shared.append(variable(declared))
        elif space[1] != "pragma":
            raise UnknownPTX(f"directive: {head[:80]}")
        at = stop + 1
    return module


def _function(module, head, text, end):
    found = _FUNCTION.match(head)
    if not found:
        raise UnknownPTX(f"function: {head[:80]}")
    kind, results, name, taken, directives = found.groups()
    if end[0] == ";":  # a declaration; if it is called and never defined, the translator says so
        return end.end()
    stop = _closing(text, end.start())
    limit = re.search(r"\.(?:maxntid|reqntid)\s+([\d, ]+)", directives)
    most = 1
    for n in (limit[1] if limit else "1024").split(","):
        most *= int(n)
    body = statements(text[end.end() : stop])
    module.functions[name] = Function(name, kind == "entry", parameters(results), parameters(taken), body, most)
    return stop + 1
