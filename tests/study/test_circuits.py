"""What weights say of a head, and what heads and other parts add to the logits."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.study.layers import attention_layers
from minigrad.study.models import AttentionOnly, designed_head
from minigrad.study.scores import repeated_tokens
from minigrad.study.trace import trace_heads
from minigrad.study.weights.circuits import LogitAttribution, logit_attribution, ov_circuit, qk_circuit, unembedding

from .models import EncoderDecoder, randomised
from .models import wild_gpt as gpt


def near(x, expected, atol=1e-10):
    np.testing.assert_allclose(x, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("sizes", [dict(), dict(num_kv_heads=2, scale=0.3), dict(kdim=5, vdim=7)])
def test_circuits_are_what_the_layer_computes(sizes):
    layer = randomised(nn.MultiheadAttention(8, 4, bias=False, batch_first=True, **sizes))
    x, key, value = (mg.randn(2, n, size, dtype=mg.float64) for n, size in ((3, 8), (6, layer.kdim), (6, layer.vdim)))
    layer.head_gates = mg.tensor([1.0, 0.5, -1.0, 2.0], dtype=mg.float64)
    with mg.no_grad(), trace_heads(layer, grads=False) as trace:
        y, _ = layer(x, key, value)
    total = 0
    for h in range(4):
        near(x.numpy() @ qk_circuit(layer, h) @ key.mT.numpy(), trace[0].scores[:, h])
        total = total + trace[0].pattern[:, h] @ value.numpy() @ ov_circuit(layer, h)
    near(total, y.numpy())
    with pytest.raises(ValueError, match="no head 4"):
        ov_circuit(layer, 4)
    with pytest.raises(ValueError, match="rotary"):
        qk_circuit(nn.MultiheadAttention(8, 4, positions="rotary", batch_first=True), 0)


class Normed(AttentionOnly):
    """With a final RMSNorm, and no loss."""

    def __init__(self):
        super().__init__(13, 12, n_head=4, n_embd=16)
        self.norm = nn.RMSNorm(16)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(mg.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.norm(x))


MODELS = {
    "AttentionOnly": lambda: randomised(AttentionOnly(13, 12, n_head=4, n_embd=16)),
    "GPT": gpt,
    "untied GPT of grouped heads, one pruned": lambda: gpt("rotary", tied=False, n_kv_head=2, pruned={0: [1]}),
    "GPT without biases": lambda: gpt(bias=False),
    "RMSNorm": lambda: randomised(Normed()),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_attribution_adds_up(make):
    model, idx = make(), mg.randint(0, 13, (3, 9))
    model.blocks[1].attn.head_gates = mg.tensor([1.0, 0.5, 0.0, 1.0], dtype=mg.float64)
    right, wrong, at = np.array([[1, 2], [3, 4], [5, 6]]), 0, (4, -1)
    found = logit_attribution(model, idx, right, wrong, at)
    logits = model(idx) if isinstance(model, Normed) else model(idx)[0]
    logits = logits.detach().numpy()[:, at]
    near(found.total, np.take_along_axis(logits, right[..., None], -1)[..., 0] - logits[..., wrong])
    near(sum(each.sum(-1) for each in found.heads.values()) + sum(found.parts.values()) + found.rest, found.total)
    assert abs(found.heads["blocks.1.attn"][..., 0]).min() > 1e-6 and (found.heads["blocks.1.attn"][..., 2] == 0).all()
    near(found.table()["logits"]["blocks.1.attn"], found.heads["blocks.1.attn"].mean((0, 1)))


@pytest.mark.parametrize("changes", [dict(), dict(n_kv_head=2, pruned={0: [1]}), dict(positions="rotary", tied=False)])
def test_attribution_of_mlps_embeddings_and_biases(changes):
    """Each against what its module writes; what is left are the biases of attention, of the norm and of the head."""
    model, idx, wrote = gpt(**changes), mg.randint(0, 13, (3, 9)), {}
    modules = {f"blocks.{i}.mlp": block.mlp for i, block in enumerate(model.blocks)} | {"tokens": model.wte}
    handles = [m.register_forward_hook(lambda m, args, y, n=n: wrote.update({n: y})) for n, m in modules.items()]
    if learned := model.wpe is not None:
        handles.append(model.wpe.register_forward_hook(lambda m, args, y: wrote.update(positions=y.unsqueeze(0))))
    before = []
    handles.append(model.norm.register_forward_pre_hook(lambda m, args: before.append(args[0].detach().numpy())))
    found = logit_attribution(model, idx, 3, 5, (2, -1))
    for handle in handles:
        handle.remove()
    sigma = np.sqrt(before[0].var(-1, keepdims=True) + 1e-5)[:, [2, -1]]
    W_U = unembedding(model)
    direction = (W_U[:, 3] - W_U[:, 5]) / sigma  # (B, n, C)
    assert list(found.parts) == ["tokens", *["positions"] * learned, "blocks.0.mlp", "blocks.1.mlp"]
    for name, part in found.parts.items():
        y = wrote[name].detach().numpy()[:, [2, -1]]
        near(part, (y * direction).sum(-1))
    biases = sum(block.attn.out_proj.bias.detach().numpy() for block in model.blocks)
    head = model.wte if model.lm_head is None else model.lm_head
    of_norm = head.weight.detach().numpy() @ model.norm.bias.detach().numpy()
    near(found.rest, direction @ biases + of_norm[3] - of_norm[5])
    lines = str(found).splitlines()
    assert lines[1] == f"total{' ' * 17}{found.total.mean():+.4f}" and len(lines) == 3 + len(found.parts) + sum(
        block.attn.num_heads for block in model.blocks
    )
    numbers = [abs(float(line.split()[-1])) for line in lines[2:]]
    assert numbers == sorted(numbers, reverse=True)


def test_attribution_of_a_deep_model_shows_the_largest():
    model = gpt(n_layer=6)
    found = logit_attribution(model, mg.randint(0, 13, (2, 9)), 1, 2)
    lines = str(found).splitlines()
    assert len(lines) == 2 + 21 and lines[-1].startswith("13 smaller ones  ")
    shown = [float(line.split()[-1]) for line in lines[1:]]
    assert sum(shown[1:]) == pytest.approx(shown[0], abs=2e-3)


def test_attribution_of_as_many_as_are_shown():
    for n, last in ((21, "head 20"), (22, "2 smaller ones")):
        found = LogitAttribution(np.ones((1, 1)), {"": np.arange(n - 1, 0, -1.0)[None, None]}, {}, np.zeros((1, 1)))
        found.heads[""][0, 0, -1] = 0.5
        lines = str(found).splitlines()
        assert len(lines) == 2 + 21 and lines[-1].split("  ")[0] in (last, "rest"), lines[-1]


class Projected(AttentionOnly):
    """Its embedding is narrower than the stream, and the final norm belongs to nothing that is known."""

    def __init__(self):
        super().__init__(13, 12, n_head=4, n_embd=16)
        self.wte, self.wider = nn.Embedding(13, 5), nn.Linear(5, 16)

    def forward(self, idx):
        x = self.wider(self.wte(idx))
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


class Within(nn.Module):
    """A trunk with the norm outside."""

    def __init__(self):
        self.trunk, self.norm = Projected(), nn.RMSNorm(16)
        self.trunk.unembed = lambda x: x

    def unembed(self, x):
        return self.trunk.lm_head(x)

    def forward(self, idx):
        return self.unembed(self.norm(self.trunk(idx)))


@pytest.mark.parametrize("make, path", [(Projected, ""), (Within, "trunk.")])
def test_attribution_with_an_embedding_of_another_size_and_a_norm_elsewhere(make, path):
    found = logit_attribution(randomised(make()), mg.randint(0, 13, (3, 9)), 1, 0)
    assert list(found.parts) == ["input"] and list(found.heads) == [f"{path}blocks.{i}.attn" for i in (0, 1)]
    near(sum(each.sum(-1) for each in found.heads.values()) + found.parts["input"], found.total)
    near(found.rest, 0)


def test_attribution_of_two_streams_is_refused():
    with pytest.raises(ValueError, match="several residual streams"):
        logit_attribution(EncoderDecoder(), mg.randint(0, 11, (3, 6)), 1, 0)


class OneByOne(AttentionOnly):
    """Of which study.streams knows nothing: its layers are in no list."""

    def __init__(self):
        super().__init__(13, 12, n_head=4, n_embd=16)
        self.first, self.second = self.blocks
        self.blocks = None

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(mg.arange(idx.shape[1]))
        return self.unembed(self.second(self.first(x)))


def test_attribution_of_a_model_that_is_not_known_is_refused():
    with pytest.raises(TypeError, match="OneByOne has no residual stream that is known"):
        logit_attribution(randomised(OneByOne()), mg.randint(0, 13, (3, 9)), 1, 0)


class Encoder(nn.Module):
    """Reads tokens by a TransformerEncoder, with norms where it is told."""

    def __init__(self, norm_first, norm=None):
        self.wte, self.lm_head = nn.Embedding(13, 16), nn.Linear(16, 13)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=norm_first, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm)

    def unembed(self, x):
        return self.lm_head(x)

    def forward(self, idx):
        return self.unembed(self.encoder(self.wte(idx)))


def test_attribution_within_an_encoder():
    idx = mg.randint(0, 13, (3, 9))
    for norm in None, nn.LayerNorm(16):
        found = logit_attribution(randomised(Encoder(True, norm)), idx, 1, 0, (0, 3))
        assert list(found.parts) == ["input", "encoder.layers.0.mlp", "encoder.layers.1.mlp"]
        near(sum(each.sum(-1) for each in found.heads.values()) + sum(found.parts.values()) + found.rest, found.total)
    with pytest.raises(ValueError, match="goes through norms after its sums"):
        logit_attribution(randomised(Encoder(False)), idx, 1, 0)
    model = randomised(Encoder(True, nn.LayerNorm(16)))
    model.unembed = lambda x: model.lm_head(x * 1.01)
    found = logit_attribution(model, idx, 1, 0)
    model.forward = lambda idx: model.unembed(model.encoder(model.wte(idx))) + 0.01
    with pytest.raises(ValueError, match="the model's logits are not those of its unembedding"):
        logit_attribution(model, idx, 1, 0)


class Decoder(Encoder):
    """The same with a TransformerDecoder, which reads what was embedded."""

    def __init__(self):
        super().__init__(True)
        self.encoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, norm_first=True, batch_first=True), 2, None
        )

    def forward(self, idx):
        return self.unembed(self.encoder(self.wte(idx), self.wte(idx) * 0.5))


def test_attribution_within_a_decoder():
    """Its heads that read from elsewhere write into the same stream."""
    model = randomised(Decoder())
    found = logit_attribution(model, mg.randint(0, 13, (3, 9)), 1, 0)
    assert len(found.heads) == 4 and list(found.parts) == ["input", "encoder.layers.0.mlp", "encoder.layers.1.mlp"]
    near(sum(each.sum(-1) for each in found.heads.values()) + sum(found.parts.values()) + found.rest, found.total)
    layers = attention_layers(model).values()
    direction = (model.lm_head.weight[1] - model.lm_head.weight[0]).detach().numpy()
    biases = sum(layer.out_proj.bias.detach().numpy() for layer in layers) @ direction
    near(found.rest, biases + (model.lm_head.bias[1] - model.lm_head.bias[0]).item())


class ByKeyword(AttentionOnly):
    def forward(self, idx):
        x = self.wte(idx)
        for block in self.blocks:
            x = block(x=x)
        return self.unembed(x)


def test_attribution_of_blocks_that_are_called_by_keyword():
    model, idx = randomised(ByKeyword(13, 12, n_head=4, n_embd=16)), mg.randint(0, 13, (3, 9))
    found = logit_attribution(model, idx, 1, 0)
    near(sum(each.sum(-1) for each in found.heads.values()) + found.rest, found.total)
    assert found.parts == {}


def test_attribution_of_a_block_that_runs_twice():
    """Its heads and its MLP have the sum of what they write."""
    model, idx = gpt(), mg.randint(0, 13, (3, 9))
    model.blocks = nn.ModuleList([model.blocks[0]] * 2)
    found = logit_attribution(model, idx, 1, 0)
    assert list(found.heads) == ["blocks.0.attn"] and list(found.parts) == ["tokens", "positions", "blocks.0.mlp"]
    near(sum(each.sum(-1) for each in found.heads.values()) + sum(found.parts.values()) + found.rest, found.total)
    model.blocks[0].attn.out_proj.bias.detach().fill_(0)
    model.norm.bias.detach().fill_(0)
    near(logit_attribution(model, idx, 1, 0).rest, 0)


def test_attribution_of_heads_and_of_the_rest_is_theirs():
    model, idx = MODELS["AttentionOnly"](), mg.randint(0, 13, (3, 9))
    found = logit_attribution(model, idx, 1, 0)
    direction = (model.lm_head.weight[1] - model.lm_head.weight[0]).detach().numpy()
    embedded = (model.wte(idx) + model.wpe(mg.arange(9))).detach().numpy()
    assert list(found.parts) == ["tokens", "positions"]
    near(found.parts["tokens"][:, 0], model.wte(idx).detach().numpy()[:, -1] @ direction)
    near(sum(found.parts.values())[:, 0], embedded[:, -1] @ direction)
    near(found.rest, 0)
    before = model(idx)[0].detach().numpy()[:, -1]
    model.blocks[1].attn.head_gates = mg.tensor([1.0, 0.0, 1.0, 1.0], dtype=mg.float64)  # nothing comes after it
    after = model(idx)[0].detach().numpy()[:, -1]
    near(found.heads["blocks.1.attn"][:, 0, 1], (before - after) @ (np.eye(13)[1] - np.eye(13)[0]))


def test_the_head_that_copies_is_found_in_the_logits():
    model, path, head = designed_head("induction")
    tokens = repeated_tokens([9], 32, 20, mg.Generator(0))
    found = logit_attribution(model, tokens[:, :19], tokens[0, 19].item(), tokens[0, 0].item())
    assert found.table().best("logits") == (path, head, pytest.approx(20, abs=1e-3))
    near(found.rest, 0, 1e-4)


def test_a_final_norm_that_is_not_known_is_refused():
    model = gpt()
    model.norm = nn.Identity()
    with pytest.raises(TypeError, match=r"must be .* got Identity"):
        unembedding(model)
    with pytest.raises(TypeError, match="has no unembed"):
        unembedding(nn.MultiheadAttention(8, 2, batch_first=True))


def test_tokens_that_are_none_are_refused():
    model, idx = AttentionOnly(7, 5, n_layer=1, n_head=2, n_embd=8), mg.randint(0, 7, (2, 5))
    for right, wrong in [(-100, 3), (3, 7), ("e", "a"), (1.5, 2), ([[-1], [2]], 3)]:
        with pytest.raises(ValueError, match="must be tokens, whole numbers from 0 to 6"):
            logit_attribution(model, idx, right, wrong)
    with pytest.raises(ValueError, match=r"idx must be a Tensor \(B, T\)"):
        logit_attribution(model, idx[0], 1, 2)
