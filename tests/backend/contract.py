"""The contract of each kernel: what it assumes about its arguments is declared above it, and checked before each launch
in a test.

    // args  y, x (rows, n); mean?, rstd (rows)
    extern "C" __global__ void forward(T* y, T* mean, T* rstd, const T* x, long long rows, long long n)

The sizes are Python, in the numbers among the parameters, fields of structs, constants of the file, `grid` and `grid_y`
(blocks along the first and the last dim of the grid), and up(n, part), which is ⌈n / part⌉:

    x (rows, n)           compact, of exactly that size; (…, n): any number of rows of n
    x?                    it may be null
    x (n.B, n.T) at n.x   of these sizes and strides, which the array must reach; strides that are left out are 1
    x, y in layout        likewise by a struct Layout, whose operands are those of them that are not null, in order
    bits x (n)            of any dtype that is as wide as T
    const x (n)           not written to, though it is no const in C
    slots[n] p, g? (size) a table of n rows: what holds of the fields of each
    B = grid // n.nh      a name for what follows
    where B > 0           a condition

`// args` above a struct declares arrays of any entry point with such a parameter that does not declare them itself.

The parameters say the rest. A T* needs an array of the dtype that the kernel is compiled for. What is not const is
written to, and must be writeable.
"""

import functools
import math
import re
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from minigrad.backend.kernels import C_TYPES, ENTRY, Struct, StructArray, constants, signature, types
from minigrad.backend.launch.launcher import is_writeable
from minigrad.backend.runners.gpu import Cuda
from minigrad.backend.runners.native.native import NativeKernels
from minigrad.replay.recording import Recording

DTYPES = {c: np.dtype(name) for name, c in C_TYPES.items()}
NUMBERS = dict.fromkeys("iub", (int, np.integer, np.bool_)) | {"f": (int, float, np.number, np.bool_)}
MOST = 1024  # kinds of arguments of an entry point that are remembered
_ARRAYS = re.compile(r"(?:(\w+)\[(\w+)\] )?(bits |const )?(\w+\??(?:, \w+\??)*) (?:in (\w+)|\((.+)\))")


class ContractError(AssertionError):
    """A kernel would have received invalid arguments, and was not launched."""


