"""A compiled kernel file: its entry points, callable with arrays and numbers."""

import ctypes
import functools
import itertools
import struct

from ...kernels import entry_points
from ...launch.contract import Contract
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
    blocks and threads are run. kind: its name in messages. libraries: the linker's last arguments.
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
        for name in entry_points(text)
    )


class Module:
    """A compiled kernel file, and its Kernels by name."""

    def __init__(self, text, library):
        self.text, self.library = text, library
        names = entry_points(text)
        self.kernels = {name: Kernel(Contract(name, text), getattr(library, f"run_{name}")) for name in names}


def address(x):
    """Where an array's first element lies in memory."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(x))  # a quarter of the 2 µs that x.ctypes.data takes
    except (TypeError, ValueError):  # read-only, empty or not in one piece
        return x.ctypes.data


class Kernel:
    """One entry point, called as function(grid and block as 6 unsigned ints, bytes of shared memory, pack(args)).

    Arguments are arrays, None for a null pointer, numbers, and bytes for structs, of the declared types."""

    def __init__(self, contract, function):
        self.contract, self.name, self.kinds = contract, contract.name, contract.kinds
        function.argtypes = ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p
        function.restype = ctypes.c_int
        self.function = function
        self.pointers = [i for i, kind in enumerate(self.kinds) if kind == "*"]
        sizes = contract.sizes
        self.words = [sizes.get(kind, 8) // 8 for kind in self.kinds]  # of 8 bytes, that each argument takes
        self._pack = struct.Struct("=" + "".join(FORMATS.get(kind) or f"{sizes[kind]}s" for kind in self.kinds)).pack

    @functools.cached_property
    def quick(self):
        """A function (grid, *args) -> pack(args), True if there are tables in them, or None, an error too, if a quick
        look does not tell that the arguments are right. A launch may take less time than a slow one."""
        if self.contract.tables:
            return self.contract.quickly("True", flag="carray", of_rows="carray")
        first = "addressof(byte({0}))"  # which is an error unless the array is compact and writeable
        given = [
            f"0 if {p.name} is None else {first.format(p.name)}" if p.kind == "*" else p.name
            for p in self.contract.parameters
        ]
        scope = dict(pack=self._pack, addressof=ctypes.addressof, byte=ctypes.c_char.from_buffer)
        return self.contract.quickly(f"pack({', '.join(given)})", scope=scope)

    def pack(self, args):
        """The arguments, as `launch` of native.h and emulated.h reads them. Raises TypeError for others."""
        values = list(args)
        try:
            for i in self.pointers:
                x = values[i]
                values[i] = 0 if x is None else address(x)
            return self._pack(*values)
        except (struct.error, TypeError, IndexError, AttributeError) as error:
            raise TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}") from None

    def places(self):
        """Where each argument begins when it is packed, in words of 8 bytes."""
        return list(itertools.accumulate(self.words, initial=0))
