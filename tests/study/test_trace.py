"""study.trace_heads keeps the values of the forward and the gradients of the backward, and changes neither."""

import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn.heads import POINTS

from .models import ATTN, B, EncoderDecoder, T, gpt, page_data, tokens, traced

# -------------------------------------------------------------------------------------------------------- what it keeps


def test_the_gradients_are_those_of_retain_grad():
    """A second backward adds to them, as it does to .grad."""
    model = gpt()
    layer, kept = model.blocks[1].attn, {}
    hooks = [layer.register_head_hook(p, lambda layer, x, p=p: kept.update({p: x})) for p in POINTS]
    _, loss = model(*tokens())
    for x in kept.values():
        x.retain_grad()
    loss.backward()
    for hook in hooks:
        hook.remove()
    with study.trace_heads(model) as trace:
        _, loss = model(*tokens())
        loss.backward(retain_graph=True)
        loss.backward()
    seen = trace[ATTN]
    for point, x in kept.items():
        value, factor = ("scores", 0.5) if point == "qk" else (point, 1.0)  # hooks see q kᵀ before the scale
        np.testing.assert_array_equal(getattr(seen, value), x.detach().numpy() * factor)
        np.testing.assert_array_equal(getattr(seen, f"{value}_grad"), 2 * x.grad.numpy() / factor)


def test_scores_grad_is_what_differences_say():
    model = gpt()
    seen = traced(model)[ATTN]

    def loss(by):
        change = np.zeros((B, 4, T, T))
        change[1, 2, 3, 1] = by / seen.scale
        handle = model.blocks[1].attn.register_head_hook("qk", lambda layer, x: x + mg.tensor(change))
        value = model(*tokens())[1].item()
        handle.remove()
        return value

    assert seen.scores_grad[1, 2, 3, 1] == pytest.approx((loss(1e-4) - loss(-1e-4)) / 2e-4, rel=1e-6)


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64])
@pytest.mark.parametrize("changes", [{}, dict(n_kv_head=2, positions="rotary"), dict(dropout=0.3)])
def test_a_trace_changes_not_one_bit(dtype, changes):
    def run(watched):
        model = gpt(dtype, **changes)
        mg.manual_seed(3)
        if watched:
            with study.trace_heads(model):
                model(*tokens())[1].backward()
        else:
            model(*tokens())[1].backward()
        return [p.grad.numpy() for p in model.parameters()]

    for one, other in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_cross_attention_and_a_layer_used_twice():
    model = EncoderDecoder().double()
    src, tgt = tokens()
    with study.trace_heads(model) as trace:
        model(src, tgt[:, :5]).backward()
    shapes = {path.split(".")[-1]: trace[path].pattern.shape for path in trace}
    assert shapes == {"self_attn": (B, 4, 5, 5), "multihead_attn": (B, 4, 5, T)}
    assert len(list(trace)) == 5
    assert trace["decoder.0.multihead_attn"].pattern[0, :, :, 4:].max() == 0  # padding

    layer = nn.MultiheadAttention(8, 2, dtype=mg.float64, batch_first=True)
    x = mg.randn(1, 3, 8, dtype=mg.float64)
    with study.trace_heads(layer) as trace:
        y, _ = layer(layer(x)[0])
        (y**2).sum().backward()
    assert len(trace.calls("")) == 2 and trace[0] is trace.calls(0)[1]


def test_layers_and_heads_can_be_chosen():
    model, whole = gpt(n_kv_head=2), traced(gpt(n_kv_head=2))
    trace = traced(model, layers=[1], heads=[2, 0])
    assert list(trace) == [ATTN] and trace[ATTN].heads == (0, 2)
    for name in ("pattern", "k", "k_grad", "scores_grad"):
        np.testing.assert_array_equal(getattr(trace[ATTN], name), getattr(whole[ATTN], name)[:, [0, 2]])
    assert not model.blocks[0].attn._head_hooks
    assert traced(model, heads=2)[ATTN].heads == (2,) and list(traced(model, layers=ATTN)) == [ATTN]
    assert trace[1] is trace[ATTN]
    with pytest.raises(KeyError, match=r"blocks\.0\.attn is not traced"):
        trace[0]
    for nothing in (dict(heads=[]), dict(layers=[])):
        with pytest.raises(ValueError, match="are named: None means all"):
            traced(model, **nothing)


