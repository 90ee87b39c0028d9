"""What gradcheck says: a message to act on, hints, tables, JSON."""

import math
import re
from functools import partial

import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import GradcheckError, gradcheck
from minigrad.gradcheck.report import columns
from minigrad.gradcheck.verdicts import FAIL, INCONCLUSIVE, NONFINITE

from .wrong_sin import WrongSin, data, values, wrong_sin

gradcheck = partial(gradcheck, probes=())  # test_probes.py has them


def test_the_message_names_what_is_wrong():
    def loss(w):
        return wrong_sin(w * 2).sum(0)

    with pytest.raises(GradcheckError) as caught:
        gradcheck(loss, data(2, 3), seed=7)
    message = str(caught.value)
    for line in [
        r"FAIL test_the_message_names_what_is_wrong.<locals>.loss \(full\): \d+ checks, \d+ evaluations, .* seed 7",
        r"Jacobian: FAIL at w\[\d, \d\], output \[\d\]",
        r"analytic  -?\d",
        r"numeric   -?\d.* ± \d.*",
        r"ratio     1\.001, error / allowed",
        r"hint      off by 0\.001 of itself",
        r"culprit   wrong_sin, made at .*test_reports.py:\d+: wrong by itself too",
        r"ops       mul, wrong_sin, sum",
        r"w: shape \(2, 3\), given as float64 with strides \(24, 8\); checked in float64",
    ]:
        assert re.search(line, message), line
    assert "slopes" not in message  # which do not differ
    assert caught.value.report.worst.index is not None


@pytest.mark.parametrize(
    "factor, hint",
    [(0.5, "the ratio is 0.5"), (2.0, "the ratio is 2"), (-1.0, "sign"), (0.0, "no gradient arrives"),
     (4.0, "4 times too large"),
     (1 / 3, "3 times too small"), (math.sqrt(3), "1/√3 was left out"), (1 + 1e-6, "off by 1e-06 of itself")],
)  # fmt: skip
def test_ratio_hints(factor, hint):

    report = gradcheck(partial(WrongSin.apply, factor=factor), data(3, 4), raise_on_fail=False, probes=())
    assert hint in report.message()


@pytest.mark.parametrize("factor, hint", [(0.5, "half: one of two uses"), (2.0, "double: one of two uses")])
def test_two_uses_are_named_where_there_are_two(factor, hint):
    def twice(x):
        return WrongSin.apply(x, factor=factor) + WrongSin.apply(x, factor=factor)

    for fn, is_hinted in (twice, True), (lambda x: 2 * WrongSin.apply(x, factor=factor), False):
        assert (hint in gradcheck(fn, data(3, 4), raise_on_fail=False).message()) == is_hinted


def test_columns_are_aligned():
    assert columns([["a", "bb", "c"], ["aaa", "b", "de"]]) == ["a    bb  c", "aaa  b   de"]


def test_table():
    report = gradcheck(wrong_sin, data(3), raise_on_fail=False, probes=("device",))
    assert report.table().splitlines()[1].startswith("Jacobian") and "not applicable: device" in report.table()


def test_the_output_is_told_apart_from_others():
    """Of two outputs of three elements, each alone is wrong at its own element."""
    for which in (0, 1):
        for k in range(3):
            factor = mg.tensor([1.1 if i == k else 1.0 for i in range(3)], dtype=mg.float64)

            def pair(x, which=which, factor=factor):
                ys = x.exp(), WrongSin.apply(x, factor=factor)
                return ys if which else ys[::-1]

            worst = gradcheck(pair, values(0.1, 0.2, 0.3), raise_on_fail=False).worst
            assert (worst.index, worst.output) == ((k,), f"{which}[{k}]")


def test_the_culprit_is_told_from_a_right_op_of_its_class():
    """They differ in a parameter only."""
    report = gradcheck(
        lambda x: WrongSin.apply(x, factor=1.0) + WrongSin.apply(x, factor=1.1), values(0.3), raise_on_fail=False
    )
    assert "wrong by itself too" in report.culprit


def test_parameters_require_gradients_without_leaving_inputs_out():
    names = [name for name, *_ in gradcheck(nn.Linear(3, 2), data(4, 3)).leaves]
    assert len(names) == 3 and {"weight", "bias"} < set(names)


def test_probes_run_beside_what_is_not_finite_if_something_is_wrong():
    class Wrong(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return self.backend.mul(x, x)

        def backward(self, dy):
            return 3 * self.saved_inputs()[0] * dy

    a, b = mg.tensor([1.0, 2.0], dtype=mg.float64), mg.tensor([0.0], dtype=mg.float64)
    report = gradcheck(lambda a, b: Wrong.apply(a).sum() + b.sqrt().sum(), a, b, raise_on_fail=False)
    assert {f.verdict for f in report.findings} >= {FAIL, NONFINITE}
    assert "the gradient is not finite here" not in report.left_out.values()


def test_a_check_that_compared_nothing_does_not_pass():
    report = gradcheck(mg.exp, data(3), mode="probes", probes=["parameters"], raise_on_fail=False)
    assert report.verdict == INCONCLUSIVE and not report
    assert "parameters: no parameters are known" in report.message()
    with pytest.raises(GradcheckError, match="0 checks"):
        gradcheck(mg.exp, data(3), mode="probes", probes=["parameters"])
