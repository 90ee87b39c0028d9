"""backward raises if an array that an op saved was changed in place since; for every op, and in no other case."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.autograd import registry

DECLARED = [d for d in registry.values() if d.builtin]


class Run:
    """The forward of a declared op on a case, on copies of leaves, whose backward can be run."""

    def __init__(self, declaration, case):
        rng = np.random.default_rng(3)
        mg.manual_seed(1)
        self.leaves, self.inputs = [], []
        given = [self._tensors(x) for x in case.draw(rng)]
        outputs = declaration.call(*given, **case.params)
        outputs = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if y is not None]
        self.outputs = [y for y in outputs if y.requires_grad]
        self.weights = [mg.tensor(rng.standard_normal(y.shape)) for y in self.outputs]

    def _tensors(self, x):
        if isinstance(x, list):
            return [self._tensors(item) for item in x]
        if not isinstance(x, np.ndarray):
            return x
        x = mg.tensor(x)
        if x.is_floating_point():
            self.leaves.append(x.requires_grad_())
            x = x.clone()  # memory of its own, so that the change below is of what the op saw, and of nothing else
        self.inputs.append(x)
        return x

    def gradients(self):
        found = mg.grad(self.outputs, self.leaves, self.weights, allow_unused=True)
        return [None if g is None else g.numpy() for g in found]


def change(x):
    """Return other values in the domain of every op: the elements permuted, or one of them slightly larger."""
    with mg.no_grad():
        if x.dtype == mg.bool_:
            x.copy_(~x.detach())
        elif x.is_floating_point():
            x.mul_(1.25)
        else:
            x.copy_(x.detach().flip(*range(x.ndim)) if x.ndim else x.detach())


def assert_raises_or_unchanged(run, expected):
    try:
        found = run.gradients()
    except mg.GraphError as error:
        assert "in-place change" in str(error) and "clone()" in str(error)
        return True
    for g, e in zip(found, expected):
        if e is not None:
            np.testing.assert_array_equal(g, e)
    return False


def test_a_changed_input_or_output_raises_or_does_not_matter():
    """A second backward raises exactly if the op saved arrays."""
    noticed = set()
    for d in DECLARED:
        for case in d.cases:
            first = Run(d, case)
            if not first.outputs:
                continue
            expected = first.gradients()
            for kind in ("inputs", "outputs"):
                for i, x in enumerate(getattr(first, kind)):
                    if x.array.flags.writeable and x.numel():
                        run = Run(d, case)
                        change(getattr(run, kind)[i])
                        if assert_raises_or_unchanged(run, expected):
                            noticed.add((d.name, kind))
    savers = {
        "mul",
        "div",
        "pow",
        "matmul",
        "linear",
        "layer_norm",
        "gather",
        "embedding",
        "where",
        "cross_entropy",
        "gelu",
    }
    assert {(name, "inputs") for name in savers} <= noticed
    assert {
        (name, "outputs") for name in ("exp", "sqrt", "tanh", "sigmoid", "softmax", "log_softmax", "relu")
    } <= noticed
    assert not any(
        (name, kind) in noticed for name in ("add", "neg", "sum", "reshape") for kind in ("inputs", "outputs")
    )


VIEWS = {
    "itself": lambda x: x,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "row": lambda x: x[0],
    "element": lambda x: x[0][1],
    "slice": lambda x: x[:, 1:],
    "T": lambda x: x.T,
    "reshape": lambda x: x.reshape(-1),
    "view": lambda x: x.view(3, 2),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(),
    "reversed": lambda x: x[::-1],
    "split": lambda x: x.split(1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "alias": lambda x: x.alias(),
    "view of a view": lambda x: x.T.reshape(3, 2)[1:].mT[0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("saved", ["the base", "a view"])
def test_a_change_through_a_view(view, saved):
    w = mg.ones(2, 3, requires_grad=True)
    x = mg.randn(2, 3)
    y = (w * (x if saved == "the base" else x.T.T)).sum()
    target = view(x)
    before = x.numpy()
    target.fill_(7.0)
    assert (x.numpy() != before).any()  # it is a view
    with pytest.raises(mg.GraphError, match=r"mul.*test_inplace.py:.*shape \(2, 3\).*clone"):
        y.backward()


@pytest.mark.parametrize("how", ["plain", "captured"])
def test_changes_of_data_are_never_recorded(how):
    """As in PyTorch: x.data may be set to values that require a gradient. The graphs that saved x notice."""
    w, p = mg.ones(2, requires_grad=True), mg.zeros(2, requires_grad=True)

    def step():
        p.data[:] = w * 2
        p.data.add_(w).mul_(2)  # 6
        p.data.copy_(p.data + w)
        y = (p * p).sum()
        y.backward()
        return y

    step = mg.capture(step) if how == "captured" else step
    for i in range(1, 3):
        assert step().item() == 98 and p.tolist() == [7, 7] and p.grad.tolist() == [14 * i] * 2 and w.grad is None
    y = (p * p).sum()
    p.data -= 0.1 * w
    with pytest.raises(mg.GraphError, match="in-place"):
        y.backward()
    with pytest.raises(mg.GraphError, match="copy_ changes a leaf that requires a gradient, or a view of one"):
        p.detach().copy_(w)


CHANGES = {
    "x[0] = 1": lambda x: x.__setitem__(0, 1.0),
    "x[mask] = 1": lambda x: x.__setitem__(x > 0, 1.0),
    "x[0] += 1": lambda x: x.__setitem__(0, x[0].__iadd__(1.0)),
    "add_": lambda x: x.add_(1.0),
    "add_ alpha": lambda x: x.add_(mg.ones(2, 3), alpha=2),
    "sub_": lambda x: x.sub_(1.0),
    "mul_": lambda x: x.mul_(2.0),
    "div_": lambda x: x.div_(2.0),
    "clamp_": lambda x: x.clamp_(0.0, 0.1),
    "copy_": lambda x: x.copy_(mg.zeros(3)),
    "zero_": lambda x: x.zero_(),
    "+=": lambda x: x.__iadd__(1.0),
    "-=": lambda x: x.__isub__(1.0),
    "*=": lambda x: x.__imul__(2.0),
    "/=": lambda x: x.__itruediv__(2.0),
    "data": lambda x: setattr(x, "data", mg.zeros(2, 3)),
    "init": lambda x: mg.nn.init.uniform_(x),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_way_to_change_is_noticed(change):
    w, x = mg.ones(2, 3, requires_grad=True), mg.randn(2, 3)
    y = (w * x).sum()
    with mg.no_grad():
        change(x)
    with pytest.raises(mg.GraphError, match="in-place change"):
        y.backward()


RAISING = {
    "mul_": lambda x: x.mul_(mg.ones(2)),
    "copy_": lambda x: x.copy_(mg.ones(7)),
    "clamp_": lambda x: x.clamp_("1"),
    "masked_fill_": lambda x: x.masked_fill_(mg.ones(2).bool(), 1),
    "x[5] = 1": lambda x: x.__setitem__(5, 1.0),
}


@pytest.mark.parametrize("run", [lambda f: f, pytest.param(mg.capture, marks=pytest.mark.needs("g++"))])
@pytest.mark.parametrize("change", RAISING.values(), ids=RAISING)
def test_a_change_that_raises_is_none(change, run):
    def step(x):
        y = (x * x).sum()
        with pytest.raises((ValueError, TypeError, IndexError)):
            change(x.detach())
        y.backward()

    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    run(step)(x)
    assert x.grad.tolist() == [2, 4, 6]


def test_an_optimizer_step_is_noticed():
    w = mg.ones(2, 3, requires_grad=True)
    x = mg.randn(2, 3, requires_grad=True)
    y = (w * x).sum()
    y.backward(retain_graph=True)
    mg.optim.SGD([w]).step()
    with pytest.raises(mg.GraphError, match="mul"):
        y.backward()


def test_no_false_alarm():
    w, x = mg.ones(2, 3, requires_grad=True), mg.randn(2, 3)
    x.add_(1.0)  # before the op
    unrelated, copy, other = mg.randn(2, 3), x.clone(), x + 0
    y = (w * x).sum()
    for t in (unrelated, copy, other, x[[0, 1]], x[x > -100], x.T.contiguous(), x.to(mg.float64), y.detach()):
        t.add_(1.0)
    y.backward()
    np.testing.assert_array_equal(w.grad.numpy(), x.numpy())
    x.add_(1.0)  # after the backward everything may change
    with mg.no_grad():
        w.add_(1.0)
        w.grad.zero_()


def test_numpy_operands_and_indices_are_copied():
    x = mg.ones(3, requires_grad=True)
    array, index, start = np.array([1.0, 2.0, 3.0], np.float32), np.array([0, 0]), mg.tensor(1)
    y = (x * array).sum() + x[index].sum() + x[start:].sum()
    array[:] = 50
    index[:] = 2
    start.add_(1)
    y.backward()
    assert x.grad.tolist() == [1 + 2, 2 + 1, 3 + 1]


CALLS = {  # what it is on the values 1, 2 and 3
    "add_": (lambda x: x.add_(2), [3, 4, 5]),
    "add_ alpha": (lambda x: x.add_(mg.tensor([1.0, 0, 1]), alpha=-2), [-1, 2, 1]),
    "add_ alpha 1": (lambda x: x.add_(mg.tensor([1.0, 0, 1]), alpha=1), [2, 2, 4]),
    "sub_": (lambda x: x.sub_(2), [-1, 0, 1]),
    "sub_ alpha": (lambda x: x.sub_(mg.tensor([1.0, 0, 1]), alpha=2), [-1, 2, 1]),
    "mul_": (lambda x: x.mul_(mg.tensor([2.0, 3, 4])), [2, 6, 12]),
    "div_": (lambda x: x.div_(2), [0.5, 1, 1.5]),
    "clamp_ both": (lambda x: x.clamp_(1.5, 2.5), [1.5, 2, 2.5]),
    "clamp_ below": (lambda x: x.clamp_(1.5), [1.5, 2, 3]),
    "clamp_ above": (lambda x: x.clamp_(max=2.5), [1, 2, 2.5]),
    "copy_": (lambda x: x.copy_(mg.tensor([7], dtype=mg.int64)), [7, 7, 7]),
    "fill_": (lambda x: x.fill_(4), [4, 4, 4]),
    "zero_": (lambda x: x.zero_(), [0, 0, 0]),
    "assigned": (lambda x: x.__setitem__(slice(1, None), mg.tensor([8, 9])) or x, [1, 8, 9]),
    "+=": (lambda x: x.__iadd__(mg.tensor([1.0, 2, 3])), [2, 4, 6]),
    "-=": (lambda x: x.__isub__(1), [0, 1, 2]),
    "*=": (lambda x: x.__imul__(2), [2, 4, 6]),
    "/=": (lambda x: x.__itruediv__(2), [0.5, 1, 1.5]),
}


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64, mg.float16])
@pytest.mark.parametrize("call, expected", CALLS.values(), ids=CALLS)
def test_values_after_a_change_in_place(call, expected, dtype):
    x = base = mg.tensor([1.0, 2.0, 3.0], dtype=dtype)
    array, before = x.array, x.storage.version
    assert call(x) is base and x.array is array and x.dtype == dtype and x.storage.version == before + 1
    assert x.tolist() == expected


def test_augmented_assignment():
    x = base = mg.zeros(3)
    x += 1
    assert x is base and base.tolist() == [1, 1, 1]
    w = mg.ones(3, requires_grad=True)
    y = kept = w * 2
    y += 1  # recorded
    assert y is kept and kept.tolist() == [3, 3, 3]
    x += w
    assert x is base and base.requires_grad and base.tolist() == [2, 2, 2]
    (y * x).sum().backward()
    assert w.grad.tolist() == [2 * 2 + 3] * 3
    counts = mg.tensor([1, 2])
    with pytest.raises(ValueError, match=r"float \(\) does not fit into int64 \(2,\)"):
        counts += 0.5
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        counts += mg.ones(3, 2, dtype=mg.int64)
