"""Checkpoints come back as they were saved, or not at all: across dtypes, damage, older versions and kill -9."""

import base64
import functools
import json
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minigrad as mg
from minigrad import dtypes, nn, optim
from minigrad.training import checkpoint, runs

from .wrong_checkpoints import entries_of, file_of, signed


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.safetensors"


# An alphabet of our own: for st.text() hypothesis first makes tables of all Unicode, 2 seconds in a new clone.
text = st.text('aZ0. _"\\/\n\0\x7fé߷\u2028☃\ufeff\U0001f600')
arrays = hnp.arrays(st.sampled_from(dtypes.ALL), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(text, v, max_size=3),
    max_leaves=8,
)
names = text.filter(bool)  # never "__metadata__", which is not a tensor's


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, arrays, max_size=4), st.dictionaries(text, values, max_size=3))
def test_what_is_saved_is_loaded(tmp_path_factory, tensors, meta):
    path = tmp_path_factory.mktemp("c") / "c.safetensors"
    checkpoint.save(path, tensors, meta)
    loaded, loaded_meta = checkpoint.load(path)
    assert same(loaded, tensors) and loaded_meta == meta
    assert all(x.flags.writeable for x in loaded.values())


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_scalar_empty_and_strided(path, dtype):
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    tensors = {"scalar": x[1, 1, 1], "zero-d": np.array(1, dtype), "empty": x[:0], "t": x.T, "step": x[:, ::2, ::-1]}
    tensors["scalar"] = np.asarray(tensors["scalar"])
    checkpoint.save(path, tensors, {})
    assert same(checkpoint.load(path)[0], tensors)


def test_other_libraries_can_read_it(path):
    checkpoint.save(path, {"w": np.eye(3, dtype=np.float32)}, {"step": 3})
    assert same(safetensors.numpy.load_file(path), {"w": np.eye(3, dtype=np.float32)})


