"""Other frameworks and gradcheck: PyTorch's own on our functions, and ours on PyTorch's."""

import numpy as np
import pytest

from minigrad.gradcheck import gradcheck

from ..gradcheck.reported import REPORTS

pytestmark = pytest.mark.oracle


def test_the_bridge_is_right(torch):
    """PyTorch's gradcheck objects to no right gradient, so that an objection to a wrong one is earned."""
    from .torch_gradcheck import caught, objection

    assert [r.name for r in REPORTS if objection(r, r.right) is not None] == []
    assert sum(map(caught, REPORTS)) == 8  # as gradcheck/README.md says


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
