"""A view is a value of its own in the graph, even if it has the shape of its base."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F


class Strided(mg.Op, abstract=True):
    def forward(self, x):
        return np.lib.stride_tricks.as_strided(x, x.shape, x.strides)


SAME_SHAPE = {
    "a view of no base": Strided.apply,
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


def names(table):
    return pytest.mark.parametrize("function", table.values(), ids=table)


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


VIEWS_OF_TORCH = {  # the methods that PyTorch documents as views, of a strided base
    "diagonal": lambda x: x.diagonal(),
    "diagonal of other dims": lambda x: x.diagonal(-1, 2, 0),
    "mg.diagonal": lambda x: mg.diagonal(x, 1, dim1=-2, dim2=-1),
    "einsum of a diagonal": lambda x: mg.einsum("bii->ib", x[..., :3]),
    "einsum of an order": lambda x: mg.einsum("abc->cab", x),
    "T, mT and t": lambda x: x.mT[0].T.t(),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "x[…]": lambda x: x[:, 1:, ::2],
    "x[int]": lambda x: x[1, 2],
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "for y in x": lambda x: [*x][1],
    "squeeze and unsqueeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1),
    "view": lambda x: x[0].view(2, 6),
    "reshape and flatten": lambda x: x[1].reshape(6, 2).flatten(),
    "expand_as": lambda x: x[0].expand_as(x[0]),
    "detach and data": lambda x: x.detach().data,
    "to its own dtype": lambda x: x.to(x.dtype),
}


@names(VIEWS_OF_TORCH)
@pytest.mark.parametrize("how", ["plain", "captured"])
def test_what_torch_calls_a_view_writes_through(function, how):
    x = mg.arange(24, dtype=mg.float32).reshape(2, 3, 4)
    chosen = {*function(x).clone().flatten().tolist()}

    def change():
        function(x).sub_(100.0)

    (mg.capture(change) if how == "captured" else change)()
    assert x.flatten().tolist() == [i - 100 if i in chosen else i for i in range(24)]


def test_a_view_of_a_read_only_tensor_is_read_only():
    with pytest.raises(mg.GraphError, match="this tensor is read-only"):
        mg.ones(3).expand(3, 3).diagonal().zero_()


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
}
