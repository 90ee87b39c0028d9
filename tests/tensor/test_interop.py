"""NumPy, pickling and copying: no memory is shared, and no gradient is dropped silently."""

import copy
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


# --------------------------------------------------------------------------------------------------------------- NumPy


def test_numpy_gets_copies_and_no_gradient_is_dropped():
    x = mg.zeros(3)
    for values in (x.numpy(), x[1:].numpy(), np.asarray(x), np.array(x)):
        values[0] = 5
    assert x.tolist() == [0, 0, 0]
    w = leaf(3)
    for convert in (
        w.numpy,
        lambda: np.asarray(w),
        lambda: np.array([w, w]),
        lambda: np.array(w * 2),
        lambda: np.dot(w, w),
    ):
        with pytest.raises(mg.GraphError, match=r"detach\(\)"):
            convert()
    assert np.asarray(w.detach()).sum() == pytest.approx(w.sum().item())


def test_the_array_protocol():
    x = mg.ones(3)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64 and np.array(x).dtype == np.float32
    with pytest.raises(ValueError, match="shares no memory with NumPy"):
        np.asarray(x, copy=False)
    np.testing.assert_array_equal(np.concatenate([x, np.zeros(2)]), [1, 1, 1, 0, 0])


@pytest.mark.parametrize("make", [mg.from_numpy, mg.as_tensor, mg.tensor])
@pytest.mark.parametrize("dtype", mg.dtypes.ALL, ids=str)
def test_arrays_are_copied(make, dtype):
    source = np.arange(6).reshape(2, 3).astype(dtype)
    for given in (source, source.T, source[:, ::-2], source[:0], np.broadcast_to(source[0], (2, 3))):
        x = make(given)
        assert x.dtype == dtype and (x.numpy() == given).all() and not np.shares_memory(x.array, source)


class Foreign:
    """An array of another library that NumPy can convert."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


def test_arrays_of_other_libraries_keep_their_dtype():
    assert mg.tensor(Foreign()).dtype == mg.float64 and mg.as_tensor(Foreign()).tolist() == [0, 1, 2]


def test_operators_between_arrays_and_tensors():
    w, array = leaf(2, 2), np.array([[1.0, 2.0], [3.0, 4.0]])
    for y, dw in (
        (array * w, array),
        (array + w, np.ones((2, 2))),
        (array - w, -np.ones((2, 2))),
        (array @ w, np.repeat(array.sum(0)[:, None], 2, 1)),
        (w @ array, np.repeat(array.sum(1)[None], 2, 0)),
        (w / array, 1 / array),
        (array / w, -array / w.detach().numpy() ** 2),
    ):
        assert isinstance(y, mg.Tensor)
        (g,) = mg.grad(y.sum(), w)
        np.testing.assert_allclose(g.numpy(), dw, rtol=1e-14)
    assert isinstance(array < w, mg.Tensor)
    array += w  # a new tensor, which has the gradient
    assert isinstance(array, mg.Tensor) and array.requires_grad


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.exp(x),
        lambda x: np.add(x, np.ones(3)),
        lambda x: np.add(np.ones(3), x, out=np.zeros(3)),
        lambda x: np.add.reduce(x),
        lambda x: np.multiply.outer(x, x),
        lambda x: np.add(x, x, out=np.zeros(3)),
        lambda x: np.sum(x),
        lambda x: np.add(x, x, where=np.ones(3, bool)),
    ],
)
def test_missing_features_raise(call):
    with pytest.raises((TypeError, mg.GraphError)):
        call(leaf(3))


def test_arrays_of_other_dtypes_are_refused():
    for other in (np.ones(3, complex), np.array(["a", "b", "c"]), np.array([None] * 3)):
        with pytest.raises(TypeError):
            mg.ones(3) * other
        with pytest.raises(TypeError, match="minigrad has no dtype"):
            mg.from_numpy(other)
    with pytest.raises(TypeError, match="from_numpy needs a NumPy array, got a list"):
        mg.from_numpy([1, 2])


MASKED, ODD = np.ma.array([1.0, 9.0], mask=[False, True]), np.frombuffer(bytes(9), np.float32, offset=1)
DOORS = {  # what takes arrays of NumPy's
    "tensor": mg.tensor, "list": lambda x: mg.tensor([x]), "as_tensor": mg.as_tensor, "from_numpy": mg.from_numpy,
    "operand": lambda x: mg.ones(2) + x, "copy_": lambda x: mg.ones(2).copy_(x),
    "assignment": lambda x: mg.ones(2).__setitem__(..., x), "index": lambda x: mg.arange(20)[x],
}  # fmt: skip


@pytest.mark.parametrize("name", DOORS)
def test_arrays_from_outside_become_plain_or_are_refused(name):
    take = DOORS[name]
    with pytest.raises(TypeError, match="a masked array would lose its mask"):
        take(MASKED)
    for wrong in (np.array([1j, 2]), np.array(["a", "b"]), np.array([None, 2]), np.array(["2020"], "M8[Y]")):
        with pytest.raises(TypeError, match=r"minigrad has no dtype|indices are ints"):
            take(wrong)


def test_unaligned_arrays_are_copied():
    for name in ("tensor", "list", "as_tensor", "from_numpy", "operand", "copy_"):
        assert DOORS[name](ODD).sum().item() in (0, 2)


# ------------------------------------------------------------------------------------------------- pickling and copying


def tied():
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m.register_buffer("steps", mg.tensor([3]))
    return m


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_copies_keep_values_kinds_and_ties(duplicate):
    for x in (mg.arange(3), leaf(2, 3), nn.Parameter(mg.ones(2)), mg.zeros(0, 2), mg.tensor(True), mg.zeros(2, 3).T):
        y = duplicate(x)
        assert type(y) is type(x) and y.dtype == x.dtype and y.requires_grad == x.requires_grad and y.is_leaf
        np.testing.assert_array_equal(y.detach().numpy(), x.detach().numpy())
        assert not np.shares_memory(y.array, x.array)
    m = tied()
    d = duplicate(m)
    assert d[1].weight is d[0].weight and d[0].weight is not m[0].weight and d.steps.tolist() == [3]
    x = mg.ones(1, 2)
    np.testing.assert_array_equal(d(x).detach().numpy(), m(x).detach().numpy())
    d(x).sum().backward()
    assert m[0].weight.grad is None and d[0].weight.grad is not None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_graph_is_neither_copied_nor_pickled(duplicate):
    with pytest.raises(mg.GraphError, match="detach"):
        duplicate(leaf(2) * 2)


def test_a_copy_never_shares_memory_without_sharing_the_version():
    x, w = mg.ones(2), mg.ones(2, requires_grad=True)
    for other in (copy.copy(x), copy.deepcopy([x, x.detach()])[1], copy.copy(x.detach())):
        y = (w * x).sum()
        other.add_(1.0)
        w.grad = None
        try:
            y.backward()
        except mg.GraphError:
            continue
        assert w.grad.tolist() == [1, 1]
        assert x.tolist() == [1, 1]


def test_float16_from_a_pickle_is_float16_to_every_primitive():
    """The dtype of a pickled array equals np.float16, but is another object."""
    x = pickle.loads(pickle.dumps(mg.ones(4096, dtype=mg.float16)))
    assert x.array.dtype is not np.dtype(np.float16)  # or this test shows nothing
    assert x.cumsum(0)[-1].item() == 4096  # counted in float16, it would stop at 2048