def test_layers_that_lack_a_head():
    model, one = gpt(), [np.ones((16, 4))]
    model.blocks[0].attn.load_from_heads(one, one, one, np.ones((4, 16)))
    trace = traced(model, heads=[2])
    assert list(trace) == [ATTN] and trace[1].heads == (2,)
    with pytest.raises(RuntimeError, match=r"blocks.0.attn has none of the traced heads"):
        trace[0]
    with pytest.raises(ValueError, match=r"no head 4: this layer has 4"):
        traced(model, heads=[4])


def test_tokens_are_known_only_where_it_is_clear_which():
    model, (src, tgt) = EncoderDecoder().double(), tokens()
    with study.trace_heads(model, grads=False) as trace:
        model(src, tgt)  # which of them is at which layer?
    assert trace.tokens is None and trace.labels(None) is None and "induction" not in trace.table().stats
    with pytest.raises(ValueError, match=r"tokens of shape \(2, 2\) fit no layer: \(B, T\) are \[\(3, 6\)\]"):
        trace.table("induction", tokens=[[1, 2], [3, 4]])


def test_no_grad_yet():
    model = gpt()
    with study.trace_heads(model) as trace:
        _, loss = model(*tokens())
        with pytest.raises(RuntimeError, match=r"no grad yet of pattern in blocks.1.attn: call backward"):
            trace[ATTN].pattern_grad  # noqa: B018
        assert "gate_grad" not in trace.table().stats and "without gradients" in repr(trace[ATTN])
    loss.backward()  # after the block, what was traced is still told
    assert trace[ATTN].pattern_grad.any() and "with gradients" in repr(trace[ATTN])
    with study.trace_heads(model, grads=False) as trace:
        model(*tokens())[1].backward()
    with pytest.raises(RuntimeError, match="grads=False"):
        trace[ATTN].q_grad  # noqa: B018
    with study.trace_heads(model) as trace, mg.no_grad():
        model(*tokens())
    with pytest.raises(RuntimeError, match=r"no grad yet of q"):
        trace[ATTN].q_grad  # noqa: B018


def test_unknown_names_list_what_comes_near():
    model = gpt()
    with pytest.raises(KeyError, match=r"no attention layer 'blocks.1.atn'; did you mean blocks.1.attn"):
        traced(model, layers=["blocks.1.atn"])
    with pytest.raises(KeyError, match=r"no attention layer 2; there are blocks.0.attn, blocks.1.attn"):
        traced(model, layers=[2])
    with pytest.raises(ValueError, match=r"no head 4: this layer has 4"):
        traced(model, heads=[1, 4])
    with pytest.raises(ValueError, match=r"Linear has no nn.MultiheadAttention"):
        traced(nn.Linear(2, 2))
    trace = traced(model)
    with pytest.raises(AttributeError, match="no value 'patern'; did you mean pattern"):
        trace[ATTN].patern  # noqa: B018
    with pytest.raises(KeyError, match="no statistic 'entropi'; did you mean entropy"):
        trace.table(["entropi"])
    with study.trace_heads(model) as trace:
        pass
    with pytest.raises(RuntimeError, match=r"blocks.1.attn has not run"):
        trace[ATTN]
    assert list(trace) == []


# --------------------------------------------------------------------------------------------------------------- hooks


def test_a_wrong_hook_is_named():
    layer = gpt().blocks[1].attn
    x = mg.randn(1, T, 16, dtype=mg.float64)

    def halve(layer, pattern):
        return pattern[:, :2]

    handle = layer.register_head_hook("pattern", halve)
    with pytest.raises(ValueError, match=r"return value of hook halve on 'pattern' must have shape \(1, 4, 6, 6\)"):
        layer(x)
    handle.remove()
    handle = layer.register_head_hook("v", lambda layer, v: 3)
    with pytest.raises(TypeError, match="return value of hook <lambda> on 'v' must be a Tensor"):
        layer(x)
    handle.remove()
    with pytest.raises(ValueError, match="no 'patern' in attention: there are q, k, v, qk, pattern, z"):
        layer.register_head_hook("patern", halve)
    layer.register_head_hook("z", lambda layer, z: z, last=True)
    with pytest.raises(TypeError, match="hook <lambda> on 'z' has last=True and must return None"):
        layer(x)


