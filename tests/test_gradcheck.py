"""minigrad.gradcheck: numerics, verdicts, inputs, options, reports. What it catches is in test_gradcheck_mutants.py."""

import json
import math
import re
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.autograd import Storage
from minigrad.backend import reference
from minigrad.gradcheck import PROBES, GradcheckError, check_op, check_taylor, gradcheck, gradgradcheck
from minigrad.gradcheck.numeric import EPS, STEP, bisect, derivative
from minigrad.gradcheck.report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from minigrad.nn import functional as F


class WrongSin(mg.Op):
    """y = sin x;   dx = dy cos x, times `factor`, which should be 1"""

    analytic = True

    def forward(self, x, factor):
        self.save_inputs(x)
        return self.backend.sin(x)

    def backward(self, dy):
        return dy * self.saved_inputs()[0].cos() * self.factor


wrong_sin = partial(WrongSin.apply, factor=1.001)


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


def values(*numbers):
    return mg.tensor(numbers, dtype=mg.float64)


def verdict(fn, *inputs, **options):
    return gradcheck(fn, *inputs, raise_on_fail=False, **options).verdict


# ------------------------------------------------------------------------------------------------------------ numerics


def at(f, x):
    """(value, bar, Derivative) of f at x."""
    with np.errstate(all="ignore"):
        d = derivative(lambda t: np.array([f(x + t) - f(x)]), 2 * EPS * np.abs(np.array([f(x)])), STEP)
    return d.value[0], d.bar[0], d


@pytest.mark.parametrize(
    "f, df",
    [
        (np.exp, np.exp),
        (np.log, lambda x: 1 / x),
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (np.sin, np.cos),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        (lambda x: 1 / x, lambda x: -1 / x**2),
        (lambda x: x**7, lambda x: 7 * x**6),
    ],
    ids=["exp", "log", "tanh", "sin", "sqrt", "1/x", "x^7"],
)
def test_three_bars_cover_the_error(f, df):
    errors = []
    for x in np.exp(np.random.default_rng(0).uniform(math.log(1e-3), math.log(10), 300)):
        value, bar, _ = at(f, x)
        assert abs(value - df(x)) <= 3 * bar, x
        errors.append(abs(value - df(x)) / abs(df(x)))
    assert np.median(errors) < 1e-11


@pytest.mark.parametrize("x", [1e-3, 1e-5, 1e-7])
def test_a_kink_near_by_is_stepped_around(x):
    value, bar, d = at(np.abs, x)
    assert abs(value - 1) <= 3 * bar and (bar < 1e-3 or d.kink[0])


def test_kinks_and_jumps_are_told_from_slopes():
    _, _, d = at(np.abs, 0.0)
    assert d.kink[0] and not d.jump[0] and d.left[0] == pytest.approx(-1) and d.right[0] == pytest.approx(1)
    assert at(np.floor, 2.0)[2].jump[0]
    for smooth in (np.sin, np.exp, lambda x: x**2, lambda x: x**4, lambda x: x**3, lambda x: 0 * x):
        _, _, d = at(smooth, 0.0)
        assert not d.kink[0] and not d.jump[0]


def test_the_step_shrinks_into_the_domain():
    value, bar, _ = at(np.log, 1e-6)
    assert abs(value - 1e6) <= 3 * bar < 1


def test_bisect_finds_the_only_one():
    for size in (1, 2, 7, 64):
        for wrong in range(size):
            assert bisect(lambda chosen, wrong=wrong: wrong in chosen, size) == wrong


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
def test_a_kink_is_told_as_one(fn, x, mode):
    report = gradcheck(fn, x, mode=mode)
    assert report and report.verdict == KINK
    f = report.worst
    assert f.leaf == "x" and f.index is not None and f.left != f.right
    with pytest.raises(GradcheckError, match="KINK"):
        gradcheck(fn, x, mode=mode, kinks="error")
    silent = gradcheck(fn, x, mode=mode, kinks="skip")
    assert silent.verdict == PASS and "kink" not in silent.table()


