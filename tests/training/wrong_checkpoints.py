"""Checkpoints with something wrong in them: what they say, with a checksum that is right, or the file itself.

A case is (name, function); the function makes the file's bytes.
"""

import copy
import json
import random
import zlib
from functools import partial

import numpy as np

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "U16": "u2", "U8": "u1", "BOOL": "?"}
NAMES = {np.dtype(text): name for name, text in DTYPES.items()}
DEEP = [[]]
for _ in range(200):
    DEEP = [DEEP]
VALUES = [
    "x", "", "7", -5, 0, 3, 10**6, 10**9, 10**400, 0.5, -1.5, 1e9, float("nan"), float("inf"), True, False, None, [],
    [1, 2], ["a"], {}, {"a": 1}, {"0": ["x"]}, {"tensor": "none"}, {"tensor": 5}, {"tensor": "model.wte.weight"}, DEEP,
]  # fmt: skip
TEXTS = [
    "", "{", "[]", "3", "null", "NaN", '"x"', "{} {}", '{"chars": "a", "chars": "b"}', "[" * 10_000, '{"a":' * 10_000,
    '{"step": ' + "9" * 5000 + "}", "[" * 9_000 + "]" * 9_000, '{"chars": "\\ud800"}', "\ufeff{}", "{}",
]  # fmt: skip
BAD_DTYPES = ["BF16", "F8_E4M3", "F8_E5M2", "F4", "F32 ", "f32", "", "object", "C64", "U64", None, 3, ["F32"], "F64"]
BAD_SHAPES = [
    [], [0], [-1], [2**62], [2**64], [10**30, 10**30], [1] * 80, [True], [1.5], ["2"], "x", None, {}, [[2]], [0, 2**62],
]  # fmt: skip
BAD_OFFSETS = [
    [], [0], [4, 0], [-4, 0], [0, 2**40], [2**70, 2**71], [0, True], [0.0, 4.0], ["0", "4"], "x", None, [0, 4, 8], {},
]  # fmt: skip


def checksum(arrays, text):
    """minigrad's, written a second time."""
    crc = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        x = arrays[name]
        crc = zlib.crc32(x.tobytes(), zlib.crc32(f"{name} {x.dtype} {x.shape}".encode(), crc))
    return f"{crc:08x}"


