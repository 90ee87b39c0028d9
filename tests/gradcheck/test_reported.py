"""Mistakes that users of other frameworks reported: gradcheck finds all but two, and objects to no corrected one."""

import numpy as np
import pytest

from .reported import REPORTS
from .reported.__main__ import verdict
from .reported.report import drawn, tensors

TOO_LARGE = (  # wrong from 4096 rows on, which no probe tries: pass an input of that size
    "index gradient of a batch beyond 65535",
    "naive convolution whose grid is truncated",
)


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r.name)
def test_gradcheck_finds_it_at_random_numbers(report):
    wrong, right = (f(*tensors(drawn(report)), **report.natural.params) for f in (report.bug, report.right))
    np.testing.assert_allclose(wrong.detach().numpy(), right.detach().numpy(), rtol=1e-12)
    assert verdict(report).startswith(("not caught",) if report.name in TOO_LARGE else ("caught", "warned of"))


def test_no_two_have_one_name():
    assert len({report.name for report in REPORTS}) == len(REPORTS)
