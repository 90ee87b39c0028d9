"""The body of one PTX function as C++. instructions.py has what computes; here is what moves data, branches, meets
other threads, and calls."""

import re

from .instructions import FLOATS, c_type, comparison, conversion, form
from .parse import SIZES, UnknownPTX, split, variable

SPECIAL = {
    f"%{name}.{axis}": f"t.{name}[{i}]" for name in ("tid", "ntid", "ctaid", "nctaid") for i, axis in enumerate("xyz")
}
SPECIAL |= {"%laneid": "t.lane", "%lanemask_lt": "((1u << t.lane) - 1)"}
SPACES = {"global", "shared", "local", "param", "const"}
HINTS = {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "relaxed", "weak", "cta", "gpu", "sys"}
ATOMIC = {
    **{"add": "old + x", "exch": "x", "cas": "old == x ? y : old"},
    **{"min": "x < old ? x : old", "max": "x > old ? x : old"},
    **{"and": "old & x", "or": "old | x", "xor": "old ^ x"},
}
SHUFFLES = {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}
MMA = {
    ("sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"): "multiply_matrices<f16>",
    ("sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"): "multiply_matrices<bf16>",
    ("sync", "aligned", "m16n8k8", "row", "col", "f32", "tf32", "tf32", "f32"): "multiply_matrices<f32>",
}
VOTES = {"any": "votes != 0", "all": "votes == mask", "uni": "votes == 0 || votes == mask", "ballot": "votes"}


