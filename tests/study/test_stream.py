"""Models with blocks of their own that declare their parts: study's numbers agree with their definitions."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn import functional as F
from minigrad.study.cut import EdgeCut
from minigrad.study.stream import stream_of

from .models import randomised, tokens

V, T, C = 11, 6, 16


def attention(**options):
    return nn.MultiheadAttention(C, 4, **{"impl": "batched", "batch_first": True, "bias": False} | options)


def mlp():
    return nn.Sequential(nn.Linear(C, 32), nn.GELU(), nn.Linear(32, C))


def loss_of(logits, targets):
    return logits, F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))


class Model(nn.Module):
    """Embeddings, layers, perhaps a norm, and an unembedding."""

    def __init__(self, block, n_layer=2, norm=nn.LayerNorm):
        self.tok_emb, self.pos_emb = nn.Embedding(V, C), nn.Embedding(T, C)
        self.layers = nn.ModuleList(block() for _ in range(n_layer))
        self.ln_f = norm(C) if norm else None
        self.head = nn.Linear(C, V, bias=False)

    def forward(self, idx, targets):
        x = self.tok_emb(idx) + self.pos_emb(mg.arange(idx.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return loss_of(self.head(x if self.ln_f is None else self.ln_f(x)), targets)


class GPT2Block(nn.Module):
    study_parts = {"attn": "ln_1", "mlp": "ln_2"}

    def __init__(self):
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(C), attention(bias=True), nn.LayerNorm(C), mlp()

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The names of GPT-2's checkpoints."""

    def __init__(self):
        blocks = nn.ModuleList(GPT2Block() for _ in range(2))
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(V, C), "wpe": nn.Embedding(T, C), "h": blocks, "ln_f": nn.LayerNorm(C)}
        )
        self.lm_head = nn.Linear(C, V, bias=False)

    def forward(self, idx, targets):
        x = self.transformer["wte"](idx) + self.transformer["wpe"](mg.arange(idx.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return loss_of(self.lm_head(self.transformer["ln_f"](x)), targets)


class SwiGLU(nn.Module):
    def __init__(self):
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(*size) for size in ((C, 24),) * 2 + ((24, C),))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """RMSNorm, rotary positions, shared keys, SwiGLU, dropout on both branches."""

    study_parts = {"self_attn": "input_layernorm", "mlp": "post_attention_layernorm"}

    def __init__(self):
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(C), nn.RMSNorm(C)
        self.self_attn, self.mlp, self.drop = attention(num_kv_heads=2, positions="rotary"), SwiGLU(), nn.Dropout(0.1)

    def forward(self, x):
        x = self.drop(self.self_attn(self.input_layernorm(x), is_causal=True)[0]) + x
        return self.drop(self.mlp(self.post_attention_layernorm(x))) + x


class Residual(nn.Module):
    """x + part(norm(x)): attention and MLPs as layers of the same kind."""

    study_parts = {"part": "norm"}

    def __init__(self, part):
        self.norm, self.part = nn.LayerNorm(C), part

    def forward(self, x):
        h = self.norm(x)
        return x + (self.part(h, is_causal=True)[0] if isinstance(self.part, nn.MultiheadAttention) else self.part(h))


def alternating():
    model = Model(None, 0)
    model.layers = nn.ModuleList(Residual(part()) for part in (mlp, attention, mlp, attention, mlp))
    return model


class OneSequential(nn.Module):
    """From tokens to logits."""

    def __init__(self):
        self.net = nn.Sequential(nn.Embedding(V, C), LlamaLayer(), LlamaLayer(), nn.RMSNorm(C), nn.Linear(C, V))

    def forward(self, idx, targets):
        return loss_of(self.net(idx), targets)


class NoNorms(nn.Module):
    study_parts = {"look": None}

    def __init__(self):
        self.look = attention(bias=True)

    def forward(self, x):
        return x + self.look(x, is_causal=True)[0]


MODELS = {
    "GPT-2's names": GPT2,
    "Llama's": lambda: Model(LlamaLayer, norm=nn.RMSNorm),
    "layers of one part": alternating,
    "one Sequential": OneSequential,
    "no norms": lambda: Model(NoNorms, 3, norm=None),
}


@pytest.fixture(params=MODELS)
def model(request):
    mg.manual_seed(3)
    return randomised(MODELS[request.param]()).eval()


def test_flow_traces_and_scissors_agree(model):
    """The edges add up, and each is the slope of its own cut, which is made in another way."""
    batch = tokens()
    flow, stream = study.flow(model, batch), stream_of(model)
    names = {node.path.removesuffix(".bias") for node in flow.sources}
    assert names >= set(study.attention_layers(model)) and any(v.path.endswith("logits") for v, _ in flow.inputs)
    for u, v, p, edge in flow.all[::7]:
        share = mg.ones(1, dtype=mg.float64, requires_grad=True)
        with EdgeCut(stream, u, v, p or None, lambda write, share=share: (1 - share) * write).hooked(model):
            slope = mg.grad(model(*batch)[1], share)[0].item()
        assert slope == pytest.approx(edge, rel=1e-8, abs=1e-12), (u, v, p)
    cut = study.flow(model, batch, method="cut", top=5)
    assert np.isfinite([edge for *_, edge in cut.all]).all()


class Parallel(GPT2Block):
    """Both parts read the same stream; the declaration says that they read one after the other."""

    def forward(self, x):
        return x + self.attn(self.ln_1(x), is_causal=True)[0] + self.mlp(self.ln_2(x))


class Scaled(GPT2Block):
    def forward(self, x):
        x = x + 0.999 * self.attn(self.ln_1(x), is_causal=True)[0]
        return x + self.mlp(self.ln_2(x))


class Swapped(GPT2Block):
    study_parts = {"mlp": "ln_2", "attn": "ln_1"}


@pytest.mark.parametrize("block", [Parallel, Scaled, Swapped])
@pytest.mark.parametrize("dtype", [mg.float32, mg.float64])
def test_a_declaration_that_is_wrong_is_seen(block, dtype):
    mg.manual_seed(0)
    assert study.flow(Model(GPT2Block).to(dtype=dtype), tokens()).all
    for tool in (study.flow, study.lessons, lambda model, batch: study.lesson(model, batch, "0.1")):
        with pytest.raises(ValueError, match="do not add up"):
            tool(Model(block).to(dtype=dtype), tokens())


@pytest.mark.parametrize("block", [Parallel, Scaled])
@pytest.mark.parametrize("how", ["plain", pytest.param("captured", marks=pytest.mark.needs("g++"))])
def test_a_cut_checks_the_first_forward(block, how):
    model = Model(block)

    def step(idx, targets):
        loss = model(idx, targets)[1]
        loss.backward()
        return loss

    step = mg.capture(step) if how == "captured" else step
    with (
        study.cut_gradient(model, "0.1", "1.2", "k"),
        pytest.raises(ValueError, match=r"after layers\.0\.(attn|mlp) is not"),
    ):
        step(*tokens())
    right = Model(GPT2Block)
    with study.cut_gradient(right, "0.1", "1.2", "k"):
        for _ in range(3):
            right(*tokens())[1].backward()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (*model.modules(), *right.modules()))


