"""Trunks that others write, found by running their blocks: every study of them agrees with what it is defined by."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn import functional as F
from minigrad.study.layers import as_float64
from minigrad.study.residual.scissors import Scissors
from minigrad.study.residual.streams import streams

from .models import randomised, tokens
from .trunks import TRUNKS, C, GPT2Block, Model, attention, loss_of


@pytest.fixture(params=TRUNKS)
def model(request):
    mg.manual_seed(3)
    return randomised(TRUNKS[request.param]()).eval()


def test_flow_traces_and_scissors_agree(model):
    """The edges add up, and each is the slope of its own cut, which is made in another way."""
    batch = tokens()
    flow, (stream,) = study.flow(model, batch), streams(model)
    assert flow.check().worst < 1e-12
    names = {node.path.removesuffix(".bias") for node in flow.sources}
    assert names >= set(study.attention_layers(model)) and any(v.path.endswith("logits") for v, _ in flow.inputs)
    for u, v, p, edge in flow.all[::7]:
        share = mg.ones(1, dtype=mg.float64, requires_grad=True)
        with Scissors([stream], u, v, p or None, lambda write, share=share: (1 - share) * write).hooked(model):
            slope = mg.grad(model(*batch)[1], share)[0].item()
        assert slope == pytest.approx(edge, rel=1e-8, abs=1e-12), (u, v, p)
    cut = study.flow(model, batch, method="cut", most=5)
    assert np.isfinite([edge for *_, edge in cut.all]).all()


def test_gradients_are_cut(model):
    """A model without the edge's gradient, and the edge's own, which is what has gone."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    batch, (stream,) = tokens(), streams(model)
    first, last = stream.parts[0], stream.parts[-1]
    whole = mg.grad(model(*batch)[1], list(model.parameters()), allow_unused=True)
    with study.cut_gradient(model, first.path, last.path, factor=1.0):
        same = mg.grad(model(*batch)[1], list(model.parameters()), allow_unused=True)
    with study.cut_gradient(model, first.path, last.path):
        loss = model(*batch)[1]
        other = mg.grad(loss, list(model.parameters()), allow_unused=True)
    assert loss.item() == pytest.approx(model(*batch)[1].item(), rel=1e-14)
    pairs = [(as_float64(a), as_float64(b), as_float64(c)) for a, b, c in zip(whole, same, other) if a is not None]
    for a, b, _ in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    between = stream.parts.index(last) - last.behind > 0
    assert any(np.abs(a - c).max() > 1e-8 for a, _, c in pairs) == between


class Sandwich(GPT2Block):
    def forward(self, x):
        return x + self.ln_2(self.attn(self.ln_1(x), is_causal=True)[0])


class Masked(GPT2Block):
    def forward(self, x, causal):
        x = x + self.attn(self.ln_1(x), is_causal=causal)[0]
        return x + self.mlp(self.ln_2(x))


class Gated(GPT2Block):
    def forward(self, x):
        return x + self.attn(self.ln_1(x), is_causal=True)[0].sigmoid()


class ByItsInput(GPT2Block):
    def forward(self, x):
        return x + self.attn(self.ln_1(x), is_causal=True)[0] * x.mean()


class OwnNorm(GPT2Block):
    class Norm(nn.Module):
        def forward(self, x):
            return x / x.std(-1, keepdim=True)

    def forward(self, x):
        return x + self.attn(self.own(x), is_causal=True)[0]

    def __init__(self):
        super().__init__()
        self.own = self.Norm()


class TwoReaders(GPT2Block):
    def __init__(self):
        super().__init__()
        self.w1, self.w3, self.w2 = nn.Linear(C, 24), nn.Linear(C, 24), nn.Linear(24, C)

    def forward(self, x):
        h = self.ln_2(x := x + self.attn(self.ln_1(x), is_causal=True)[0])
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


@pytest.mark.parametrize(
    "block, words",
    [
        (Sandwich, r"layers.0.ln_2 is a norm of what is added to the stream"),
        (Masked, r"layers.0 does not run on a stream \(1, 3, 16\) alone: .*causal.*; declare its parts, such as"),
        (Gated, r"layers.0 adds to its stream what none of its modules returns: sigmoid"),
        (ByItsInput, r"layers.0 adds to its stream what none of its modules returns: mul"),
        (OwnNorm, r"layers.0.attn reads neither the stream nor an nn.LayerNorm or .* of it: \['own, a Norm'\]"),
        (TwoReaders, r"layers.0.w2 must return what one module of layers.0 has read .*, not: w1, w3"),
        (lambda: attention(), r"residual stream|returns"),
    ],
)
def test_what_is_not_known_is_named(block, words):
    with pytest.raises(TypeError, match=words):
        study.flow(Model(block).double(), tokens())


