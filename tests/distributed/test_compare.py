"""`check` finds what is usually wrong with gradients of several processes, and says it by name."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.distributed import World, check
from minigrad.distributed.compare import mistakes, unused, wrong_parts, wrong_random

from .ranks import run

# A program that every rank runs: sys.argv[1] says what is wrong with it.
LOOP = """
import sys
import numpy as np
import minigrad as mg
from minigrad.base import cli
from minigrad import distributed, nn

fault = sys.argv[1]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 3), nn.Linear(4, 3), nn.Dropout(0.3)

    def forward(self, x):
        y = self.drop(self.a(x))
        return y if fault == "unused" and world.rank else y + self.b(x)

def loss_of(x):
    return (model(x) ** 2).mean()

def gradients(x):
    model.zero_grad()
    loss_of(x).backward()
    found = {}
    for name, p in model.named_parameters():
        g = np.zeros_like(p.grad.numpy())
        world.comm.Allreduce(p.grad.numpy(), g)
        found[name] = {"sum": g, "alone": p.grad.numpy(), "twice": g / world.size**2}.get(fault, g / world.size)
    return found

@cli.command("loop")
def main(argv):
    global world, model
    with distributed.world() as world:
        mg.manual_seed(0)
        model = Net()
        if fault == "weights" and world.rank:
            model.a.weight.data.add_(1e-3)
        part = mg.Generator(0 if fault == "same" else world.rank).normal((4, 4), np.float32)
        mg.manual_seed(7 if fault in ("seeds", "ours") else world.rank)
        part = part[: 3 + world.rank] if fault == "uneven" else part
        step = world.rank if fault == "step" else 5
        own = None if fault in ("ours", "random") else gradients
        print(distributed.check(world, model, loss_of, part, gradients=own, step=step))

cli.run(main)
"""
SAID = {
    "sum": "a.weight: it is 2 times the mean: a sum where the mean was meant; a.bias: it is 2 times",
    "alone": "a.weight: it is that of one process alone: nothing was exchanged",
    "twice": "a.weight: it is 1/2 of the mean, which was divided twice",
    "weights": "the processes differ in weights: ",
    "step": "the processes differ in step: 0 on rank 0, 1 on rank 1",
    "same": "ranks 0 and 1 have the same part of the batch",
    "uneven": "the parts of the batch are uneven, 3 on rank 0, 4 on rank 1",
    "seeds": "ranks 0 and 1 draw the same random numbers",
    "random": "the processes differ in random: {'seed': 0, 'offset': 0} on rank 0",
    "unused": "b.weight: the loss of rank 1 does not depend on it, and that of others does",
}


@pytest.mark.needs("mpiexec")
@pytest.mark.parametrize(
    "fault", ["sum", *(pytest.param(name, marks=pytest.mark.slow) for name in SAID if name != "sum")]
)
def test_a_faulty_loop_is_told_its_fault_once(fault, tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    status, out, err, _ = run(2, tmp_path / "loop.py", fault)
    assert (status, out) == (2, "") and err.startswith(f"loop: {SAID[fault]}"), err
    assert err.count("\n") == 1 or "prterun" in err  # Open MPI adds lines of its own


@pytest.mark.needs("mpiexec")
@pytest.mark.parametrize("kind", ["ours", pytest.param("own", marks=pytest.mark.slow)])
def test_a_right_loop_passes(kind, tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    status, out, err, _ = run(2, tmp_path / "loop.py", kind)
    assert (status, err) == (0, "") and out.count("4 gradients of 2 processes are those of one") == 2


def test_one_process_changes_nothing():
    model = mg.nn.Sequential(mg.nn.Linear(3, 2), mg.nn.Dropout(0.5))
    before = mg.default_generator.state
    assert check(World(), model, lambda x: model(x).sum(), mg.ones(4, 3)).startswith("2 gradients of 1 processes")
    assert mg.default_generator.state == before and all(p.grad is None for p in model.parameters())


def test_parts_and_random_numbers():
    a, b = np.zeros((2, 3)), np.ones((2, 3))
    assert list(wrong_parts([[a], [b]])) == [] and len(list(wrong_parts([[a], [b], [a], [b[:1]]]))) == 2
    assert len(list(wrong_parts([[a], [b[:1]], [a + 2]]))) == 1
    assert list(wrong_random([1, 2, 1])) == [
        "ranks 0 and 2 draw the same random numbers, so dropout drops the same on both"
    ]
    assert list(unused([{"p": None, "q": a}, {"p": None, "q": a}])) == []
    assert [line.partition(":")[0] for line in unused([{"p": None, "q": a}, {"p": a, "q": None}])] == ["p", "q"]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_each_mistake_has_its_name(size):
    rng = np.random.default_rng(size)
    alone = [{"p": rng.standard_normal((3, 2)).astype(np.float32)} for _ in range(size)]
    expected = sum(each["p"] for each in alone) / size

    def said(found):
        return "; ".join(mistakes({"p": found}, alone, rank=1))

    assert said(expected) == said(mg.tensor(expected)) == ""
    assert "p: it is 2 times" in said(expected * 2) or size > 2
    assert "sum where the mean" in said(expected * size)
    assert "divided twice" in said(expected / size)
    assert "nothing was exchanged" in said(alone[1]["p"])
    assert "off by" in said(alone[0]["p"]) and "off by 1.0e-04" in said(expected + 1e-4)
    assert said(None) == "p: no gradient of shape (3, 2) came out of the exchange"
    assert said(expected * np.nan) == "p: it is not finite, after the exchange"
    alone[0]["p"][0] = np.inf
    assert said(expected) == "p: it is not finite, before the exchange"
    assert mistakes(None, alone, 0) == ["gradients must return {name: array}, not NoneType"]


def test_rounding_is_no_mistake():
    """Where gradients cancel, what is left has the rounding of the large ones; where they are 0 in theory, that of
    others; and float16 has few digits."""
    alone = [{"p": np.array([g], np.float32), "q": np.full(2, 1e-8, np.float32)} for g in (1, 0.1, -1, -0.1 + 1e-7)]
    mean = {name: sum(each[name] for each in alone) / 4 for name in "pq"}
    assert mistakes(mean | {"p": mean["p"] * 1.1}, alone, 0) == []
    assert mistakes(mean | {"p": mean["p"] + 1e-4}, alone, 0) == [
        "p: it is off by 1.0e-04, where 1.0e-05 would be rounding"
    ]
    assert mistakes(mean | {"q": mean["q"] * 3}, alone, 0) == []
    assert len(mistakes(mean | {"q": mean["q"] + 1e-5}, alone, 0)) == 1
    coarse = [{"p": np.array([1, 0.5], np.float16)}] * 2
    assert mistakes({"p": np.array([1.002, 0.5])}, coarse, 0) == [] != mistakes({"p": np.array([1.02, 0.5])}, coarse, 0)
    small = [{"p": np.full(2, 3e-6, np.float16)}] * 2
    assert mistakes({"p": np.full(2, 3.06e-6, np.float16)}, small, 0) == []
    zero = [{"p": np.zeros(3)}] * 2
    assert mistakes({"p": np.zeros(3)}, zero, 0) == []
    assert mistakes({"p": np.full(3, 1e-9)}, zero, 0) == ["p: it is off by 1.0e-09, where 0.0e+00 would be rounding"]


def test_what_there_is_nothing_to_compare_of():
    model, frozen = mg.nn.Linear(3, 2), mg.nn.Linear(3, 2).requires_grad_(False)
    for each, part in (frozen, [mg.ones(4, 3)]), (model, []), (model, [mg.tensor(1.0)]), (model, [mg.ones(0, 3)]):
        with pytest.raises(
            ValueError, match="check needs a model that has parameters to train, and this process's part"
        ):
            check(World(), each, each, *part)


# Losses and loops that are odd, on two processes: which lines `check` gives, the same on both.
CASES = """
import numpy as np
import minigrad as mg
from minigrad import distributed, nn
from minigrad.base.errors import RanksError

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 3), nn.Linear(4, 3), nn.Dropout(0.3)

    def forward(self, x):
        return self.a(x) + self.b(x)

