"""gradcheck where rounding, kinks and jumps blur a function: a wrong gradient never passes, a right one never fails."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.gradcheck import gradcheck
from minigrad.gradcheck.verdicts import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from minigrad.nn import functional as F
from minigrad.ops.reduce import Amax, Amin

from .wrong_sin import data, values


def opaque(f, df):
    """An op that computes f and df in NumPy: its graph tells nothing of the rounding inside."""

    class Opaque(mg.Op, abstract=True):
        def forward(self, x):
            self.save_inputs(x)
            with np.errstate(all="ignore"):
                return np.asarray(f(np.asarray(x)), np.float64)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            with np.errstate(all="ignore"):
                return dy * mg.tensor(np.asarray(df(x.detach().numpy()), np.float64))

    return Opaque.apply


def verdict(fn, *inputs):
    return gradcheck(fn, *inputs, raise_on_fail=False, probes=()).verdict


def guarded(f, at_zero):
    return lambda x: np.where(x == 0, at_zero, f(np.where(x == 0, 1.0, x)))


CANCELLING = {  # f, f(0), f'(0)
    "(1 - cos x) / x": (lambda x: (1 - np.cos(x)) / x, 0.0, 1 / 2),
    "(e^x - 1 - x) / x²": (lambda x: (np.exp(x) - 1 - x) / x**2, 1 / 2, 1 / 6),
    "(e^x - 1) / x": (lambda x: (np.exp(x) - 1) / x, 1.0, 1 / 2),
    "log(1 + x) / x": (lambda x: np.log(1 + x) / x, 1.0, -1 / 2),
    "(√(1 + x) - 1) / x": (lambda x: (np.sqrt(1 + x) - 1) / x, 1 / 2, -1 / 8),
    "(x - sin x) / x²": (lambda x: (x - np.sin(x)) / x**2, 0.0, 1 / 6),
    "(tan x - x) / x²": (lambda x: (np.tan(x) - x) / x**2, 0.0, 1 / 3),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_slopes_hidden_by_rounding_show_at_larger_steps(name):
    f, at_zero, slope = CANCELLING[name]
    assert verdict(opaque(guarded(f, at_zero), lambda x: slope + 0 * x), values(0.0)) in (PASS, INCONCLUSIVE)
    for wrong in (0.0, 2 * slope, -slope):
        found = verdict(opaque(guarded(f, at_zero), lambda x, wrong=wrong: wrong + 0 * x), values(0.0))
        assert found in (FAIL, INCONCLUSIVE), wrong


def test_a_guarded_quotient_of_our_own_ops():
    def guarded(x):
        divisor = mg.where(x == 0, 1.0, x)
        return mg.where(x == 0, 0.5, (divisor.exp() - 1 - divisor) / divisor**2)

    assert verdict(guarded, values(0.0)) == FAIL


@pytest.mark.parametrize("width", [1e-12, 1e-6, 1e-4, 1e-2])
def test_a_function_may_be_flat_by_itself(width):
    """A gradient of 0 is right in a dead zone, between steps, and where a threshold is subtracted."""
    zero = lambda x: 0 * x  # noqa: E731
    threshold = lambda x: np.sign(x) * np.maximum(np.abs(x) - width, 0)  # noqa: E731
    assert verdict(opaque(threshold, zero), values(0.0)) != FAIL
    assert verdict(opaque(lambda x: np.where(abs(x) < width, 0, np.tanh(x)), zero), values(0.0)) != FAIL
    assert verdict(lambda x: x * 0 + (x / width).floor() * width, values(0.3 * width, 1 + width / 3)) != FAIL
    if width > 1e-4:  # finer ones cannot be told from rounding
        assert verdict(opaque(lambda x: np.round(x / width) * width, zero), values(0.3 * width, 1 + width / 3)) != FAIL


@pytest.mark.parametrize("x", [-20.0, -24.0, -28.0, -30.0, -32.0, -34.0, -36.0])
def test_a_tail_that_is_cut_off_never_passes(x):
    def cut(x):
        return np.where(x < -19.9, 0, 1 / (1 + np.exp(-x)))

    softplus = lambda x: np.log(1 + np.exp(x))  # noqa: E731
    assert verdict(opaque(softplus, cut), values(x)) in (FAIL, INCONCLUSIVE)
    assert verdict(opaque(softplus, lambda x: 1 / (1 + np.exp(-x))), values(x)) in (PASS, INCONCLUSIVE)


def test_rounding_of_terms_of_size_one_is_no_fail():
    assert verdict(lambda x: F.cross_entropy(x, mg.tensor([0])), mg.tensor([[0.0, -40, -43]])) != FAIL


@pytest.mark.parametrize(
    "fn, x",
    [
        (lambda x: mg.stack([x, 0 * x]).logsumexp(0), values(-697.0)),
        (lambda x: F.cross_entropy(x, mg.tensor([0])), values(255.0, 0.0, 0.0).reshape(1, 3)),
        (lambda x: x.log_softmax(-1), values(101.0, 1.0)),
    ],
    ids=["logsumexp", "cross_entropy", "log_softmax"],
)
def test_a_change_below_one_ulp_of_1_is_no_fail(fn, x):
    assert verdict(fn, x) in (PASS, INCONCLUSIVE)


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-30])
def test_a_gradient_of_a_constant_never_passes(size):
    still = opaque(lambda x: 0 * x, lambda x: 1e-12 + 0 * x)
    assert verdict(lambda x: still(x) * size, values(0.3)) == (INCONCLUSIVE if size == 1e-30 else FAIL)


def rezero(x, g):
    return x * 1 if g.detach().item() == 0 else x + g * x.tanh()


def lora(x, B):
    return x * 1 if not B.detach().numpy().any() else x + x @ B


@pytest.mark.parametrize(
    "fn, inputs, expected",
    [
        (rezero, (values(0.3, -0.7), values(0.0)), FAIL),
        (lora, (data(1, 2), mg.zeros(2, 2, dtype=mg.float64)), FAIL),
        (lambda x: mg.where(x == 0, x.detach(), x) * 3, (values(0.0, 1.0),), FAIL),
        (lambda x: x.relu() + (1 + (-x.abs()).exp()).log(), (values(0.0, 1.0),), INCONCLUSIVE),
        (lambda x: x.relu() - (-x).relu(), (values(0.0, 1.0),), INCONCLUSIVE),
        (lambda x: x.sort()[0], (values(1.0, 1.0, 1.0),), KINK),
    ],
    ids=["ReZero", "LoRA", "where", "softplus", "relu - relu", "sort"],
)
def test_a_kink_excuses_only_gradients_between_those_close_by(fn, inputs, expected):
    assert verdict(fn, *inputs) == expected


@pytest.mark.parametrize("share, expected", [(1.0, FAIL), (0.0, FAIL), (0.5, KINK)])
@pytest.mark.parametrize("names", ["maximum of two", "maximum inside"])
def test_equal_numbers_share_one_gradient(share, expected, names):
    class Maximum(mg.Op, abstract=True):
        def forward(self, x, y):
            self.save_inputs(x, y)
            return np.maximum(x, y)

        def backward(self, dy):
            x, y = self.saved_inputs()
            tied = share * (x == y).to(dy.dtype)
            return dy * ((x > y).to(dy.dtype) + tied), dy * ((y > x).to(dy.dtype) + tied)

    fn = Maximum.apply if names == "maximum of two" else lambda x, y: Maximum.apply(x, y).exp().sum()
    assert verdict(fn, values(1.0, 2.0, 3.0), values(1.0, 5.0, 2.0)) == expected
    assert verdict(lambda x: Maximum.apply(x[:3], x[3:]), values(1.0, 2.0, 3.0, 1.0, 5.0, 2.0)) == expected


@pytest.mark.parametrize("wrong", [0.0, 0.3, 0.5, -1.0, 1.0])
@pytest.mark.parametrize("f", [lambda x: np.maximum(x, 0) + np.maximum(-x, 0), np.abs, lambda x: np.maximum(x, 0)])
def test_kinks_beside_the_point_excuse_nothing(f, wrong):
    both = opaque(lambda x: f(x - 1e-4) + f(-x - 1e-4), lambda x: wrong + 0 * x)
    assert verdict(both, values(0.0)) in ((FAIL, INCONCLUSIVE) if wrong else (PASS,))


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.0, -1.0, 1.05])
@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_a_steep_function_is_no_jump(factor, centre):
    def tanh(x):
        return np.tanh(1e10 * (x - centre))

    steep = opaque(tanh, lambda x: factor * 1e10 * (1 - tanh(x) ** 2))
    assert verdict(steep, values(centre + 1e-10)) == (PASS if factor == 1 else FAIL)


@pytest.mark.parametrize("f, slope", [(lambda x: (x > 0) * 1.0, 0.0), (lambda x: x + (x > 0), 1.0)])
def test_a_jump_has_the_slopes_of_its_pieces(f, slope):
    assert verdict(opaque(f, lambda x: slope + 0 * x), values(0.0)) == KINK
    for wrong in (slope - 1, slope + 1, 5.0):
        assert verdict(opaque(f, lambda x, wrong=wrong: wrong + 0 * x), values(0.0)) == FAIL


def test_neither_a_pole_nor_rounding_is_a_jump():
    assert verdict(lambda x: 1 / x, values(1e-12, 1e4)) in (PASS, INCONCLUSIVE)
    equal = values(*[0.1257302210933933] * 3).reshape(1, 3)
    assert verdict(lambda x: F.layer_norm(x, 3).sum(), equal) in (PASS, INCONCLUSIVE)


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e-16, 1e8, 1e12, 1e16, 1e20, 1e100])
@pytest.mark.parametrize("f, df", [(lambda x: 3 * x, lambda x: 3 + 0 * x), (lambda x: x * x, lambda x: 2 * x)])
def test_steps_grow_and_shrink_with_x(f, df, scale):
    x = values(1.5 * scale)
    assert verdict(opaque(f, df), x) == PASS
    for error in (1e-4, 1e-6):
        assert verdict(opaque(f, lambda x, error=error: df(x) * (1 + error)), x) == FAIL


@pytest.mark.parametrize("f, df", [(np.tanh, lambda u: 1 - np.tanh(u) ** 2), (lambda u: 1 / u, lambda u: -1 / u**2)])
def test_a_function_of_a_tiny_x_is_no_jump(f, df):
    x = values(1.3e-60, 0.7e-60)
    assert verdict(opaque(lambda x: f(x / 1e-60), lambda x: df(x / 1e-60) / 1e-60), x) == PASS
    assert verdict(opaque(lambda x: f(x / 1e-60), lambda x: 0 * x), x) == FAIL


def test_squares_that_overflow_and_steps_that_leave_a_tiny_domain():
    assert verdict(lambda x: x * 1e150, values(1.5e100, -2e100)) == PASS
    assert verdict(mg.log, values(3e-100, 1e-30)) == PASS
    assert verdict(opaque(lambda x: x * 1e150, lambda x: 1e150 * (1 + 1e-6) + 0 * x), values(1.5e100)) == FAIL


def test_small_terms_added_up_pass():
    assert verdict(lambda x: 1e5 * (1e-9 * x).cumsum(0), data(5)) == PASS


@pytest.mark.parametrize(
    "fn", [lambda x: x.tanh(), lambda x: x * x, lambda x: x.exp().sum()], ids=["tanh", "x²", "exp"]
)
def test_mixed_precision(fn):
    def scaled(x, dtype, factor):
        y = fn(x.to(dtype)).double()
        return factor * y + ((1 - factor) * y).detach()

    assert verdict(lambda x: scaled(x, mg.float32, 1.0), data(4)) == PASS
    assert verdict(lambda x: scaled(x, mg.float16, 1.0), data(4)) in (PASS, INCONCLUSIVE)
    for factor in (0.0, -1.0, 2.0, 1.05):
        assert verdict(lambda x, factor=factor: scaled(x, mg.float32, factor), data(4)) == FAIL
        assert verdict(lambda x, factor=factor: scaled(x, mg.float16, factor), data(4)) in (FAIL, INCONCLUSIVE)


def test_the_report_names_the_tolerance():
    report = gradcheck(lambda x: x.float().tanh(), data(3), probes=())
    assert "float32 inside: compared to rtol 1.9e-06" in report.table()


class Halves(mg.Op, abstract=True):
    """y = x + 2⁻⁵⁴, computed out of sight: all of its numbers at x = 0 are float32 numbers, by accident"""

    def forward(self, x):
        return x + 2.0**-54

    def backward(self, dy):
        return dy * 1.0


def test_numbers_of_few_digits_are_not_taken_for_float32():
    report = gradcheck(Halves.apply, values(0.0, 0.5), probes=())
    assert "float32 inside" not in report.table() and report.verdict == PASS


def test_second_order_through_float32():
    assert gradcheck(lambda x: x.float() / 3, values(1.0, 2.0), order=2, probes=())


class Square(mg.Op, abstract=True):
    """x², of arrays only: what NumPy makes of arithmetic on 0-d arrays is refused"""

    def forward(self, x):
        assert isinstance(x, np.ndarray)
        self.save_inputs(x)
        return np.asarray(x * x)

    def backward(self, dy):
        assert isinstance(dy.array, np.ndarray)
        return Doubled.apply(*self.saved_inputs(), dy)


class Doubled(mg.Op, abstract=True):
    def forward(self, x, dy):
        assert isinstance(x, np.ndarray) and isinstance(dy, np.ndarray)
        self.save_inputs(x, dy)
        return np.asarray(2 * x * dy)

    def backward(self, dz):
        x, dy = self.saved_inputs()
        return 2 * dy * dz, 2 * x * dz


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("mode", ["full", "directional"])
def test_numbers_reach_ops_as_arrays(order, mode):
    x = mg.tensor(0.7, dtype=mg.float64)
    for fn in (Square.apply, lambda x: Square.apply(Square.apply(x).sin() * 2)):
        assert gradcheck(fn, x, order=order, mode=mode)


def test_nan_from_the_backward_of_a_finite_function_fails():
    report = gradcheck(opaque(lambda x: x * x, lambda x: x + np.nan), values(1.0), raise_on_fail=False, probes=())
    assert report.verdict == FAIL and "backward gives NaN" in report.message()
    assert verdict(mg.sqrt, values(0.0)) == NONFINITE


@pytest.mark.parametrize("fn", [mg.log, mg.rsqrt])
def test_nan_beside_an_infinite_output_is_the_edge_of_a_domain(fn):
    assert verdict(fn, values(0.0, 1.0)) == NONFINITE
    A = mg.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=mg.float64)  # the backward of the product adds up 0 times 1 / 0
    assert verdict(lambda x: fn(A @ x), values(0.0, 1.0)) == NONFINITE


def test_rounding_inside_a_fused_op_is_counted():
    x = values(100000002.04091913, 99999997.44433497)
    assert verdict(lambda x: F.layer_norm(x, 2), x) in (PASS, INCONCLUSIVE)


@pytest.mark.parametrize("op", [Amax, Amin])
def test_nothing_is_shared_among_no_ties(op):
    x = mg.zeros(0, 3, dtype=mg.float64)
    assert gradcheck(lambda x: op.apply(x, dims=(0,), keepdim=False), x, order=2, probes=())


# --------------------------------------------------------------------- rounding is no excuse for a gradient elsewhere


class GroupNorm(mg.Op, abstract=True):
    """Its backward is that of one group. The outputs have a constant sum: the gradient of that is rounding alone."""

    def forward(self, x, groups=1):
        self.save_inputs(x)
        z = x.reshape(len(x), groups, -1)
        z = z - z.mean(-1, keepdims=True)
        return (z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        z, d = x.reshape(len(x), -1), dy.reshape(len(x), -1)
        z = z - z.mean(-1, keepdim=True)
        r = ((z * z).mean(-1, keepdim=True) + 1e-5).rsqrt()
        dx = r * (d - d.mean(-1, keepdim=True) - r * r * z * (d * z).mean(-1, keepdim=True))
        return dx.reshape(*x.shape)


class Hinge(mg.Op, abstract=True):
    """Its gradient at 1 is twice the steeper of the two slopes there."""

    def forward(self, x):
        self.save_inputs(x)
        return np.maximum(0, 1 - x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return mg.where(x < 1, -dy, 0) - mg.where(x == 1, 2 * dy, 0)


@pytest.mark.parametrize(
    "op, probe",
    [
        pytest.param(GroupNorm, "parameters", marks=pytest.mark.slow),
        pytest.param(Hinge, "values", marks=pytest.mark.slow),
    ],
)
def test_rounding_excuses_no_wrong_gradient_at_other_points(op, probe):
    x = mg.tensor(np.random.default_rng(0).standard_normal((2, 4, 3)))
    report = gradcheck(op, x, probes=[probe], raise_on_fail=False)
    assert report.verdict == FAIL and report.findings[0].verdict != FAIL, report
