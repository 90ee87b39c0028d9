"""study.ledger: a line for each step of backward, right, complete, and without side effects."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.autograd import GraphError

from .models import EncoderDecoder

V, T = 11, 5
ATTN = "blocks.1.attn"


def gpt(**changes):
    mg.manual_seed(1)
    config = nn.GPTConfig(V, T, **dict(n_layer=2, n_head=4, n_embd=16, impl="batched", bias=True) | changes)
    return nn.GPT(config).double()


def loss_of(model):
    generator = mg.Generator(2)
    x, y = mg.randint(0, V, (2, T), generator=generator), mg.randint(0, V, (2, T), generator=generator)
    return lambda: model(x, y)[1]


def given(book, op):
    """{name: Gradient} of what the steps of an op give."""
    return {g.name: g for entry in book.entries if entry.op == op for g in entry.gives}


def test_a_head_reads_as_in_the_textbook():
    model = gpt()
    loss = loss_of(model)
    with study.trace_heads(model) as trace:
        loss().backward()
    seen, h = trace[ATTN], 2
    book = study.ledger(loss, ATTN, head=h, names=model)
    assert [entry.op for entry in book.entries] == [
        "linear", "merge_heads", "matmul", "attention_pattern", "matmul", "permute", "split_heads", "linear",
    ]  # fmt: skip
    for point in ("q", "v", "k", "z", "pattern"):
        g = next(g for entry in book.entries for g in entry.gives if g.name == point)
        np.testing.assert_array_equal(g.array, getattr(seen, f"{point}_grad")[:, [h]])
        assert g.norm == pytest.approx(np.linalg.norm(g.array)) and g.shape == getattr(seen, point).shape
    qk = given(book, "attention_pattern")["qk"].array
    np.testing.assert_array_equal(qk, seen.scores_grad[:, [h]] * 0.5)  # q kᵀ is what the scale makes scores of
    text = str(book)
    for formula in (
        "dpattern = dz vᵀ, dv = patternᵀ dz",
        "dscores = pattern (dpattern - Σ dpattern pattern), dqk = scale · dscores",
        "dq = dqk k, dkᵀ = qᵀ dqk",
    ):
        assert f"formula   {formula}\n" in text
    assert re.search(r"\|dz\| = [\d.e-]+   \(2, 1, 5, 4\), of \(2, 4, 5, 4\)\n", text)
    assert "made at test_ledger.py:" in text

    weights = {g.name: g.array for entry in book.entries if entry.op == "linear" for g in entry.gives}
    for name, where in {"in_proj_weight": np.r_[8:12, 24:28, 40:44], "in_proj_bias": np.r_[8:12, 24:28, 40:44]}.items():
        expected = getattr(model.blocks[1].attn, name).grad.numpy()[where]
        np.testing.assert_allclose(weights[name], expected, rtol=1e-12, atol=1e-18)
    expected = model.blocks[1].attn.out_proj.weight.grad.numpy()[:, 8:12]
    np.testing.assert_allclose(weights["out_proj.weight"], expected, rtol=1e-12)


@pytest.mark.parametrize("changes", [
    dict(impl="fused"), dict(n_kv_head=2), dict(n_kv_head=2, impl="fused"), dict(n_kv_head=1, positions="rotary"),
])  # fmt: skip
def test_the_parts_of_a_head_in_other_forms(changes):
    """The gradient of a head's own part of the weights: that of a model in which only this head is watched."""
    model = gpt(**changes)
    layer, loss = model.blocks[1].attn, loss_of(model)
    for h in range(layer.num_heads):
        book = study.ledger(loss, ATTN, head=h, names=model)
        assert len(book.entries) >= 5
        group, d = layer.kv_of_head[h], layer.d_k
        rows = np.concatenate(
            [
                np.arange(d) + start * d
                for start in (h, layer.num_heads + group, layer.num_heads + layer.num_kv_heads + group)
            ]
        )
        (dW,) = mg.grad(loss(), layer.in_proj_weight)
        np.testing.assert_allclose(
            given(book, "linear")["in_proj_weight"].array, dW.numpy()[rows], rtol=1e-9, atol=1e-15
        )


# ------------------------------------------------------------------------------------- the same words as in a trace


def complete(book):
    """{name: array} of the gradients that steps received, which are complete."""
    return {g.name: g.array for entry in book.entries for g in entry.upstream}


