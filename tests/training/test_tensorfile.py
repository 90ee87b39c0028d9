"""Our safetensors files and the library's are the same; what is not supported, damaged or too large says so; and
reading and writing take the memory of the arrays, and no more."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minigrad import dtypes
from minigrad.training import checkpoint, tensorfile

from .wrong_checkpoints import file_of

arrays = hnp.arrays(st.sampled_from(dtypes.ALL), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
names = st.text(min_size=1).filter(lambda name: name != "__metadata__")
texts = st.dictionaries(st.text(), st.text(), max_size=3)


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


def refused(path, data, words):
    path.write_bytes(data)
    with pytest.raises(checkpoint.CheckpointError, match=words) as error:
        checkpoint.load_tensors(path)
    assert str(error.value).isprintable() and len(str(error.value)) < 500
    return str(error.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.safetensors"


# ---------------------------------------------------------------------------------------------- against the library


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, arrays, max_size=4), texts)
def test_the_library_reads_what_we_write(tmp_path_factory, tensors, metadata):
    begin, order = tensorfile.header_of(tensors, metadata)
    assert sorted(order) == sorted(tensors) and len(begin) % 8 == 0
    data = begin + b"".join(bytes(tensorfile.as_bytes(tensors[name])) for name in order)
    assert same(safetensors.numpy.load(data), tensors)
    path = tmp_path_factory.mktemp("c") / "c"
    path.write_bytes(data)
    with safetensors.safe_open(path, "np") as file:
        assert (file.metadata() or {}) == metadata
    assert same(checkpoint.load_tensors(path), tensors)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, arrays, max_size=4), st.none() | texts.filter(bool))  # of {}, the library makes no JSON
def test_we_read_what_the_library_writes(tensors, metadata):
    reader = tensorfile.Reader(io.BytesIO(safetensors.numpy.save(tensors, metadata)))
    assert same({name: reader.read(name) for name in reader.names}, tensors)
    assert reader.metadata == (metadata or {})


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "uint16", "complex64"])
def test_dtypes_that_only_numpy_has(path, dtype):
    x = np.arange(3).astype(dtype)
    safetensors.numpy.save_file({"x": x}, path)
    assert same(checkpoint.load_tensors(path), {"x": x})


def test_arrays_are_aligned(path):
    checkpoint.save(path, {"a": np.ones(3, bool), "b": np.ones(2), "c": np.ones(1, "f4"), "d": np.ones(1, "f2")}, {})
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, size in {"a": 1, "b": 8, "c": 4, "d": 2}.items():
        assert (start + header[name]["data_offsets"][0]) % size == 0


# ---------------------------------------------------------------------------------------------------- what is refused

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize("dtype, shape", [("BF16", [4]), ("F8_E4M3", [8]), ("F8_E5M2", [2, 4]), ("F4", [16])])
def test_valid_files_of_other_dtypes_are_unsupported_not_damaged(path, dtype, shape):
    header = {"__metadata__": {"format": "pt"}, "lm_head.weight": {**ENTRY, "dtype": dtype, "shape": shape}}
    said = refused(path, file_of(header, b"12345678"), f"not supported: 'lm_head.weight' has dtype {dtype}")
    assert "damaged" not in said
    refused(path, file_of(header, b"1234567"), "is damaged")  # one that is cut short is damaged, whatever its dtype


def test_bfloat16_as_torch_writes_it(path):
    """The bytes of torch's save_file({"w": torch.ones(2, 2, dtype=torch.bfloat16)}, path)."""
    header = b'{"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}       '
    refused(path, len(header).to_bytes(8, "little") + header + b"\x80\x3f" * 4, "not supported: 'w' has dtype BF16")


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62], [0] * 65])
def test_shapes_that_numpy_cannot_have_are_unsupported(path, shape):
    data = b"" if 0 in shape else b"1234"
    header = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}
    refused(path, file_of(header, data), "not supported: 'x'")


@pytest.mark.parametrize("entry, data, words", [
    ({**ENTRY, "dtype": "F33"}, b"12345678", "'x' has an unknown dtype 'F33'"),
    ({**ENTRY, "shape": [3]}, b"12345678", r"'x', F32 of shape \(3,\), has 8 bytes"),
    ({**ENTRY, "shape": [2**40, 2**40]}, b"12345678", "has 8 bytes"),
    ({**ENTRY, "shape": [True, 2]}, b"12345678", "its header says of 'x'"),
    ({**ENTRY, "shape": [-1, -2]}, b"12345678", "its header says of 'x'"),
    ({**ENTRY, "data_offsets": [1, 9]}, b"123456789", "'x' is said to be at bytes 1 to 9, not from 0 on"),
    ({**ENTRY, "data_offsets": [0, 2**60]}, b"12345678", "arrays have 1152921504606846976 bytes, and the file has 8"),
    (ENTRY, b"123456789", "arrays have 8 bytes, and the file has 9"),
    ({**ENTRY, "dtype": "BOOL", "shape": [8]}, b"\0\1\0\1\0\1\0\2", "'x' holds truth values other than 0 and 1"),
    ("F32", b"", "its header says of 'x'"),
])  # fmt: skip
def test_headers_that_cannot_be(path, entry, data, words):
    refused(path, file_of({"x": entry}, data), f"is damaged.*{words}")