def test_the_trace_has_the_values_that_the_forward_used():
    model = gpt()
    with study.trace_heads(model) as trace, study.ablate_heads(model, {1: [2]}):  # the later hook replaces, and is seen
        model(*tokens())[1].backward()
    assert not trace[ATTN].z[:, 2].any() and trace[ATTN].z[:, 1].all()


# --------------------------------------------------------------------------------------------------------------- table


def test_a_table_of_what_has_no_tokens():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    with study.trace_heads(layer) as trace:
        layer(mg.randn(2, 3, 8), mg.randn(2, 5, 8))
    assert trace.tokens is None and trace.table().stats == ("norm", "entropy", "previous", "sink")
    assert np.isnan(trace.table(["previous"])["previous"][""]).all()  # no position is before another's
    with pytest.raises(ValueError, match="induction needs the tokens"):
        trace.table(["induction"])


# --------------------------------------------------------------------------------------------------------------- report


def test_the_page_of_a_trace(tmp_path):
    trace = traced(gpt())
    importance = {"ablation": {ATTN: [0.5, 0.25, 0.0, -1.0]}}  # of one layer: the other shows none
    path = trace.to_html(tmp_path / "heads.html", title="heads", importance=importance)
    header = page_data(path)
    assert [layer["path"] for layer in header["layers"]] == ["blocks.0.attn", ATTN]
    assert header["layers"][0]["kinds"] == ["pattern", "dS", "dP"] and header["matters"] == "ablation"
    assert header["tokens"] == [[[str(t) for t in row] for row in trace.tokens.tolist()]]
    assert header["stats"]["ablation"] == [["NaN"] * 4, [0.5, 0.25, 0.0, -1.0]]
    np.testing.assert_allclose(header["stats"]["norm"][1], trace.table(["norm"])["norm"][ATTN])
    with pytest.raises(ValueError, match="limit"):
        trace.to_html(tmp_path / "heads.html", limit=1000)
    with pytest.raises(KeyError, match="no attention layer 'nix'"):
        trace.to_html(tmp_path / "heads.html", importance={"ablation": {"nix": [0.0] * 4}})
    with pytest.raises(ValueError, match="the report has bars called 'norm' already"):
        trace.to_html(tmp_path / "heads.html", importance={"norm": {ATTN: [0.0] * 4}})
    trace = traced(gpt(), heads=[3])
    header = page_data(trace.to_html(tmp_path / "heads.html", importance=importance))
    assert header["stats"]["ablation"] == [["NaN"], [-1.0]]


def test_tokens_of_a_page(tmp_path):
    model, (src, tgt) = EncoderDecoder(), tokens()
    with study.trace_heads(model, grads=False) as trace:
        model(src, tgt[:, :5])
    cross = "decoder.1.multihead_attn"
    texts = {cross: ([list("hallo")] * B, [list("hello!")] * B)}
    header = page_data(trace.to_html(tmp_path / "heads.html", texts))
    assert header["tokens"] == [texts[cross][0], texts[cross][1]]
    assert [layer["tokens"] for layer in header["layers"]] == [None] * 4 + [[0, 1]]
    model = gpt()
    with study.trace_heads(model, grads=False) as trace:
        model(src[:1])
    for one in ("abcdef", list("abcdef"), [list("abcdef")]):
        assert page_data(trace.to_html(tmp_path / "heads.html", one))["tokens"] == [[list("abcdef")]]
    with pytest.raises(ValueError, match="1 sequences of 6 queries, but the tokens given are 1 of"):
        trace.to_html(tmp_path / "heads.html", "abc")


# ------------------------------------------------------------------------------------------------------------- threads


def test_a_model_is_studied_by_one_thread():
    model, batch, errors, flows = gpt(), tokens(), [], []

    def study_it_too():
        for call in (
            lambda: study.trace_heads(model).__enter__(),
            lambda: study.ablate_heads(model, "0.1").__enter__(),
            lambda: study.flow(model, batch),
            lambda: study.head_importance(model, [batch]),
            lambda: study.head_scores(model, periods=[2], n=1),
        ):
            with pytest.raises(RuntimeError, match="another thread is studying this GPT") as error:
                call()
            errors.append(error.value)

    def in_a_thread(function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    with study.trace_heads(model), study.trace_heads(model):
        in_a_thread(study_it_too)
    in_a_thread(lambda: flows.append(study.flow(model, batch)))
    assert len(errors) == 5 and len(flows) == 1
