"""One kernel of a PTX module as a C++ file.

python -m ptx.translate MODULE.ptx KERNEL OUT.cpp
"""

import os
import sys
from pathlib import Path

from .body import Body
from .instructions import c_type
from .parse import SIZES, UnknownPTX, parse


def layout(variables):
    """[(variable, its offset)] one after the other as aligned, and the bytes of all."""
    placed, end = [], 0
    for each in variables:
        end = -(-end // each.align) * each.align
        placed.append((each, end))
        end += each.size
    return placed, end


def constants(module):
    """The module's .global and .const variables, and the function that knows their addresses."""
    lines, tests = [], ["false"]
    for each in module.constants:
        values = each.values or "0"
        if SIZES[each.type] in (4, 8) and each.type[0] == "f":
            raise UnknownPTX(f"float constant {each.name}")
        array = f"{c_type(each.type)} g_{each.name}[{each.count or 1}]"
        lines.append(f"alignas({max(16, each.align)}) static {array} = {{{values}}};")
        tests.append(f"(at >= (u64)g_{each.name} && at + bytes <= (u64)g_{each.name} + sizeof g_{each.name})")
    lines.append(f"static bool is_constant(u64 at, u32 bytes) {{ return {' || '.join(tests)}; }}")
    return lines


def arguments(function):
    return ", ".join(["Thread &t", *(f"u8 *p_{each.name}" for each in (*function.results, *function.parameters))])


def translate(text, kernel):
    module = parse(text)
    function = module.functions.get(kernel)
    if not function or not function.is_entry:
        raise UnknownPTX(f"no kernel {kernel}")
    everywhere = {each.name: f"(u64)g_{each.name}" for each in module.constants}
    everywhere |= {each.name: f"SHARED_{each.name}" for each in module.shared}

    placed, parameter_bytes = layout(function.parameters)
    where = {each.name: f"(u64)t.parameters + {offset}" for each, offset in placed}
    main = Body(function, everywhere | where, module.functions)
    main_code = main.translate()

    bodies, codes, todo = [main], {}, sorted(main.calls)
    while todo:
        called = module.functions[todo.pop()]
        own = {each.name: f"(u64)p_{each.name}" for each in (*called.results, *called.parameters)}
        bodies.append(Body(called, everywhere | own, module.functions))
        codes[called.name] = bodies[-1].translate()
        todo += sorted(bodies[-1].calls - set(codes) - set(todo))

    static = [each for each in module.shared if each.count is not None]
    static += [each for body in bodies for each in body.static_shared]
    shared, static_bytes = layout(static)
    static_bytes = -(-static_bytes // 16) * 16 if any(each.count is None for each in module.shared) else static_bytes
    dynamic = [(each, static_bytes) for each in module.shared if each.count is None]

    info = {  # in the order of thread.h
        "name": f'"{kernel}"', "body": "body", "is_constant": "is_constant", "parameters": len(placed),
        "parameter_bytes": parameter_bytes, "static_shared": static_bytes, "max_threads": function.max_threads,
        "sizes": "sizes", "offsets": "offsets", "meets": str(any(each.meets for each in bodies)).lower(),
    }  # fmt: skip
    lines = ['#include "instructions.h"', *constants(module)]
    lines += [f"static const u64 SHARED_{each.name} = {offset};" for each, offset in shared + dynamic]
    heads = {name: f"static void f_{name}({arguments(module.functions[name])})" for name in codes}
    lines += [f"{head};" for head in heads.values()]
    lines += [f"{heads[name]} {{\n{code}\n}}" for name, code in codes.items()]
    lines.append(f"static void body(Thread &t) {{\n{main_code}\n}}")
    lines.append(f"static const u32 sizes[] = {{{', '.join(str(each.size) for each, _ in placed) or 0}}};")
    lines.append(f"static const u32 offsets[] = {{{', '.join(str(offset) for _, offset in placed) or 0}}};")
    fields = ", ".join(map(str, info.values()))
    lines.append(f'extern "C" {{ extern const KernelInfo kernel_info = {{{fields}}}; }}')
    return "\n".join(lines) + "\n"


def main(source, kernel, out):
    try:
        code = translate(Path(source).read_text(encoding="utf-8").rstrip("\0"), kernel)
    except UnknownPTX as error:
        return f"the rig does not know this PTX: {error}"
    own = f"{out}.{os.getpid()}"  # two processes may translate the same kernel at once
    Path(own).write_text(code, encoding="utf-8")
    os.replace(own, out)
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
