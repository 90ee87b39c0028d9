"""The source text that is compiled for a kernel file and a dtype. Elementwise kernels are generated from a table in
elementwise.cu."""

import functools
import re
from typing import NamedTuple

import numpy as np

from ..kernels import C_TYPES, text, with_includes


@functools.cache
def source(file, dtype, path=None, only=None):
    """The text to compile for kernels/<file>.cu on arrays of a dtype (a name such as 'float32').

    file: a name, and after it constants to define, as in 'matmul SIDE=64 READ_A=0 READ_B=0'. path: the path of the
    text, if it is not in kernels/. only: the one entry point to generate from the table; None: all."""
    file, *constants = file.split()
    kind = C_TYPES[dtype]
    real = "float" if dtype == "float16" else kind
    generated = generate_entries(dtype, only) if file == "elementwise" else ""
    defines = "".join(f"#define {constant.replace('=', ' ')}\n" for constant in constants)
    return f"typedef {kind} T;\ntypedef {real} R;\n{defines}{with_includes(str(path or file + '.cu'))}\n{generated}\n"


# ------------------------------------------------------------------------------------------------- elementwise kernels


class Formula(NamedTuple):
    """y = f(a), f(a, b) or f(a, b, c), element by element."""

    name: str
    kinds: str  # the dtypes it is defined for: f for floats, i for integers, b for bools
    bools: bool  # True if y is of bools
    c: str  # y in C
    ints: str  # y in C for integers and bools

    @property
    def arity(self):
        return max(["abc".index(letter) + 1 for letter in re.findall(r"\bn?([abc])\b", self.c)], default=1)

    @property
    def wide(self):
        """True if integers are read as long long, since they may be compared with a number outside of their dtype."""
        return self.bools and self.arity == 2


def _table():
    for line in text("elementwise.cu").split("/* FORMULAS\n")[1].split("*/")[0].splitlines():
        if line and not line.startswith("#"):
            name, about, formula = line.split(None, 2)
            c, _, ints = formula.partition(" ints: ")
            yield Formula(name, about.removesuffix("=b"), about.endswith("=b"), c.strip(), ints or c)


TABLE = {formula.name: formula for formula in _table()}


def dtype_kind(dtype):
    """'f', 'i' or 'b' as in the table; another letter if kernels do not take the dtype."""
    return {"u": "i"}.get(dtype.kind, dtype.kind)


def generate_entries(dtype, only=None):
    """The C text of the generated entry points for a dtype (a name such as 'float32'): all, or only one."""
    kind = dtype_kind(np.dtype(dtype))
    found = [formula for formula in TABLE.values() if kind in formula.kinds]
    return "\n".join(_entry(formula, kind) for formula in found if only in (None, f"{formula.name}_kernel"))


def _entry(formula, kind):
    """The CUDA source of a formula's entry point, with its `// args` line. kind: of the dtype, as in np.dtype.kind."""
    name, arity = formula.name, formula.arity
    result, first = "bool" if formula.bools else "T", "bool" if name == "where" else "T"
    number = "double" if kind == "f" else "long long"
    value = "long long" if formula.wide and kind != "f" else "R"
    letters = "abc"[:arity]
    parameters = [f"{result}* y", *(f"const {first if x == 'a' else 'T'}* {x}" for x in letters)]
    parameters += [*(f"{number} n{x}" for x in letters), "Layout layout"]
    c = formula.c if kind == "f" else formula.ints
    if name == "where":
        body = "choose(y, a, b, c, nb, nc, layout);"
    elif name == "clamp":
        body = f"map1<R>(y, a, layout, [=](R a) {{ return {c}; }});"
    else:
        numbers = ", na, nb" if arity == 2 else ""
        operands = ", ".join(f"{value} {x}" for x in letters)
        body = f"map{arity}<{value}>(y, {', '.join(letters)}{numbers}, layout, [=]({operands}) {{ return {c}; }});"
    if arity == 1:
        args = "y, a in layout"
    elif arity == 2:
        args = "y, a?, b? in layout; where a is not None or b is not None"
    else:
        args = "y, a, b?, c? in layout" if name in ("where", "clamp") else "y, a, b, c in layout"
    return f'// args  {args}\nextern "C" __global__ void {name}_kernel({", ".join(parameters)}) {{\n  {body}\n}}\n'
