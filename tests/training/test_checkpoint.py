"""mg.save and mg.load: dtypes, nesting, files of other programs, damaged files, and kill -9 while saving."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minigrad as mg
from minigrad import dtypes, nn, optim
from minigrad.training import checkpoint, runs
from minigrad.training.checkpoint import CheckpointError

NESTED = {
    "numbers": [1, -2.5, True, None, float("inf"), 10**30],
    "a tuple": (1, ("deep", [])),
    7: {"int": "key", 2.5: "float", None: "none", False: "bool"},
    "empty": {},
    "nan": float("nan"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.safetensors"


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


def test_loading_returns_the_saved_values(path):
    mg.save(NESTED, path)
    assert repr(mg.load(path)) == repr(NESTED)
    mg.save([np.int64(3), np.float32(0.5), np.bool_(True)], path)
    assert repr(mg.load(path)) == "[3, 0.5, True]"


# An alphabet of our own: for st.text() hypothesis first makes tables of all Unicode, 2 seconds in a new clone.
text = st.text('aZ0. _"\\/\n\0\x7fé߷\u2028☃\ufeff\U0001f600~')
arrays = hnp.arrays(st.sampled_from(dtypes.ALL), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(text, arrays, max_size=4))
def test_arrays_come_back_as_they_were(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("c") / "c.safetensors"
    mg.save(arrays, path)
    loaded = mg.load(path)
    assert same(loaded, arrays) and all(x.flags.writeable for x in loaded.values())


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_tensors_of_every_dtype_scalar_empty_and_strided(path, dtype):
    x = mg.tensor(np.arange(24).reshape(2, 3, 4).astype(dtype))
    tensors = {"zero-d": x[1, 1, 1], "empty": x[:0], "t": x.T, "step": x[:, ::2], "more": x[:1].expand(5, 3, 4)}
    mg.save(tensors, path)
    loaded = mg.load(path, map_location="cpu", weights_only=True)
    assert all(type(y) is mg.Tensor and not y.requires_grad for y in loaded.values())
    assert same(*({name: y.numpy() for name, y in of.items()} for of in (loaded, tensors)))


def test_a_run_goes_on_as_if_it_had_not_stopped(path):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        return {"model": model, "optimizer": optimizer}

    def steps(run):
        for _ in range(3):
            run["optimizer"].zero_grad()
            (run["model"](mg.ones(2, 3)) ** 2).sum().backward()
            run["optimizer"].step()
            run["optimizer"].param_groups[0]["lr"] *= 0.9
        return [p.detach().numpy() for p in run["model"].parameters()]

    run = make()
    steps(run)
    mg.save({**run, "random": mg.default_generator, "epoch": 3}, path)
    expected = steps(run)
    saved, run = mg.load(path), make()
    for name, part in run.items():
        part.load_state_dict(saved[name])
    mg.default_generator.state = saved["random"]
    assert saved["epoch"] == 3
    for a, b in zip(steps(run), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_names_in_the_file(path):
    mg.save({"net": nn.Linear(2, 1), "net.weight": mg.ones(1), "__metadata__": mg.zeros(1)}, path)
    assert set(safetensors.numpy.load_file(path)) == {"net.weight", "net.bias", "net.weight~", "__metadata__~"}
    again = mg.load(path)
    assert again["net.weight"].item() == 1 and again["__metadata__"].item() == 0


def test_the_same_state_gives_the_same_bytes(path):
    files = set()
    for _ in range(8):
        mg.save({"a": np.zeros(2), "b": np.ones(3, bool), "step": 1}, path)
        files.add(path.read_bytes())
    assert len(files) == 1


def test_files_of_others(path):
    for metadata in None, {"format": "pt"}:
        safetensors.numpy.save_file({"w": np.arange(2.0)}, path, metadata)
        assert mg.load(path)["w"].tolist() == [0, 1] and checkpoint.load_tensors(path)["w"].tolist() == [0, 1]
    header = b'{"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}       '  # as torch writes bfloat16
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x80\x3f" * 4)
    with pytest.raises(CheckpointError, match=r"has a dtype that NumPy lacks .*bfloat16.*: convert it to float32"):
        checkpoint.load_tensors(path)
    np.savez(path.with_suffix(".npz"), a=np.ones(2))
    path.write_bytes(b"\x80\x02some pickle")
    for file in path, path.with_suffix(".npz"):
        with pytest.raises(
            CheckpointError, match=r"no safetensors file, or damaged .*A pickle of torch.save may run any"
        ):
            mg.load(file)


def cycle():
    found = []
    found.append(found)
    return found


WRONG = {
    "a set": (lambda path: mg.save({"a": [1, {2}]}, path), TypeError, r"a\.1 is a set; save takes tensors"),
    "a function": (lambda path: mg.save(len, path), TypeError, "the object is a builtin"),
    "a key": (lambda path: mg.save({(1, 2): 3}, path), TypeError, r"the object has the key \(1, 2\), which"),
    "complex": (lambda path: mg.save([np.ones(1, complex)], path), TypeError, "no dtype complex128"),
    "a cycle": (lambda path: mg.save(cycle(), path), RecursionError, "recursion"),
    "a class": (lambda path: mg.save({"a": nn.Linear}, path), TypeError, "a is a type"),
    "no folder": (lambda path: mg.save(1, path / "y"), OSError, "c.safetensors"),
    "a device": (lambda path: mg.load(path, map_location="gpu"), ValueError, "device"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name, path):
    call, error, message = WRONG[name]
    mg.save("old", path)
    with pytest.raises(error, match=message):
        call(path)
    assert mg.load(path) == "old" and os.listdir(path.parent) == [path.name]


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_missing_file_raises(path):
    for wrong in path, path.parent:
        with pytest.raises(CheckpointError, match=f"(there is no|cannot read) checkpoint {wrong}"):
            mg.load(wrong)


def test_every_truncation_is_noticed(path):
    mg.save({"x": np.arange(5.0), "step": 1}, path)
    data = path.read_bytes()
    for wrong in (data + b"\0", *(data[:n] for n in range(len(data)))):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError):
            mg.load(path)


def test_every_changed_byte_is_noticed(path):
    mg.save({"x": np.arange(3, dtype=np.float32), "y": np.array([True, False])}, path)
    data = path.read_bytes()
    for i in range(len(data)):
        for flip in (1, 0x20, 0x80):
            path.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            with pytest.raises(CheckpointError):
                mg.load(path)


FORGED = ["tensor", "nope"], ["tensor"], ["tensor", ["w"]], ["dict", ["a"]], ["dict", [[1], 2]], [], ["dict", None], {}
NESTED = "[" * 100_000, '["list",' * 20_000 + "1" + "]" * 20_000, "{", "nonsense"


@pytest.mark.parametrize(
    "text", [*map(json.dumps, FORGED), json.dumps(["set", 1]), *NESTED], ids=lambda text: text[:12]
)
def test_json_that_save_does_not_write(path, text):
    arrays = {"w": np.ones(2, np.float32)}
    metadata = {"minigrad": f"{checkpoint.FORMAT} {checkpoint._checksum(text, arrays)} {text}"}
    safetensors.numpy.save_file(arrays, path, metadata)
    with pytest.raises(CheckpointError, match=r"is not what minigrad\.save writes"):
        mg.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"x": t["x"].reshape(3, 2), "y": t["y"]},
        lambda t: {"x": t["x"].view("i4"), "y": t["y"]},
        lambda t: {"x": t["y"], "y": t["x"]},
        lambda t: {"x": t["x"]},
        lambda t: {**t, "z": t["x"][:0]},
        lambda t: {"x": t["x"] + 1, "y": t["y"]},
    ],
    ids=["shape", "dtype", "names swapped", "one gone", "one more", "contents"],
)
def test_the_checksum_covers_names_dtypes_shapes_and_contents(path, change):
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(2, np.float32)}
    mg.save(arrays, path)
    data = path.read_bytes()
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    safetensors.numpy.save_file(change(arrays), path, metadata)
    with pytest.raises(CheckpointError, match="is damaged: its checksum is wrong"):
        mg.load(path)


def test_another_format(path):
    mg.save({"x": np.zeros(2)}, path)
    path.write_bytes(path.read_bytes().replace(b'"minigrad":"2 ', b'"minigrad":"1 '))
    with pytest.raises(
        CheckpointError, match="is of format 1, and this version of minigrad reads format 2: checkpoint"
    ):
        mg.load(path)
    assert checkpoint.load_tensors(path)["x"].tolist() == [0, 0]


KILLER = """
import os, random, signal, sys, time
import numpy as np
import minigrad as mg

