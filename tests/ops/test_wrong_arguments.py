"""Every public function with another object in place of each Tensor: it works, or its error names the argument."""

import inspect
import typing

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

from ..project.test_public import ARGUMENTS, CALLS, FUNCTIONS, arguments

WRONG = {"a list": [[1.0, 2.0]], "a float": 1.5, "None": None, "a str": "x", "a NumPy array": np.ones((2, 3))}
MAKERS = {f: (mg.ones(2, 3), 2) for f in (mg.full_like,)} | {
    f: (mg.ones(2, 3),) for f in (mg.zeros_like, mg.ones_like, mg.randn_like, mg.multinomial, F.one_hot)
}
MAKERS[mg.multinomial] += (1,)


def calls():
    """Yield (name, function, arguments that are right) of every function that takes a Tensor."""
    for name, function in FUNCTIONS.items():
        first = (typing.get_overloads(inspect.unwrap(function)) or [inspect.unwrap(function)])[0]
        given = (CALLS.get(name) or [ARGUMENTS.get(name) or arguments(inspect.signature(first))])[0]
        yield name, function, tuple(given)
    for function, given in MAKERS.items():
        yield function.__name__, function, given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrong", WRONG)
def test_errors_name_the_function_or_what_must_be_a_tensor(wrong):
    tried = 0
    for name, function, given in calls():
        for i, x in enumerate(given):
            if not isinstance(x, mg.Tensor):
                continue
            tried += 1
            try:
                function(*given[:i], WRONG[wrong], *given[i + 1 :])
            except (TypeError, ValueError, IndexError) as error:
                said = str(error)
                assert name in said or "Tensor" in said or said.startswith("matmul"), f"{name}, argument {i}: {said}"
    assert tried > 120


def test_a_number_among_the_tensors_of_a_list():
    for function in (mg.cat, mg.stack):
        with pytest.raises(TypeError, match=r"element of tensors must be a Tensor, got a float$"):
            function([mg.ones(2), 1.0])
