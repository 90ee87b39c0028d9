"""Single instructions of PTX as the rig translates them, against what NVIDIA's manual says, in NumPy or Python.

This needs a C++ compiler and nothing else: one kernel has all of them, each on a column of values.
"""

import ctypes
import itertools
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from .ptx.parse import SIZES, UnknownPTX
from .ptx.translate import translate

pytestmark = pytest.mark.needs("g++")
HERE = Path(__file__).parent / "ptx"
N = 128  # values that every instruction is tried on

F = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 2.5, 0.1, 3e38, 1e-40, -1e-40, 300.7, -300.7, 5e9, np.inf, -np.inf, np.nan]
SPECIAL = {
    "f32": F, "f64": F, "f16": [0.0, -0.0, 1.0, 0.1, -2.5, 6e4, 6e-8, np.inf, np.nan],
    "s32": [0, 1, -1, 7, -7, 31, 32, 33, 2**31 - 1, -(2**31), 123456789],
    "u32": [0, 1, 2, 31, 32, 33, 2**32 - 1, 2**31, 123456789, 3 << 16],
    "s64": [0, 1, -1, 63, 64, 2**63 - 1, -(2**63), 2**32, -(2**32) - 1],
    "u64": [0, 1, 63, 64, 2**64 - 1, 2**63, 2**32, 12345678901234567890],
    "u16": [0, 1, 15, 16, 2**16 - 1, 2**15], "s16": [0, 1, -1, 2**15 - 1, -(2**15)],
}  # fmt: skip


def wrap(x, kind):
    """A Python integer as one of a type."""
    bits = 8 * SIZES[kind]
    x &= (1 << bits) - 1
    return x - (1 << bits) if kind[0] == "s" and x >> (bits - 1) else x


def flushed(x):
    return np.float32(math.copysign(0, x)) if abs(x) < np.float32(2**-126) else np.float32(x)