folder = sys.argv[1]
path = os.path.join(folder, "c.safetensors")
states = [{"w": np.full((768, 1024), i, np.float32), "i": i} for i in (0, 1)]
mg.save(states[1], path)
began = time.perf_counter()
for i in range(10):
    mg.save(states[i % 2], path)
one_save = (time.perf_counter() - began) / 10

torn, seen, rng = 0, set(), random.Random(0)
for kill in range(100):
    child = os.fork()
    while child == 0:
        for state in states:
            mg.save(state, path)
    time.sleep(rng.uniform(0, 4 * one_save))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = mg.load(path)  # the old one or the new one, whole
    assert (loaded["w"] == loaded["i"]).all() and loaded["w"].shape == (768, 1024)
    left = [os.path.join(folder, name) for name in os.listdir(folder) if name != "c.safetensors"]
    torn += len([os.unlink(name) for name in left])
    seen.add(loaded["i"])
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


# ---------------------------------------------------------------------------------------------------- character models


def test_a_character_model_comes_back_from_its_file_or_folder(tmp_path):
    model = nn.GPT(nn.GPTConfig(3, 8, n_layer=2, n_head=2, n_embd=8)).double()
    about = {"config": dataclasses.asdict(model.config), "chars": "abc"}
    mg.save({"model": model, **about}, tmp_path / "last.safetensors")
    mg.save({"model": model, **about, "best": 1}, tmp_path / "best.safetensors")
    idx = mg.tensor([[0, 1, 2]])
    for path in tmp_path, tmp_path / "last.safetensors":
        again, vocab, saved = runs.load_char_model(path)
        assert vocab.chars == "abc" and ("best" in saved) == (path == tmp_path)
        assert (again.eval()(idx)[0] == model.eval()(idx)[0]).all()


@pytest.mark.parametrize(
    "change",
    [{"chars": None}, {"config": {"vocab_size": 3}}, {"config": None}, {"model": {}},
     {"model": {"wte.weight": mg.ones(2)}}],
    ids=str,
)  # fmt: skip
def test_a_file_without_a_character_model_raises(path, change):
    model = nn.GPT(nn.GPTConfig(3, 8, n_layer=1, n_head=2, n_embd=8))
    mg.save({"model": model, "config": dataclasses.asdict(model.config), "chars": "abc"} | change, path)
    with pytest.raises(CheckpointError, match=f"{path} holds no character model: "):
        runs.load_char_model(path)
    mg.save([1], path)
    with pytest.raises(CheckpointError, match="holds no character model"):
        runs.load_char_model(path)
