"""What probes must not say of functions that are right: at points, sizes and indices that those are not made for."""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad.gradcheck import FAIL, INCONCLUSIVE, NONFINITE, PASS, WARN, gradcheck
from minigrad.ops.index import Embedding


def tensor(*numbers):
    return mg.tensor(np.array(numbers, dtype=float))


def batch_norm(x, weight):
    return (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt() * weight


def area(p):
    """The area of a triangle by Heron's formula: 0 for points on a line, whatever they do there."""
    a, b, c = (((p[i] - p[j]) ** 2).sum().sqrt() for i, j in ((0, 1), (1, 2), (2, 0)))
    s = (a + b + c) / 2
    return (s * (s - a) * (s - b) * (s - c)).sqrt()


class Median(mg.Op, abstract=True):
    """Computed in NumPy, so that nothing tells which numbers it has taken but its slopes."""

    def forward(self, x):
        self.shape = x.shape
        self.middle = np.argsort(x, -1, kind="stable")[..., x.shape[-1] // 2, None]
        return np.take_along_axis(x, self.middle, -1)[..., 0]

    def backward(self, dy):
        return (mg.nn.functional.one_hot(mg.tensor(self.middle[..., 0]), self.shape[-1]) * dy.unsqueeze(-1)).to(
            dy.dtype
        )


def mixture(x, g, w):
    """Of two experts for each row. It jumps where the second largest of x @ g is not the only one."""
    v, i = (x @ g).topk(2, -1)
    return (v.softmax(-1) * (x @ w).gather(-1, i)).sum(-1)


def hooked(x, w):
    y = x * w
    y.retain_grad()
    y.register_hook(lambda g: g * 1)
    (x * 1).register_hook(lambda g: None)  # raises where x requires no gradient
    return y.exp()


RIGHT = {
    "hooks inside": (hooked, tensor(0.5, 2.0), tensor(1, 2)),
    "a median by NumPy": (Median, tensor([0.3, -1.2, 0.8], [1.5, 0.1, -0.4])),
    "a jump at ties": (
        mixture,
        *(mg.tensor(np.random.default_rng(0).standard_normal(s)) for s in ((2, 2), (2, 4), (2, 4))),
    ),
    "log: infinite at 0": (mg.log, tensor(0.5, 2.0)),
    "rsqrt: infinite at 0": (mg.rsqrt, tensor(0.5, 2.0)),
    "a power: infinite at 0": (lambda x: x**-1.5, tensor(0.5, 2.0)),
    "exp: infinite at 1e8": (lambda x: (-x.exp()).exp(), tensor(0.5, 2.0)),
    "rounding inside, the same at each step": (batch_norm, mg.tensor(np.arange(8.0).reshape(4, 2) ** 2), tensor(1, 2)),
    "a triangle on a line": (area, mg.tensor(np.array([[0.0, 0.1], [1.0, 0.3], [0.2, 2.0]]))),
    "another value exactly where two numbers are equal": (
        lambda x, y: mg.where(x == y, x * y, x + y),
        tensor(1, 2),
        tensor(1, 5),
    ),
    "another branch exactly at 0": (lambda x: x if float((x * x).sum()) == 0 else 0.5 * x, tensor(0.3, -1.2)),
    "a gradient that overflows": (lambda x: 1 / x, tensor(1e-3, -1e-4, 2e-2)),
    "float16, below its normal numbers": (lambda x: (x.half() / 300).double(), tensor(0.7, 1.3)),
}


LONG = (
    "a jump at ties",
    "a median by NumPy",
    "a triangle on a line",
    "rounding inside, the same at each step",
)  # seconds each


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in RIGHT])
def test_a_right_function_is_not_failed(name):
    fn, *inputs = RIGHT[name]
    report = gradcheck(fn, *inputs, raise_on_fail=False)
    assert report.verdict != FAIL, report.message()


def test_cotangents_of_a_saturated_function_round():
    for seed in range(30):
        x = mg.tensor(np.random.default_rng(seed).standard_normal((3, 4)))
        report = gradcheck(lambda x: (x / 0.01).softmax(-1), x, mode="probes", probes=("linearity",))
        assert report.verdict == PASS


def test_an_interrupt_names_the_call_of_a_probe():
    def halved(x):
        while float(x.abs().sum()) > 100:  # as a loop that does not end
            raise KeyboardInterrupt
        return x / 2

    with pytest.raises(KeyboardInterrupt) as interrupt:
        gradcheck(halved, tensor(0.5, 2.0))
    assert "the probe 'values' was calling" in interrupt.value.__notes__[0]


