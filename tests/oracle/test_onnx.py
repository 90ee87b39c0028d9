"""minigrad beside ONNX: the node tests of its operators, in values and dtypes, and the gradients at their inputs."""

import functools
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from minigrad.gradcheck import gradcheck

pytestmark = pytest.mark.oracle

LARGEST = 4096  # elements of all inputs of a case whose gradient is checked
# Inputs that are no variables: our functions take them as Python numbers, or they are indices in floats.
CONSTANT = {"Dropout": {1}, "OneHot": {0, 1}, "Pad": {2}, "Range": {0, 1, 2}}
WITHOUT_DERIVATIVE = {
    "test_acosh_example": "infinite at 1",
    "test_l2normalization_axis_0": "x / |x| at x = 0",
    "test_ai_onnx_ml_binarizer": "a step, which no graph tells apart from a constant: INCONCLUSIVE",
}


@functools.cache
def adapter():
    """Imported only if one of these tests runs: a collection must not take seconds, nor skip where ONNX is missing."""
    pytest.importorskip("onnx", reason="ONNX is not installed")
    from . import onnx_adapter

    return onnx_adapter


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        chosen = "not oracle" not in metafunc.config.getoption("markexpr")
        found = PARAMETERS[metafunc.function]() if chosen else []
        metafunc.parametrize("case", found, ids=[case.name for case in found])


@functools.cache
def applicable():
    return [case for case in adapter().cases() if adapter().reason(case) is None]


def with_gradients():
    return [
        case
        for case in applicable()
        if variables(case)
        and any(y.dtype.kind == "f" for y in case.outputs)
        and sum(x.size for x in case.inputs) <= LARGEST
        and case.name not in WITHOUT_DERIVATIVE
    ]


def variables(case):
    """The positions of the inputs to differentiate by."""
    constant = CONSTANT.get(case.op, ())
    return [i for i, x in enumerate(case.inputs) if x.dtype.kind == "f" and i not in constant]


def test_values(case):
    ys = adapter().run(case, *map(mg.tensor, case.inputs))
    assert len(ys) == len(case.outputs)
    for y, expected in zip(ys, case.outputs):
        assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
        # What is expected of float16 was rounded after each step: two ulps, as ONNX's own runner allows in bfloat16.
        rtol = max(case.rtol, 2**-9) if y.dtype == mg.float16 else case.rtol
        np.testing.assert_allclose(y.numpy(), expected, rtol, case.atol)


def test_gradient(case):
    inputs = [mg.tensor(x, mg.float64 if x.dtype.kind == "f" else x.dtype) for x in case.inputs]
    varied = variables(case)

    def outputs(*xs):
        given = dict(zip(varied, xs))
        ys = adapter().run(case, *(given.get(i, x) for i, x in enumerate(inputs)), wide=True)
        return [mg.where(y.isfinite(), y, 0.0) for y in ys if y.is_floating_point()]  # ±∞ and NaN have no derivative

    assert gradcheck(outputs, *(inputs[i] for i in varied), mode="directional", directions=1, probes=())


PARAMETERS = {test_values: applicable, test_gradient: with_gradients}


def test_every_case_is_applicable_or_has_a_reason():
    excluded = adapter().not_applicable()
    for why, found in excluded.items():
        ops = Counter(case.op for case in found)
        print(f"{len(found):5}  {why}: {', '.join(f'{op} {n}' for op, n in ops.items())}")
    print(f"{len(applicable()):5}  applicable, {len(with_gradients())} with gradients, of {len(adapter().cases())}")
    assert "" not in excluded, f"ops in neither table: {sorted({case.op for case in excluded['']})}"
    assert len(applicable()) + sum(map(len, excluded.values())) == len(adapter().cases())
    assert len(applicable()) >= 1140 and len(with_gradients()) >= 921  # as of onnx 1.23, of 1884
