"""Each probe finds a bug that no other check finds on an input that a developer would choose. No probe fails a right
function for inputs that it is not meant for."""

import warnings
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import FAIL, KINK, PASS, WARN, GradcheckWarning, gradcheck
from minigrad.gradcheck.probes import FOR_COMPOSITIONS, OPS_ONLY, PROBES
from minigrad.ops.elementwise import Sin
from minigrad.ops.index import GetitemAdd

X = np.linspace(0.5, 1.7, 12).reshape(3, 4)


def sine(wrong=None, forward=None, factor=1.001):
    """sin(x), whose gradient is `factor` times too large where wrong(x, dy) says so; arrays go in, a mask comes out."""

    class Sine(mg.Op, abstract=True):
        def forward(self, x, **params):
            self.save_inputs(x)
            return np.sin(x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            mask = np.broadcast_to(False if wrong is None else wrong(x.array, dy.array), x.shape)
            return dy * x.cos() * mg.tensor(np.where(mask, factor, 1.0).astype(x.dtype))

    if forward:
        Sine.forward = forward
    return Sine


def failed(fn, *inputs, **options):
    report = gradcheck(fn, *inputs, raise_on_fail=False, strict=True, **options)
    return {f.probe or "differences" for f in report.findings if f.verdict == FAIL}, report


def stride(x, axis):
    return x.strides[axis] if x.ndim >= abs(axis) else 1


class Product(mg.Op, abstract=True):
    """y = a b, wrong in da if wrong(op)."""

    wrong = staticmethod(lambda op, a, b: False)

    def forward(self, a, b):
        self.save_inputs(a, b)
        return a * b

    def backward(self, dy):
        a, b = self.saved_inputs()
        factor = 1.5 if self.wrong(self, a.array, b.array) else 1.0
        return dy * b * factor if self.needs[0] else None, dy * a if self.needs[1] else None


def product(wrong):
    return type("Product", (Product,), {"wrong": staticmethod(wrong)}, abstract=True)


class OnTheClass(mg.Op, abstract=True):
    """Keeps the shape of the latest call on the class."""

    def forward(self, x):
        type(self).size = x.shape[-1:] or (1,)
        return x * x.shape[-1] if x.ndim else x * 1

    def backward(self, dy):
        return dy * float(self.size[0])


class Scaled(mg.Op, abstract=True):
    """x / n along a dim, wrong where the dim is counted from the end."""

    def forward(self, x, dim=0, squared=False):
        self.dim, self.squared = dim, squared
        self.save_inputs(x)
        return np.sum(x * x if squared else np.sin(x), dim, keepdims=True)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        slope = x if self.squared else x.cos()  # not 2 x
        return dy * slope * (1.0 if self.dim >= 0 else 1.01)


class Picked(mg.Op, abstract=True):
    """Rows by their index; a row that is picked twice keeps one of the two gradients."""

    def forward(self, x, index):
        self.shape, self.index = x.shape, index
        return x[index]

    def backward(self, dy):
        dx = np.zeros(self.shape)
        dx[self.index] = dy.array
        return mg.tensor(dx), None


BUGS = {
    "linearity": [sine(lambda x, dy: 0.2 < (dy == 0).mean() < 0.8), sine(lambda x, dy: (dy == 1).all())],
    "cotangents": [
        sine(lambda x, dy: stride(dy, -1) < 0 < stride(dy, -2)),
        sine(lambda x, dy: stride(dy, 0) == 0 != stride(dy, -1)),
        sine(lambda x, dy: not dy.flags.writeable and 0 not in dy.strides),
    ],
    "layouts": [
        sine(lambda x, dy: stride(x, 0) < 0 < stride(x, -1)),
        sine(lambda x, dy: x.base is not None and x.base.size > 2 * x.size and 0 not in x.strides and x.ndim == 2
             and x.strides[-1] == x.itemsize),
    ],
    "interleaved": [OnTheClass],
    "sizes": [sine(lambda x, dy: x.shape[0] == 1)],
    "growth": [
        sine(lambda x, dy: x.shape[-1] > 1024),
        sine(lambda x, dy: (x.ndim > 1 and x.shape[-1] % 8 == 1) * (np.arange(x.shape[-1] if x.ndim else 1) == 16)),
        sine(lambda x, dy: x.ndim == 4),
        sine(lambda x, dy: x.ndim == 0),
        sine(lambda x, dy: x.shape[-1:] == (64,)),
    ],
    "values": [
        sine(lambda x, dy: x > 20),
        sine(lambda x, dy: x < 0),
        sine(lambda x, dy: x == 0),
        sine(lambda x, dy: len(set(x.ravel())) < x.size),
        sine(lambda x, dy: x > 4321.5),
        sine(lambda x, dy: np.abs(x) < 1e-3),
        sine(lambda x, dy: x == 0, factor=np.nan),
    ],
    "parameters": [Scaled],
}  # fmt: skip


@pytest.mark.parametrize("probe, k", [(probe, k) for probe, bugs in BUGS.items() for k in range(len(bugs))])
def test_a_bug_that_only_this_probe_finds(probe, k, thorough):
    """Of all probes but those that find bugs of many kinds: that the rest miss it, CI makes sure."""
    op, of_many_kinds = BUGS[probe][k], {"values", "growth", "sizes"}
    found, report = failed(op, mg.tensor(X), mode="directional", probes=[probe])
    assert found == {probe}, report
    others = [name for name in PROBES if thorough and name not in {probe} | of_many_kinds]
    others, report = failed(op, mg.tensor(X), mode="directional", probes=others)
    assert not others or probe in ("linearity", "interleaved"), report
    assert "differences" not in others


def pair():
    return mg.tensor(X), mg.tensor(X + 0.1)


def test_every_combination_of_needs():
    class Five(mg.Op, abstract=True):
        def forward(self, *xs):
            self.save_inputs(*xs)
            return sum(np.sin(x) for x in xs)

        def backward(self, dy):
            factor = 1.5 if self.needs == (True, False, True, True, False) else 1.0
            return tuple(dy * x.cos() * factor if need else None for x, need in zip(self.saved_inputs(), self.needs))

    assert failed(Five.apply, *[mg.tensor(X + i) for i in range(5)], probes=["alone"])[0] == {"alone"}


@pytest.mark.parametrize(
    "share, verdict", [("even", "PASS"), ("first", "PASS"), (1.0, FAIL), (1.5, FAIL), (-0.5, FAIL)]
)
def test_ties_take_few_differences_and_share_one_gradient(share, verdict):
    """Along each of equal maxima alone the slope is 1 on the way up and 0 on the way down. If all grow, it is 1."""

    class Largest(mg.Op, abstract=True):
        def forward(self, x):
            self.save_inputs(x)
            return x.max(-1)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            most = x.array == x.array.max(-1, keepdims=True)
            ties = most.sum(-1, keepdims=True)
            if share == "even":
                shares = most / ties
            elif share == "first":
                shares = most * (np.cumsum(most, -1) == 1)
            else:
                shares = np.where(ties > 1, share, 1.0) * most
            return dy.unsqueeze(-1) * mg.tensor(shares)

    report = gradcheck(Largest, mg.tensor(X), probes=["values"], raise_on_fail=False)
    assert ({f.verdict for f in report.findings} >= {FAIL}) == (verdict == FAIL), report
    assert verdict == FAIL or report.evaluations < 600, report.evaluations


def test_repeated_indices():
    index = mg.tensor(np.array([0, 2]))
    found, report = failed(Picked, mg.tensor(X), index, probes=["indices", "layouts"])
    assert found == {"indices"}, report
    assert gradcheck(lambda x, i: x[i], mg.tensor(X), index).verdict == PASS


def test_cotangents_are_not_the_users_random_numbers():
    """aᵀa where both should be a·dy: a gradient that is transposed shows only if dy is not what a was drawn from."""

    class Gram(mg.Op, abstract=True):
        def forward(self, x, a):
            self.save_inputs(None, a)
            return a @ x

        def backward(self, dy):
            return dy.mT @ self.saved_inputs()[1], None  # not aᵀ dy

    a = mg.tensor(np.random.default_rng(0).standard_normal((3, 3)))
    x = mg.tensor(np.eye(3) + 0.1)
    report = gradcheck(Gram, x, a, wrt=0, mode="directional", probes=(), raise_on_fail=False)
    assert report.verdict == FAIL


# -------------------------------------------------------------------------------- what is refused is no failure


def refusing(condition, message="not for me"):
    class Refusing(mg.Op, abstract=True):
        def forward(self, x):
            if condition(x):
                raise ValueError(message)
            self.save_inputs(x)
            return np.sin(x)

        def backward(self, dy):
            return dy * self.saved_inputs()[0].cos()

    return Refusing


REFUSING = {
    "float64 only": refusing(lambda x: x.dtype != np.float64),
    "contiguous only": refusing(lambda x: not x.flags.c_contiguous),
    "writeable only": refusing(lambda x: not x.flags.writeable),
    "within [-1, 2]": refusing(lambda x: x.min() < -1 or x.max() > 2),
    "two dims only": refusing(lambda x: x.ndim != 2),
    "distinct numbers only": refusing(lambda x: len(set(x.ravel())) < x.size),
}


@pytest.mark.parametrize("name", REFUSING)
def test_a_forward_that_raises_at_a_point_is_no_failure(name):
    assert gradcheck(REFUSING[name], mg.tensor(X)).verdict == PASS


class Cube(mg.Op, abstract=True):
    """Its backward is in NumPy: no second derivative."""

    def forward(self, x):
        self.save(x.copy())
        return x**3

    def backward(self, dy):
        return mg.tensor(3 * self.saved()[0].numpy() ** 2 * dy.numpy())


class Gate(mg.Op, abstract=True):
    def forward(self, x, m):
        self.save(m > 0.5)
        return np.where(m > 0.5, x, 0)

    def backward(self, dy):
        return mg.where(self.saved()[0], dy, 0.0), None


@pytest.mark.slow
def test_a_backward_may_raise_where_no_caller_needs_it():
    assert gradcheck(lambda x: Cube.apply(x).sin(), mg.tensor(X)).verdict == PASS
    mask = mg.tensor(np.array([0.9, 0.1, 0.8]))
    assert gradcheck(lambda x: Gate.apply(x, mask), mg.tensor(X[0, :3])).verdict == PASS  # broadcasts where x is cut


def test_a_backward_that_raises_at_another_size_is_a_failure():
    class Raising(REFUSING["two dims only"]):
        def forward(self, x):
            self.save_inputs(x)
            return np.sin(x)

        def backward(self, dy):
            if dy.shape[0] == 17:
                raise IndexError("17")
            return super().backward(dy)

    found, report = failed(Raising, mg.tensor(X))
    assert found == {"growth"} and "the backward raises IndexError: 17" in report.message()


class Inverse(mg.Op, abstract=True):
    def forward(self, x):
        return self.save_output(np.linalg.inv(x))

    def backward(self, dy):
        y = self.saved_output()
        return -(y.mT @ dy @ y.mT)


class Arccos(mg.Op, abstract=True):
    def forward(self, x):
        self.save_inputs(x)
        return np.arccos(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return -dy / (1 - x * x).sqrt()


def test_points_outside_the_domain_are_no_failure():
    rng = np.random.default_rng(0)
    assert gradcheck(Inverse, mg.tensor(rng.standard_normal((3, 3)))).verdict == PASS  # singular where rows are equal
    assert gradcheck(Arccos, mg.tensor(rng.uniform(-0.98, 0.98, (2, 3)))).verdict == PASS
    assert gradcheck(lambda x: x.log().sqrt(), mg.tensor(1.2 + rng.random(5))).verdict == PASS


def slow(fn, name):
    return pytest.param(fn, marks=pytest.mark.slow, id=name)


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda x: x.sort(-1)[0], id="sort"),
        slow(lambda x: x.topk(2, -1)[0], "topk"),
        slow(lambda x: x.amax(-1), "amax"),
        slow(lambda x: (x * x).sum(-1).sqrt(), "norm"),
        pytest.param(lambda x: (x * x).sqrt() ** 2, id="square of a root"),
        slow(lambda x: 1 / (1 + (-x).exp()), "sigmoid"),
        slow(lambda x: x.relu() - (-x).relu(), "two relus"),
        slow(lambda x: x.std(-1), "std"),
        slow(lambda x: (1e6 * x).sin(), "fast sine"),
    ],
)
def test_kinks_elsewhere_are_no_failure(fn):
    assert gradcheck(fn, mg.tensor(X)).verdict in (PASS, KINK)


