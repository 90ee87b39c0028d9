"""Numbers and strings in the code of a user's ops, such as a block size or a threshold: random inputs would not find
a bug that shows only there."""

import dis
import inspect
import sys
import types
from functools import partial

import numpy as np

from ...autograd import FormulaOp, Op, Value
from ..adapters.foreign import Adapted
from ..call import op_of, plain, signed
from ..subject import flat

MOST_CODES, MOST_HELD = 64, 256
APPLY = inspect.unwrap(vars(Op)["apply"].__func__).__code__


def held_sizes(p):
    """The sizes of the arrays and rows of numbers that the user's function holds: in closures, defaults, attributes,
    its code and the globals that it names, or among its inputs. Fixed targets, say, fit inputs of no other size."""
    waiting = [p.fn, p.inputs, *((type(op), op.params) for op, _ in user_ops(p))]
    varying, sizes, seen = {id(x) for x in flat(p.inputs)}, set(), {}
    while waiting and len(seen) < MOST_HELD:
        x = waiting.pop(0)
        if id(x) not in seen and id(x) not in varying:
            seen[id(x)] = x
            row = isinstance(x, (list, tuple)) and all(isinstance(y, (int, float, np.generic)) for y in x)
            shape = (len(x),) if row else getattr(x, "shape", ())
            sizes.update(shape if isinstance(shape, tuple) else ())
            waiting += _parts(x)
    return sizes


def _parts(x):
    """What a function or an object of the user's, a class, or a container holds."""
    if isinstance(x, Adapted):
        return [x.__wrapped__, getattr(x.framework, "vjp", None)]
    if isinstance(x, partial):
        return [x.func, x.args, x.keywords]
    if isinstance(x, types.MethodType):
        return [x.__self__, x.__func__]
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (list, tuple)):
        return [y for y in x if not isinstance(y, (int, float, str))]
    if isinstance(x, types.CodeType):
        return [y for y in x.co_consts if isinstance(y, (tuple, types.CodeType))]
    if is_theirs(x) or isinstance(x, types.ModuleType):
        return []
    if isinstance(x, types.FunctionType):
        held = inspect.getclosurevars(x)
        return [x.__code__, held.nonlocals, held.globals, x.__defaults__, x.__kwdefaults__]
    return [dict(getattr(x, "__dict__", {}))]


def is_theirs(x):
    """Does a function, class or object belong to minigrad, NumPy or PyTorch?"""
    module = getattr(x, "__module__", None) or type(x).__module__
    return module.startswith(("minigrad.", "numpy", "torch"))


def is_ours(op):
    """Is this op one of minigrad's own, all of whose code is?"""
    return all(base.__module__.startswith("minigrad.") for base in op.__mro__[:-1])


def checks_nothing(p):
    """Is the function a bare op of minigrad? Only the public functions validate their arguments: with an index beyond
    its dim, say, a kernel would read out of bounds."""
    op = op_of(p.fn)
    return op is not None and any(is_ours(base) for base in op.__mro__[:-2])


def may_read_anywhere(p):
    """Is it such an op with an index among its inputs, or does the user's code call one? Then sizes that the index must
    fit may not change."""
    return p.trusts_an_index or (checks_nothing(p) and any(x.dtype.kind in "iu" for x in flat(p.inputs)))


def trusts_an_index(op, inputs):
    """Is this op, which has just run, one of our own (or a variant) with an index, and called by code that is not ours?
    To be asked inside of autograd.watch."""
    if not any(is_ours(base) for base in type(op).__mro__[:-2]):
        return False
    if not any(x.dtype.kind in "iu" for x in inputs if isinstance(x, Value)):
        return False
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not APPLY:
        frame = frame.f_back
    caller = frame and frame.f_back
    return caller is not None and not caller.f_globals.get("__name__", "").startswith("minigrad.")


def user_ops(p):
    """The Op classes of the user among those that ran, each once, with the call: [(op, its inputs)]."""
    found = {}
    for op, inputs in p.ran:
        cls = type(op)
        if op.serial >= 0 and not is_ours(cls) and not issubclass(cls, FormulaOp):
            found.setdefault((cls, repr(op.params)), (op, inputs))
    return list(found.values())


def codes(p, names=("forward", "backward")):
    """The code objects of the user's function and ops, and of what those call by a global name."""
    found: dict = {}
    for f in _functions(p, names):
        nested = [c for c in f.__code__.co_consts if isinstance(c, types.CodeType)]
        found |= dict.fromkeys([f.__code__, *nested])
    return list(found)


def _functions(p, names=("forward", "backward")):
    waiting = [getattr(type(op), name) for op, _ in user_ops(p) for name in names]
    fn = plain(p.fn)
    if isinstance(fn, Adapted):
        waiting += [plain(signed(fn)), getattr(fn.framework, "vjp", None), fn.framework.source(fn.__wrapped__)]
    elif op_of(p.fn) is None:
        waiting.append(getattr(fn, "__func__", fn))
    found: dict = {}
    while waiting and len(found) < MOST_CODES:
        f = waiting.pop()
        if isinstance(f, type) and all(hasattr(f, name) for name in names):  # PyTorch's Function
            waiting += [getattr(f, name) for name in names]
        if not isinstance(f, types.FunctionType) or f.__code__ in found or is_theirs(f):
            continue
        found[f.__code__] = f
        waiting += inspect.getclosurevars(f).nonlocals.values()
        waiting += [f.__globals__.get(name) for name in f.__code__.co_names]
    return list(found.values())


def _constants(p, before=None):
    """Constants that the code loads; with `before`, only those that one of these instructions then takes."""
    seen: list = []
    for code in codes(p):
        instructions = list(dis.get_instructions(code))
        following = [*(i.opname for i in instructions[1:]), ""]
        loaded = [i.argval for i, then in zip(instructions, following) if _loads(i) and (not before or then in before)]
        while loaded:
            value = loaded.pop()
            if isinstance(value, (tuple, frozenset)):
                loaded += value
            elif value not in seen or type(value) is str:
                seen.append(value)
    return seen


def _loads(instruction):
    return instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST")


def _numbers(p):
    """And the defaults of arguments, and numbers on the class of an op, as a block size."""
    seen = [v for v in _constants(p) if _is_number(v)]
    for f in _functions(p):
        seen += [v for v in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()) if _is_number(v)]
    for op, _ in user_ops(p):
        seen += [v for base in type(op).__mro__ if not is_ours(base) for v in vars(base).values() if _is_number(v)]
    return seen


def whole_numbers(p):
    """The ints in the code, small ones left out: those mean a dim or a power."""
    return sorted({v for v in _numbers(p) if isinstance(v, int) and v > 3})[:8]


def numbers(p):
    """All floats in the code, and ints larger than 3."""
    floats = {float(v) for v in _numbers(p) if v == v and abs(v) not in (0, 1, float("inf"))}
    return sorted(floats)[:12]


COMPARED = ("COMPARE_OP", "CONTAINS_OP")


def words(p):
    """Strings that the code compares something with: an option may be one of them."""
    found = [v for v in _constants(p, COMPARED) if isinstance(v, str) and v.isidentifier() and len(v) < 20]
    return list(dict.fromkeys(found))[:12]


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