def test_the_same_state_gives_the_same_bytes(path):
    files = set()
    for order in (1, -1) * 8:
        checkpoint.save(path, dict([("a", np.zeros(2)), ("b", np.ones(3, bool))][::order]), {"step": 1})
        files.add(path.read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize(
    ("tensors", "meta", "message"),
    [
        ({"x": np.zeros(2, complex)}, {}, "complex128"),
        ({"x": np.zeros(2, "datetime64[s]")}, {}, "datetime64"),
        ({}, {"x": object()}, "JSON"),
        ({"x": [1.0]}, {}, "Tensors and arrays; 'x' is a list"),
        ({1: np.ones(2)}, {}, "'int' object is not an instance of 'str'"),
        ({"__metadata__": np.ones(2)}, {}, "cannot hold an array called __metadata__"),
        ({"\ud800": np.ones(2)}, {}, "surrogates"),
        ({}, {1: 2, "1": 3}, "has a key twice"),
        ({}, {"a": [{"b": 1, 2: 3, "2": 4}]}, "has a key twice"),
        ({}, [1], "a dict that JSON can hold, not \\[1\\]"),
        ({}, {"deep": functools.reduce(lambda deep, _: [deep], range(5000), [])}, "nested so deeply"),
    ],
)
def test_what_cannot_be_stored_leaves_the_old_one(path, tensors, meta, message):
    checkpoint.save(path, {}, {"old": True})
    with pytest.raises((TypeError, ValueError), match=message):
        checkpoint.save(path, tensors, meta)
    assert checkpoint.load(path)[1] == {"old": True} and os.listdir(path.parent) == [path.name]


# ----------------------------------------------------------------------------------------------------- older versions

# A GPT of one layer after a step of AdamW, written while the safetensors library did it; then zlib and base64.
OLD = """
eNqtlg9sE1Ucx6ebAgYEwehw/GkOgf15Ldfru+t10JsacHEoEJlmcSvNrb1u3dpec3ftYGMBnI5BiGxs/JOpBCJ/NCGGrB3idkMm/xL+RBgCYhADZKBG
I4n82STz3XX/kGNwjU2+yb3Xe5/v9/3u+nutHZ2gfiowp9PPSayblVinE8uswPzegLdIYN1YJmY2uM2EB8cJi6GiABMlLliAZRrMwFCAFXKi5PTxoqjM
BEI+nzIpcpLkDRSpc2iBxC2WlMt8h/JlwOljl3BCPyHgLOZY96Ah5y9Uh4TK9/GuUqfoLef6p9wCH+RDKhE34TE/Tl1hqVRGrmJWUK0LMLbQVYCpc4JL
mbGq13zA4y3qzRbmXWxhP9/yEEt9mR8MWOhl1UQe1idysRWl4X5GX9mCvOiVvHygN7yPY4WAsjHlO8kb26IkhFSA1x/0xW7zhMS+m9ATk5yidB9U4Fy8
PxiSuPv8g0IoEANWVKpF44OS14+2LPTWRZTY2BJ0jffPDXrw/v6HGxB5IRalH2JSl5twE7pLxYcf6250VyyNOV5Hsy5H84AjEa8jocuRGHC0xOto0eVo
GXCE8TpCXY5wwJGM15HU5UgOOFLxOlK6HKkBR2u8jlZdjtYBRzpeR1qXIx1zVO8PsgLrdxYJfCiodqd8tNYn9HY4vPckkGJNLh832QCat9nUfs/FVpg5
I04r4zLOW1QsOd2ci10SA5j7HXrXA2VLqJWidgyBgXSgCP+nH/4fPwooBwPtqHSoey3iApzASrzQd365OQ8b8kl9Ve89bEi1bXo86LBThtCKSoWKi/l5
N+czqYeIiHoaK0kBkzfgDAp8iTOWRTld3dKSIIeO1tctBAYwsZhVRigJ4QCYegbHyCKaxAFE2bTB6JhRyaZHkQktMqQBBTXQfl/Q5HE9kklrMSkIzAT9
EOhjRqUfxCImMNsIDW6AF/zmR0M1kDZUFBx/CJKIB4lwCDlo9wopPhAqrpkaAJUFufieMaIAwjKocGXSo0kWTZIFGZBqJo2DXi+MRLFoXBsW1gujcWDB
oRbMPFQyzYIhELAQuDYsrBdGoGQWzZoRQyXTbAQIBCw01IaF9cJoCGDsvdD4g6G3kaBXA8a6lMb/D70w1JYgpblNOFQyzXaEQIAkaG1YWCcMgQBp06wZ
OXTNNDoaAgFK++dEDl0zDRgCAav2S0sNmexBFMIgFK2NCutE0cCq/fZb9aZC774VQm2UzlQQAiup+RRpvalIAlgpXBulMxWFyk6hslcalE/ymipGLL4n
v7i/nnl3SkZb3lKWOT81qa371CR5YcMOpu5Kuf2zlJMtpQv2yz2No2Tn5A329wpflec1ptqn5SbILd9/xeTl3GZsS/3MlHONjA0+2Xp1ylnmo+h0eeXG
aMsT8Dn5bo2HmfhGNZOUEJArO1PkMsHMHHxrrPyKodb+c81O+4flm1uvpPwql+RF7NTqPczO7BR7btcc5uljb7cs3LROHtv1DhNiipg10ffl+X9ctB+u
67Ynz+lgiK4G+ZK8LOvExOVZzYblWRvRdVmv8kpKs45vy2LmHTkq/2LaJa/30G0dodeyDs0OMd+Vr209khOWR55PaKlvv9myrv3mrAuO9Xak1oPZ5tb2
bLM9j/Jk5iJ9++aemYoaa/7O/ATp+vwPokjUAWav9czsvc0Jh2qMij6n7syozb4zY3hJLhxWktsU3TaiKbJtBNz3U56ippOLVsETi1Y1fUpkwy1EdtN2
2Na0FbbBY1l42mGklJ761PFIMGJNU0T569Mg0jc9L6VFkTaceja9DunJ7gSyc/iOiPWfhEjomR3kn7dXpCc7z2Us6lqRbnCdy6AuV1Hk5apobdgRXRt2
UJ67W6JI1JdjQtQXY0LR5o//IpEiy8edjiwbd5oMNd+KiM23yIpUSCFFw5dWGiWk39ZnGW8gdY6WVd3YVGK8hrQ7yQ0UJbgBuOcCIPmQHzyP1Fl3D1xD
SpnbETlVVRbZ90Nt1HL2QmTXhMXRrSmJ1pRh7mju8EnR7gUd5NHVZWTOj7VU5sULZA+2mGqbnNj81Cg3tWXkJKpiJA4a5/MZ1Ve3G7F8G1hVFjTW5VSb
dk+Ya1w7oR3YXsDBeAefsfn37UY3ZwOnq4LGxIXVJnz6XOOk6e2g/TiA2SGwtyH7Ruqm/Osvj5uNRRIPjCDFphPpU5mG9PNkjv3Mzsuzkr6ePNMwbU7m
v7bVQEw=
"""


def test_a_checkpoint_of_an_older_version(path):
    path.write_bytes(zlib.decompress(base64.b64decode(OLD)))
    tensors, meta = checkpoint.load(path)
    assert meta["step"] == 1 and meta["chars"] == "abc" and len(tensors) == 27
    model, vocab, _ = runs.load_char_model(path)
    assert model.wte.weight.sum().item() == pytest.approx(-0.0396267436) and len(vocab) == 3
    optimizer, generator = optim.AdamW(model.parameter_groups(0.0), lr=0.5), mg.Generator()
    checkpoint.unpack(tensors, meta, model, optimizer, {"default": generator})
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.99) and optimizer.param_groups[0]["weight_decay"] == 0.1
    assert all(state["step"] == 1 for state in optimizer.state.values()) and len(optimizer.state) == 9
    assert generator.state == meta["generators"]["default"] and generator.state["seed"] == 5
    checkpoint.save(path, *checkpoint.pack(model, optimizer, {"default": generator}))
    again, meta_again = checkpoint.load(path)
    assert same(again, tensors) and meta_again["optimizer"] == meta["optimizer"]


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_missing_file(path):
    with pytest.raises(checkpoint.CheckpointError, match=r"there is no checkpoint .*c\.safetensors") as error:
        checkpoint.load(path)
    assert issubclass(checkpoint.CheckpointError, ValueError) and isinstance(error.value.__cause__, FileNotFoundError)


