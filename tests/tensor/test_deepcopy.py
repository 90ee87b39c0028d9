"""copy.deepcopy of tensors: values, gradients, ties, and the memory that they share."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim

VIEWS = {
    "itself": lambda b: b,
    "detach": lambda b: b.detach(),
    "the first": lambda b: b[:2],
    "the last, 0-d": lambda b: b[5],
    "every other": lambda b: b[::2],
    "backwards": lambda b: b[::-1],
    "another shape": lambda b: b.reshape(2, 3),
    "transposed": lambda b: b.reshape(2, 3).T,
    "expanded": lambda b: b[1].expand(4, 2),
}


@pytest.mark.parametrize("view_first", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_stays_a_view_of_the_copy(view, view_first):
    base = mg.arange(6).float()
    pair = {"view": view(base), "base": base} if view_first else {"base": base, "view": view(base)}
    made = copy.deepcopy(pair)
    assert made["view"].tolist() == pair["view"].tolist() and made["base"].tolist() == [0, 1, 2, 3, 4, 5]
    made["base"].copy_(mg.tensor([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]))
    assert made["view"].tolist() == view(mg.tensor([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])).tolist()
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    w = mg.ones(*made["view"].shape, requires_grad=True)
    y = (w * made["view"]).sum()
    made["base"].zero_()
    with pytest.raises(mg.GraphError, match="in-place"):  # they share the version too
        y.backward()


def test_parts_without_their_whole():
    a, b, c = mg.arange(9).split(3)
    x, y = copy.deepcopy([c, a])
    assert (x.tolist(), y.tolist()) == ([6, 7, 8], [0, 1, 2]) and x.storage is y.storage
    x.fill_(-1)
    assert y.tolist() == [0, 1, 2] and c.tolist() == [6, 7, 8] and b.tolist() == [3, 4, 5]


def test_two_calls_share_nothing():
    base = mg.ones(4)
    one, other = copy.deepcopy(base), copy.deepcopy(base[:2])
    one.zero_()
    assert other.tolist() == [1, 1] and base.tolist() == [1, 1, 1, 1]


def test_a_small_part_of_much_memory_is_copied_alone():
    part = copy.deepcopy(mg.zeros(1_000_000)[:3])
    assert part.array.base.nbytes == 12


def test_parts_of_nothing():
    for base in (mg.zeros(0, 3), mg.zeros(4)):
        x, y = copy.deepcopy([base, base[:0]])
        y2, x2 = copy.deepcopy([base[:0], base])
        assert (x.shape, y.shape) == (x2.shape, y2.shape) == (base.shape, base[:0].shape)
        assert x.storage is y.storage and x2.storage is y2.storage


def test_the_gradient_is_copied():
    x = mg.ones(2, requires_grad=True)
    (3 * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3, 3] and y.grad is not x.grad and y.requires_grad and y.is_leaf
    y.grad.zero_()
    assert x.grad.tolist() == [3, 3]
    assert copy.deepcopy(mg.ones(2, requires_grad=True)).grad is None


def test_hooks_are_not_copied():
    x, seen = mg.ones(2, requires_grad=True), []
    x.register_hook(seen.append)
    copy.deepcopy(x).sum().backward()
    assert not seen


def test_a_subclass_keeps_its_attributes():
    class Named(nn.Parameter):
        pass

    p = Named(mg.ones(2))
    p.like = [p]
    q = copy.deepcopy(p)
    assert type(q) is Named and q.like[0] is q


class Shares(nn.Module):
    """One weight under two names, a parameter and a buffer in its memory."""

    def __init__(self):
        self.weight = nn.Parameter(mg.arange(6).float().reshape(2, 3))
        self.tied = self.weight
        self.row = nn.Parameter(self.weight.detach()[1])
        self.register_buffer("first", self.weight.detach()[:, 0])

    def forward(self):
        return (self.weight * self.tied).sum() + (self.row * self.row).sum() + self.first.sum()


def test_a_module_stays_tied_and_trains_alike():
    m = Shares()
    m().backward()
    n = copy.deepcopy(m)
    assert n.tied is n.weight and n.weight is not m.weight and n.weight.grad.tolist() == m.weight.grad.tolist()
    values = []
    for model in (m, n):
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        values.append((loss.item(), model.weight.tolist(), model.row.tolist(), model.first.tolist()))
    assert values[0] == values[1]


def test_model_and_optimizer_together():
    model = nn.Linear(2, 2)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    model(mg.ones(1, 2)).sum().backward()
    optimizer.step()
    twin, its = copy.deepcopy((model, optimizer))
    assert its.param_groups[0]["params"][0] is twin.weight and set(its.state) == set(twin.parameters())
    before = model.weight.tolist()
    its.step()
    assert model.weight.tolist() == before != twin.weight.tolist()
    optimizer.step()
    assert model.weight.tolist() == twin.weight.tolist()


def test_memory_of_numpy():
    """Read-only memory, and a part of a larger array that is none of ours."""
    array = np.arange(10.0)
    array.flags.writeable = False
    x = mg.from_numpy(array[2:5])
    y = copy.deepcopy(x)
    y.add_(1.0)
    assert y.tolist() == [3, 4, 5] and x.tolist() == [2, 3, 4]


@pytest.mark.gpu
def test_on_a_gpu_it_stays_there_and_shared_memory_is_refused():
    base = mg.tensor(np.arange(4.0), device="cuda")
    made = copy.deepcopy(base)
    assert made.device == "cuda" and made.cpu().tolist() == [0, 1, 2, 3]
    with pytest.raises(mg.GraphError, match=r"share memory, of shapes \(4,\) and \(2,\).*clone"):
        copy.deepcopy([base, base[:2]])
