"""Reading and writing safetensors files: eight bytes with the header's size, the header as JSON, then the arrays.

The library of that name is not used, for these reasons. It loads through a memory map or a copy of the file, which
takes twice the file's memory. It writes to a temporary file of its own, which it neither syncs nor removes after a
kill, and its errors carry no errno. It accepts a name that occurs twice, and bools other than 0 and 1. The tests read
files that the library has written, and let it read ours.

The format: https://github.com/huggingface/safetensors, README, "Format".
"""

import json
import math
from collections import Counter
from reprlib import repr as shown

import numpy as np

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8",
}  # fmt: skip
_NAMES = {np.dtype(text): name for name, text in DTYPES.items()}
FOREIGN = {  # in the format, but not in NumPy
    "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4",
}  # fmt: skip
LARGEST_HEADER = 100_000_000  # bytes; the library's limit
DEEPEST = 100  # levels of lists and dicts
LONGEST = 2_000_000  # commas: 100 MB of "[0,0,0,…" would take minutes, and gigabytes
METADATA = "__metadata__"


class Unsupported(ValueError):
    """A valid file with something that NumPy lacks."""


def parse(text):
    """What JSON's text says. Raises ValueError for what is not JSON, holds a key twice, or is too long or nested too
    deeply to be a header."""
    if text.count(",") > LONGEST:
        raise ValueError(f"its JSON has more than {LONGEST:,} commas: long lists belong into arrays")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_int)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    level = [value]
    for _ in range(DEEPEST):  # what passes can be walked recursively later
        level = [x for v in level if isinstance(v, dict | list) for x in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return value
    raise ValueError(f"its JSON is nested more than {DEEPEST} deep")


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"its JSON has {shown(twice)} twice")
    return found


def _int(text):
    if len(text) > 4300:  # Python's own limit, since 3.10.7: the time grows with the square
        raise ValueError(f"its JSON has an integer of {len(text)} digits")
    return int(text)


class Reader:
    """A safetensors file, opened for reading. The header is read at once and checked against the file's size.

    metadata: {str: str}. names: of the arrays, sorted. Raises ValueError for a file that is damaged or is no
    safetensors file, and Unsupported for a dtype that NumPy lacks."""

    def __init__(self, file):
        self._file = file
        size = file.seek(0, 2)
        file.seek(0)
        begin = file.read(9)
        length = int.from_bytes(begin[:8], "little")
        if begin[8:] != b"{" or not 2 <= length <= min(size - 8, LARGEST_HEADER):
            raise ValueError("it does not begin with a header that fits")
        data = begin[8:] + file.read(length - 1)
        if len(data) < length:
            raise ValueError("it ends within its header")
        header = parse(data.decode("utf-8"))
        self.metadata = header.pop(METADATA, {})
        if not isinstance(self.metadata, dict) or not all(isinstance(text, str) for text in self.metadata.values()):
            raise ValueError("its metadata is not a dict of strings")
        self._start = 8 + length
        self._entries = _checked(header, size - self._start)
        self.names = sorted(self._entries)

    def read(self, name):
        """One array, in memory of its own."""
        dtype, shape, begin, end = self._entries[name]
        try:
            x = np.empty(shape, dtype)
        except ValueError as error:  # a dim of 0 beside others that NumPy cannot hold
            raise Unsupported(f"{shown(name)} of shape {shown(shape)}: {error}") from None
        self._file.seek(self._start + begin)
        flat = as_bytes(x)
        if self._file.readinto(flat) != end - begin:
            raise ValueError(f"it ends within {shown(name)}")
        if x.dtype == bool and flat.size and flat.max() > 1:
            raise ValueError(f"{shown(name)} holds truth values other than 0 and 1")
        return x


def _checked(header, size):
    """{name: (dtype, shape, begin, end)} from a header, whose arrays have to fill `size` bytes."""
    entries = {}
    for name, entry in header.items():
        name.encode()  # raises ValueError for half a surrogate pair
        found = entry if isinstance(entry, dict) else {}
        dtype, shape, offsets = found.get("dtype"), found.get("shape", ()), found.get("data_offsets", ())
        if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            raise ValueError(f"its header says of {shown(name)}: {shown(entry)}")
        if len(shape) > 64:
            raise Unsupported(f"{shown(name)} has {len(shape)} dims, and NumPy's arrays have 64 at most")
        entries[name] = dtype, tuple(shape), *offsets
    at = 0
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != at or end < begin:
            raise ValueError(f"{shown(name)} is said to be at bytes {shown(begin)} to {shown(end)}, not from {at} on")
        at = end
    if at != size:
        raise ValueError(f"its arrays have {shown(at)} bytes, and the file has {size} for them")
    return {name: (_dtype(name, dtype, *rest), *rest) for name, (dtype, *rest) in entries.items()}


def _are_sizes(value):
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)  # True is no size


def _dtype(name, text, shape, begin, end):
    if text in FOREIGN:
        raise Unsupported(f"{shown(name)} has dtype {text}, which minigrad does not have: convert it, say to F32")
    if text not in DTYPES:
        raise ValueError(f"{shown(name)} has an unknown dtype {shown(text)}")
    dtype = np.dtype(DTYPES[text])
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{shown(name)}, {text} of shape {shown(shape)}, has {end - begin} bytes")
    return dtype


def as_bytes(x):
    """The contents of an array, row by row, as a flat uint8 array: a view if x is contiguous, else of a copy."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def header_of(arrays, metadata):
    """(bytes, names): the beginning of a file of these {name: array}, and the order in which the arrays follow.

    The same arrays and metadata give the same bytes. Raises ValueError for a name that a file cannot have, and for too
    much text."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # then each is aligned
    header: dict = {METADATA: metadata}
    at = 0
    for name in order:
        x = arrays[name]
        if name == METADATA:
            raise ValueError(f"a safetensors file cannot hold an array called {METADATA}")
        name.encode()  # raises ValueError for half a surrogate pair
        header[name] = {"dtype": _NAMES[x.dtype], "shape": x.shape, "data_offsets": (at, at + x.nbytes)}
        at += x.nbytes
    data = json.dumps(header, separators=(",", ":")).encode()
    if data.count(b",") > LONGEST:
        raise ValueError(f"names and metadata have more than {LONGEST:,} commas: long lists belong into arrays")
    data += b" " * (-len(data) % 8)
    if len(data) > LARGEST_HEADER:
        raise ValueError(f"names and metadata of {len(data):,} bytes are more than a file's {LARGEST_HEADER:,}")
    return len(data).to_bytes(8, "little") + data, order
