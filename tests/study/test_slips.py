"""study with losses of a user's own, after errors, with gates, and in small dtypes."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study
from minigrad.nn import functional as F

from .models import ATTN, V, gpt, tokens, traced

PATHS = "blocks.0.attn", ATTN
GATES = [1.0, 0.5, -1.5, -2.0]


def near(x, expected, rtol=1e-12):
    np.testing.assert_allclose(x, expected, rtol=0, atol=rtol * abs(np.asarray(expected)).max())


def summed(model, x, y):
    """The sum of the losses; the model returns their mean."""
    return F.cross_entropy(model(x)[0].reshape(-1, V), y.reshape(-1), reduction="sum")


def gated(dtype=mg.float64, requires_grad=False):
    model = gpt(dtype)
    model.blocks[1].attn.head_gates = mg.tensor(GATES, dtype=dtype, requires_grad=requires_grad)
    return model


def assert_untouched(model):
    assert not any(layer._head_hooks for layer in study.attention_layers(model).values())
    assert all(layer.head_gates is None for layer in study.attention_layers(model).values())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Fails:
    """A loss that raises at its nth call, after the forward."""

    def __init__(self, n):
        self.left = n

    def __call__(self, model, x, y):
        loss, self.left = model(x, y)[1], self.left - 1
        if self.left == 0:
            raise ZeroDivisionError
        return loss


# -------------------------------------------------------------------------------------------------------------- effects


@pytest.mark.parametrize("method", study.METHODS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_importance_leaves_no_hooks_and_no_gates_when_the_loss_raises(method, nth):
    model = gpt()
    with pytest.raises(ZeroDivisionError):
        study.head_importance(model, [tokens()] * 3, method, loss=Fails(nth))
    assert_untouched(model)


# ---------------------------------------------------------------------------------------------------- edges and streams


def test_a_loss_that_is_not_finite_has_a_flow():
    found = study.flow(gpt(), tokens(), lambda model, x, y: model(x, y)[1] * float("inf"))
    assert np.isinf(found.loss) and not np.isfinite(found.edges).all()


# -------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_gradients_of_projections_are_float64(positions):
    seen = traced(gpt(mg.float32, positions=positions))[ATTN]
    assert seen.q_grad.dtype == np.float32
    assert all(seen.projection_grad(p).dtype == np.float64 for p in "qkv")


# ----------------------------------------------------------------------------------------------------------- statistics


# ---------------------------------------------------------------------------------------------- trace, report and steps


@pytest.mark.parametrize("head", range(4))
def test_a_ledger_shows_the_gradient_of_the_heads_own_gate(head):
    model = gated(requires_grad=True)
    book = study.ledger(lambda: model(*tokens())[1], ATTN, head=head)
    model(*tokens())[1].backward()
    expected = model.blocks[1].attn.head_gates.grad.numpy()[head]
    found = {g.shape: g.array for entry in book.entries for g in entry.gives if g.shape in ((4, 1, 1), (4,))}
    assert {shape: array.shape for shape, array in found.items()} == {(4, 1, 1): (1, 1, 1), (4,): (1,)}
    near([array.item() for array in found.values()], expected)
