"""minigrad.gradcheck: verdicts, inputs, options. What it catches is in test_mutants.py."""

import dataclasses
import math
import re
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.autograd import Storage, registry
from minigrad.backend import reference
from minigrad.gradcheck import PROBES, GradcheckError, check_op, gradcheck
from minigrad.gradcheck.verdicts import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from minigrad.nn import functional as F

from .wrong_sin import WrongSin, data, values, wrong_sin

gradcheck = partial(gradcheck, probes=())  # test_probes.py has them


def verdict(fn, *inputs, **options):
    return gradcheck(fn, *inputs, raise_on_fail=False, **options).verdict


# ------------------------------------------------------------------------------------------------------------ verdicts


@pytest.mark.parametrize("mode", ["full", "directional"])
@pytest.mark.parametrize(
    "fn, x",
    [
        (mg.relu, values(0.0, 1.0, -1.0)),
        (mg.abs, values(0.0, 2.0)),
        (lambda x: x.amax(), values(1.0, 3.0, 3.0)),
        (lambda x: x.max(0).values, values(1.0, 3.0, 3.0)),
        (lambda x: mg.maximum(x, 1.0), values(1.0, 3.0)),
        (lambda x: x.clamp(-1, 1), values(1.0, 0.3)),
        (mg.floor, values(2.0, 0.5)),
    ],
    ids=["relu", "abs", "amax", "max", "maximum", "clamp", "floor"],
)
def test_a_kink_is_reported_as_kink(fn, x, mode):
    report = gradcheck(fn, x, mode=mode)
    assert report and report.verdict == KINK
    f = report.worst
    assert (
        f.leaf in ("x", "input") and f.index is not None and (f.left != f.right or fn is mg.floor)
    )  # two pieces of slope 0
    with pytest.raises(GradcheckError, match="KINK"):
        gradcheck(fn, x, mode=mode, kinks="error")


