"""What a compiler gets for a kernel file and a dtype."""

import functools

from ..kernels import C_TYPES, flattened
from .formulas import entries


@functools.cache
def source(file, dtype, path=None, only=None):
    """What to compile for kernels/<file>.cu on arrays of a dtype (a name such as 'float32').

    file may go on with constants that the kernel wants known when it is compiled: 'matmul SIDE=64 READ_A=0 READ_B=0'.
    path: of the text, where that is not in kernels/. only: an entry point, of those that formulas.py generates."""
    file, *constants = file.split()
    kind = C_TYPES[dtype]
    real = "float" if dtype == "float16" else kind
    generated = entries(dtype, only) if file == "elementwise" else ""
    known = "".join(f"#define {constant.replace('=', ' ')}\n" for constant in constants)
    return f"typedef {kind} T;\ntypedef {real} R;\n{known}{flattened(str(path or file + '.cu'))}\n{generated}\n"