def up(n, part):
    return -(-n // part) if part else 1


def most(table, field):
    """The largest number that a field has in a table."""
    return max((row[field] for row in table.rows), default=-1)


KNOWN = {"up": up, "most": most}


class Declared(NamedTuple):
    """A kernel's requirements for an array: an argument, or a field of each row of a table."""

    name: str
    of: str  # the C type of its elements
    dtype: np.dtype
    written: bool
    null: bool  # True if it may be None
    bits: bool
    dims: str  # Python: the sizes
    steps: str  # the strides, or nothing for a compact array
    within: str  # the name of a Layout, or nothing

    @property
    def any_rows(self):
        return self.dims.startswith("…")


class Contract:
    """The declarations of an entry point."""

    def __init__(self, name, text):
        """text: the source of its file, as a compiler gets it. Raises ContractError if a size is missing."""
        self.name, self._text, self._types = name, text, types(text)
        self.parameters, self.kinds, self.sizes = signature(name, text)
        self.structs = {p.name: kind for p, kind in zip(self.parameters, self.kinds) if kind in self.sizes}
        self.arrays: dict[str, Declared] = {}
        self.tables: dict[str, tuple[str, dict[str, Declared]]] = {}  # {name: (rows, {field: Declared})}
        self.defined: dict[str, str] = {}  # {name: its definition}, in order
        self.conditions: list[str] = []
        self._checked: set = set()  # the kinds of arguments that were valid
        self._known = {**KNOWN, **constants(text)}
        pointers = {p.name: p for p in self.parameters if p.kind == "*"}
        (entry,) = (found.group() for found in ENTRY.finditer(text) if found[1] == name)
        for line in (entry, *(f"struct {kind} {{" for kind in self.structs.values())):
            for part in filter(None, map(str.strip, declared_above(line, text).split(";"))):
                self._read(part, pointers)
        missing = ", ".join(p for p in pointers if p not in self.arrays and p not in self.tables)
        if missing:
            raise ContractError(f"kernel {name}: no `// args` says how large {missing} must be")

    def _read(self, part, pointers):
        part, _, steps = part.partition(" at ")
        if part.startswith("where "):
            self.conditions.append(part.removeprefix("where "))
        elif found := _ARRAYS.fullmatch(part):
            table, count, word, names, within, dims = found.groups()
            places, into = pointers, self.arrays
            if table:
                places, into = _struct(pointers[table].of, self._text).fields, {}
                self.tables[table] = count, into
            if within:
                dims, steps = (f"*{within}.{of}[:{within}.ndim]" for of in ("shape", "strides[16 * operand:]"))
            for name in names.split(", "):
                p = places.get(name.rstrip("?"))
                if p is not None and p.name not in into:
                    about = self._dtype(p.of), p.changes and word != "const ", name.endswith("?"), word == "bits "
                    into[p.name] = Declared(p.name, p.of, *about, dims, steps, within or "")
        elif found := re.fullmatch(r"(\w+) = (.+)", part):
            self.defined.setdefault(*found.groups())
        else:
            raise ContractError(f"kernel {self.name}: `// args` cannot be read: {part}")

    def _dtype(self, of):
        """The dtype of an array of a C type; None for a struct."""
        if of == "A":
            floats = DTYPES[self._types["T"]].kind == "f"
            return DTYPES[self._types["R"]] if floats else np.dtype(np.int64)
        return np.dtype(np.float64) if of.startswith("Total") else DTYPES.get(self._types.get(of, of))

    def check(self, launched, args):
        """Raise ContractError unless a launch on a grid of `launched` may have these arguments, and TypeError if they
        are too few or too many, or one should be a number."""
        if len(args) != len(self.parameters):
            raise TypeError(f"kernel {self.name} takes {len(self.parameters)} arguments, not {len(args)}")
        kind = (launched, *map(_kind, args))
        if self.tables or kind not in self._checked:
            self._check(launched, {p.name: x for p, x in zip(self.parameters, args)})
            if len(self._checked) == MOST:
                self._checked.clear()
            self._checked.add(kind)

    def _check(self, launched, given):
        for p, kind in zip(self.parameters, self.kinds):
            if kind in DTYPES and not isinstance(given[p.name], NUMBERS[DTYPES[kind].kind]):
                raise TypeError(f"kernel {self.name}: {p.name} must be a number, {kind}, not {given[p.name]!r}")
        known = {**self._known, **given, "grid": launched[0], "grid_y": launched[-1]}
        for name, kind in self.structs.items():
            if not isinstance(given[name], bytes) or len(given[name]) != self.sizes[kind]:
                self._refuse(f"{name} must be {self.sizes[kind]} bytes, of a {kind}")
            known[name] = SimpleNamespace(**_struct(kind, self._text).unpack(given[name]))
        for name, value in self.defined.items():
            known[name] = eval(_code(value), known)
        operands: dict = {}
        for x in self.arrays.values():
            known["operand"] = operands[x.within] = operands.get(x.within, -1) + (given[x.name] is not None)
            self._fits(x, given[x.name], known)
        for name, (count, fields) in self.tables.items():
            if type(given[name]) is not StructArray or len(given[name].rows) != known[count]:
                self._refuse(f"{name} must be a table of {count} = {known[count]} rows")
            for row in given[name].rows:
                for field, x in fields.items():
                    self._fits(x, row[field], row)
        for condition in self.conditions:
            if not eval(_code(condition), known):
                self._refuse(f"{condition} must be so")

    def _fits(self, x, array, known):
        """Raise ContractError unless an array agrees with its declaration."""
        if array is None and x.null:
            return

        def refuse(why):
            where = f"in {x.within}" if x.within else f"({x.dims})" + f" at {x.steps}" * bool(x.steps)
            names = sorted(set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", x.dims)))
            numbers = [f"{name} = {known[name]}" for name in names if type(known.get(name)) is int]
            self._refuse(", ".join([f"{x.of}* {x.name} {where}", *numbers]) + f": it {why}")

        if not hasattr(array, "strides") or isinstance(array, np.generic):
            refuse(f"is {type(array).__name__}, and must be an array")
        if array.dtype != x.dtype and not (x.bits and array.itemsize == x.dtype.itemsize):
            refuse(f"is of {array.dtype}, and must be of {x.dtype}")
        if x.written and not is_writeable(array):
            refuse("is written to, and must not be read-only")
        dims = eval(_code(f"({x.dims.lstrip('…, ')},)" if x.dims != "…" else "()"), KNOWN, known)
        if not x.steps:
            size = math.prod(dims)
            if array.size % size if x.any_rows and size else array.size != size and (array.size or not x.any_rows):
                refuse(f"has shape {array.shape}, and must have {'rows of ' * x.any_rows}{size} elements")
            if not array.flags.c_contiguous:
                refuse(f"has strides {array.strides}, and must be compact")
            return
        if any(step % array.itemsize for n, step in zip(array.shape, array.strides) if n > 1):
            refuse(f"has strides of {array.strides} bytes, of elements of {array.itemsize}")
        steps = eval(_code(f"(*({x.steps}),)" if x.steps[0] != "*" else f"({x.steps},)"), KNOWN, known)
        low, high = _reach(dims, (*steps, *(1,) * (len(dims) - len(steps))))
        own = _reach(array.shape, [step // array.itemsize for step in array.strides])
        if 0 not in dims and not own[0] <= low <= high <= own[1]:
            refuse(f"has shape {array.shape} and strides {array.strides}, but is used from element {low} to {high}")

    def _refuse(self, why):
        raise ContractError(f"kernel {self.name}: {why}")


def declared_above(line, text):
    """The `// args` in the comment above a line."""
    *_, comment = text.partition(f"\n{line}")[0].rpartition("\n// args")
    lines = comment.splitlines()
    return " ".join(each.removeprefix("//").strip() for each in lines) if all(x[:2] == "//" for x in lines[1:]) else ""


@functools.lru_cache(4096)
def _code(text):
    return compile(text, "// args", "eval")


@functools.lru_cache(256)
def _struct(kind, text):
    return Struct("", kind, text)


def _reach(sizes, steps):
    """The lowest and the highest element of an array of these sizes and strides."""
    ends = [(n - 1) * step for n, step in zip(sizes, steps)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)


def _kind(x):
    if hasattr(x, "strides") and not isinstance(x, np.generic):
        return x.dtype, x.shape, x.strides, is_writeable(x)
    return x if isinstance(x, (int, bytes, np.integer)) or x is None else type(x)


@functools.cache
def contract(name, text):
    return Contract(name, text)


def check_launches():
    """Check each launch from now on, also the launches that a step captures."""
    for kind in (NativeKernels, Cuda, Recording):
        kind._start = _checked(kind._start)


def _checked(start):
    @functools.wraps(start)
    def checked(self, file, entry, dtype, grid, block, shared, args):
        kernel = self.kernel(file, entry, dtype)
        contract(kernel.name, kernel.text).check(grid, args)
        start(self, file, entry, dtype, grid, block, shared, args)

    return checked
