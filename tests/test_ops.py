"""Every declared op, on each of its cases: first and second derivatives, layouts, dtypes, in-place changes."""

import zlib

import numpy as np
import pytest
from checker import check

from minigrad import registry

DECLARED = {name: d for name, d in registry.items() if d.builtin}
CASES = [pytest.param(d, case, id=f"{name}-{i}") for name, d in DECLARED.items() for i, case in enumerate(d.cases)]


def generator(declaration, case):
    return np.random.default_rng(zlib.crc32(f"{declaration.name} {case!r}".encode()))


def caller(declaration, case):
    return lambda *inputs: declaration.call(*inputs, **case.params)


def test_every_op_has_cases_and_a_formula():
    assert len(DECLARED) > 90
    for name, d in DECLARED.items():
        assert d.cases, f"{name} declares no cases"
        assert d.doc, f"{name} has no docstring"


@pytest.mark.parametrize("declaration, case", CASES)
@pytest.mark.parametrize("layout", ["contiguous", "fortran", "strided", "reversed"])
def test_first_derivative(declaration, case, layout):
    rng = generator(declaration, case)
    check(caller(declaration, case), case.draw(rng), rng, layout=layout)


@pytest.mark.parametrize("declaration, case", CASES)
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_second_derivative(declaration, case, layout):
    rng = generator(declaration, case)
    check(caller(declaration, case), case.draw(rng), rng, order=2, layout=layout)