def test_a_gradient_that_is_not_finite_where_all_else_is_fails():
    class Sine(mg.Op, abstract=True):
        def forward(self, x):
            self.save_inputs(x)
            return np.sin(x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            return dy * x.cos() * (x / x)

    report = gradcheck(Sine, tensor(0.5, 2.0), raise_on_fail=False)
    assert report.verdict == WARN and report.worst.probe == "values"


def test_a_tail_that_rounds_to_nothing_is_not_failed():
    x = mg.tensor(np.array([[100.7, 0.7], [0.9554258589047299, -99.04457414109527]]))
    report = gradcheck(lambda x: x.log_softmax(-1), x, probes=(), raise_on_fail=False)
    assert report.verdict in (PASS, INCONCLUSIVE)  # what half an ulp of 1 may hide is not decided


def test_second_order_of_a_float32_output():
    assert gradcheck(lambda x: x.float() / 3, tensor(1.0, 2.0), order=2, raise_on_fail=False).verdict != FAIL


@pytest.mark.parametrize("call", [Embedding, Embedding.apply, lambda w, i: Embedding.apply(w, i)], ids=range(3))
def test_no_kernel_gets_an_index_out_of_range(call, monkeypatch):
    """NumPy, which looks at each, may get one."""
    seen, forward = [], Embedding.forward

    def noted(self, weight, index):
        if self.backend is not mg.backend.reference:
            seen.append((weight.shape[0], index.min(initial=0), index.max(initial=-1)))
        return forward(self, weight, np.clip(index, 0, max(0, weight.shape[0] - 1)))  # no harm if it fails

    monkeypatch.setattr(Embedding, "forward", noted)
    gradcheck(call, mg.randn(5, 3, dtype=mg.float64), mg.tensor([4, 2, 2, 1]), probes=["sizes", "indices", "growth"])
    assert len(seen) > 20
    assert all(low >= 0 and high < n for n, low, high in seen)


def determinant(a):
    """By expansion along the first row: n! products."""
    n = a.shape[0]
    if n == 1:
        return a[0, 0]
    minors = (mg.cat([a[1:, :j], a[1:, j + 1 :]], 1) for j in range(n))
    return sum((-1) ** j * a[0, j] * determinant(minor) for j, minor in enumerate(minors))


def test_a_loop_over_a_dim_is_not_run_a_thousand_times():
    report = gradcheck(determinant, mg.randn(3, 3, dtype=mg.float64), probes=["growth"])
    assert report.verdict == PASS and report.seconds < 10


def test_each_probe_begins_with_the_parameters_of_the_point():
    model = mg.nn.Sequential(mg.nn.Linear(3, 2, dtype=mg.float64), mg.nn.Linear(2, 2, dtype=mg.float64))
    weight, grown = model[0].weight, []
    there = weight.detach().numpy()

    def fn(model, x):
        if len(x) == 17:
            grown.append(np.abs(weight.detach().numpy() - there).max())
        return model(x).tanh()

    gradcheck(fn, model, mg.randn(5, 3, dtype=mg.float64), probes=("values", "growth"))
    assert grown and max(grown) < 0.5, "where values went last, to numbers near 1e4, growth began"
    np.testing.assert_array_equal(weight.detach().numpy(), there)


class NotLoaded:
    """A data set whose file is not there: reading any attribute raises."""

    def __getattr__(self, name):
        raise FileNotFoundError(f"the data set is not downloaded: {name}")


DATA = NotLoaded()


def test_data_in_closures_and_defaults_are_not_changed():
    def with_default(x, data=DATA):
        return x * 2

    for fn in (with_default, lambda x: x * 2 if DATA else x, partial(with_default, data=DATA)):
        assert gradcheck(fn, tensor(0.5, 2.0)).verdict == PASS


def test_an_option_that_takes_any_word_is_warned_of():
    """The forward takes "none" for "sum", and so may the backward, or not: no caller gives that word."""

    def total(x, reduction="mean"):
        return x.mean() if reduction == "mean" else x.sum()

    def vjp(dy, x, reduction="mean"):
        return dy * np.ones_like(x) / (1 if reduction == "sum" else x.size)

    report = gradcheck(total, np.ones(3), vjp=vjp, raise_on_fail=False)
    assert report.verdict == WARN and report.worst.check.startswith("reduction="), report.message()


def test_a_function_with_only_infinite_outputs_is_nonfinite():
    for fn in (lambda x: 1 / x, lambda x: 1 / (x * 0)):
        report = gradcheck(fn, tensor(0.0), raise_on_fail=False)
        assert report.verdict == NONFINITE and "all outputs are infinite" in report.message()
