"""mg.save and mg.load: what goes in comes out; files that are not ours; what is refused."""

import io
import json

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.base.errors import CheckpointError
from minigrad.training import checkpoint

NESTED = {
    "numbers": [1, -2.5, True, None, float("inf"), 10**30],
    "a tuple": (1, ("deep", [])),
    7: {"int": "key", 2.5: "float", None: "none", False: "bool"},
    "empty": {},
    "dtype": mg.float16,
    "nan": float("nan"),
}


def test_what_goes_in_comes_out(tmp_path):
    mg.save(NESTED, tmp_path / "x")
    assert repr(mg.load(tmp_path / "x")) == repr(NESTED)


@pytest.mark.parametrize(
    "x",
    [
        mg.tensor(1.5), mg.zeros(0, 3), mg.randn(3, 4).T, mg.ones(2, dtype=mg.float16), mg.arange(3).expand(2, 3),
        mg.tensor([True, False]), mg.randn(2, dtype=mg.float64, requires_grad=True), nn.Parameter(mg.ones(2)),
    ],
    ids=lambda x: f"{x.dtype} {x.shape}",
)  # fmt: skip
def test_tensors(x, tmp_path):
    mg.save(x, tmp_path / "x")
    y = mg.load(tmp_path / "x", map_location="cpu", weights_only=True)
    assert type(y) is mg.Tensor and y.dtype == x.dtype and y.shape == x.shape and not y.requires_grad
    np.testing.assert_array_equal(y.numpy(), x.detach().numpy())
    mg.save([x.detach().numpy()], tmp_path / "x")
    assert type(mg.load(tmp_path / "x")[0]) is np.ndarray


def test_numbers_of_numpy_are_pythons(tmp_path):
    mg.save([np.int64(3), np.float32(0.5), np.bool_(True)], tmp_path / "x")
    assert repr(mg.load(tmp_path / "x")) == "[3, 0.5, True]"


def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        return {"model": model, "optimizer": optimizer, "schedule": optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)}

    def steps(run):
        for _ in range(3):
            run["optimizer"].zero_grad()
            (run["model"](mg.ones(2, 3)) ** 2).sum().backward()
            run["optimizer"].step()
            run["schedule"].step()
        return [p.detach().numpy().copy() for p in run["model"].parameters()]

    run = make()
    steps(run)
    mg.save({**run, "random": mg.default_generator, "epoch": 3}, tmp_path / "run.safetensors")
    expected = steps(run)
    saved, run = mg.load(tmp_path / "run.safetensors"), make()
    for name, part in run.items():
        part.load_state_dict(saved[name])
    mg.default_generator.state = saved["random"]
    assert saved["epoch"] == 3
    for a, b in zip(steps(run), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_names_in_the_file(tmp_path):
    model = nn.Linear(2, 1)
    mg.save({"net": model, "net.weight": mg.ones(1), "net.weight~2": mg.zeros(1)}, tmp_path / "x")
    found = checkpoint.load_tensors(tmp_path / "x")
    assert set(found) == {"net.weight", "net.bias", "net.weight~2", "net.weight~2~2"}
    again = mg.load(tmp_path / "x")
    assert again["net.weight"].item() == 1 and again["net.weight~2"].item() == 0


def test_files_of_others(tmp_path):
    checkpoint.save(tmp_path / "x", {"w": np.ones(2)}, {"step": 3})
    assert mg.load(tmp_path / "x")["w"].numpy().tolist() == [1, 1]
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "y").write_bytes(len(header).to_bytes(8, "little") + header + np.float32(5).tobytes())
    assert mg.load(tmp_path / "y")["w"].item() == 5


