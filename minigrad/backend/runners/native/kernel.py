"""Compiled kernels: an entry point that is called with arrays and numbers, and captured launches that are replayed."""

import ctypes
import functools
import itertools
import struct

import numpy as np

from ...kernels import StructArray, entry_points, signature

# How an argument of a C type is packed: each takes a multiple of 8 bytes. A struct comes as bytes.
FORMATS = {"*": "Q", "double": "d", "float": "f4x", "int": "i4x", "unsigned": "I4x", "long long": "q",
           "unsigned long long": "Q", "bool": "?7x", "half": "e6x", "signed char": "b7x", "unsigned char": "B7x",
           "short": "h6x", "unsigned short": "H6x"}  # fmt: skip


def exports(text):
    """The C++ to append to the text of a kernel file: a function (grid, packed arguments) for each entry point."""
    return "\n".join(
        f'extern "C" void run_{name}(const unsigned* grid, const char* packed) {{ launch({name}, grid, packed); }}'
        for name in entry_points(text)
    )


def kernels(text, library):
    """{entry point: its Kernel} of a text and the library compiled from it."""
    return {name: Kernel(name, text, getattr(library, f"run_{name}")) for name in entry_points(text)}


from_buffer, addressof = ctypes.c_char.from_buffer, ctypes.addressof


def address(x):
    """The address of an array's first element."""
    try:
        return addressof(from_buffer(x))  # a quarter of the 2 µs that x.ctypes.data takes
    except (TypeError, ValueError):  # x is read-only, empty or not contiguous
        return x.ctypes.data


@functools.lru_cache(4096)
def packed_grid(grid):
    """A grid of up to three dims as bytes, as the entry points take it. A fourth number says how many blocks there must
    be for threads to share them."""
    return struct.pack("4I", *grid, *(1, 1, 1, 2)[len(grid) :])


class Kernel:
    """One compiled entry point, called as function(packed_grid(grid), pack(args)).

    Arguments are arrays, None for a null pointer, numbers, and bytes for structs, of the declared types."""

    def __init__(self, name, text, function):
        self.name, self.text = name, text
        self.parameters, self.kinds, sizes = signature(name, text)
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_char_p), None
        self.function = function
        self.pointers = [i for i, kind in enumerate(self.kinds) if kind == "*"]
        self.takes_structs = any(p.kind == "*" and f"struct {p.of} {{" in text for p in self.parameters)
        self.words = [sizes.get(kind, 8) // 8 for kind in self.kinds]  # the number of 8-byte words of each argument
        self._pack = struct.Struct("=" + "".join(FORMATS.get(kind) or f"{sizes[kind]}s" for kind in self.kinds)).pack

    def pack(self, args):
        """The arguments as bytes, as `launch` of native.h reads them. Raises TypeError for arguments of other types."""
        values = list(args)
        try:
            for i in self.pointers:
                x = values[i]
                try:
                    values[i] = 0 if x is None else addressof(from_buffer(x))  # address(), without a call
                except (TypeError, ValueError):
                    values[i] = x.ctypes.data
            return self._pack(*values)
        except (struct.error, TypeError, IndexError, AttributeError) as error:
            raise TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}") from None

    def places(self):
        """The 8-byte word at which each packed argument begins."""
        return list(itertools.accumulate(self.words, initial=0))


class Replay:
    """Captured launches that are run again by one call into C. Everything that they read except arrays lies in the
    array `words`, where the addresses of arrays can be changed.

    call: the C function, and a list of each of its arguments, for map()."""

    def __init__(self, replay, launches):
        """replay: the function of pool.cpp. launches: (Kernel, captured Launch) pairs."""
        self._launches_kept = launches  # they keep their arrays alive
        self._pointers: list = []  # (word, number of the launch) of each address of an array
        pieces: list = []  # bytes, of whole words
        table_addresses: list = []  # (word that points to a packed StructArray, word at which that begins)
        rows = []
        size = 0  # words in all pieces

        def add(piece):
            """Append a piece, and return the word at which it begins."""
            nonlocal size
            pieces.append(piece + bytes(-len(piece) % 8))
            size += len(pieces[-1]) // 8
            return size - len(pieces[-1]) // 8

        for at, (kernel, launch) in enumerate(launches):
            args, tables = list(launch.args), []
            for i in kernel.pointers:
                if type(args[i]) is StructArray:
                    struct, table = args[i]
                    begin = add(b"".join(struct.packed(row, address) for row in table))
                    step = struct.size // 8
                    self._pointers += [(begin + k * step + j, at) for k in range(len(table)) for j in struct.pointers]
                    args[i] = None
                    tables.append((i, begin))
            begin = add(kernel.pack(args))
            places = kernel.places()
            self._pointers += [(begin + places[i], at) for i in kernel.pointers if args[i] is not None]
            table_addresses += [(begin + places[i], table) for i, table in tables]
            function = ctypes.cast(kernel.function, ctypes.c_void_p).value
            rows.append((function, add(packed_grid(launch.grid)), begin))
        self.words = np.frombuffer(bytearray(b"".join(pieces)), np.uint64)
        start = self.words.ctypes.data
        for word, table in table_addresses:
            self.words[word] = start + 8 * table
        structs = [(function, start + 8 * grid, start + 8 * packed) for function, grid, packed in rows]
        self._launches = np.array(structs, np.uint64).reshape(-1, 3)  # each row is a struct Launch of pool.cpp
        self.call = replay, (self._launches.ctypes.data,), (len(launches),)

    def pointers(self):
        """(words that hold addresses of arrays, the number of the launch of each), as two arrays."""
        pairs = np.array(self._pointers, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