def entries_of(arrays):
    """The header's entries, and the bytes that follow the header."""
    entries, at = {}, 0
    for name, x in arrays.items():
        entries[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    return entries, b"".join(x.tobytes() for x in arrays.values())


def file_of(header, data=b""):
    """A safetensors file of a header (a dict or JSON's text) and the bytes after it."""
    text = header if isinstance(header, str) else json.dumps(header)
    text = text.encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + data


def signed(arrays, meta):
    """A whole checkpoint of arrays and metadata (JSON's text, or what can be written so), its checksum right."""
    text = meta if isinstance(meta, str) else json.dumps(meta)
    entries, data = entries_of(arrays)
    return file_of({"__metadata__": {"minigrad": f"1 {checksum(arrays, text)} {text}"}, **entries}, data)


def paths(value, path=()):
    """All places in nested dicts and lists, the outermost first. Of parameters' states, the first two do for all."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        if path != ("optimizer", "state") or key in ("0", "1"):
            yield from paths(item, (*path, key))


def edited(meta, path, value=None, delete=False, extra=None):
    meta = copy.deepcopy(meta)
    at = meta
    for key in path[:-1]:
        at = at[key]
    if delete:
        del at[path[-1]]
    elif extra is not None:
        at[extra] = value
    else:
        at[path[-1]] = value
    return meta


def wrong_contents(arrays, meta):
    """Checkpoints whose metadata say something else than they did; not always something wrong."""

    def say(*args, **options):
        return signed(arrays, edited(meta, *args, **options))

    for path in paths(meta):
        where = ".".join(map(str, path))
        for i, value in enumerate(VALUES):
            yield f"meta {where} = value {i}", partial(say, path, value)
        yield f"meta without {where}", partial(say, path, delete=True)
        if isinstance(path[-1], str):
            yield f"meta with more beside {where}", partial(say, path, 3, extra="more")
    for i, text in enumerate(TEXTS):
        yield f"meta text {i}", partial(signed, arrays, text)
    twice = json.dumps(meta)[:-1] + ', "step": 3}'
    yield "meta with a key twice", partial(signed, arrays, twice)


def wrong_tensors(arrays, meta):
    """Checkpoints with a right checksum and another tensor."""
    for name, x in arrays.items():
        changes = {
            "gone": None, "transposed": x.T if x.ndim > 1 else x[:-1], "flat": x.reshape(-1, 1), "empty": x[:0],
            "longer": np.concatenate([x, x[:1]]), "a scalar": np.float32(3), "float64": x.astype("f8"),
            "float16": x.astype("f2"), "int32": x.astype("i4"), "uint16": x.astype("u2"), "bool": x != 0,
            "nan": x * np.float32("nan"), "inf": x + np.float32("inf"),
        }  # fmt: skip
        for change, y in changes.items():
            others = {k: v for k, v in arrays.items() if k != name}
            others |= {} if y is None else {name: np.asarray(y)}
            yield f"tensor {name} {change}", partial(signed, others, meta)
        swaps = ("weight", "bias"), ("blocks.0", "blocks.1000000000"), ("blocks.0", "blocks.x"), ("h.0", "h.999999999")
        for other in dict.fromkeys((f"{name}x", f"h.{name}", *(name.replace(*swap) for swap in swaps))):
            if other not in arrays:
                renamed = {other if k == name else k: v for k, v in arrays.items()}
                yield f"tensor {name} called {other}", partial(signed, renamed, meta)
                yield f"tensor {name} also called {other}", partial(signed, {**arrays, other: x}, meta)


def wrong_headers(arrays, meta):
    """Files whose header is not that of the bytes after it, or none at all."""
    text = json.dumps(meta)
    metadata = {"__metadata__": {"minigrad": f"1 {checksum(arrays, text)} {text}"}}
    entries, data = entries_of(arrays)
    names = list(entries)
    for name in (names[0], names[-1]):
        for key, values in {"dtype": BAD_DTYPES, "shape": BAD_SHAPES, "data_offsets": BAD_OFFSETS}.items():
            for i, value in enumerate(values):
                header = {**metadata, **entries, name: {**entries[name], key: value}}
                yield f"header {name} {key} {i}", partial(file_of, header, data)
            header = {**metadata, **entries, name: {k: v for k, v in entries[name].items() if k != key}}
            yield f"header {name} without {key}", partial(file_of, header, data)
        for i, value in enumerate(VALUES):
            yield f"header {name} = value {i}", partial(file_of, {**metadata, **entries, name: value}, data)
    whole = json.dumps({**metadata, **entries})
    again = f', "{names[0]}": {json.dumps(entries[names[0]])}}}'
    yield "header with a name twice", partial(file_of, whole[:-1] + again, data)
    half = {**metadata, **entries, "\ud800": entries[names[0]]}
    yield "header with half a surrogate pair", partial(file_of, half, data)
    yield "header of a hole", partial(file_of, {**metadata, **entries}, data + b"\0" * 8)
    for i, value in enumerate(VALUES):
        yield f"metadata = value {i}", partial(file_of, {"__metadata__": value, **entries}, data)
        yield f"minigrad = value {i}", partial(file_of, {"__metadata__": {"minigrad": value}, **entries}, data)
    for i, version in enumerate(["", "1", "2", "1 ", "1 0", "1 00000000 {}", f"2 {checksum(arrays, text)} {text}"]):
        yield f"version {i}", partial(file_of, {"__metadata__": {"minigrad": version}, **entries}, data)
    for i, header in enumerate(TEXTS):
        yield f"header text {i}", partial(file_of, header, data)
    for n in (0, 1, 2, 7, len(data), 2**31, 10**8, 10**8 + 1, 2**62, 2**64 - 1):
        yield f"header of {n} bytes", partial(bytes, n.to_bytes(8, "little") + whole.encode() + data)


def damaged(data, n, rng):
    """n files with some bytes changed, cut off, added or moved."""
    for i in range(n):
        at, other = rng.randrange(len(data)), rng.randrange(len(data))
        begin, end = min(at, other), max(at, other)
        name, changed = [
            ("bit", data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]),
            ("byte", data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]),
            ("cut", data[:at]),
            ("longer", data + rng.randbytes(rng.randrange(1, 20))),
            ("zeros", data[:begin] + b"\0" * (end - begin) + data[end:]),
            ("gap", data[:begin] + data[end:]),
        ][i % 6]
        yield f"{name} {i}", partial(bytes, changed)


def all_of(arrays, meta, damages=300, seed=0):
    """All of the above, in an order that does not change."""
    rng = random.Random(seed)
    return [
        *wrong_contents(arrays, meta),
        *wrong_tensors(arrays, meta),
        *wrong_headers(arrays, meta),
        *damaged(signed(arrays, meta), damages, rng),
    ]