# ----------------------------------------------------------------------------------------------- what the report says


def test_the_report_names_what_is_not_checked():
    layer = nn.Linear(4, 2).double()
    report = gradcheck(lambda x: layer(x), mg.tensor(X))
    assert "(2, 4)" in report.left_out["gradients that are not checked"]
    assert "gradients that are not checked" not in gradcheck(layer, mg.tensor(X)).left_out


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g)
    return y


def test_a_function_of_minigrads_ops_runs_the_probes_that_may_find_something():
    for fn, runs_all in [
        (lambda x: x.sin() * x, False),
        (mg.sin, False),
        (nn.Linear(4, 2), False),
        (lambda x: sine().apply(x) * x, True),
        (sine(), True),
        (Sin, True),
        (hooked, True),
    ]:
        report = gradcheck(fn, mg.tensor(X))
        skipped = {name for name, why in report.left_out.items() if why == OPS_ONLY}
        assert skipped == (set() if runs_all else {*PROBES} - {*FOR_COMPOSITIONS}), fn
        assert ("probes='all' runs it" in report.table()) == (not runs_all)
    report = gradcheck(lambda x: x.sin() * x, mg.tensor(X), probes="all")
    assert OPS_ONLY not in report.left_out.values()
    report = gradcheck(np.sin, X, vjp=lambda dy, x: dy * np.cos(x))
    assert OPS_ONLY not in report.left_out.values()