class Twice(Model):
    def forward(self, idx, targets):
        x = self.layers[0](self.layers[0](self.tok_emb(idx)))
        return loss_of(self.head(self.layers[1](x)), targets)


def test_a_cut_refuses_a_block_that_runs_twice():
    model = Twice(GPT2Block)
    with study.cut_gradient(model, "0.1", "1.2", "k"), pytest.raises(ValueError, match=r"layers\.0\.attn ran twice"):
        model(*tokens())


class WrongName(GPT2Block):
    study_parts = {"attention": "ln_1", "mlp": "ln_2"}


class NormElsewhere(GPT2Block):
    def forward(self, x):
        x = x + self.attn(self.ln_1(x), is_causal=True)[0]
        return x + self.mlp(self.ln_1(x))


def test_errors_name_what_to_change():
    with pytest.raises(TypeError, match=r"WrongName names 'attention', and the block has no such module; it has ln_1,"):
        study.flow(Model(WrongName), tokens())
    with pytest.raises(ValueError, match=r"layers\.[01]\.(attn|mlp) ran twice|did not run"):
        study.flow(Model(NormElsewhere), tokens())


class AsAttributes(nn.Module):
    """A trunk whose blocks are attributes of the Module `trunk`, or are in it as in a list or a dict."""

    def __init__(self, trunk):
        self.wte, self.trunk, self.head = nn.Embedding(V, C), trunk, nn.Linear(C, V)

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.trunk.children():
            x = block(x)
        return loss_of(self.head(x), targets)