def to_integer(x, kind, rounded):
    bits = 8 * SIZES[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    if math.isnan(x):
        return wrap(1 << bits - 1, kind) if bits == 64 or isinstance(x, np.float64) else 0
    return int(min(max(rounded(x), low), high)) if math.isfinite(x) else (high if x > 0 else low)


def smaller(a, b):
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def larger(a, b):
    return -smaller(-a, -b)


def down(a, b, c):
    """a·b + c rounded towards -inf, in exact arithmetic."""
    from fractions import Fraction

    if not all(map(math.isfinite, (a, b, c))):
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    if math.isinf(near):
        return near if near < 0 else np.float32(3.4028235e38)
    while Fraction(float(near)) > exact:
        near = np.nextafter(near, np.float32(-np.inf))
    while Fraction(float(np.nextafter(near, np.float32(np.inf)))) <= exact:
        near = np.nextafter(near, np.float32(np.inf))
    return near


def extracted(a, start, count, kind):
    bits, start, count = 8 * SIZES[kind], start & 255, count & 255
    last = min(start + count - 1, bits - 1)
    sign = (a >> last) & 1 if kind[0] == "s" and count else 0
    found = sum((((a >> (start + i)) & 1) if i < count and start + i < bits else sign) << i for i in range(bits))
    return wrap(found, kind)


def inserted(a, b, start, count):
    for i in range(count & 255):
        if (start & 255) + i < 32:
            at = (start & 255) + i
            b = b & ~(1 << at) | ((a >> i) & 1) << at
    return b


def bfloat16(x):
    bits = int(np.float32(x).view(np.uint32))
    return 0x7FFF if np.isnan(x) else bits + 0x7FFF + (bits >> 16 & 1) >> 16


def permuted(a, b, which):
    y = 0
    for i in range(4):
        byte = (b << 32 | a) >> 8 * (which >> 4 * i & 7) & 255
        y |= (byte if not which >> 4 * i & 8 else 255 if byte > 127 else 0) << 8 * i
    return y


S32, U32, S64, U64, F32, F64 = "s32", "u32", "s64", "u64", "f32", "f64"
# text, with %0 to %3 for the operands and %d for the result; types of operands; type of the result; meaning
CASES = [
    ("add.s32 %d, %0, %1;", [S32, S32], S32, lambda a, b: a + b),
    ("sub.s64 %d, %0, %1;", [S64, S64], S64, lambda a, b: a - b),
    ("mul.lo.s32 %d, %0, %1;", [S32, S32], S32, lambda a, b: a * b),
    ("mul.lo.u16 %d, %0, %1;", ["u16", "u16"], "u16", lambda a, b: a * b),
    ("mul.hi.s32 %d, %0, %1;", [S32, S32], S32, lambda a, b: a * b >> 32),
    ("mul.hi.u64 %d, %0, %1;", [U64, U64], U64, lambda a, b: a * b >> 64),
    ("mul.wide.s32 %d, %0, %1;", [S32, S32], S64, lambda a, b: a * b),
    ("mul.wide.u32 %d, %0, %1;", [U32, U32], U64, lambda a, b: a * b),
    ("mad.lo.s32 %d, %0, %1, %2;", [S32, S32, S32], S32, lambda a, b, c: a * b + c),
    ("mad.hi.u32 %d, %0, %1, %2;", [U32, U32, U32], U32, lambda a, b, c: (a * b >> 32) + c),
    ("mad.wide.s32 %d, %0, %1, %2;", [S32, S32, S64], S64, lambda a, b, c: a * b + c),
    ("add.cc.u32 %d, %0, %1; addc.u32 %d, %2, 0;", [U32] * 3, U32, lambda a, b, c: c + (a + b >> 32)),
    ("add.cc.u64 %d, %0, %1; addc.cc.u64 %d, %2, %0; addc.u64 %d, 0, 0;", [U64] * 3, U64,
     lambda a, b, c: c + a + (a + b >> 64) >> 64),
    ("sub.cc.u32 %d, %0, %1; subc.u32 %d, %2, 0;", [U32] * 3, U32, lambda a, b, c: c - (a < b)),
    ("mad.lo.cc.u32 %d, %0, %1, %2; madc.hi.u32 %d, %0, %1, 0;", [U32] * 3, U32, lambda a, b, c: a * b + c >> 32),
    ("neg.s32 %d, %0;", [S32], S32, lambda a: -a),
    ("abs.s64 %d, %0;", [S64], S64, abs),
    ("min.s32 %d, %0, %1;", [S32, S32], S32, min),
    ("max.u64 %d, %0, %1;", [U64, U64], U64, max),
    ("div.s32 %d, %0, %1;", [S32, S32], S32, lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1) if b else -1),
    ("rem.s32 %d, %0, %1;", [S32, S32], S32, lambda a, b: int(math.fmod(a, b)) if b else a),
    ("div.u64 %d, %0, %1;", [U64, U64], U64, lambda a, b: a // b if b else -1),
    ("and.b32 %d, %0, %1;", [U32, U32], U32, lambda a, b: a & b),
    ("xor.b64 %d, %0, %1;", [U64, U64], U64, lambda a, b: a ^ b),
    ("not.b16 %d, %0;", ["u16"], "u16", lambda a: ~a),
    ("shl.b32 %d, %0, %1;", [U32, U32], U32, lambda a, b: a << b if b < 32 else 0),
    ("shr.s32 %d, %0, %1;", [S32, U32], S32, lambda a, b: a >> min(b, 31)),
    ("shr.u64 %d, %0, %1;", [U64, U32], U64, lambda a, b: a >> min(b, 64)),
    ("shf.l.wrap.b32 %d, %0, %1, %2;", [U32] * 3, U32, lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ("shf.r.clamp.b32 %d, %0, %1, %2;", [U32] * 3, U32, lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("bfe.u32 %d, %0, %1, %2;", [U32] * 3, U32, lambda a, b, c: extracted(a, b, c, U32)),
    ("bfe.s32 %d, %0, %1, %2;", [S32, U32, U32], S32, lambda a, b, c: extracted(a, b, c, S32)),
    ("bfi.b32 %d, %0, %1, %2, %3;", [U32] * 4, U32, inserted),
    ("prmt.b32 %d, %0, %1, %2;", [U32] * 3, U32, permuted),
    ("prmt.b32 %d, %0, %1, 30212;", [U32] * 2, U32, lambda a, b: permuted(a, b, 30212)),
    ("prmt.b32 %d, %0, %1, 0x9A4F;", [U32] * 2, U32, lambda a, b: permuted(a, b, 0x9A4F)),
    ("clz.b32 %d, %0;", [U32], U32, lambda a: 32 - a.bit_length()),
    ("clz.b64 %d, %0;", [U64], U32, lambda a: 64 - a.bit_length()),
    ("popc.b64 %d, %0;", [U64], U32, lambda a: bin(a).count("1")),
    ("brev.b32 %d, %0;", [U32], U32, lambda a: int(f"{a:032b}"[::-1], 2)),
    ("add.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: a + b),
    ("add.ftz.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: flushed(flushed(a) + flushed(b))),
    ("mul.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: a * b),
    ("mul.ftz.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: flushed(flushed(a) * flushed(b))),
    ("mul.f16 %d, %0, %1;", ["f16", "f16"], "f16", lambda a, b: a * b),
    ("sub.f64 %d, %0, %1;", [F64, F64], F64, lambda a, b: a - b),
    ("div.rn.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: a / b),
    ("rcp.rn.f64 %d, %0;", [F64], F64, lambda a: np.float64(1) / a),
    ("sqrt.rn.f32 %d, %0;", [F32], F32, np.sqrt),
    ("neg.ftz.f32 %d, %0;", [F32], F32, lambda a: flushed(-a)),
    ("neg.f32 %d, %0;", [F32], F32, lambda a: -a),
    ("copysign.f32 %d, %0, %1;", [F32, F32], F32, lambda a, b: np.copysign(b, a)),
    ("fma.rn.f32 %d, %0, %1, %2;", [F32] * 3, F32, lambda a, b, c: np.float32(
        np.longdouble(a) * np.longdouble(b) + np.longdouble(c))),
    ("fma.rm.f32 %d, %0, %1, %2;", [F32] * 3, F32, down),
    ("min.f32 %d, %0, %1;", [F32, F32], F32, smaller),
    ("max.f64 %d, %0, %1;", [F64, F64], F64, larger),
    ("ex2.approx.ftz.f32 %d, %0;", [F32], F32, lambda a: flushed(np.exp2(flushed(a)))),
    ("cvt.rzi.s32.f32 %d, %0;", [F32], S32, lambda a: to_integer(a, S32, np.trunc)),
    ("cvt.rni.s32.f32 %d, %0;", [F32], S32, lambda a: to_integer(a, S32, round)),
    ("cvt.rmi.u32.f32 %d, %0;", [F32], U32, lambda a: to_integer(a, U32, math.floor)),
    ("cvt.rzi.u64.f32 %d, %0;", [F32], U64, lambda a: to_integer(a, U64, np.trunc)),
    ("cvt.rpi.s64.f64 %d, %0;", [F64], S64, lambda a: to_integer(a, S64, math.ceil)),
    ("cvt.rmi.f32.f32 %d, %0;", [F32], F32, np.floor),
    ("cvt.sat.f32.f32 %d, %0;", [F32], F32, lambda a: np.float32(0 if math.isnan(a) else a if 0 < a < 1 else a >= 1)),
    ("cvt.rn.f16.f32 %d, %0;", [F32], "f16", np.float16),
    ("cvt.f32.f16 %d, %0;", ["f16"], F32, np.float32),
    ("cvt.rn.bf16x2.f32 %d, %0, %1;", [F32, F32], U32, lambda a, b: bfloat16(a) << 16 | bfloat16(b)),
    ("cvt.rn.f32.f64 %d, %0;", [F64], F32, np.float32),
    ("cvt.rn.ftz.f32.f64 %d, %0;", [F64], F32, lambda a: flushed(np.float32(a))),
    ("cvt.ftz.f64.f32 %d, %0;", [F32], F64, lambda a: np.float64(flushed(a))),
    ("cvt.rn.f32.s64 %d, %0;", [S64], F32, np.float32),
    ("cvt.s32.s16 %d, %0;", ["s16"], S32, int),
    ("cvt.u16.u8 %d, %0;", ["u16"], "u16", lambda a: a & 255),
    ("cvt.sat.u16.s32 %d, %0;", [S32], "u16", lambda a: min(max(a, 0), 65535)),
]  # fmt: skip
ORDERED = {"eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b}


def compared(name, kind, holds):
    text = f"{{ .reg .pred %q; setp.{name}.{kind} %q, %0, %1; selp.u32 %d, 1, 0, %q; }}"
    return text, [kind, kind], U32, lambda a, b: int(holds(a, b))


def unordered(a, b):
    return bool(np.isnan(a) or np.isnan(b))


for each, holds in ORDERED.items():
    CASES += [compared(each, kind, holds) for kind in (F32, F64, S32, U64)]
    CASES.append(compared(each + "u", F32, lambda a, b, holds=holds: holds(a, b) or unordered(a, b)))
CASES += [
    compared("ne", F32, lambda a, b: a != b and not unordered(a, b)),
    compared("neu", F32, lambda a, b: a != b),
    compared("num", F32, lambda a, b: not unordered(a, b)),
    compared("nan", F64, unordered),
    compared("eq.ftz", F32, lambda a, b: flushed(a) == flushed(b)),
    compared("hi", U32, lambda a, b: a > b),
]


def values(kinds):
    """N tuples of operands: every pair of special values first, as far as they fit, then random ones."""
    rng = np.random.default_rng(0)
    rows = list(itertools.islice(itertools.product(*(SPECIAL[kind] for kind in kinds[:2])), N))
    rng.shuffle(everything := list(itertools.product(*(range(len(SPECIAL[kind])) for kind in kinds[:2]))))
    rows = [tuple(SPECIAL[kind][i] for kind, i in zip(kinds, each)) for each in everything[: N - 8]]
    rows = [(*row, *(SPECIAL[kind][rng.integers(len(SPECIAL[kind]))] for kind in kinds[2:])) for row in rows]
    while len(rows) < N:
        rows.append(tuple(
            rng.normal() * 10 if kind[0] == "f" else int(rng.integers(2**16 if kind.endswith("16") else 2**31)) >> 1
            for kind in kinds
        ))  # fmt: skip
    return rows


def dtype(kind):
    return np.dtype({"f": "f", "s": "i", "u": "u"}[kind[0]] + str(SIZES[kind]))


def kernel():
    """A kernel of all cases: thread i tries each on its i-th values. Operands and results are in cells of 8 bytes."""
    lines = []
    for case, (text, kinds, result, _) in enumerate(CASES):
        names = {}
        lines.append("{")
        for i, kind in enumerate([*kinds, result]):
            names["%d" if i == len(kinds) else f"%{i}"] = f"%v{i}"
            lines.append(f".reg .b{8 * SIZES[kind]} %v{i};")
        for i, kind in enumerate(kinds):
            load = "b16" if kind == "f16" else kind
            lines.append(f"ld.global.{load} %v{i}, [%in+{(case * 4 + i) * N * 8}];")
        for name, register in names.items():
            text = text.replace(name, register)
        store = "b16" if result == "f16" else result
        lines += [text, f"st.global.{store} [%out+{case * N * 8}], %v{len(kinds)};", "}"]
    body = "\n".join(lines)
    return f""".version 8.0
.target sm_90
.visible .entry every(.param .u64 every_in, .param .u64 every_out)
{{
    .reg .b64 %in, %out, %at;
    .reg .b32 %i;
    ld.param.u64 %in, [every_in];
    ld.param.u64 %out, [every_out];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 8;
    add.s64 %in, %in, %at;
    add.s64 %out, %out, %at;
    {body}
    ret;
}}
"""


UNCOUNTED = """// in the place of the rig's races.cpp
bool racing = false;
void compare(const Thread &, bool, Use, u64, u32) {}
"""


@pytest.fixture(scope="module")
def results(a_compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    (folder / "every.cpp").write_text(translate(kernel(), "every") + UNCOUNTED)
    flags = [
        "-O1",
        "-w",
        "-std=c++17",
        "-ffp-contract=off",
        "-mfma",
        "-fwrapv",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
    ]
    files = [folder / "every.cpp", HERE / "threads.cpp"]
    subprocess.run(["g++", *flags, f"-I{HERE}", *files, "-o", folder / "every.so"], check=True)
    library = ctypes.CDLL(str(folder / "every.so"))

    given, found = np.zeros((len(CASES), 4, N, 8), np.uint8), np.zeros((len(CASES), N, 8), np.uint8)
    for case, (_, kinds, _, _) in enumerate(CASES):
        for i, (kind, column) in enumerate(zip(kinds, zip(*values(kinds)))):
            given[case, i, :, : SIZES[kind]] = np.array(column, dtype(kind)).view(np.uint8).reshape(N, -1)
    owner = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)

    def everything(address, size, low, high):
        ctypes.c_uint64.from_address(low).value, ctypes.c_uint64.from_address(high).value = 0, 2**64 - 1

    library.set_find_global(allow := owner(everything))
    parameters, failure = np.array([given.ctypes.data, found.ctypes.data], np.uint64), ctypes.create_string_buffer(404)
    shape = ctypes.c_uint32 * 3
    info = ctypes.addressof(ctypes.c_char.in_dll(library, "kernel_info"))
    well = library.run_kernel(
        ctypes.c_void_p(info), shape(1, 1, 1), shape(N, 1, 1), 0, ctypes.c_void_p(parameters.ctypes.data), failure
    )
    assert well & 1, failure.raw[4:]
    del allow
    return found


def opcode(text):
    return text.removeprefix("{ .reg .pred %q; ").split(" ")[0]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[opcode(text) for text, *_ in CASES])
@np.errstate(all="ignore")
def test_instruction(results, case):
    text, kinds, result, meaning = CASES[case]
    found = np.ascontiguousarray(results[case, :, : SIZES[result]]).view(dtype(result))[:, 0]
    for row, got in zip(values(kinds), found):
        operands = [dtype(kind).type(x) if kind[0] == "f" else wrap(int(x), kind) for kind, x in zip(kinds, row)]
        expected = meaning(*operands)
        if result[0] == "f":
            expected = dtype(result).type(expected)
            both = np.array([expected, got])
            same = np.isnan(both).all() or (expected == got and np.ptp(np.signbit(both).astype(int)) == 0)
            if "approx" in text:
                same = same or abs(expected - got) <= 4e-7 * abs(expected)
        else:
            expected, got = wrap(int(expected), result), int(got)
            same = expected == got
        assert same, (text, operands, "gives", got, "and should give", expected)


@pytest.mark.parametrize("text", [
    "lop3.b32 %i, %i, %i, %i, 0x96;", "frob.b32 %i, %i;", "mad.lo.sat.s32 %i, %i, %i, %i;", "add.rz.f32 %i, %i, %i;",
    "min.NaN.f32 %i, %i, %i;", "ld.global.v3.f32 {%i,%i,%i}, [%in];", "cvt.rna.tf32.f32 %i, %i;", "add.s32 %i, %i;",
    "mov.u32 %i, %clock;", "mov.u32 %i, nothing;", "bar.arrive 0, 32;", "cvt.s32.f32 %i, %i;",
    "setp.lo.s32 %i, %i, %i;", "cvt.rz.f32.f64 %i, %in;", "shfl.sync.bfly.b64 %in, %in, 1, 31, -1;",
    "call unknown, (%i);", "ld.param.u64 %in, [every_in+8];",
])  # fmt: skip
def test_what_is_not_known_is_an_error(text):
    with pytest.raises(UnknownPTX, match="of every"):
        translate(kernel().replace("mov.u32 %i, %tid.x;", text), "every")
