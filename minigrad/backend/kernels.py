"""The CUDA sources: where they are, their text, and the entry points, structs and constants that Python reads in it."""

import functools
import itertools
import math
import re
import struct
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent

# The C type of each dtype: T for arrays, R for arithmetic.
C_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "bool": "bool", "int8": "signed char",
    "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned",
    "int64": "long long", "uint64": "unsigned long long",
}  # fmt: skip


def find_kernels() -> Path:
    """The folder of the .cu and .cuh files. Raises FileNotFoundError, which names the places searched.

    A wheel has them inside the package; a checkout, also an editable install, has them beside it.
    """
    places = PACKAGE / "kernels", PACKAGE.parent / "kernels"
    for place in places:
        if (place / "common.cuh").is_file():  # any folder may be called kernels, so look for a known file
            return place
    raise FileNotFoundError(
        f"minigrad's CUDA sources are in neither {places[0]} nor {places[1]}: install minigrad again"
    )


@functools.cache
def text(name):
    """The text of a file of kernels/."""
    return (find_kernels() / name).read_text(encoding="utf-8")


@functools.cache
def with_includes(name):
    """The text of a file, with its includes inserted, so that a compiler's cache sees all of it. The file is in
    kernels/, or is given by its path; what it includes lies beside it or in kernels/.

    #line directives let error messages name the right file and line."""
    return _flatten(name, set())


def _flatten(name, seen):
    """with_includes() of a file, without the files in `seen`, to which the included ones are added."""
    seen.add(name)
    lines = [f'#line 1 "{Path(name).name}"']
    for number, line in enumerate(text(name).splitlines(), 1):
        include = re.match(r'#include "(\w+\.c?u?h)"', line)
        if include:
            beside = Path(name).with_name(include[1])
            place = str(beside) if (find_kernels() / beside).is_file() else include[1]
            if place not in seen:
                lines.append(_flatten(place, seen))
            lines.append(f'#line {number + 1} "{Path(name).name}"')
        else:
            lines.append("" if line.startswith("#pragma once") else line)
    return "\n".join(lines)


ENTRY = re.compile(
    r'^extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)\s*{', re.MULTILINE
)


class CParameter(NamedTuple):
    """A parameter of an entry point, or a field of a struct."""

    name: str
    kind: str  # the C type, or '*' for a pointer
    of: str  # the C type that a pointer points to
    changes: bool  # True if the kernel may change what it points to


def parameter(text):
    """The CParameter of a declaration such as 'const T* x'."""
    kind, name = re.sub(r"\b__restrict__\b", " ", text).replace("*", "* ").rsplit(None, 1)
    of = " ".join(kind.replace("*", " ").replace("const ", " ").split())
    return CParameter(name, *(("*", of, "const " not in kind) if "*" in kind else (of, "", False)))


@functools.lru_cache(32)
def entry_points(text):
    """{entry point: [CParameter, …]} of a source."""
    return {
        name: [parameter(p) for p in parameters.split(",") if p.strip()] for name, parameters in ENTRY.findall(text)
    }


@functools.lru_cache(32)
def types(text):
    """{"T": its C type, "R": its C type} of a source."""
    return {new: old for old, new in re.findall(r"typedef ([\w ]+) ([TR]);", text)}


@functools.lru_cache(32)
def constants(text):
    """{name: value} of the whole numbers that a source defines by #define or constexpr."""
    found = re.findall(r"#define (\w+) (\d+)\b", text)
    for several in re.findall(r"constexpr int ([^;]+);", text):
        found += re.findall(r"(\w+) = (\d+)(?=$|,)", several)
    return {name: int(number) for name, number in reversed(found)}  # the first definition of a name counts


def constant(file, name):
    """The value of a constant that a file of kernels/ defines."""
    if name not in constants(text(file)):
        raise ValueError(f"kernels/{file} defines no number {name}")
    return constants(text(file))[name]


class Struct:
    """A struct that a file of kernels/ declares. Call it to pack values for its fields.

    Fields are pointers, long long, double, and arrays of these. All take 8 bytes, so there is no padding. source: the
    text that declares it, instead of the file."""

    def __init__(self, file, name, source=None):
        declared = re.search(rf"struct {name} {{(.*?)\n}};", source or text(file), re.DOTALL)
        if declared is None:
            raise ValueError(f"kernels/{file} declares no struct {name}")
        body = re.sub(r"//[^\n]*", "", declared[1])
        lines = re.findall(r"(?m)^\s*(long long|double|(?:const )?\w+ ?\*)\s*([^;]+);", body)
        if len(lines) != body.count(";"):
            raise ValueError(f"struct {name} of kernels/{file} has fields other than pointers, long long and double")
        self.name = name
        self.counts = {}  # {field: its length; 1 if it is not an array}
        self.fields = {}  # {name: CParameter}
        formats = ["="]
        for kind, fields in lines:
            for field in fields.split(","):
                parts = re.fullmatch(r"\s*\*?(\w+)((?:\[\d+\])*)", field)
                if parts is None:
                    raise ValueError(f"struct {name} of kernels/{file}: {field.strip()} is not a name with sizes")
                self.counts[parts[1]] = count = math.prod(int(n) for n in re.findall(r"\d+", parts[2]))
                self.fields[parts[1]] = parameter(f"{kind} {parts[1]}")
                formats.append(f"{count}{'q' if kind == 'long long' else 'd' if kind == 'double' else 'Q'}")
        packer = struct.Struct("".join(formats))
        self._pack, self._unpack, self.size = packer.pack, packer.unpack, packer.size
        self._places = dict(zip(self.counts, itertools.accumulate(self.counts.values(), initial=0)))
        self.pointers = [self._places[f.name] for f in self.fields.values() if f.kind == "*"]  # counted in words

    def __call__(self, **values):
        """The struct as bytes. An array that is given too few numbers is filled up with 0."""
        numbers = []
        for field, count in self.counts.items():
            value = values.pop(field)
            if count == 1:
                numbers.append(value)
            else:
                numbers += [*value, *(0,) * (count - len(value))]
        if values:
            raise TypeError(f"struct {self.name} has no field {', '.join(values)}")
        return self._pack(*numbers)

    def packed(self, row, address):
        """The struct as bytes, from {field: value}, for one whose fields are not arrays. A pointer is given as an array
        or None."""
        values = [(row[name], f.kind) for name, f in self.fields.items()]
        return self._pack(*[x if kind != "*" else 0 if x is None else address(x) for x, kind in values])

    def unpack(self, packed):
        """{field: its number, or for an array the tuple of its numbers} of packed bytes."""
        numbers = self._unpack(packed)
        parts = [(name, numbers[at : at + self.counts[name]]) for name, at in self._places.items()]
        return {name: part if self.counts[name] > 1 else part[0] for name, part in parts}


def signature(name, text):
    """(parameters, kinds, structs) of an entry point: its CParameters; the C type of each, '*' for a pointer; and
    {name: bytes} of the structs among them."""
    parameters = entry_points(text)[name]
    kinds = [types(text).get(p.kind, p.kind) for p in parameters]
    structs = {*kinds} - {"*", *C_TYPES.values()}
    return parameters, kinds, {kind: Struct("", kind, text).size for kind in structs}


class StructArray(NamedTuple):
    """An array of structs, as an argument of a launch: a Struct, and rows of {field: value}. A pointer is an array or
    None. It is packed when its launch is about to run."""

    struct: Struct
    rows: list
