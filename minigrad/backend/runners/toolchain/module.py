"""A compiled kernel file: its entry points, callable with arrays and numbers."""

import ctypes
import itertools
import struct

from ...kernels import signatures
from ...launch.source import source
from .compiler import Unit, load_all

# How an argument of a C type is packed; each begins at a multiple of 8 bytes. A struct comes as bytes.
FORMATS = {"*": "Q", "double": "d", "float": "f4x", "int": "i4x", "unsigned": "I4x", "long long": "q",
           "unsigned long long": "Q", "bool": "?7x", "half": "e6x", "signed char": "b7x", "unsigned char": "B7x",
           "short": "h6x", "unsigned short": "H6x"}  # fmt: skip


def modules(wanted, header, flags, kind, libraries=(), text_of=source, threads=1):
    """[the Module of kernels/<file>.cu, compiled for a dtype, for each (file, dtype)], `threads` at a time. Raises
    CompilerError.

    wanted: files, as `source` takes them, and names of dtypes. header: the text put before the source; it says how
    blocks and threads are run. kind: names it, for people. libraries: what the linker is told last.
    text_of: (file, dtype) -> another source than the file's, to prove that a bug would be found."""
    texts = [text_of(file, dtype) for file, dtype in wanted]
    units = [
        Unit(f"{header}\n{text}\n{_exports(text)}\n", flags, f"{file.replace(' ', '-')}-{dtype}-{kind}", libraries)
        for (file, dtype), text in zip(wanted, texts)
    ]
    return [Module(text, library) for text, library in zip(texts, load_all(units, threads))]


def _exports(text):
    return "\n".join(
        f'extern "C" int run_{name}(const unsigned* shape, unsigned long shared, const char* packed) '
        f"{{ return launch({name}, shape, shared, packed); }}"
        for name in signatures(text)
    )


class Module:
    """A compiled kernel file. module[entry] is a Kernel."""

    def __init__(self, text, library):
        self.text, self.library = text, library
        self.kernels = signatures(text)
        real = text.split(" R;")[0].rsplit("typedef ", 1)[1].strip()
        store = text.split(" T;")[0].rsplit("typedef ", 1)[1].strip()
        named = {"T": store, "R": real}
        self._found = {
            name: Kernel(name, getattr(library, f"run_{name}"), [named.get(k, k) for k in kinds])
            for name, kinds in self.kernels.items()
        }

    def __getitem__(self, entry):
        return self._found[entry]


def address(x):
    """Where an array's first element lies in memory."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(x))  # a quarter of the 2 µs that x.ctypes.data takes
    except (TypeError, ValueError):  # read-only, empty or not in one piece
        return x.ctypes.data


class Kernel:
    """One entry point, called as function(grid and block as 6 unsigned ints, bytes of shared memory, pack(args)).

    Arguments are arrays, None for a null pointer, numbers, and bytes for structs, of the declared types."""

    def __init__(self, name, function, kinds):
        self.name, self.kinds = name, kinds
        function.argtypes = ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p
        function.restype = ctypes.c_int
        self.function = function
        self.pointers = [i for i, kind in enumerate(kinds) if kind == "*"]
        self.structs = [i for i, kind in enumerate(kinds) if kind not in FORMATS]
        self.packers: dict = {}  # by the sizes of the structs

    def pack(self, args):
        """The arguments, as `launch` of native.h and emulated.h reads them. Raises TypeError for others."""
        values = list(args)
        try:
            for i in self.pointers:
                x = values[i]
                values[i] = 0 if x is None else address(x)
            sizes = tuple([len(values[i]) for i in self.structs])
            return (self.packers.get(sizes) or self._packer(sizes))(*values)
        except (struct.error, TypeError, IndexError, AttributeError) as error:
            raise TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}") from None

    def places(self, args):
        """Where each of these arguments begins when it is packed, in words of 8 bytes."""
        sizes = [-(-len(x) // 8) if kind not in FORMATS else 1 for kind, x in zip(self.kinds, args)]
        return list(itertools.accumulate(sizes, initial=0))

    def _packer(self, sizes):
        formats = [FORMATS.get(kind, "") for kind in self.kinds]
        for i, size in zip(self.structs, sizes):
            formats[i] = f"{-(-size // 8) * 8}s"
        return self.packers.setdefault(sizes, struct.Struct("=" + "".join(formats)).pack)
