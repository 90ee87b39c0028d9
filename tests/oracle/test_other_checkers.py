"""Who catches which planted bug: minigrad all of them; the others what they did when they were first tried by hand."""

import numpy as np
import pytest

from minigrad.gradcheck import gradcheck

from .other_checkers import MUTANTS, OTHERS, outcome, table

pytestmark = pytest.mark.oracle
NEEDS = {"torch slow": "torch", "torch fast": "torch", "JAX": "jax", "HIPS": "autograd"}
BY_NAME = {m.name: m for m in MUTANTS}
AS_TRIED_BEFORE = {  # torch slow, torch fast, JAX, HIPS
    "0.05 % scale error": "✗✗✓✓",
    "1e-5 scale error": "✗✗✗✓",
    "true gradient 1e-6 returned as 0": "✗✗✗✓",
    "1 of 4096 elements off by 50 %": "✓✗✓✓",
    "bias gradient reduced over the wrong axis of a square": "✓✓✓✓",
    # "✗✓✗✗" there. Our op is the last of the function, so that HIPS, which multiplies the differences by the cotangent
    # only after the backward, multiplies them by the changed one.
    "upstream gradient mutated in place": "✗✓✗✓",
    "saved buffer reused by a later call": "✗✗✗✗",
    "NaN output and gradient": "✓✓✗✓",
    "1e-10 nondeterminism": "✓✓✗✗",
    "wrong only on a non-contiguous layout": "✗✗✗✗",
    "repeated gather index assigned, not added": "✓✓✓✓",
}


@pytest.fixture(params=OTHERS)
def other(request):
    pytest.importorskip(NEEDS[request.param], reason=f"{NEEDS[request.param]} is not installed")
    return request.param


def test_minigrad_catches_all():
    assert [m.name for m in MUTANTS if outcome("minigrad", m) != "✓"] == []


def test_no_other_objects_to_what_is_right(other):
    """So the bridges are right, and an objection to a wrong one is earned."""
    beyond_their_steps = ["quotient rule without its square, near the pole"]
    assert [m.name for m in MUTANTS if outcome(other, m) == "–"] == beyond_their_steps


@pytest.mark.parametrize("name", AS_TRIED_BEFORE)
def test_as_tried_before(other, name):
    assert outcome(other, BY_NAME[name]) == AS_TRIED_BEFORE[name][list(OTHERS).index(other)]


def test_the_table():
    lines = list(table(["minigrad"]))
    assert len(lines) == len(MUTANTS) + 3
    assert lines[-1].startswith(f"| caught, of {len(MUTANTS)} | ")


def test_a_function_of_pytorch_is_checked_as_a_pair(torch):
    """As gradcheck/README.md has it."""

    def tensor(array):
        return torch.tensor(array.copy(), requires_grad=True)

    def norm(x, w, b):
        return torch.nn.functional.layer_norm(x, (4,), w, b)

    def vjp(dy, *inputs, wrong=0.0):
        xs = [tensor(x) for x in inputs]
        return tuple(g.numpy() + wrong for g in torch.autograd.grad(norm(*xs), xs, tensor(dy)))

    def values(*inputs):
        return norm(*map(tensor, inputs)).detach().numpy()

    inputs = [np.random.default_rng(i).standard_normal((3, 4)[i > 0 :]) for i in range(3)]
    assert gradcheck(values, *inputs, vjp=vjp)
    assert not gradcheck(values, *inputs, vjp=lambda *xs: vjp(*xs, wrong=1e-5), raise_on_fail=False)