def squares(model):
    return lambda x: (model(x) ** 2).mean()

def exchanged(model, fault, x):
    named = dict(model.named_parameters())
    alone = dict(zip(named, mg.grad(squares(model)(x), list(named.values()))))
    everyone = world.everyone({name: g.numpy() for name, g in alone.items()})
    if fault == "one" and world.rank:
        return alone
    return {name: mg.tensor(sum(each[name] for each in everyone)) / (1 if fault == "sum" else 2) for name in named}

def outcome(name, model, loss_of, *part, **more):
    try:
        said = distributed.check(world, model, loss_of, *part, **more)
    except RanksError as error:
        said = str(error)
    everyone = world.everyone(said)
    if world.rank == 0:
        print(f"{name}: {said}" if len(set(everyone)) == 1 else f"{name}: not the same on all, {everyone}")

def new(frozen=False, layers=0):
    mg.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))) if layers else Net()
    if frozen:
        model.b.bias.requires_grad_(False)
    return model

with distributed.world() as world:
    part = mg.Generator(world.rank).normal((4, 4), np.float32)
    model = new()
    outcome("drops on one", model, lambda x: squares(model)(model.drop(x) if world.rank else x), part)
    model = new(frozen=world.rank == 1)
    outcome("frozen on one", model, squares(model), part)
    model = new(frozen=True)
    outcome("frozen on all", model, squares(model), part)
    model = new()
    outcome("unused on all", model, squares(model.a), part)
    outcome("other labels", model, lambda x, y: ((model(x) - y) ** 2).mean(), np.ones((4, 4), np.float32), part[:, :3])
    outcome("zero", model, lambda x: (model(x) * 0).mean(), part)
    outcome("right", model, squares(model), mg.tensor(part), gradients=lambda x: exchanged(model, "", x))
    outcome("wrong on one", model, squares(model), mg.tensor(part), gradients=lambda x: exchanged(model, "one", x))
    model = new(layers=4)
    outcome("eight sums", model, squares(model), mg.tensor(part), gradients=lambda x: exchanged(model, "sum", x))
"""


@pytest.mark.slow
@pytest.mark.needs("mpiexec")
def test_odd_losses_and_loops(tmp_path):
    (tmp_path / "cases.py").write_text(CASES)
    status, out, err, _ = run(2, tmp_path / "cases.py")
    lines = dict(line.split(": ", 1) for line in out.splitlines())
    assert (status, err) == (0, "")
    fine = "gradients of 2 processes are those of one"
    assert all(lines[name] == f"4 {fine}" for name in ("other labels", "zero", "right"))
    assert lines["unused on all"] == f"2 {fine}; no loss depends on b.weight, b.bias"
    assert lines["drops on one"].startswith("the processes differ in random_offset: 8 on rank 0, 12 on rank 1")
    assert lines["frozen on all"] == f"3 {fine}"
    assert lines["frozen on one"].startswith("the processes differ in trained: ")
    assert lines["wrong on one"].startswith("a.weight: it is that of one process alone")
    assert lines["wrong on one"].count("a.weight") == 1
    assert lines["eight sums"].endswith("; and 2 more") and lines["eight sums"].count("0.weight") == 1