FORMS = [
    dict(), dict(impl="fused"), dict(n_kv_head=2), dict(n_kv_head=1, positions="rotary", impl="fused"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [mg.float64, mg.float32])
@pytest.mark.parametrize("changes", FORMS)
def test_the_ledger_and_the_trace_have_the_same_gradients(changes, dtype):
    model = gpt(**changes).to(dtype=dtype)
    layer, loss = model.blocks[1].attn, loss_of(model)
    layer.head_gates = mg.tensor(np.linspace(0.5, 2, layer.num_heads), dtype=dtype)
    with study.trace_heads(model) as trace:
        loss().backward()
    seen, rtol = trace[ATTN], {8: 1e-12, 4: 2e-5}[np.dtype(dtype).itemsize]
    for given in loss, loss():
        found = complete(study.ledger(given, ATTN))
        named = {"q", "k", "v", "scores", "pattern", "z"} & set(found)
        for value in named:
            g = getattr(seen, f"{value}_grad")
            np.testing.assert_allclose(found[value], g, rtol=rtol, atol=rtol * abs(g).max())
        assert {"q", "z"} <= named and (given is not loss or {"v", "pattern"} <= named)
        if "qk" in found:
            g = seen.scores_grad
            np.testing.assert_allclose(found["qk"], g * layer.score_scale, rtol=rtol, atol=rtol * abs(g).max())
        for shared in "kv" if changes.get("n_kv_head") == 2 and "k_shared" in found else "":
            g = np.zeros_like(found[f"{shared}_shared"])
            for h, group in enumerate(layer.kv_of_head):
                g[:, group] += getattr(seen, f"{shared}_grad")[:, h]
            np.testing.assert_allclose(found[f"{shared}_shared"], g, rtol=rtol, atol=rtol * abs(g).max())


@pytest.mark.parametrize("dtype", [mg.float64, mg.float32])
def test_the_words_in_an_encoder_and_a_decoder(dtype):
    mg.manual_seed(0)
    model = EncoderDecoder().to(dtype=dtype)
    src, tgt = mg.randint(0, V, (3, 6)), mg.randint(0, V, (3, 4))
    with study.trace_heads(model) as trace:
        model(src, tgt).backward()
    rtol = {8: 1e-11, 4: 1e-4}[np.dtype(dtype).itemsize]
    for path in trace:
        book = study.ledger(lambda: model(src, tgt), path, head=1, names=model)
        found, seen = complete(book), trace[path]
        assert len(book.entries) >= 8
        for value in "q", "k", "v", "pattern", "z":
            g = getattr(seen, f"{value}_grad")[:, [1]]
            np.testing.assert_allclose(found[value], g, rtol=rtol, atol=rtol * abs(g).max())
        g = seen.scores_grad[:, [1]] * seen.scale
        np.testing.assert_allclose(found["qk"], g, rtol=rtol, atol=rtol * abs(g).max())
    assert len(list(trace)) == 5


@pytest.mark.parametrize("impl", ["fused", "per_head"])
def test_a_function_runs_in_the_batched_form(impl):
    model = gpt(impl=impl)
    loss, before = loss_of(model), repr(model)
    assert "attention_pattern" not in {entry.op for entry in study.ledger(loss()).entries} or impl == "per_head"
    text = str(study.ledger(loss, ATTN, head=2))
    for gradient in "dz", "dv", "dpattern", "dqk", "dq", "dk":
        assert f"|{gradient}| = " in text
    assert repr(model) == before

    def fails():
        loss()
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        study.ledger(fails, ATTN, head=2)
    own = {"fused": "attention", "per_head": "cat"}[impl]
    assert own in {entry.op for entry in study.ledger(loss()).entries}


def test_contributions_are_counted_and_add_up():
    x = mg.tensor([1.0, 2.0, 3.0], dtype=mg.float64, requires_grad=True)
    y = x * x + x.exp()
    book = study.ledger((y * mg.tensor([1.0, -1.0, 2.0], dtype=mg.float64)).sum(), names={"leaf": x})
    parts = [g for entry in book.entries for g in entry.gives if g.name == "leaf"]
    assert [(g.number, g.of) for g in parts] == [(1, 3), (2, 3), (3, 3)]
    expected = (2 * x.detach().numpy() + np.exp(x.detach().numpy())) * [1, -1, 2]
    np.testing.assert_allclose(sum(g.array for g in parts), expected, rtol=1e-12)
    assert str(book).count("contribution 2 of 3") == 1 and "of 1" not in str(book)


def test_full_shows_the_numbers():
    x = mg.tensor([[0.25, -3.5]], requires_grad=True)
    summary, full = (str(study.ledger((x * x).sum(), values=values)) for values in ("summary", "full"))
    assert "[[ 0.25 -3.5 ]]" in full and "[[ 0.25 -3.5 ]]" not in summary


def test_it_only_looks():
    model = gpt()
    seen = []
    model.wte.weight.register_hook(lambda g: seen.append("leaf"))
    model.wte.weight.retain_grad()
    loss = loss_of(model)()
    with mg.autograd.watch(lambda op, inputs, outputs: seen.append("op")), mg.autograd.detect_anomaly():
        study.ledger(loss, ATTN)
    assert seen == [] and all(p.grad is None for p in model.parameters())
    loss.backward()  # the graph is whole
    assert set(seen) == {"leaf"}


# --------------------------------------------------------------------------------------------------------------- errors


def test_wrong_arguments_raise():
    model = gpt()
    loss = loss_of(model)()
    with pytest.raises(KeyError, match=r"no module 'blocks.1.atn'; did you mean blocks.1.attn"):
        study.ledger(loss, "blocks.1.atn")
    with pytest.raises(ValueError, match=r"no head 4"):
        study.ledger(loss, ATTN, head=4)
    with pytest.raises(ValueError, match=r"one attention layer; in '' there is blocks.0.attn, blocks.1.attn"):
        study.ledger(loss, head=0)
    with pytest.raises(ValueError, match=r"there is none of impl 'batched' or 'fused'"):
        study.ledger(loss_of(gpt(impl="per_head"))(), ATTN, head=0)
    with pytest.raises(ValueError, match="values must be 'summary' or 'full', got 'all'"):
        study.ledger(loss, values="all")
    with pytest.raises(ValueError, match=r"a loss of one element, not \(2,\)"):
        study.ledger(mg.zeros(2, requires_grad=True) * 2)
    with pytest.raises(ValueError, match="a loss of one element, not tuple"):
        study.ledger(lambda: (loss, loss))
    with pytest.raises(ValueError, match="a loss of one element, not float"):
        study.ledger(3.0)
    with pytest.raises(GraphError, match="no graph was recorded"):
        study.ledger(mg.zeros(1))
    loss.backward()
    with pytest.raises(RuntimeError, match="pass retain_graph=True"):
        study.ledger(loss)
