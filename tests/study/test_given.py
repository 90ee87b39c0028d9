"""study.trace_of: heads of any engine in the check, the table and the report of ours."""

import numpy as np
import pytest

from minigrad import study

from .models import ATTN, gpt, tokens, traced


class Array:
    """A tensor of some engine, with a gradient that is an array, or one of its tensors."""

    def __init__(self, data, grad):
        self.data, self.grad = data, grad


def heads(trace, wrap=np.array, **changes):
    """{path: {name: Array}} of what a trace has seen; changes: {name: its gradient's factor}."""
    names = ("q", "k", "v", "scores", "pattern", "z")
    return {
        path: {
            name: Array(getattr(seen, name), wrap(getattr(seen, f"{name}_grad") * changes.get(name, 1)))
            for name in names
        }
        for path in trace
        for seen in [trace[path]]
    }


@pytest.mark.parametrize("wrap", [np.array, lambda g: Array(g, None)])
def test_what_is_known_without_weights_is_as_for_ours(tmp_path, wrap):
    trace = traced(gpt())
    given = study.trace_of(heads(trace, wrap), tokens=tokens()[0].numpy())
    ours, theirs = trace.check(), given.check()
    assert [row for row in ours.rows if "dW" not in row[2]] == theirs.rows and len(theirs.skipped) == 2
    table, ours = given.table(), trace.table()
    assert set(ours.stats) - set(table.stats) == {"norm", "dW_Q", "dW_K", "dW_V", "dW_O"}
    for name in table.stats:
        np.testing.assert_array_equal(table[name][ATTN], ours[name][ATTN])
    text = given.to_html(tmp_path / "heads.html").read_text()
    assert "gate_grad" in text and ATTN in text


@pytest.mark.parametrize("wrong, identity", [
    ("k", "dk = s dSᵀ q"), ("v", "dv = Pᵀ dz"), ("scores", "dS = P ⊙ (dP - D)"), ("pattern", "dP = dz vᵀ"),
])  # fmt: skip
def test_a_wrong_gradient_is_named(wrong, identity):
    with pytest.raises(study.IdentityError) as caught:
        study.trace_of(heads(traced(gpt()), **{wrong: 1.001})).check()
    assert identity in {row[2] for row in caught.value.report.failed}


def test_what_is_missing_or_of_another_shape_is_named():
    (layer, *_) = heads(traced(gpt())).values()
    with pytest.raises(RuntimeError, match="there is no W_Q in attn: it was not computed, or not given"):
        study.trace_of({"attn": layer})["attn"].W_Q  # noqa: B018
    for changes, message in [
        ({"z": Array(layer["z"].data[0], None)}, r"z must be \(B, n, T, d_v\) with"),
        ({"k": Array(layer["k"].data[:, :2], None)}, r"k must be \(B, n, S, d_k\) with .*, got shape \(3, 2, 6, 4\)"),
        ({"q": Array(layer["q"].data, np.ones(3))}, r"q_grad must be .*, got shape \(3,\)"),
        ({"Q": layer["q"]}, "no value of heads 'Q'"),
    ]:
        with pytest.raises(ValueError, match=message):
            study.trace_of({"attn": layer | changes})
    with pytest.raises(ValueError, match="scores missing"):
        study.trace_of({"attn": {name: x for name, x in layer.items() if name != "scores"}})
    with pytest.raises(TypeError, match=r"q must have .data and .grad, got ndarray"):
        study.trace_of({"attn": layer | {"q": layer["q"].data}})
    with pytest.raises(ValueError, match="at least one layer"):
        study.trace_of({})
    seen = study.trace_of({"attn": layer | {"k": Array(layer["k"].data, None)}})
    with pytest.raises(RuntimeError, match=r"no grad yet of k .* retain_grad\(\)"):
        seen[0].k_grad  # noqa: B018
    with pytest.raises(RuntimeError, match="no grad yet"):
        seen.check()
    assert "dS" not in seen.table().stats