def test_a_wrong_gradient_at_a_kink_is_not_excused():
    class Relu(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return np.maximum(x, 0)

        def backward(self, dy):
            return mg.where(self.saved_inputs()[0] > 0, dy, 2 * dy)  # 2 is not between 0 and 1

    assert verdict(Relu, values(0.0, 1.0)) == FAIL


def test_nonfinite():
    assert verdict(mg.sqrt, values(0.0, 1.0)) == NONFINITE  # the slope is infinite
    assert verdict(mg.log, values(-1.0, 1.0)) == NONFINITE  # NaN
    with pytest.raises(GradcheckError, match="1 of 2 outputs are NaN"):
        gradcheck(mg.log, values(-1.0, 1.0))


def test_infinite_outputs_are_left_out_and_said_so():
    report = gradcheck(lambda x: x + values(0.0, -math.inf), values(1.0, 2.0))
    assert report.verdict == PASS and report.left_out["outputs"].startswith("1 of 2 are infinite")


def test_inconclusive():
    for dtype, factor in [(mg.float32, 1e4), (mg.float32, 1.0), (mg.float16, 20.0)]:

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
    assert leaves(gradcheck(mg.matmul, x, x)) == ["a"]


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
    with pytest.raises(ValueError, match="nothing to differentiate"):
        gradcheck(mg.exp, np.ones(3))
    assert gradcheck(mg.exp, mg.zeros(0, 3)).verdict == PASS
    assert gradcheck(mg.argmax, data(3)).verdict == PASS  # no float output
    assert gradcheck(lambda x: x.detach() * 0 + 5, data(3)).verdict == PASS  # constant, and says so


def test_a_gradient_that_does_not_arrive():
    report = gradcheck(lambda x: (x * 2).detach().exp(), data(3), raise_on_fail=False)
    assert report.verdict == FAIL and "no gradient arrives" in report.message()


def test_random_functions_and_states():
    x, state = data(4, 3), mg.default_generator.state
    gradcheck(lambda x: F.dropout(x, 0.5) * mg.randn(3), x)
    assert mg.default_generator.state == state
    rng = np.random.default_rng(0)
    report = gradcheck(lambda x: x * float(rng.random()), data(3), raise_on_fail=False)
    assert "not from the default generator" in report.table()


def test_under_no_grad_and_with_graphs_inside():
    with mg.no_grad():
        gradcheck(mg.tanh, data(3))

    def penalty(x):  # WGAN-GP: a function that takes a gradient itself
        x = x if x.requires_grad else x.detach().requires_grad_()
        (g,) = mg.grad((x**3).sum(), x, create_graph=True)
        return (g * g).sum()

    gradcheck(penalty, data(3))
    gradgradcheck(penalty, data(3))


def test_orders():
    for order in (1, 2, 3):
        report = gradcheck(lambda x: x.sin() * x, data(3), order=order, probes=())
        assert report.order == order
    assert leaves(gradgradcheck(mg.mul, data(2), data(2))) == ["x", "other", "dy[0]"]


# ------------------------------------------------------------------------------------------------------------- options


def test_modes_agree_and_say_which():
    x = data(3, 4)
    for mode in ("full", "directional"):
        assert gradcheck(mg.softmax, x, mode=mode).mode == mode
        report = gradcheck(wrong_sin, x, mode=mode, raise_on_fail=False)
        assert report.verdict == FAIL and report.worst.analytic / report.worst.numeric == pytest.approx(1.001, rel=1e-8)
    assert gradcheck(mg.tanh, data(512)).mode == "full" and gradcheck(mg.tanh, data(513)).mode == "directional"
    report = gradcheck(lambda x: x.expand(600, 2), data(2))  # many outputs: random combinations of them
    assert report.mode == "full" and report.evaluations < 100


def test_same_seed_same_report():
    def checked(seed):
        found = json.loads(gradcheck(wrong_sin, data(700), seed=seed, raise_on_fail=False).to_json())
        return {key: value for key, value in found.items() if key not in ("seconds", "snippet")}

    states = []
    for seed in (3, 3, 4):
        mg.manual_seed(0)
        states.append(checked(seed))
    assert states[0] == states[1] != states[2]


def test_complex_step():
    a, b = data(3, 4), data(4, 2)
    report = gradcheck(lambda a, b: (a @ b).exp().softmax(-1), a, b, numeric="complex", rtol=1e-13)
    assert report.evaluations <= 150
    assert verdict(wrong_sin, a, numeric="complex") == FAIL


def test_options_that_make_no_sense():
    x = data(2)
    for options, message in [
        ({"mode": "fast"}, "mode must be one of auto, full, directional; got 'fast'"),
        ({"order": 0}, "order must be 1, 2"),
        ({"rtol": 2}, "rtol must lie between"),
        ({"probes": "layouts"}, "probes must be 'all' or a sequence"),
        ({"probes": ["layout"]}, "no probe is called 'layout'; there are"),
        ({"kinks": "ignore"}, "kinks must be one of"),
        ({"numeric": "complex", "order": 2}, "for order > 1 use 'ridders'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            gradcheck(mg.exp, x, **options)
    with pytest.raises(ValueError, match="declared analytic; not so: abs"):
        gradcheck(lambda x: x.exp().abs(), x, numeric="complex")


def test_reference():
    x = data(3, 4)
    gradcheck(mg.tanh, x, reference=np.tanh)
    gradcheck(lambda x: (x.amax(1), x.argmax(1)), x, reference=lambda x: (x.max(1), x.argmax(1)))
    with pytest.raises(GradcheckError, match="reference: FAIL"):
        gradcheck(mg.tanh, x, reference=lambda x: np.tanh(x) * (1 + 1e-8))
    with pytest.raises(GradcheckError, match=r"outputs of shapes \[\(3, 4\)\], those of the reference \[\(3,\)\]"):
        gradcheck(mg.tanh, x, reference=lambda x: x[:, 0])


def test_probes_can_be_chosen():
    assert [f.check for f in gradcheck(mg.exp, data(3), probes=["layouts", "float32"]).findings] == [
        "Jacobian", "layouts", "float32",
    ]  # fmt: skip
    report = gradcheck(mg.exp, data(3))
    assert {f.check for f in report.findings} | set(report.left_out) == {"Jacobian", *PROBES}  # none goes unmentioned


# ------------------------------------------------------------------------------------------------------------- reports


def test_the_message_is_one_to_act_on():
    def loss(w):
        return wrong_sin(w * 2).sum(0)

    with pytest.raises(GradcheckError) as caught:
        gradcheck(loss, data(2, 3), seed=7)
    message = str(caught.value)
    for line in [
        r"FAIL test_the_message_is_one_to_act_on.<locals>.loss \(full\): \d+ checks, \d+ evaluations, .* seed 7",
        r"Jacobian: FAIL at w\[\d, \d\], output \[\d\]",
        r"analytic  -?\d",
        r"numeric   -?\d.* ± \d.*",
        r"ratio     1\.001, error / allowed",
        r"slopes    .* from the left, .* from the right",
        r"hint      all of them are off by the same factor 1\.001",
        r"culprit   wrong_sin, made at .*test_gradcheck.py:\d+: wrong by itself too",
        r"ops       mul, wrong_sin, sum",
        r"w: shape \(2, 3\), given as float64 with strides \(24, 8\); checked in float64",
    ]:
        assert re.search(line, message), line
    assert caught.value.report.worst.index is not None


def test_the_snippet_repeats_the_check():
    for fn, inputs in [(WrongGate.apply, (data(2, 2), mg.tensor([0, 1]))), (mg.sqrt, (values(0.0, math.inf),))]:
        report = gradcheck(fn, *inputs, raise_on_fail=False)
        assert not report
        with pytest.raises(GradcheckError) as again:
            exec(report.snippet, {})
        assert again.value.report.verdict == report.verdict and again.value.report.worst.place == report.worst.place
    keyword = gradcheck(wrong_sin, data(2), raise_on_fail=False).snippet
    assert "partial(WrongSin, factor=1.001)" in keyword


class WrongGate(mg.Op):
    """y = x, and one row more of gradient than it should have"""

    def forward(self, x, index):
        return x[index]

    def backward(self, dy):
        return dy * 3, None


@pytest.mark.parametrize(
    "factor, hint",
    [(0.5, "half"), (2.0, "double"), (-1.0, "sign"), (0.0, "no gradient arrives"), (4.0, "4 times too large"),
     (1 / 3, "3 times too small"), (math.sqrt(3), "1/√3 was left out"), (1 + 1e-6, "off by 1e-06 of itself")],
)  # fmt: skip
def test_ratio_hints(factor, hint):

    report = gradcheck(partial(WrongSin.apply, factor=factor), data(3, 4), raise_on_fail=False, probes=())
    assert hint in report.message()


def test_pattern_hints():
    class Swapped(mg.Op):
        def forward(self, a, b):
            self.save_inputs(a, b)
            return a * b

        def backward(self, dy):
            a, b = self.saved_inputs()
            return dy * a, dy * b

    class Transposed(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return x * x * x

        def backward(self, dy):
            (x,) = self.saved_inputs()
            return (3 * x * x * dy).mT

    class LastColumn(mg.Op):
        def forward(self, x):
            return x * 2.0

        def backward(self, dy):
            return dy * mg.tensor([2.0, 2.0, 2.5], dtype=mg.float64)

    x = data(3, 3)
    for fn, inputs, hint in [
        (Swapped, (x, data(3, 3)), "this is the gradient of b: two inputs are swapped"),
        (Transposed, (x,), "this is the gradient transposed"),
        (LastColumn, (x,), "only x[:, 2] is wrong"),
    ]:
        assert hint in gradcheck(fn, *inputs, raise_on_fail=False, probes=()).message()


def test_table_and_json():
    report = gradcheck(wrong_sin, data(3), raise_on_fail=False)
    assert report.table().splitlines()[1].startswith("Jacobian") and "not applicable: device" in report.table()
    loaded = json.loads(report.to_json())
    assert loaded["verdict"] == FAIL and loaded["passed"] is False and loaded["findings"][0]["index"]
    json.loads(gradcheck(mg.sqrt, values(0.0), raise_on_fail=False).to_json())  # with infinities


# --------------------------------------------------------------------------------------------------- whole models, ops


def test_taylor():
    assert check_taylor(lambda x: x.exp().sum(), data(5)).rate == pytest.approx(2, abs=0.05)
    assert check_taylor(lambda x: (3 * x).sum(), data(5)).rate == math.inf  # linear: no remainder
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    assert check_taylor(model, data(6, 3), directions=2)
    with pytest.raises(GradcheckError, match="shrinks at rate 1"):
        check_taylor(lambda x: WrongSin.apply(x, factor=1.01).sum(), data(5))
    with pytest.raises(GradcheckError, match="nan"):
        check_taylor(lambda x: (x - 1e3).log().sum(), data(5))
    with pytest.raises(ValueError, match="directions must be at least 1"):
        check_taylor(mg.exp, data(2), directions=0)


def test_check_op():
    rows = check_op("softmax", orders=(1,))
    assert len(rows) >= len(mg.registry["softmax"].cases) and {row.verdict for row in rows} == {PASS}
    assert {row.numeric for row in rows} == {"ridders", "complex"}
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