def test_a_file_that_may_not_be_read(path, monkeypatch):
    checkpoint.save(path, {}, {})

    def forbidden(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint, "safe_open", forbidden)
    with pytest.raises(checkpoint.CheckpointError, match=r"cannot read checkpoint .*: Permission denied"):
        checkpoint.load(path)


def test_every_truncation_is_noticed(path):
    checkpoint.save(path, {"x": np.arange(5.0)}, {"step": 1})
    data = path.read_bytes()
    for n in range(len(data)):
        path.write_bytes(data[:n])
        with pytest.raises(checkpoint.CheckpointError):
            checkpoint.load(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.load(path)


def test_every_changed_byte_is_noticed_or_changes_nothing(path):
    tensors, meta = {"x": np.arange(3, dtype=np.float32), "y": np.array([True, False])}, {"step": 1}
    checkpoint.save(path, tensors, meta)
    data = path.read_bytes()
    harmless = 0
    for i in range(len(data)):
        for flip in (1, 0x20, 0x80):
            path.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            try:
                loaded = checkpoint.load(path)
            except checkpoint.CheckpointError:
                continue
            assert same(loaded[0], tensors) and loaded[1] == meta  # white space in the header, say
            harmless += 1
    assert harmless < len(data) // 10


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"x": t["x"].reshape(3, 2), "y": t["y"]},
        lambda t: {"x": t["x"].view("i4"), "y": t["y"]},
        lambda t: {"x": t["y"], "y": t["x"]},
        lambda t: {"x": t["x"], "z": t["y"]},
        lambda t: {"x": t["x"]},
        lambda t: {**t, "z": t["x"][:0]},
        lambda t: {"x": t["x"] + 1, "y": t["y"]},
    ],
    ids=["shape", "dtype", "names swapped", "name", "one gone", "one more", "contents"],
)
def test_the_checksum_covers_names_dtypes_shapes_and_contents(path, change):
    tensors = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(2, np.float32)}
    whole = signed(tensors, {"n": 1})
    path.write_bytes(whole)
    assert same(checkpoint.load(path)[0], tensors)  # as the library has it, row by row
    metadata = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    entries, data = entries_of(change(tensors))
    path.write_bytes(file_of({"__metadata__": metadata, **entries}, data))
    with pytest.raises(checkpoint.CheckpointError, match="its checksum is wrong"):
        checkpoint.load(path)