def in_place(x):
    with mg.no_grad():
        x += 1
    return x.sin()


@pytest.mark.parametrize(
    "fn, probe",
    [
        (lambda x: x * (2 if mg.is_grad_enabled() else 3), "differences"),
        (lambda x: mg.where(x > 0, x.detach().sin() + x.cos() - x.cos().detach(), x.sin()), "differences"),
        (lambda x: x.sin() if x.sum().item() > 0 else x.detach().sin(), "values"),
        (lambda x: x.sin() if len(x) > 1 else x.detach().sin(), "sizes"),
        (lambda x: mg.where(x > 0, x.sqrt(), x), "values"),
        (in_place, "unchanged"),
        (lambda x, detached=False: x.detach().sin() if detached else x.sin(), "parameters"),
    ],
)
def test_bugs_of_compositions_are_found(fn, probe):
    found, report = failed(fn, mg.tensor(X))
    assert probe in found, report


def test_defaults_of_an_op_are_attributes_and_are_tried():
    class Scaled(mg.Op, abstract=True):
        def forward(self, x, p=2.0, *, shift=0.0):
            return x * (p + shift)

        def backward(self, dy):
            return dy * (self.p + self.factor * self.shift)

    for Scaled.factor, expected in (1, set()), (2, {"parameters"}):
        for fn in Scaled, Scaled.apply, lambda x: Scaled.apply(x), lambda x: Scaled.apply(x, p=3.0):
            found, report = failed(fn, mg.tensor(X), probes=["parameters"])
            assert found == expected and ("shift=" in report.message()) == bool(expected)