def test_a_wrong_gradient_at_a_kink_is_not_excused():
    class Relu(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return np.maximum(x, 0)

        def backward(self, dy):
            return mg.where(self.saved_inputs()[0] > 0, dy, 2 * dy)  # 2 is not between 0 and 1

    assert verdict(Relu, values(0.0, 1.0)) == FAIL


@pytest.mark.parametrize("slope", [1.0005, 1.00001, -1.0005, 2.0])
def test_a_gradient_beyond_both_slopes_of_a_kink_fails(slope):
    class Abs(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return np.abs(x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            return dy * mg.where(x == 0, slope, x.sign())

    assert verdict(Abs, values(0.0, 1.0)) == FAIL
    assert verdict(Abs, values(0.5, 1.0), probes=()) == PASS  # a probe looks at 0


def test_nan_at_a_jump_is_no_kink():
    class Step(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return np.floor(x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            return dy * mg.where(x == x.floor(), self.answer, 0.0)

    for Step.answer, expected in ((0.0, KINK), (math.nan, NONFINITE), (math.inf, NONFINITE)):
        for mode in ("full", "directional"):
            assert verdict(Step, values(2.0), mode=mode, probes=()) == expected  # a NaN beside it would tell as well


def test_nonfinite():
    assert verdict(mg.sqrt, values(0.0, 1.0)) == NONFINITE  # the slope is infinite
    assert verdict(mg.log, values(-1.0, 1.0)) == NONFINITE  # NaN
    with pytest.raises(GradcheckError, match="1 of 2 outputs are NaN"):
        gradcheck(mg.log, values(-1.0, 1.0))


def test_infinite_outputs_are_left_out_and_said_so():
    report = gradcheck(lambda x: x + values(0.0, -math.inf), values(1.0, 2.0))
    assert report.verdict == PASS and report.left_out["outputs"].startswith("1 of 2 are infinite")


def test_inconclusive():
    for dtype, factor in [(mg.float32, 1e6), (mg.float16, 200.0)]:  # radians that rounding changes by tenths

        def rounded(x, dtype=dtype, factor=factor):
            return (x * factor).to(dtype).double().sin()

        report = gradcheck(rounded, data(5), raise_on_fail=False, probes=())
        assert report.verdict == INCONCLUSIVE and not report
        assert "float32" in report.worst.note


def test_a_function_on_another_scale_passes():
    assert verdict(mg.sin, values(1e6, 1e6 + 0.5)) == PASS
    assert verdict(lambda x: (x * 1e5).sin(), values(0.3, 0.7)) == PASS
    assert verdict(lambda x: 1 / x, values(1e-5, -1e-4)) == PASS
    assert verdict(mg.log, values(1e-7, 1e7)) == PASS
    assert verdict(lambda x: x * 1e-30, values(1.0, 2.0)) == PASS


def test_no_absolute_tolerance():
    assert verdict(lambda x: WrongSin.apply(x, factor=1.001) * 1e-30, data(3)) == FAIL
    assert verdict(lambda x: 1e3 + 1e-6 * WrongSin.apply(x, factor=1.1), data(3)) == FAIL


# -------------------------------------------------------------------------------------------------------------- inputs


def leaves(report):
    return [name for name, *_ in report.leaves]


def test_nested_inputs_and_constants():
    Pair = namedtuple("Pair", "a b")

    def fn(pair, options, scale, index, nothing):
        return {"y": [(pair.a @ pair.b) * scale + options["bias"]], "rows": pair.a[index]}

    pair, bias = Pair(data(2, 3), data(3, 2)), data(2)
    report = gradcheck(fn, pair, {"bias": bias}, 2.0, mg.tensor([1, 0, 1]), None)
    assert leaves(report) == ["pair[0]", "pair[1]", "options['bias']"]


def test_wrt():
    def fn(x, w):
        return x @ w

    x, w = data(2, 3), data(3, 2)
    assert leaves(gradcheck(fn, x, w)) == ["x", "w"]
    assert leaves(gradcheck(fn, x, w, wrt=1)) == leaves(gradcheck(fn, x, w, wrt="w")) == ["w"]
    assert leaves(gradcheck(fn, x.detach().requires_grad_(), w)) == ["x"]
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2))
    assert leaves(gradcheck(model, x, wrt="0")) == ["0.weight", "0.bias"]
    assert leaves(gradcheck(lambda model, x: model(x), model, x, wrt=["model.2.weight", "x"])) == [
        "model.2.weight",
        "x",
    ]
    with pytest.raises(ValueError, match=r"wrt='v' is none of x, w"):
        gradcheck(fn, x, w, wrt="v")


def test_one_tensor_passed_twice_is_one_leaf():
    x = data(3, 3)
    assert leaves(gradcheck(mg.matmul, x, x)) == ["input"]


def test_float32_is_checked_in_float64_and_given_back():
    model, x = nn.Linear(3, 2), mg.randn(4, 3)
    model.weight.grad = mg.ones(2, 3)
    hook = model.weight.register_hook(lambda g: g * 0)  # would make every gradient 0
    before = model.weight.array
    gradcheck(model, x, rtol=1e-9)
    assert model.weight.array is before and model.weight.dtype == mg.float32 and x.dtype == mg.float32
    assert model.weight.grad.tolist() == [[1.0] * 3] * 2
    hook.remove()
    with pytest.raises(RuntimeError, match="in the middle"):
        gradcheck(_raises, model, x)
    assert model.weight.array is before and model.weight.dtype == mg.float32


def _raises(model, x):
    model(x)
    raise RuntimeError("in the middle")


def test_nothing_to_check():
    with pytest.raises(ValueError, match="nothing to differentiate"):
        gradcheck(mg.abs, mg.tensor([1, 2]))
    with pytest.raises(TypeError, match="NumPy arrays have no gradient"):
        gradcheck(mg.exp, np.ones(3))
    for returned in (None, 3.0, [], np.ones(3), mg.tensor(3)):  # a forgotten return, loss.item(), y.numpy(), argmax
        with pytest.raises(TypeError, match="returned no Tensor"):
            gradcheck(lambda x, y=returned: y, data(3))
    assert gradcheck(mg.exp, mg.zeros(0, 3)).verdict == PASS
    assert gradcheck(lambda x: x.detach() * 0 + 5, data(3)).verdict == PASS  # constant, and says so


def test_a_gradient_that_does_not_arrive():
    report = gradcheck(lambda x: (x * 2).detach().exp(), data(3), raise_on_fail=False)
    assert report.verdict == FAIL and "no gradient arrives" in report.message()


def test_random_functions_and_states():
    x, state = data(4, 3), mg.default_generator.state
    gradcheck(lambda x: F.dropout(x, 0.5) * mg.randn(3), x)
    assert mg.default_generator.state == state
    rng = np.random.default_rng(0)
    report = gradcheck(lambda x: x * float(rng.random()), data(3), raise_on_fail=False, probes=("repeatable",))
    assert "not from the default generator" in report.table()


def test_under_no_grad_and_with_graphs_inside():
    with mg.no_grad():
        gradcheck(mg.tanh, data(3))

    def penalty(x):  # WGAN-GP: a function that takes a gradient itself
        x = x if x.requires_grad else x.detach().requires_grad_()
        (g,) = mg.grad((x**3).sum(), x, create_graph=True)
        return (g * g).sum()

    gradcheck(penalty, data(3))
    gradcheck(penalty, data(3), order=2)


def test_orders():
    for order in (1, 2, 3):
        report = gradcheck(lambda x: x.sin() * x, data(3), order=order, probes=())
        assert report.order == order
    assert leaves(gradcheck(mg.mul, data(2), data(2), order=2)) == ["input", "other", "dy[0]"]


# ------------------------------------------------------------------------------------------------------------- options


def test_modes_agree_and_say_which():
    x = data(3, 4)
    for mode in ("full", "directional"):
        assert gradcheck(mg.softmax, x, mode=mode).mode == mode
        report = gradcheck(wrong_sin, x, mode=mode, raise_on_fail=False)
        assert report.verdict == FAIL and report.worst.analytic / report.worst.numeric == pytest.approx(1.001, rel=1e-8)
    assert gradcheck(mg.tanh, data(512)).mode == "full" and gradcheck(mg.tanh, data(513)).mode == "directional"
    report = gradcheck(lambda x: x.expand(600, 2), data(2), probes=())  # many outputs: random combinations of them
    assert report.mode == "full" and report.evaluations < 100


def test_same_seed_same_report():
    def checked(seed):
        found = dataclasses.asdict(gradcheck(wrong_sin, data(700), seed=seed, raise_on_fail=False))
        return {key: value for key, value in found.items() if key != "seconds"}

    states = []
    for seed in (3, 3, 4):
        mg.manual_seed(0)
        states.append(checked(seed))
    assert states[0] == states[1] != states[2]


def test_options_that_make_no_sense():
    x = data(2)
    for options, message in [
        ({"mode": "fast"}, "mode must be auto, full, directional or probes; got 'fast'"),
        ({"order": 0}, "order must be 1, 2"),
        ({"rtol": 2}, "rtol must be a number from"),
        ({"probes": "layouts"}, "probes must be 'auto', 'all' or names"),
        ({"probes": ["layout"]}, "probes must be 'auto', 'all' or names"),
        ({"kinks": "ignore"}, "kinks must be report"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            gradcheck(mg.exp, x, **options)


def test_probes_can_be_chosen():
    assert [f.check for f in gradcheck(mg.exp, data(3), probes=["layouts", "float32"]).findings] == [
        "Jacobian",
        "layouts",
        "float32",
    ]
    report = gradcheck(mg.exp, data(3), probes="all")
    assert {f.check for f in report.findings} | set(report.left_out) == {"Jacobian", *PROBES}  # none goes unmentioned


# --------------------------------------------------------------------------------------------------- whole models, ops


def test_check_op():
    rows = check_op("softmax", orders=(1,))
    assert len(rows) >= len(registry["softmax"].cases) and {row.verdict for row in rows} == {PASS}
    with pytest.raises(ValueError, match="no op called 'sofmax'"):
        check_op("sofmax")
    with pytest.raises(ValueError, match="declares no cases"):
        check_op(WrongSin)


class Mirror:
    """The reference backend under another name, `wrong` in its sine: what a second device looks like to the engine."""

    device = "mirror"

    def __init__(self, wrong):
        self.wrong = wrong

    def __getattr__(self, name):
        return getattr(reference, name)

    def sin(self, x):
        return np.sin(x) + self.wrong * x


def test_a_device_is_compared_with_the_cpu():
    x = data(3, 4).numpy()
    for wrong, expected in [(0.0, PASS), (1e-6, FAIL)]:
        mirror = Mirror(wrong)
        on_mirror = mg.Tensor._wrap(x, Storage(mirror))
        report = gradcheck(lambda x: x.sin() * x, on_mirror, raise_on_fail=False, probes=["device"])
        assert max(f.verdict == FAIL for f in report.findings if f.check == "device") == (expected == FAIL), report


def test_an_op_at_its_kink_is_no_culprit():
    report = gradcheck(lambda x: x.relu() - (-x).relu(), mg.tensor([0.0, 1.0]), raise_on_fail=False, probes=())
    assert report.verdict == INCONCLUSIVE and not report.culprit
    assert "do not compose" in report.message()


def test_a_sum_that_cancels_up_to_rounding_passes():
    assert gradcheck(lambda x: (x + 1e10) - 1e10, mg.tensor([1.0], dtype=mg.float64), probes=()).verdict == PASS