class Pair(nn.Module):
    def __init__(self, first, second):
        self.first, self.second = first, second


TRUNKS = {
    "attributes": lambda: Pair(GPT2Block(), GPT2Block()),
    "dict": lambda: nn.ModuleDict({"first": GPT2Block(), "second": GPT2Block()}),
    "list": lambda: nn.ModuleList([GPT2Block(), GPT2Block()]),
}


@pytest.mark.parametrize("trunk", TRUNKS.values(), ids=TRUNKS)
def test_blocks_are_the_children_of_any_module(trunk):
    found = []
    for make in (trunk, TRUNKS["list"]):
        mg.manual_seed(0)
        model = AsAttributes(make())
        found.append((study.flow(model, tokens()), study.lessons(model, tokens())))
    (flow, lessons), (of_list, lessons_of_list) = found
    np.testing.assert_array_equal(flow.edges, of_list.edges)
    assert len(lessons) == 8
    for a, b in zip(lessons, lessons_of_list, strict=True):
        np.testing.assert_array_equal(a.positions, b.positions)


def undeclared():
    model = Model(GPT2Block)
    for layer in model.layers:
        layer.study_parts = {}
    return model


def with_norm(norm):
    model = Model(GPT2Block)
    model.layers[1].ln_2 = norm
    return model


@pytest.mark.parametrize(
    "model, error, words",
    [
        (
            undeclared(),
            TypeError,
            r"0.attn is not known. Add to the class GPT2Block .*\{\"attn\": \"ln_1\", \"mlp\": \"ln_2\"\}",
        ),
        (nn.Sequential(attention()), TypeError, "stream of 0 is not known"),
        (attention(), TypeError, "stream of the layer is not known"),
        (nn.Sequential(Model(GPT2Block), Model(GPT2Block)), TypeError, "this one has blocks in 0.layers, 1.layers"),
        (
            with_norm(nn.Linear(C, C)),
            TypeError,
            r"layers.1.mlp reads the stream through Linear.*nn.LayerNorm or",
        ),
        (with_norm(nn.LayerNorm((T, C))), TypeError, "over the last dim"),
        (nn.Linear(C, C), ValueError, r"Linear has no nn\.MultiheadAttention in it"),
    ],
)
def test_unknown_streams_raise(model, error, words):
    with pytest.raises(error, match=words):
        study.flow(model, tokens())


class PositionsFirst(Model):
    def __init__(self):
        self.pos_emb = nn.Embedding(T, C)
        super().__init__(GPT2Block)


def test_an_embedding_of_positions_is_not_taken_for_that_of_tokens():
    model, batch = PositionsFirst().double(), tokens()
    cut = study.flow(model, batch, method="cut", top=8)
    assert {u.path for u, *_ in cut.all} >= {"input"}
    with study.cut_gradient(model, "tokens", "logits"), pytest.raises(ValueError, match="does not embed its tokens"):
        model(*batch)
    with study.cut_gradient(model, "input", "layers.0.attn"):
        assert model(*batch)[1].item() == pytest.approx(cut.loss, rel=1e-14)