def test_inputs_that_have_the_same_size_by_accident_are_told_apart():
    def backward(dy, a, b):
        return dy[: len(b)], dy[len(b) :]  # not len(a)

    with pytest.warns(GradcheckWarning, match="size 3 -> 6 in dim -1 of input 0 alone"):
        assert gradcheck(lambda a, b: np.concatenate([a, b]), np.ones(3), np.ones(3), vjp=backward, probes=["growth"])


def test_partial_parameters_are_tried():
    found, report = failed(partial(Scaled.apply, dim=1), mg.tensor(X), probes=["parameters"])
    assert found == {"parameters"} and any("dim=-" in f.check for f in report.findings), report
    found, report = failed(lambda x: Scaled.apply(x, dim=1, squared=False) * 2, mg.tensor(X), probes=["parameters"])
    assert found == {"parameters"}, report


def test_a_parameter_that_is_none_is_tried_as_a_number():
    class Scores(mg.Op, abstract=True):
        def forward(self, q, k, scale=None):
            self.save_inputs(q, k)
            return q @ k.T * (q.shape[-1] ** -0.5 if scale is None else scale)

        def backward(self, dy):
            q, k = self.saved_inputs()
            scale = q.shape[-1] ** -0.5  # whatever was given
            return dy @ k * scale, dy.T @ q * scale

    report = gradcheck(Scores, mg.randn(3, 5), mg.randn(2, 5), probes=["parameters"], raise_on_fail=False)
    assert report.verdict == FAIL and report.worst.check == "scale=0.5"


# --------------------------------------------------------------------- what stands beside the inputs, and does not vary


def put(x, index, dy, dim=0):
    """dy added at index along dim of zeros like x."""
    dx = np.zeros_like(x)
    np.add.at(dx, (slice(None),) * dim + (index,), dy)
    return dx


def repeated(x, counts):
    return np.repeat(x, counts, 0)


def repeated_vjp(dy, x, counts):
    return put(x, np.repeat(np.arange(len(counts)), counts), dy)


def of_equal_counts(dy, x, counts):
    return np.resize(dy, (len(x), max(counts[0], 1), x.shape[1])).sum(1)


T = np.array([1, 0, 3])


def nll(x, weight):
    w = np.asarray(weight)[T]
    return -(w * np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))[np.arange(3), T]).sum() / w.sum()


def nll_vjp(of):
    """Its gradient, where of(weight) gives the (3, 1) weights of the terms."""

    def vjp(dy, x, weight):
        p, w = np.exp(x) / np.exp(x).sum(1, keepdims=True), np.asarray(weight)
        return dy * of(w) * (p - (np.arange(x.shape[1]) == T[:, None])) / w[T].sum()

    return vjp