def test_overlaps_holes_and_names_twice(path):
    entries = {"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}}
    refused(path, file_of(entries, b"x" * 12), "'b' is said to be at bytes 4 to 12, not from 8 on")
    entries["b"]["data_offsets"] = [12, 20]
    refused(path, file_of(entries, b"x" * 20), "'b' is said to be at bytes 12 to 20, not from 8 on")
    twice = f'{{"a": {json.dumps(ENTRY)}, "a": {json.dumps(ENTRY)}}}'
    refused(path, file_of(twice, b"x" * 8), "its JSON has 'a' twice")


@pytest.mark.parametrize("text, words", [
    ("[" * 9999, "does not begin"), ('{"a":' * 9999, "nested too deeply"), ('{"a":' * 150 + "1" + "}" * 150, "deep"),
    ('{"a": ' + "[" * 90_000 + "]" * 90_000 + "}", "nested"), ('{"a": 1' + "0" * 5000 + "}", "integer of 5001 digits"),
    ('{"\\ud800": {}}', "surrogates"), ("\ufeff{}", "does not begin"), ('{"__metadata__": {"a": 1}}', "metadata"),
    ('{"a": [' + "0," * 2_000_001 + "0]}", "its JSON has more than 2,000,000 commas"),
    ('{"a": NaN}', "its header says of 'a'"), ("{", "does not begin"), ('{"a" 1}', "Expecting"),
])  # fmt: skip
def test_json_that_cannot_be(path, text, words):
    refused(path, file_of(text), f"is damaged.*{words}")


@pytest.mark.parametrize("size", [0, 1, 10, 2**31, 10**8 + 1, 2**63, 2**64 - 1])
def test_headers_that_do_not_fit(path, size):
    refused(path, size.to_bytes(8, "little") + b"{}", "is damaged.*it does not begin with a header that fits")


def test_a_file_that_shrinks_while_it_is_read(path):
    checkpoint.save(path, {"a": np.ones(10), "b": np.ones(1000)}, {})
    with open(path, "r+b", buffering=0) as file:
        reader = tensorfile.Reader(file)
        file.truncate(path.stat().st_size - 4000)
        assert (reader.read("a") == 1).all()
        with pytest.raises(ValueError, match="it ends within 'b'"):
            reader.read("b")


@pytest.mark.parametrize(
    "tensors, meta, error, words",
    [
        ({"__metadata__": np.ones(2)}, {}, ValueError, "cannot hold an array called __metadata__"),
        ({"\ud800": np.ones(2)}, {}, ValueError, "surrogates"),
        ({1: np.ones(2)}, {}, TypeError, "names, which are str, not 1"),
        ({}, {1: 2, "1": 3}, ValueError, "'1' twice"),
        ({}, [1], TypeError, "a dict that JSON can hold, not \\[1\\]"),
        ({}, {"a": set()}, TypeError, "JSON"),
        ({"b": np.ones((1, 1))}, {"a": [0] * 1_999_998}, ValueError, "more than 2,000,000 commas"),
    ],
)
def test_what_load_would_refuse_is_not_saved(path, tensors, meta, error, words):
    with pytest.raises(error, match=words):
        checkpoint.save(path, tensors, meta)
    assert not path.exists()


def test_metadata_nested_too_deeply_are_not_saved(path):
    for depth in (150, 100_000):
        deep = []
        for _ in range(depth):
            deep = [deep]
        with pytest.raises(ValueError, match="nested"):
            checkpoint.save(path, {}, {"deep": deep})
        while deep:  # one by one: freeing all at once would be a recursion as well
            deep = deep.pop()
    assert not path.exists()


# --------------------------------------------------------------------------------------------------------- the memory

PEAK = """
import os, sys
import numpy as np
from minigrad.training import checkpoint

def kilobytes(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))

def growth(function, *args):
    "How much more memory the process had at most during a call than before it."
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before = kilobytes("VmRSS")
    result = function(*args)
    return result, 1024 * (kilobytes("VmHWM") - before)

path = sys.argv[1]
checkpoint.save(path, {"x": np.ones(5)}, {})
checkpoint.load(path)  # what is imported at the first call is not counted
tensors = {f"w{i}": np.full((1 << 20,), i, np.float32) for i in range(12)}
tensors["t"] = np.ones((1000, 1000), np.float32).T
_, saving = growth(checkpoint.save, path, tensors, {"step": 1})
size = os.path.getsize(path)
del tensors
_, loading = growth(checkpoint.load, path)
_, plainly = growth(checkpoint.load_tensors, path)
print(saving / size, loading / size, plainly / size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak")
def test_the_peak_of_memory_is_the_arrays_and_little_more(path):
    """In files' sizes; 2, 3 and 3 before the file was read tensor by tensor."""
    shown = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    saving, loading, plainly = map(float, shown.stdout.split())
    assert saving < 0.3 and loading < 1.3 and plainly < 1.3
