"""Every instruction that computes: its opcode, its types, and what it means in C++.

An opcode is looked up whole, but for types, .ftz and .sat: `mad.lo.cc` is not `mad.lo`. In an expression a, b, c, d are
the operands, T is the instruction's type, U the unsigned one of its size, W the signed or unsigned one of twice its
size. A form with ftz reads float32 denormals as 0 and writes 0 for them.
"""

from dataclasses import dataclass

from .parse import UnknownPTX

BITS = frozenset({"b16", "b32", "b64"})
SIGNED, UNSIGNED = frozenset({"s16", "s32", "s64"}), frozenset({"u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
WORDS = frozenset({"b32", "u32", "s32", "b64", "u64", "s64"})
FLOATS, WIDE_FLOATS, F32 = frozenset({"f16", "f32", "f64"}), frozenset({"f32", "f64"}), frozenset({"f32"})
C_TYPES = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}  # the others are called as in PTX


def c_type(name):
    return C_TYPES.get(name, name)


@dataclass(frozen=True)
class Form:
    types: frozenset
    expression: str
    operands: str = "T T"  # a type for each; T: the instruction's
    result: str = "T"
    rounds: bool = False  # arithmetic on floats: gives the one NaN


def floats(expression, operands="T T", types=WIDE_FLOATS):
    return Form(types, expression, operands, rounds=True)


def integers(expression, operands="T T", types=INTEGERS, result="T"):
    return Form(types, expression, operands, result)


def bitwise(operator):
    return [Form(BITS, f"a {operator} b"), Form(frozenset({"pred"}), f"a {operator} b")]


def carried(function, first="(U)a", second="(U)b", operands="T T"):
    """The two forms of an instruction with a carry out, and that without: {ending: forms}"""
    call = f"{function}<U>(t, {first}, {second}, %s, %s)"
    return {
        ".cc": [integers(call % ("false", "true"), operands, WORDS)],
        "c": [integers(call % ("t.carry", "false"), operands, WORDS)],
        "c.cc": [integers(call % ("t.carry", "true"), operands, WORDS)],
    }


_ADD, _SUB = carried("add_carry"), carried("subtract_borrow")
_LOW = carried("add_carry", "(U)((U)a * (U)b)", "(U)c", "T T T")
_HIGH = carried("add_carry", "(U)multiply_high<T>(a, b)", "(U)c", "T T T")
_SHIFTS = "T u32"

TABLE = {
    # float and integer
    "add": [floats("a + b", types=FLOATS), integers("(U)a + (U)b")],
    "sub": [floats("a - b", types=FLOATS), integers("(U)a - (U)b")],
    "mul": [floats("a * b", types=FLOATS)],
    "add.rn": [floats("a + b", types=FLOATS)],
    "add.rz": [floats("add_towards_zero(a, b)", types=F32)],
    "sub.rn": [floats("a - b", types=FLOATS)],
    "mul.rn": [floats("a * b", types=FLOATS)],
    "div.rn": [floats("a / b")],
    "neg": [Form(FLOATS, "-a", "T"), integers("0 - (U)a", "T", SIGNED)],
    "abs": [Form(WIDE_FLOATS, "(T)fabs(a)", "T"), integers("a < 0 ? 0 - (U)a : (U)a", "T", SIGNED)],
    "min": [floats("minimum(a, b)"), integers("a < b ? a : b")],
    "max": [floats("maximum(a, b)"), integers("a > b ? a : b")],
    # float
    "fma.rn": [
        floats("__builtin_fmaf(a, b, c)", "T T T", F32),
        floats("__builtin_fma(a, b, c)", "T T T", frozenset({"f64"})),
    ],
    "fma.rm": [floats("fma_down(a, b, c)", "T T T", F32)],
    "mad.rn": [floats("__builtin_fmaf(a, b, c)", "T T T", F32)],
    "rcp.rn": [floats("1 / a", "T")],
    "sqrt.rn": [floats("(T)(sizeof(T) == 4 ? sqrtf(a) : sqrt(a))", "T")],
    "copysign": [Form(WIDE_FLOATS, "(T)copysign(b, a)")],
    # float, by the approximate units, for which libm stands in
    "div.approx": [floats("a / b", types=F32)],
    "div.full": [floats("a / b", types=F32)],
    "rcp.approx": [floats("1 / a", "T", F32)],
    "rcp.approx.ftz": [floats("1 / a", "T", frozenset({"f64"}))],
    "sqrt.approx": [floats("sqrtf(a)", "T", F32)],
    "rsqrt.approx": [floats("(T)(1 / sqrt((double)a))", "T")],
    "ex2.approx": [floats("exp2f(a)", "T", F32)],
    "lg2.approx": [floats("log2f(a)", "T", F32)],
    "sin.approx": [floats("sinf(a)", "T", F32)],
    "cos.approx": [floats("cosf(a)", "T", F32)],
    "tanh.approx": [floats("tanhf(a)", "T", F32)],
    # integer
    "mul.lo": [integers("(U)a * (U)b")],
    "mul.hi": [integers("multiply_high<T>(a, b)")],
    "mul.wide": [integers("(W)a * (W)b", types=INTEGERS - {"s64", "u64"}, result="W")],
    "mad.lo": [integers("(U)a * (U)b + (U)c", "T T T")],
    "mad.hi": [integers("(U)multiply_high<T>(a, b) + (U)c", "T T T")],
    "mad.wide": [integers("(W)a * (W)b + c", "T T W", INTEGERS - {"s64", "u64"}, "W")],
    "div": [integers("divide<T>(a, b)")],
    "rem": [integers("remainder_of<T>(a, b)")],
    "add.cc": _ADD[".cc"],
    "addc": _ADD["c"],
    "addc.cc": _ADD["c.cc"],
    "sub.cc": _SUB[".cc"],
    "subc": _SUB["c"],
    "subc.cc": _SUB["c.cc"],
    "mad.lo.cc": _LOW[".cc"],
    "madc.lo": _LOW["c"],
    "madc.lo.cc": _LOW["c.cc"],
    "mad.hi.cc": _HIGH[".cc"],
    "madc.hi": _HIGH["c"],
    "madc.hi.cc": _HIGH["c.cc"],
    # bits
    "and": bitwise("&"),
    "or": bitwise("|"),
    "xor": bitwise("^"),
    "not": [Form(BITS, "~a", "T"), Form(frozenset({"pred"}), "!a", "T")],
    "cnot": [Form(BITS, "a == 0", "T")],
    "shl": [Form(BITS, "shift_left<T>(a, b)", _SHIFTS)],
    "shr": [Form(BITS | INTEGERS, "shift_right<T>(a, b)", _SHIFTS)],
    "shf.l.wrap": [Form(frozenset({"b32"}), "funnel_left(a, b, c & 31)", "T T T")],
    "shf.r.wrap": [Form(frozenset({"b32"}), "funnel_right(a, b, c & 31)", "T T T")],
    "shf.l.clamp": [Form(frozenset({"b32"}), "funnel_left(a, b, c < 32 ? c : 32)", "T T T")],
    "shf.r.clamp": [Form(frozenset({"b32"}), "funnel_right(a, b, c < 32 ? c : 32)", "T T T")],
    "prmt": [Form(frozenset({"b32"}), "permute_bytes(a, b, c)", "T T T")],
    "bfi": [Form(BITS - {"b16"}, "insert_bits<T>(a, b, c, d)", "T T u32 u32")],
    "bfe": [Form(WORDS - BITS, "extract_bits<T>(a, b, c)", "T u32 u32")],
    "clz": [Form(BITS - {"b16"}, "leading_zeros<T>(a)", "T", "u32")],
    "popc": [Form(BITS - {"b16"}, "(u32)__builtin_popcountll(a)", "T", "u32")],
    "brev": [Form(BITS - {"b16"}, "reversed<T>(a)", "T")],
    "selp": [Form(BITS | INTEGERS | WIDE_FLOATS, "c ? a : b", "T T pred")],
}

# setp: those on floats that end in u are true of a NaN; of the others only `ne` needs care, for C++'s != is true of it
COMPARISONS = {
    **{"eq": "a == b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"},
    **{"lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b"},
}
ON_INTEGERS = COMPARISONS | {"ne": "a != b"}
ON_FLOATS = {
    **{name: COMPARISONS[name] for name in ("eq", "lt", "le", "gt", "ge")},
    **{name + "u": f"(a != a || b != b || {COMPARISONS[name]})" for name in ("eq", "lt", "le", "gt", "ge")},
    **{"ne": "(a < b || a > b)", "neu": "a != b", "num": "(a == a && b == b)", "nan": "(a != a || b != b)"},
}

# cvt: how a float becomes an integer, or a float without a fraction
TO_INTEGER = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def form(opcode, kind):
    """The row of an opcode, without its types, .ftz and .sat."""
    for each in TABLE.get(opcode, ()):
        if kind in each.types:
            return each
    raise UnknownPTX(f"instruction {opcode} on {kind}")


def comparison(name, kind):
    table = ON_FLOATS if kind in FLOATS else ON_INTEGERS
    if name not in table or (name in ("lo", "ls", "hi", "hs") and kind[0] != "u"):
        raise UnknownPTX(f"comparison {name} on {kind}")
    return table[name]


def conversion(modifiers, to, of):
    """The C++ expression of cvt, from a value a of type `of`. `modifiers`: without .ftz."""
    rounding, saturate = [m for m in modifiers if m != "sat"], "sat" in modifiers
    integer = to not in FLOATS
    if of not in FLOATS:
        if rounding != ([] if integer else ["rn"]) or (saturate and not integer):
            raise UnknownPTX(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
        return "to_integer<T>((long double)a)" if saturate else "(T)a"
    if integer:
        if len(rounding) != 1 or rounding[0] not in TO_INTEGER:
            raise UnknownPTX(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
        return f"to_integer<T>(({of}){TO_INTEGER[rounding[0]]}(a))"
    whole = [m for m in rounding if m in TO_INTEGER]
    if to == of and len(whole) == len(rounding) <= 1:
        value = f"(T){TO_INTEGER[whole[0]]}(a)" if whole else "a"
    elif rounding == (["rn"] if int(to[1:]) < int(of[1:]) else []) and to != of:
        value = "(T)a"
    else:
        raise UnknownPTX(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
    if saturate and to != "f32":
        raise UnknownPTX(f"cvt.sat to {to}")
    return f"saturate({value})" if saturate else f"canonical<T>({value})"