def hinge(x, y, margin):
    return np.maximum(0, margin - y * x).sum()


def hinge_vjp(dy, x, y, margin):
    return -dy * y * (y * x < margin)


Z, array = np.random.default_rng(3).standard_normal((3, 4)), np.array
BESIDE = {  # f, a wrong vjp, the right one, and a natural input beside which the wrong one is right
    "an index in order": (lambda x, i: x[i], lambda dy, x, i: put(x, np.sort(i), dy), lambda dy, x, i: put(x, i, dy),
                          array([0, 1, 2])),
    "0 as padding": (lambda x, i: x[i], lambda dy, x, i: put(x, i[i != 0], dy[i != 0]),
                     lambda dy, x, i: put(x, i, dy), array([2, 1])),
    "negative, of another dim": (lambda x, i: x[:, i], lambda dy, x, i: put(x, np.where(i < 0, (i + 3) % 4, i), dy, 1),
                                 lambda dy, x, i: put(x, i, dy, 1), array([2, 0, 3])),
    "wrapped by another length": (lambda x, i: x[i % 3], lambda dy, x, i: put(x, np.where(i < 3, i, i % 2), dy),
                                  lambda dy, x, i: put(x, i % 3, dy), array([2, 0, 1])),
    "counts as the first": (repeated, of_equal_counts, repeated_vjp, array([2, 2, 2])),
    "counts in order": (repeated, lambda dy, x, c: repeated_vjp(dy, x, np.sort(c)), repeated_vjp, array([1, 2, 3])),
    "class weights left out": (nll, nll_vjp(lambda w: 1.0), nll_vjp(lambda w: w[T][:, None]), [1.0] * 4),
    "class weights by row": (nll, nll_vjp(lambda w: w[:3, None]), nll_vjp(lambda w: w[T][:, None]), [1.0] * 4),
    "the margin left out": (lambda x, margin: hinge(x, 1.0, margin), lambda dy, x, margin: hinge_vjp(dy, x, 1.0, 1.0),
                            lambda dy, x, margin: hinge_vjp(dy, x, 1.0, margin), 1.0),
    "the sign left out": (lambda x, y: hinge(x, y, 9.0), lambda dy, x, y: hinge_vjp(dy, x, abs(y), 9.0),
                          lambda dy, x, y: hinge_vjp(dy, x, y, 9.0), array([[1, 1, 1, 1]])),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_constants_beside_the_inputs_are_changed_too(name):
    """An index, counts, classes, weights, a margin or signs have no gradient, but another value of them may show the
    mistake: as a WARN where the function may not be meant for that value. The right one is not failed."""
    f, wrong, right, beside = BESIDE[name]
    word = "i" if isinstance(beside, np.ndarray) else "margin" if isinstance(beside, float) else "weight"

    def checked(vjp):
        names = {"probes": ["indices", "parameters"], "raise_on_fail": False}
        if word == "i":
            return gradcheck(f, Z, beside, vjp=lambda *given, **options: (vjp(*given, **options), None), **names)
        return gradcheck(f, Z, vjp=vjp, kwargs={word: beside}, **names)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradcheckWarning)
        found = checked(wrong)
        assert found.verdict in (WARN, FAIL) and found.worst.probe in ("indices", "parameters"), found
        assert checked(right).verdict == PASS


def test_constants_that_are_no_arrays_of_numbers_are_kept():
    for beside in np.array(2), np.array(2.0), [[1.0], [3.0, 4.0]], ["a"], [], np.array([None]), {1}:
        assert gradcheck(lambda x, beside: x * 2, mg.tensor(X), beside).verdict == PASS
    index = mg.tensor([2, 0, 1], dtype=mg.uint8)
    assert gradcheck(lambda x, i: x[i.long()], mg.tensor(X), index).verdict == PASS


def test_an_index_out_of_range_is_tried_with_numpy_only():
    """A kernel would read out of bounds."""
    seen = set()

    class Rows(mg.Op, abstract=True):
        def forward(self, w, index):
            seen.add((self.backend is mg.backend.reference, min(index) < 0 or max(index) > 2))
            return self.backend.getitem(w, (np.array(index),))

        def backward(self, dy):
            return GetitemAdd.apply(dy, shape=(3, 4), index=(np.array(self.index),))

    gradcheck(lambda w, index: Rows.apply(w, index=index), mg.tensor(X), [2, 0, 1], probes=["parameters"])
    assert seen == {(False, False), (True, True)}