def test_a_block_may_declare_its_parts():
    class Declared(Masked):
        study_parts = {"attn": "ln_1", "mlp": "ln_2"}

        def __call__(self, x):
            return super().__call__(x, True)

    mg.manual_seed(3)
    model, same = randomised(Model(Declared)), randomised(Model(GPT2Block))
    same.load_state_dict(model.state_dict())
    np.testing.assert_allclose(study.flow(model, tokens()).edges, study.flow(same, tokens()).edges, rtol=1e-12)


def test_finding_out_calls_no_hooks_and_changes_nothing():
    model, calls = randomised(Model(GPT2Block)), []
    model.layers[0].register_forward_hook(lambda *call: calls.append(call))
    model.layers[1].attn.register_head_hook("q", lambda *call: calls.append(call))
    state = mg.random.default_generator.state
    (stream,) = streams(model.train())
    assert not calls and mg.random.default_generator.state == state and model.layers[0].attn.training
    assert stream.norm is model.ln_f and stream.embedding is model.tok_emb and stream.unembedding is model.head
    model(tokens()[0])
    assert len(calls) == 2
    assert all(p.grad is None for p in model.parameters())


class TwoRows(nn.Module):
    """Two stacks, the second on top of the first, and a Sequential inside a Sequential."""

    def __init__(self):
        self.embed, self.head = nn.Embedding(11, C), nn.Linear(C, 11)
        self.lower = nn.ModuleList([GPT2Block(), GPT2Block()])
        self.upper = nn.ModuleList([GPT2Block()])

    def forward(self, idx, targets=None):
        x = self.embed(idx)
        for block in self.lower:
            x = block(x)
        x = x * 0.5
        for block in self.upper:
            x = block(x)
        return loss_of(self.head(x), targets)


def test_several_lists_are_several_streams():
    mg.manual_seed(0)
    model, batch = randomised(TwoRows()), tokens()
    assert [stream.name for stream in streams(model)] == ["lower", "upper"]
    flow = study.flow(model, batch)
    assert flow.edge("lower.input", ("lower.1.attn", 0)) and flow.edge("upper.input", "upper.output")
    assert not [edge for edge in flow.all if edge[0].path[:5] != edge[1].path[:5]]  # none from one to the other
    nested = nn.Sequential(nn.Embedding(11, C), nn.Sequential(GPT2Block(), GPT2Block()), nn.Linear(C, 11))
    (stream,) = streams(nested)
    assert [part.path for part in stream.parts] == [f"1.{i}.{part}" for i in (0, 1) for part in ("attn", "mlp")]


def test_attention_outside_of_all_lists_is_not_passed_over():
    model = Model(GPT2Block)
    model.pooler = attention()
    with pytest.raises(TypeError, match="pooler is in no list of blocks"):
        study.flow(model, tokens())


class Pooled(Model):
    """A norm that stands after the layers and reads something else than their stream."""

    def __init__(self):
        super().__init__(GPT2Block, norm=None)
        self.pool_norm = nn.LayerNorm(C)

    def forward(self, idx, targets=None):
        logits, loss = super().forward(idx, targets)
        pooled = self.pool_norm(self.tok_emb(idx).mean(1))  # (B, C)
        return logits, None if loss is None else loss + (pooled**3).sum()


def test_a_norm_of_something_else_is_not_taken_for_the_last():
    mg.manual_seed(0)
    model, batch = randomised(Pooled()), tokens()
    flow = study.flow(model, batch, method="cut", most=8)
    assert flow.check().worst < 1e-12 and np.isfinite([edge for *_, edge in flow.all]).all()
    found = []
    for factor in 1.0, 0.0:
        with study.cut_gradient(model, "layers.1.attn", "logits", factor=factor):
            found.append(as_float64(mg.grad(model(*batch)[1], model.layers[1].attn.out_proj.weight)[0]))
    plain = as_float64(mg.grad(model(*batch)[1], model.layers[1].attn.out_proj.weight)[0])
    np.testing.assert_allclose(found[0], plain, rtol=1e-10, atol=1e-12)
    assert np.abs(found[1] - plain).max() > 1e-3
