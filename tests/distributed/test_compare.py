"""`check` finds what is usually wrong with gradients of several processes, and says it by name."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.distributed import World, check
from minigrad.distributed.compare import mistake, unused, wrong_parts, wrong_random

from .ranks import run

# A program that every rank runs: sys.argv[1] says what is wrong with it.
LOOP = """
import sys
import numpy as np
import minigrad as mg
from minigrad import cli, distributed, nn

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
        mg.manual_seed(world.rank if fault != "seeds" else 7)
        part = part[: 3 + world.rank] if fault == "uneven" else part
        step = world.rank if fault == "step" else 5
        own = None if fault == "ours" else gradients
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
    assert list(wrong_random([1, 2, 1])) == [
        "ranks 0 and 2 draw the same random numbers, so dropout drops the same on both"
    ]
    assert list(unused([{"p": None, "q": a}, {"p": None, "q": a}])) == []


@pytest.mark.parametrize("size", [2, 4, 8])
def test_each_mistake_has_its_name(size):
    rng = np.random.default_rng(size)
    mean, alone = {"p": rng.standard_normal((3, 2))}, {"p": rng.standard_normal((3, 2))}
    expected = mean["p"].astype(np.float32)
    assert mistake("p", expected, mean, alone, size) == ""
    assert "sum where the mean" in mistake("p", expected * size, mean, alone, size)
    assert "divided twice" in mistake("p", expected / size, mean, alone, size)
    assert "nothing was exchanged" in mistake("p", alone["p"], mean, alone, size)
    assert "off by" in mistake("p", expected * 1.001, mean, alone, size)
    assert "no gradient of shape (3, 2)" in mistake("p", None, mean, alone, size)
    assert "off by nan" in mistake("p", expected * np.nan, mean, alone, size)
