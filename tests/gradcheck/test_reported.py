"""Each reported mistake is one: at the input that reaches it, it differs from the right gradient."""

import numpy as np
import pytest

from .reported import REPORTS
from .reported.__main__ import verdict
from .reported.report import (
    combined,
    combined_gradients,
    drawn,
    error,
    gradients,
    second_order,
    seen,
    slopes,
    tensors,
)  # fmt: skip


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r.name)
def test_is_wrong_where_it_is_said_to_be(report):
    wrong, right = (seen(report, function, report.targeted) for function in (report.bug, report.right))
    assert all(np.isfinite(g).all() for g in right)
    assert max(error(w, r) for w, r in zip(wrong, right)) > 1e-7


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r.name)
def test_what_is_called_right_is(report):
    """Its values are those of the wrong one, and its gradient agrees with differences of them."""
    look, value = (second_order, combined_gradients) if report.order == 2 else (gradients, combined)
    for case in (report.natural, report.targeted):
        bug, right = (_with(function, case.params) for function in (report.bug, report.right))
        assert error(_values(bug, case), _values(right, case)) < 1e-12
        if case is report.natural or report.smooth:
            found, by_differences = slopes(value(right), drawn(case), look(right, drawn(case)))
            assert found == pytest.approx(by_differences, rel=1e-6, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r.name)
def test_gradcheck_finds_it_at_an_input_that_nobody_chose(report):
    assert verdict(report).startswith(("caught", "warned of"))


def test_no_two_have_one_name():
    assert len({report.name for report in REPORTS}) == len(REPORTS)


def _with(function, options):
    return lambda *inputs: function(*inputs, **options)


def _values(function, case):
    return function(*tensors(drawn(case))).detach().numpy()
