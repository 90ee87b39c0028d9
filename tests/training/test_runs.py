"""Models and runs of examples/char_lm.py, back from their checkpoints: what each entry may be, and what it may not."""

import copy
import dataclasses
import json
import time
import tracemalloc

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.training import checkpoint, runs

from .wrong_checkpoints import signed

SETTINGS = dict(n_layer=2, n_head=4, n_embd=64, block_size=64, dropout=0.0, lr=1e-3, seed=1, text=[])


@pytest.fixture(scope="module")
def saved():
    """(tensors, meta) of a run."""
    sizes = dict(n_layer=2, n_head=2, n_embd=8, block_size=4, dropout=0.1)
    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(5, **sizes))
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=1e-3)
    model(mg.tensor([[0, 1]]), mg.tensor([[1, 2]]))[1].backward()
    optimizer.step()
    run = dict(step=1, best_loss=1.5, chars="abcde", crc=7, settings=dict(sizes, lr=1, seed=3, text=["a.txt"]))
    generators = {"default": mg.Generator(1), "batches": mg.Generator(2)}
    tensors, meta = checkpoint.pack(model, optimizer, generators, config=dataclasses.asdict(model.config), **run)
    return {name: x.copy() for name, x in tensors.items()}, json.loads(json.dumps(meta))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "last.safetensors"


def changed(saved, changes):
    tensors, meta = saved[0], copy.deepcopy(saved[1])
    for at, value in changes.items():
        *keys, last = at.split(".")
        place = meta
        for key in keys:
            place = place[key]
        if value == "gone":
            del place[last]
        else:
            place[last] = value
    return tensors, meta


def test_a_run_comes_back(saved, path):
    path.write_bytes(signed(*saved))
    tensors, meta = runs.load_run(path, SETTINGS)
    assert meta == saved[1] and tensors.keys() == saved[0].keys()
    path.rename(path.with_name("last.safetensors"))
    model, vocab, meta = runs.load_char_model(path.parent)
    assert vocab.chars == "abcde" and model.config.dropout == 0.1 and meta["config"]["n_layer"] == 2


@pytest.mark.parametrize("changes", [
    {"best_loss": None}, {"best_loss": float("inf")}, {"best_loss": "gone"}, {"crc": "gone"}, {"step": 0},
    {"settings.lr": "gone"}, {"settings.other": "kept"}, {"config": "gone"}, {"config.recompute": True},
], ids=str)  # fmt: skip
def test_what_a_run_may_say(saved, path, changes):
    path.write_bytes(signed(*changed(saved, changes)))
    runs.load_run(path, SETTINGS)
    runs.load_char_model(path)


HUGE = {"settings.n_layer": 10**9, "config.n_layer": 10**9}
WRONG = [  # of a model, then of a run
    ({"chars": "gone"}, "it has no 'chars'"),
    ({"chars": ["a", "b", "c", "d", "e"]}, "its chars is"),
    ({"chars": "edcba"}, "its chars 'edcba' are not in order"),
    ({"chars": "aabcde"}, "are not in order"),
    ({"chars": "abcd"}, "its vocab_size is 5, but it has 4 chars"),
    ({"chars": ""}, "its vocab_size is 5, but it has 0 chars"),
    ({"config": [1]}, r"its config is \[1\]"),
    ({"config.more": 3}, "its config is not a GPT's .*'more'"),
    ({"config.vocab_size": "gone"}, "its config is not a GPT's .*'vocab_size'"),
    ({"config.n_layer": "2"}, "n_layer must be at least 1, got '2'"),
    ({"config.dropout": float("nan")}, "dropout must be a number from 0 to 1, got nan"),
    ({"config": "gone", "settings": "gone"}, "it has no 'settings'"),
    ({"config": "gone", "settings.n_head": "gone"}, "it has no 'n_head'"),
    (HUGE, "n_layer is 1000000000, but there are tensors of 2 layers"),
    ({"config.n_embd": 10**6}, "wte.weight must have shape"),
]
WRONG_RUNS = [
    ({"step": "gone"}, "it has no 'step'"),
    ({"step": -5}, "its step is -5"),
    ({"step": "3"}, "its step is '3'"),
    ({"step": True}, "its step is True"),
    ({"step": 1.5}, "its step is 1.5"),
    ({"step": 10**400}, "its step is 1000"),
    ({"best_loss": float("nan")}, "its best_loss is nan"),
    ({"best_loss": "x"}, "its best_loss is 'x'"),
    ({"crc": -1}, "its crc is -1"),
    ({"settings": []}, r"its settings is \[\]"),
    ({"settings.lr": "fast"}, "its setting lr is 'fast'"),
    ({"settings.lr": float("nan")}, "its setting lr is nan"),
    ({"settings.seed": 0.5}, "its setting seed is 0.5"),
    ({"settings.text": [3]}, r"its setting text is \[3\]"),
    ({"settings.text": ["a\0b"]}, r"its setting text is \['a"),
    ({"settings.text": ["\ud800"]}, r"its setting text is \['"),
    ({"settings.n_layer": 10**9}, "its settings and its config say different things about n_layer"),
    ({"settings.dropout": 0.2}, "different things about dropout"),
]


@pytest.mark.parametrize("changes, words", WRONG + WRONG_RUNS, ids=str)
def test_what_it_may_not_say(saved, path, changes, words):
    path.write_bytes(signed(*changed(saved, changes)))
    loads = [lambda: runs.load_run(path, SETTINGS)]
    if (changes, words) in WRONG:
        loads.append(lambda: runs.load_char_model(path))
    for load in loads:
        with pytest.raises(checkpoint.CheckpointError, match=rf"{path.name} holds no .*: .*{words}"):
            load()


def test_a_config_that_claims_too_much_costs_nothing(saved, path):
    """n_layer = 10^9 would take an hour, and n_embd = 10^6 four terabytes."""
    for changes in (HUGE, {"config.n_embd": 10**6}, {"config.n_head": 10**9, "config.n_embd": 10**9}):
        path.write_bytes(signed(*changed(saved, changes)))
        tracemalloc.start()
        began = time.process_time()
        try:
            with pytest.raises(checkpoint.CheckpointError):
                runs.load_char_model(path)
            assert tracemalloc.get_traced_memory()[1] < 2e6 and time.process_time() - began < 5
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(saved, path, value):
    tensors = {name: x.copy() for name, x in saved[0].items()}
    tensors["optimizer.state.0.m"].reshape(-1)[-1] = value
    path.write_bytes(signed(tensors, saved[1]))
    runs.load_char_model(path)  # which needs no optimizer
    with pytest.raises(checkpoint.CheckpointError, match="some of its numbers are not finite"):
        runs.load_run(path, SETTINGS)
    tensors["model.norm.weight"][3] = value
    path.write_bytes(signed(tensors, saved[1]))
    for load in (runs.load_char_model, lambda path: runs.load_run(path, SETTINGS)):
        with pytest.raises(checkpoint.CheckpointError, match=r"some numbers of 'norm.weight' are not finite"):
            load(path)


def test_tensors_of_no_parameter(saved, path):
    path.write_bytes(signed({**saved[0], "model.more": np.ones(1, "f4")}, saved[1]))
    with pytest.raises(checkpoint.CheckpointError, match=r"unexpected \['more'\]"):
        runs.load_char_model(path)