class Body:
    """Translates the statements of a function. `addresses` has what its names stand for: {name: C++ of its address}."""

    def __init__(self, function, addresses, functions):
        self.function, self.addresses, self.functions = function, dict(addresses), functions
        self.registers: set[str] = set()
        self.sizes = {each.name: each.size for each in (*function.results, *function.parameters)}  # of .params
        self.frame = None  # the name of the .local variable
        self.static_shared: list = []
        self.calls: set[str] = set()
        self.sites, self.meets = 0, False
        self.lines: list[str] = []

    def translate(self):
        for kind, text in self.function.body:
            if kind == "label":
                self.lines.append(f"{label(text)}:;")
            elif kind == "statement":
                self.lines.append(self.directive(text) if text[0] == "." else self.instruction(text))
            else:
                self.lines.append("{" if kind == "{" else ";}")
        return "\n".join(self.lines)

    # ---------------------------------------------------------------------------------------------- declarations

    def directive(self, text):
        space, _, rest = text[1:].partition(" ")
        if space == "reg":
            kind, _, names = rest.strip().partition(" ")
            kind = c_type(kind[1:])
            kind = {"f16": "u16", "f32": "u32", "f64": "u64"}.get(kind, kind).replace("s", "u")
            declared = []
            for name in split(names):
                count = re.fullmatch(r"(%[\w$]+)<(\d+)>", name)
                declared += [count[1] + str(i) for i in range(int(count[2]))] if count else [name]
            self.registers.update(declared)
            return f"{kind} {', '.join(map(register, declared))};"
        if space == "pragma":
            return ""
        declared = variable(rest)
        if space == "local":
            if self.frame:
                raise UnknownPTX("two .local variables in a function")
            self.frame = declared.name
            self.addresses[declared.name] = f"(u64){declared.name}"
            return f"alignas({max(16, declared.align)}) u8 {declared.name}[{declared.size}];"
        if space == "param":
            self.sizes[declared.name] = declared.size
            self.addresses[declared.name] = f"(u64)p_{declared.name}"
            return f"alignas({max(8, declared.align)}) u8 p_{declared.name}[{declared.size}];"
        if space == "shared":
            self.static_shared.append(declared)
            self.addresses[declared.name] = f"SHARED_{declared.name}"
            return ""
        raise UnknownPTX(f"directive: {text}")

    # -------------------------------------------------------------------------------------------------- operands

    def value(self, text):
        """The bits of an operand: a register, a number, or the address of a variable."""
        if text in SPECIAL:
            return SPECIAL[text]
        if text in self.registers:
            return register(text)
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return f"0x{text[2:]}u"
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            return f"0x{text[2:]}ull"
        if re.fullmatch(r"-?\d+U?", text):
            number = int(text.rstrip("U"))
            return f"{number}ull" if number >= 0 else f"(s64)(0 - {-number}ull)"
        if re.fullmatch(r"0x[0-9a-fA-F]+U?", text):
            return f"{text.rstrip('U')}ull"
        if text in self.addresses:
            return f"({self.addresses[text]})"
        raise UnknownPTX(f"operand {text}")

    def typed(self, text, kind):
        if text[0] == "!":
            return f"!{self.value(text[1:])}"
        return f"read<{c_type(kind)}>({self.value(text)})"

    def address(self, text):
        """[base + offset] -> (base, offset)"""
        found = re.fullmatch(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        if not found:
            raise UnknownPTX(f"address {text}")
        return found[1], int(found[2] or 0)

    # ---------------------------------------------------------------------------------------------- instructions

    def instruction(self, text):
        guard = re.match(r"@(!?)(%[\w$]+)\s+", text)
        opcode, _, rest = text[guard.end() if guard else 0 :].partition(" ")
        name, *modifiers = opcode.split(".")
        operands = split(rest)
        try:
            special = getattr(self, "do_" + name, None)
            code = (special or self.compute)(name, modifiers, operands)
        except (UnknownPTX, ValueError, IndexError, KeyError) as error:
            raise UnknownPTX(f"`{text}` of {self.function.name}: {error or type(error).__name__}") from None
        return (f"if ({guard[1]}{register(guard[2])}) " if guard else "") + f"{{ {code} }}"

    def compute(self, name, modifiers, operands):
        """An instruction of the table, on values that are called a, b, c, d."""
        kinds = [m for m in modifiers if m in SIZES]
        if len(kinds) != 1 or modifiers[-1] != kinds[0]:
            raise UnknownPTX("types")
        kind, rest = kinds[0], modifiers[:-1]
        whole = ".".join([name, *rest])
        flush, saturate = False, False
        if kind == "f64":  # the only .ftz on f64 is part of an opcode's name
            row = form(whole, kind)
        else:
            flush, saturate = "ftz" in rest and kind == "f32", "sat" in rest and kind == "f32"
            dropped = {"ftz"} if flush else set()
            dropped |= {"sat"} if saturate else set()
            row = form(".".join([name, *(m for m in rest if m not in dropped)]), kind)
        result, *given = operands
        taken = row.operands.split()
        if len(given) != len(taken):
            raise UnknownPTX(f"{len(given)} operands")
        wide = kind[0] + str(16 * SIZES[kind]) if kind[0] in "us" else kind
        names = {"T": kind, "W": wide}
        lines = [f"typedef {c_type(kind)} T;"]
        if kind not in FLOATS and kind != "pred":
            lines.append(f"typedef u{8 * SIZES[kind]} U;")
            if kind[0] in "us" and SIZES[kind] < 8:
                lines.append(f"typedef {wide} W;")
        for letter, operand, declared in zip("abcd", given, taken):
            declared = names.get(declared, declared)
            value = self.typed(operand, declared)
            value = f"ftz({value})" if flush and declared == "f32" else value
            lines.append(f"const {c_type(declared)} {letter} = {value};")
        answer = row.expression
        if row.rounds and kind in ("f16", "f32"):
            answer = f"canonical<T>({answer})"
        for applied, function in ((saturate, "saturate"), (flush, "ftz")):
            answer = f"{function}({answer})" if applied else answer
        declared = names.get(row.result, row.result)
        lines.append(f"write<{c_type(declared)}>({register(result)}, ({c_type(declared)})({answer}));")
        return " ".join(lines)

    def do_setp(self, name, modifiers, operands):
        compare, *rest, kind = modifiers
        combine = [m for m in rest if m in ("and", "or", "xor")]
        flush = "ftz" in rest and kind == "f32"
        if len(rest) != len(combine) + flush or len(combine) > 1 or len(operands) != 3 + len(combine):
            raise UnknownPTX("modifiers")
        lines = []
        for letter, operand in zip("ab", operands[1:]):
            value = self.typed(operand, kind)
            lines.append(f"const {c_type(kind)} {letter} = {f'ftz({value})' if flush else value};")
        lines.append(f"const bool is = {comparison(compare, kind)};")
        for result, answer in zip(operands[0].split("|"), ("is", "!is")):
            if combine:
                operator = {"and": "&", "or": "|", "xor": "^"}[combine[0]]
                answer = f"({answer}) {operator} {self.typed(operands[3], 'pred')}"
            lines.append(f"{register(result)} = {answer};")
        return " ".join(lines)

    def do_cvt(self, name, modifiers, operands):
        *modifiers, to, of = modifiers
        if (modifiers, to, of) == (["rn"], "tf32", "f32"):
            return f"{register(operands[0])} = to_tf32({self.value(operands[1])});"
        if (modifiers, to, of) == (["rn"], "bf16x2", "f32"):
            high, low = (f"to_bf16({self.value(operand)})" for operand in operands[1:])
            return f"{register(operands[0])} = {high} << 16 | {low};"
        flush = "ftz" in modifiers and "f32" in (to, of)
        answer = conversion([m for m in modifiers if not (flush and m == "ftz")], to, of)
        value = self.typed(operands[1], of)
        value = f"ftz({value})" if flush and of == "f32" else value
        answer = f"ftz({answer})" if flush and to == "f32" else answer
        lines = f"typedef {c_type(to)} T; const {c_type(of)} a = {value};"
        return f"{lines} write<T>({register(operands[0])}, (T)({answer}));"

    def do_mov(self, name, modifiers, operands):
        (kind,) = modifiers
        to, of = operands
        if to[0] == "{":
            parts = split(to[1:-1])
            width = 8 * SIZES[kind] // len(parts)
            lines = [f"const u64 bits = (u64){self.value(of)};"]
            lines += [f"{register(p)} = (u{width})(bits >> {i * width});" for i, p in enumerate(parts) if p != "_"]
            return " ".join(lines)
        if of[0] == "{":
            parts = split(of[1:-1])
            width = 8 * SIZES[kind] // len(parts)
            joined = " | ".join(f"(u64)(u{width}){self.value(p)} << {i * width}" for i, p in enumerate(parts))
            return f"{register(to)} = {joined};"
        return f"{register(to)} = {self.value(of)};"

    def do_cvta(self, name, modifiers, operands):
        space = modifiers[1 if modifiers[0] == "to" else 0]
        if modifiers[-1] != "u64" or space not in SPACES - {"param"}:
            raise UnknownPTX("modifiers")
        sign = "" if space != "shared" else "- (u64)t.shared" if modifiers[0] == "to" else "+ (u64)t.shared"
        return f"{register(operands[0])} = (u64){self.value(operands[1])} {sign};"

    # ---------------------------------------------------------------------------------------------------- memory

    def pointer(self, text, modifiers, size, use):
        """C++ of a checked pointer to what an address names. use: LOAD, STORE or ATOMIC."""
        space = [m for m in modifiers if m in SPACES] or ["generic"]
        base, offset = self.address(text)
        if space == ["param"]:
            if base in self.sizes and not 0 <= offset <= self.sizes[base] - size:
                raise UnknownPTX("outside of its parameter")
            return f"(u8 *)({self.value(base)} + {offset})"
        at = f"(u64){self.value(base)} + {offset}"
        how = f"{size}, {use}"
        if space == ["shared"]:
            return f"shared_memory(t, (u32)({at}), {how})"
        frame = (f"(const u8 *){self.frame}", f"sizeof {self.frame}") if self.frame else ("(const u8 *)0", "0")
        if space == ["local"]:
            return f"local_memory(t, {at}, {size}, {frame[0]}, {frame[1]})"
        if space == ["generic"]:
            where = f"{size}, {frame[0]}, {frame[1]}, {use}"
            return f"generic_memory(t, {at}, {where}, &{self.found()})"
        return f"global_memory(t, {at}, {how}, &{self.found()})"

    def found(self):
        self.sites += 1
        self.lines.append(f"static Found found_{self.sites};")
        return f"found_{self.sites}"

    def do_ld(self, name, modifiers, operands):
        store = name == "st"
        *rest, kind = modifiers
        count = next((int(m[1]) for m in rest if re.fullmatch("v[248]", m)), 1)
        if unknown := [m for m in rest if m not in SPACES | HINTS | {f"v{count}"}]:
            raise UnknownPTX(f"modifiers {unknown}")
        address, values = operands if store else reversed(operands)
        values = split(values[1:-1]) if count > 1 else [values]
        if len(values) != count:
            raise UnknownPTX("operands")
        size, c = SIZES[kind], c_type(kind)
        use = "STORE" if store else "LOAD"
        lines = [f"u8 *const p = {self.pointer(address, rest, size * count, use)};"]
        for i, each in enumerate(values):
            if store:
                lines.append(f"{{ const {c} x = {self.typed(each, kind)}; memcpy(p + {i * size}, &x, {size}); }}")
            else:
                lines.append(f"{{ {c} x; memcpy(&x, p + {i * size}, {size}); write<{c}>({register(each)}, x); }}")
        return " ".join(lines)

    do_st = do_ld

    def do_atom(self, name, modifiers, operands):
        *rest, kind = modifiers
        old = operands.pop(0) if name == "atom" else None
        what = [m for m in rest if m in ATOMIC]
        if len(what) != 1 or any(m not in SPACES | HINTS | {*what, "rn"} for m in rest):
            raise UnknownPTX("modifiers")
        address, *values = operands
        c = c_type(kind)
        if len(values) != (2 if what == ["cas"] else 1):
            raise UnknownPTX("operands")
        lines = [f"u8 *const p = {self.pointer(address, rest, SIZES[kind], 'ATOMIC')};"]
        lines += [f"{c} old; memcpy(&old, p, sizeof old);"]
        lines += [f"const {c} {letter} = {self.typed(each, kind)};" for letter, each in zip("xy", values)]
        lines.append(f"const {c} now = ({c})({ATOMIC[what[0]]}); memcpy(p, &now, sizeof now);")
        if old:
            lines.append(f"write<{c}>({register(old)}, old);")
        return " ".join(lines)

    do_red = do_atom

    # --------------------------------------------------------------------------------- other threads, other places

    def do_bar(self, name, modifiers, operands):
        self.meets = True
        if modifiers == ["warp", "sync"]:
            return f"warp_barrier(t, (u32){self.value(operands[0])});"
        if modifiers not in (["sync"], ["sync", "aligned"]) or operands != ["0"]:
            raise UnknownPTX("barrier")
        self.sites += 1
        return f"barrier(t, {self.sites});"

    def do_barrier(self, name, modifiers, operands):
        return self.do_bar(name, [m for m in modifiers if m != "cta"], operands)

    def do_membar(self, name, modifiers, operands):
        return ""  # blocks run one after the other, and threads see each other's writes at once

    do_fence = do_membar

    def do_shfl(self, name, modifiers, operands):
        self.meets = True
        sync, kind, b32 = modifiers
        if (sync, b32) != ("sync", "b32"):
            raise UnknownPTX("modifiers")
        result, *inside = operands[0].split("|")
        values = ", ".join(f"(u32){self.value(each)}" for each in operands[1:])
        code = f"bool in_range; {register(result)} = shuffle(t, {SHUFFLES[kind]}, {values}, &in_range);"
        return code + "".join(f" {register(each)} = in_range;" for each in inside)

    def do_vote(self, name, modifiers, operands):
        self.meets = True
        _, kind, _ = modifiers
        mask, vote = self.value(operands[2]), self.typed(operands[1], "pred")
        code = f"const u32 mask = (u32){mask}, votes = ballot(t, {vote}, mask);"
        return f"{code} {register(operands[0])} = {VOTES[kind]};"

    def do_ldmatrix(self, name, modifiers, operands):
        transposed = "trans" in modifiers
        if [m for m in modifiers if m != "trans"] != ["sync", "aligned", "m8n8", "x4", "shared", "b16"]:
            raise UnknownPTX("modifiers")
        self.meets = True
        row = self.pointer(operands[1], ["shared"], 16, "LOAD")
        results = [f"{register(each)} = r[{i}];" for i, each in enumerate(split(operands[0][1:-1]))]
        return f"u32 r[4]; load_matrices(t, {row}, {str(transposed).lower()}, r); {' '.join(results)}"

    def do_cp(self, name, modifiers, operands):
        """cp.async. A copy happens at the wait for it, so that a kernel that does not wait reads the old values."""
        if modifiers == ["async", "commit_group"]:
            return "t.group++;"
        if modifiers == ["async", "wait_group"]:
            return f"wait_for_copies(t, {self.value(operands[0])});"
        if modifiers != ["async", "cg", "shared", "global"] or operands[2] != "16":
            raise UnknownPTX("modifiers")
        bytes_read = self.value(operands[3])
        to = self.pointer(operands[0], ["shared"], 16, "STORE")
        source = self.pointer(operands[1], ["global"], 16, "LOAD")
        return f"u8 *const to = {to}; begin_copy(t, to, {bytes_read} ? {source} : (u8 *)0);"

    def do_mma(self, name, modifiers, operands):
        self.meets = True
        d, *given = ([self.value(each) for each in split(operand[1:-1])] for operand in operands)
        lines = [f"const u32 {x}[] = {{{', '.join(f'(u32){each}' for each in of)}}};" for x, of in zip("abc", given)]
        results = [f"{each} = d[{i}];" for i, each in enumerate(d)]
        return " ".join([*lines, f"u32 d[4]; {MMA[tuple(modifiers)]}(t, a, b, c, d);", *results])

    def do_bra(self, name, modifiers, operands):
        return f"goto {label(operands[0])};"

    def do_ret(self, name, modifiers, operands):
        return "return;"

    def do_exit(self, name, modifiers, operands):
        if not self.function.is_entry:
            raise UnknownPTX("exit in a function")
        return "return;"

    def do_trap(self, name, modifiers, operands):
        return 'fail(t, LAUNCH_FAILED, "trap");'

    def do_call(self, name, modifiers, operands):
        at = next(i for i, each in enumerate(operands) if each[0] != "(")
        called = operands[at]
        if called not in self.functions:
            raise UnknownPTX(f"function {called}")
        self.calls.add(called)
        passed = [each for group in operands[:at] + operands[at + 1 :] for each in split(group[1:-1])]
        return f"f_{called}({', '.join(['t', *(f'p_{each}' for each in passed)])});"


def register(name):
    return "r_" + name.lstrip("%").replace("$", "_")


def label(name):
    return name.replace("$", "L_")