def test_damage_is_found_also_where_the_checksum_does_not_reach(tmp_path):
    """A flipped bit in the format's name or number once made ours a file of others: flat, and tensors only."""
    mg.save({"model": {"w": mg.ones(2)}, "step": 3}, tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    for i in range(8 * 64):
        wrong = bytearray(data)
        wrong[i // 8] ^= 1 << i % 8
        (tmp_path / "y").write_bytes(wrong)
        with pytest.raises(CheckpointError):
            mg.load(tmp_path / "y")
    (tmp_path / "y").write_bytes(data.replace(b'"minigrad":"1 ', b'"minigrad":"2 '))
    with pytest.raises(CheckpointError, match="of format '2', and this minigrad reads format 1: a newer minigrad"):
        mg.load(tmp_path / "y")


def test_metadata_of_others(tmp_path):
    for metadata in {"format": "pt"}, {"comment": "1 2 3", "hash": "0123abcd {x"}:
        header = json.dumps({"__metadata__": metadata, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
        (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header.encode() + np.float32(5).tobytes())
        assert mg.load(tmp_path / "x")["w"].item() == 5


def test_files_of_numpy_are_called_so(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    np.save(tmp_path / "x.npy", np.ones(2))
    for name in "x.npz", "x.npy":
        with pytest.raises(CheckpointError, match=rf"{name} is a file of NumPy's: read it with numpy\.load"):
            mg.load(tmp_path / name)


def test_a_good_file_is_not_blamed_for_the_device(tmp_path):
    mg.save(mg.ones(1), tmp_path / "x")
    for device, error in (
        ("gpu", ValueError),
        (lambda storage, place: storage, TypeError),
        ({"cuda:0": "cpu"}, TypeError),
    ):
        with pytest.raises(error, match="device") as found:
            mg.load(tmp_path / "x", map_location=device)
        assert not isinstance(found.value, CheckpointError)


@pytest.mark.parametrize("begin", [b"PK\x03\x04", b"\x80\x02", b"\x80\x05"])
def test_pickles_are_not_loaded(begin, tmp_path):
    (tmp_path / "x.pt").write_bytes(begin + bytes(100))
    with pytest.raises(CheckpointError, match=r"is a pickle, as torch\.save writes it"):
        mg.load(tmp_path / "x.pt")


def test_a_header_may_begin_as_pickles_do(tmp_path):
    """The length of a header comes first in a file, and 0x0280 begins like a pickle of protocol 2."""
    for n in range(0, 700, 8):
        mg.save("x" * n, tmp_path / "x")
        assert mg.load(tmp_path / "x") == "x" * n


def cycle():
    found = []
    found.append(found)
    return found


def nested(depth):
    return [nested(depth - 1)] if depth else 0


WRONG = {
    "a set": (lambda path: mg.save({"a": [1, {2}]}, path), TypeError, r"\['a'\]\['1'\] is of type set"),
    "a function": (lambda path: mg.save(len, path), TypeError, "the object is of type builtin"),
    "a key": (lambda path: mg.save({(1, 2): 3}, path), TypeError, r"the key \(1, 2\)"),
    "complex": (lambda path: mg.save([np.ones(1, complex)], path), TypeError, r"object\['0'\]: .*no dtype complex128"),
    "a cycle": (lambda path: mg.save(cycle(), path), ValueError, "or holds itself"),
    "the order": (lambda path: mg.save(str(path), nn.Tanh()), TypeError, r"mg.save\(obj, path\)"),
    "depth": (lambda path: mg.save(nested(40), path), ValueError, "more than 30 deep"),
    "a number's key": (lambda path: mg.save({np.int64(1): 3}, path), TypeError, r"the key np.int64\(1\)"),
    "a class": (lambda path: mg.save({"a": nn.Linear}, path), TypeError, r"\['a'\] is the class Linear, not an object"),
    "memory": (lambda path: mg.load(io.BytesIO()), TypeError, r"mg\.load\(path\): path must be a str or a Path"),
    "no folder": (lambda path: mg.save(1, path / "y"), FileNotFoundError, r"/x/y'$"),
    "no file": (lambda path: mg.load(path), CheckpointError, "there is no checkpoint"),
    "a folder": (lambda path: mg.load(path.parent), CheckpointError, "it is a folder"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name, tmp_path):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(tmp_path / "x")
    assert not list(tmp_path.iterdir())  # nothing was written


@pytest.mark.parametrize(
    "meta", [["tensor", "b"], ["dict", [1]], ["dtype", "complex64"], ["odd", 1], {"a": 1}, [], ["tensor", []]]
)
def test_impossible_files(meta, tmp_path):
    checkpoint.save(tmp_path / "x", {"a": np.ones(1)}, {"object": meta})
    with pytest.raises(CheckpointError, match=r"not one that mg\.save has written"):
        mg.load(tmp_path / "x")
