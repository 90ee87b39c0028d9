"""A view is a value of its own in the graph, also where it has the shape that its base has."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

SAME_SHAPE = {
    "reshape": lambda h: h.reshape(2, 3),
    "reshape -1": lambda h: h.reshape(-1, 3),
    "view": lambda h: h.view(2, 3),
    "expand": lambda h: h.expand(2, 3),
    "expand -1": lambda h: h.expand(-1, 3),
    "squeeze": lambda h: h.squeeze(),
    "squeeze a dim": lambda h: h.squeeze(0),
    "squeeze no dim": lambda h: h.squeeze(()),
    "flatten": lambda h: h.flatten(1),  # PyTorch returns h itself here, and calls it a view
    "permute": lambda h: h.permute(0, 1),
    "transpose": lambda h: h.transpose(0, 0),
    "[...]": lambda h: h[...],
    "[:]": lambda h: h[:],
    "split": lambda h: h.split(2)[0],
    "chunk": lambda h: h.chunk(1)[0],
    "detach": lambda h: h.detach(),
    "alias": lambda h: h.alias(),
    "einsum": lambda h: mg.einsum("ij->ij", h),
}
COPIES = {
    "clone": lambda h: h.clone(),
    "repeat": lambda h: h.repeat(1, 1),
    "repeat_interleave": lambda h: h.repeat_interleave(1, 0),
    "flip": lambda h: h.flip(()),
    "cat": lambda h: mg.cat([h]),
    "pad": lambda h: F.pad(h, (0, 0)),
    "power of 1": lambda h: h**1,
}
ITSELF = {
    "contiguous": lambda h: h.contiguous(),
    "to": lambda h: h.to(mg.float32),
    "float": lambda h: h.float(),
    "cpu": lambda h: h.cpu(),
    "dropout of nothing": lambda h: F.dropout(h, 0.0),
    "dropout in evaluation": lambda h: F.dropout(h, 0.5, training=False),
}


def names(table):
    return pytest.mark.parametrize("function", table.values(), ids=table)


@names({k: f for k, f in (SAME_SHAPE | COPIES).items() if k != "detach"})
def test_gradient_hooks_and_retain_grad_are_of_this_use(function):
    x = mg.ones(2, 3, requires_grad=True)
    h = x * 1.0
    z = function(h)
    seen = []
    z.register_hook(lambda g: seen.append(g.tolist()))
    z.retain_grad()
    loss = (2 * z + 3 * h).sum()
    assert mg.grad(loss, z, retain_graph=True)[0].tolist() == [[2.0] * 3] * 2
    assert mg.grad(loss, h, retain_graph=True)[0].tolist() == [[5.0] * 3] * 2
    seen.clear()
    loss.backward()
    assert z.grad.tolist() == [[2.0] * 3] * 2 and seen == [z.grad.tolist()]
    assert h.node.grad is None and x.grad.tolist() == [[5.0] * 3] * 2


@names(SAME_SHAPE)
def test_a_view_shares_memory_and_version(function):
    h = mg.zeros(2, 3)
    z = function(h)
    assert z is not h and z.storage is h.storage
    z.add_(1.0)
    assert h.tolist() == [[1.0] * 3] * 2
    w = mg.ones(2, 3, requires_grad=True)
    y = (w * h).sum()
    z.mul_(2.0)
    with pytest.raises(mg.GraphError, match="in-place"):
        y.backward()


@names(COPIES)
def test_a_copy_shares_nothing(function):
    h = mg.zeros(2, 3)
    z = function(h)
    z.add_(1.0)
    assert not h.numpy().any()


def test_repeated_rows_can_be_written_to():
    x = mg.ones(1, 3).repeat(2, 1)  # without a copy, both rows would be one
    x[0] = 5.0
    assert x.tolist() == [[5.0] * 3, [1.0] * 3]
    x = mg.ones(3, 1).repeat_interleave(2, 1)
    x[:, 0] = 5.0
    assert x.tolist() == [[5.0, 1.0]] * 3


@names(ITSELF)
def test_what_returns_its_input(function):
    """As in PyTorch: these say so, and the gradient is then that of all uses."""
    h = mg.ones(2, 3, requires_grad=True) * 1.0
    assert function(h) is h


def test_a_view_of_a_leaf_is_no_leaf():
    x = mg.ones(3, requires_grad=True)
    for z in (x.reshape(3), x.view(-1), x.expand(3), x.squeeze(), x.flatten()):
        assert not z.is_leaf and z.op is not None
    with mg.no_grad():
        assert x.reshape(3) is not x and not x.reshape(3).requires_grad


def test_views_of_no_elements_and_of_no_dims():
    for shape in ((), (0,), (2, 0)):
        x = mg.zeros(shape, requires_grad=True)
        z = x.reshape(shape)
        assert z is not x and z.shape == shape
        assert x.expand(shape) is not x and x.squeeze(()) is not x
        z.backward(mg.ones(shape))
        np.testing.assert_array_equal(x.grad.numpy(), np.ones(shape))


X, W, T = (mg.ones(*shape) for shape in ((4, 3), (5, 3), (2, 2, 4, 3)))
STEPS = {  # what each records: the inside of an op takes no step that only makes another value
    "layer_norm": (lambda x: F.layer_norm(x, (3,)), ["layer_norm"]),
    "rms_norm": (lambda x: F.rms_norm(x, (3,)), ["rms_norm"]),
    "linear": (lambda x: F.linear(x, W), ["linear"]),
    "matmul": (lambda x: x @ W.mT, ["matmul"]),
    "cross_entropy": (lambda x: F.cross_entropy(x, mg.zeros(4).long(), reduction="none"), ["cross_entropy"]),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 1.0), ["where"]),
    "attention": (lambda x: F.scaled_dot_product_attention(x * T, T, T, x[:, 0] > 0), ["attention", "mul"]),
    "argsort": (lambda x: x.sort(0)[0], ["gather"]),
    "mean": (lambda x: x.mean((0, 1), keepdim=True), ["sum", "div"]),
    "prod": (
        lambda x: x[:, 0].prod(),
        ["cast", "getitem", "permute", "reshape", "cast"] + 2 * ["getitem", "getitem", "mul"],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_ops_take_no_needless_step(name):
    function, want = STEPS[name]
    x = mg.ones(4, 3, requires_grad=True)
    found, stack = {}, [function(x).op]
    while stack:
        op = stack.pop()
        if op.serial not in found:
            found[op.serial] = op.name
            stack.extend(parent.op for parent in op.parents if parent is not None and parent.op is not None)
    assert sorted(found.values()) == sorted(want)
