"""The CUDA sources: where they are, and one of them as the text that a compiler gets."""

import functools
import re
from pathlib import Path

from .table import entries

PACKAGE = Path(__file__).resolve().parent.parent

# What arrays hold (T) and what arithmetic happens in (R). Indices and bools never need an R.
C_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "bool": "bool", "int8": "signed char",
    "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned",
    "int64": "long long", "uint64": "unsigned long long",
}  # fmt: skip


def find_kernels() -> Path:
    """The folder of the .cu and .cuh files. Raises FileNotFoundError, naming the places searched.

    A wheel carries them inside the package; a checkout, editable install included, has them beside it.
    """
    places = PACKAGE / "kernels", PACKAGE.parent / "kernels"
    for place in places:
        if (place / "common.cuh").is_file():  # a known file, since any folder may be called kernels
            return place
    raise FileNotFoundError(f"minigrad's CUDA sources are in neither {places[0]} nor {places[1]}: install it again")


@functools.cache
def flattened(name):
    """The text of a file of kernels/ with its includes in their places: a compiler's cache then sees them all.

    #line directives keep errors pointing at the right file."""
    return _flatten(find_kernels() / name, set())


def _flatten(path, seen):
    seen.add(path.name)
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = re.match(r'#include "(\w+\.cuh)"', line)
        if include:
            if include[1] not in seen:
                lines.append(_flatten(path.parent / include[1], seen))
            lines.append(f'#line {number + 1} "{path.name}"')
        else:
            lines.append("" if line.startswith("#pragma once") else line)
    return "\n".join(lines)


@functools.cache
def source(file, dtype):
    """What to compile for kernels/<file>.cu on arrays of a dtype (a name such as 'float32').

    file may go on with constants that the kernel wants known when it is compiled: 'attention_forward TILE=64 DP=32'."""
    file, *constants = file.split()
    kind = C_TYPES[dtype]
    real = "float" if dtype == "float16" else kind
    generated = entries(dtype) if file == "elementwise" else ""
    known = "".join(f"constexpr int {constant.replace('=', ' = ')};\n" for constant in constants)
    return f"typedef {kind} T;\ntypedef {real} R;\n{known}{flattened(file + '.cu')}\n{generated}\n"


_ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)\s*{')


def signatures(text):
    """{entry point: [C type of each parameter]} of a source; pointers all read '*'."""
    found = {}
    for name, parameters in _ENTRY.findall(re.sub(r"//[^\n]*", "", text)):
        kinds = []
        for parameter in filter(None, (p.strip() for p in parameters.split(","))):
            kind = re.sub(r"\b(const|__restrict__)\b", " ", parameter).rsplit(None, 1)[0]
            kinds.append("*" if "*" in parameter else " ".join(kind.split()))
        found[name] = kinds
    return found