@pytest.mark.parametrize("data", [b"", b"PK\3\4 some other file", b"\xff" * 64, b"{}" * 100])
def test_some_other_file(path, data):
    path.write_bytes(data)
    with pytest.raises(checkpoint.CheckpointError, match=r"c\.safetensors is damaged, cut short or no checkpoint"):
        checkpoint.load(path)


def test_bfloat16_as_torch_writes_it(path):
    """The bytes of torch's save_file({"w": torch.ones(2, 2, dtype=torch.bfloat16)}, path)."""
    header = b'{"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}       '
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x80\x3f" * 4)
    with pytest.raises(
        checkpoint.CheckpointError, match=r"has a dtype that NumPy lacks .*bfloat16.*: convert it to float32"
    ):
        checkpoint.load_tensors(path)


def test_somebody_elses_safetensors(path):
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file({"w": np.zeros(2)}, path, metadata)
        with pytest.raises(checkpoint.CheckpointError, match="is a safetensors file, but not a minigrad checkpoint"):
            checkpoint.load(path)


def test_another_format(path):
    """The checksum covers what comes after it, so that it stays right."""
    checkpoint.save(path, {"x": np.zeros(2, np.float32)}, {})
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"minigrad":"1 ', b'"minigrad":"2 '))
    assert path.read_bytes() != whole
    with pytest.raises(checkpoint.CheckpointError, match="is of format '2', and this minigrad reads format 1: a newer"):
        checkpoint.load(path)


def test_too_little_memory(path, monkeypatch):
    checkpoint.save(path, {"x": np.zeros(5)}, {})

    def empty(*args, **options):
        raise MemoryError("Unable to allocate 3.0 TiB")

    monkeypatch.setattr(checkpoint, "safe_open", empty)
    with pytest.raises(checkpoint.CheckpointError, match=r"not enough memory for checkpoint .* 3\.0 TiB"):
        checkpoint.load(path)


# ------------------------------------------------------------------------------------------------------------ kill -9

KILLER = """
import os, random, signal, sys, time
import numpy as np
from minigrad.training import checkpoint

folder = sys.argv[1]
path = os.path.join(folder, "c.safetensors")
states = [({"w": np.full((768, 1024), i, np.float32), "b": np.full(7, i)}, {"i": i}) for i in (0, 1)]
checkpoint.save(path, *states[1])
began = time.perf_counter()
for i in range(10):
    checkpoint.save(path, *states[i % 2])
one_save = (time.perf_counter() - began) / 10

torn = last_i = 0
seen = set()
rng = random.Random(0)
for kill in range(100):
    child = os.fork()
    if child == 0:
        i = 0
        while True:
            checkpoint.save(path, *states[i % 2])
            i += 1
    time.sleep(rng.uniform(0, 4 * one_save))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    tensors, meta = checkpoint.load(path)  # the old one or the new one, whole
    i = meta["i"]
    assert all((tensors[k] == states[i][0][k]).all() and tensors[k].shape == states[i][0][k].shape for k in ("w", "b"))
    left = [os.path.join(folder, name) for name in os.listdir(folder) if name != "c.safetensors"]
    torn += len([os.unlink(name) for name in left])
    seen.add(i)
checkpoint.save(path, *states[0])
print(torn, len(seen), *os.listdir(folder))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its victims")
@pytest.mark.slow
def test_kill_9_at_100_random_moments(tmp_path):
    command = [sys.executable, "-c", KILLER, str(tmp_path)]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert result.returncode == 0, result.stderr
    torn, seen, *files = result.stdout.split()
    assert int(torn) >= 10  # that many kills came during a write, or the test would show nothing
    assert int(seen) == 2 and files == ["c.safetensors"]


def test_options_that_are_numbers_of_numpy(path):
    p = mg.ones(2, requires_grad=True)
    optimizer = optim.AdamW([p], lr=np.float32(0.5), weight_decay=np.float64(0.25))
    tensors, meta = checkpoint.pack(nn.Linear(2, 2), optimizer)
    checkpoint.save(path, tensors, meta)
    (group,) = checkpoint.load(path)[1]["optimizer"]["param_groups"]
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
