"""trace.check: the identities hold in every backward that is right, and a planted wrong one fails them."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study

from .models import ATTN, gpt, tokens, traced


@pytest.mark.parametrize("changes", [
    {}, dict(bias=False), dict(n_kv_head=2), dict(n_kv_head=1, positions="rotary"), dict(positions="alibi"),
    dict(dropout=0.3),
])  # fmt: skip
def test_identities_hold_on_the_char_lm(changes):
    report = traced(gpt(**changes)).check()
    assert report.worst < 1e-10 and not report.failed
    assert len(report.rows) == 8 * (12 if "dropout" in changes else 14)
    assert bool(report.skipped) == ("dropout" in changes)


def test_a_forward_from_before_the_trace_is_suspected():
    model = gpt()
    _, before = model(*tokens())
    with study.trace_heads(model) as trace:
        (before + model(*tokens())[1]).backward()
    with pytest.raises(study.IdentityError, match="a forward from outside the trace"):
        trace.check()


def test_what_others_share_is_not_compared():
    model = gpt()
    model.blocks[1].attn.in_proj_weight = model.blocks[0].attn.in_proj_weight
    report = traced(model).check()
    assert report.worst < 1e-10 and len([text for text in report.skipped if "or others share it" in text]) == 6


PLANTED = {  # a factor on one gradient of one op: (module, class, which of its gradients) -> the identity that sees it
    "dS": ("attention", "AttentionPattern", 0, "dS = P ⊙ (dP - D)"),
    "dP and dq": ("matmul", "Matmul", 0, "dP = dz vᵀ"),
    "dv and dk": ("matmul", "Matmul", 1, "dv = Pᵀ dz"),
    "dW": ("matmul", "Linear", 1, "⟨dz, z⟩ = ⟨dW_O, W_O⟩"),
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("factor", [1.001, -1.0, 0.0, float("nan")])
def test_a_planted_wrong_backward_fails_the_check(planted, factor, monkeypatch):
    family, name, which, identity = PLANTED[planted]
    op = getattr(__import__(f"minigrad.ops.{family}", fromlist=[name]), name)
    right = op.backward

    def wrong(self, dy):
        dxs = list(right(self, dy))
        dxs[which] = None if dxs[which] is None else dxs[which] * factor
        return tuple(dxs)

    monkeypatch.setattr(op, "backward", wrong)
    trace = traced(gpt())
    with pytest.raises(study.IdentityError, match="FAILS") as caught:
        trace.check()
    assert identity in {row[2] for row in caught.value.report.failed}


@pytest.mark.parametrize("head", [0, 2])
def test_a_wrong_head_is_named_and_no_other(head, monkeypatch):
    from minigrad.ops.attention import AttentionPattern

    right, factors = AttentionPattern.backward, np.ones((4, 1, 1))
    factors[head] = 1.01
    monkeypatch.setattr(AttentionPattern, "backward", lambda self, dy: (right(self, dy)[0] * mg.tensor(factors), None))
    with pytest.raises(study.IdentityError) as caught:
        traced(gpt()).check()
    failed = caught.value.report.failed
    assert {row[1] for row in failed if row[0] == ATTN} == {head}
    assert {row[1] for row in failed if row[2] == "dS = P ⊙ (dP - D)"} == {head}
