"""Scores of heads and of patterns, heads made to have them, circuits and what heads add to logits."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.random import default_generator
from minigrad.study import patterns
from minigrad.study.circuits import logit_attribution, ov_circuit, qk_circuit, unembedding
from minigrad.study.layers import head_weights
from minigrad.study.models import AttentionOnly, designed_head
from minigrad.study.scores import KINDS, head_scores, repeated_tokens
from minigrad.study.table import HeadTable
from minigrad.study.trace import trace_heads


def near(x, expected, atol=1e-10):
    np.testing.assert_allclose(x, expected, rtol=0, atol=atol)


def gpt(positions="learned", **changes):
    """A small GPT in float64 with random weights, norms and biases too."""
    sizes = dict(vocab_size=13, block_size=12, n_layer=2, n_head=4, n_embd=16, bias=True, positions=positions)
    return randomised(nn.GPT(nn.GPTConfig(**sizes | changes)))


def randomised(model):
    model = model.double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model


# ------------------------------------------------------------------------------------------------------------ patterns

A = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0.1, 0.2, 0.3, 0.4]])  # causal
TOKENS = np.array([[7, 8, 7, 8]])


def test_entropy_of_patterns():
    rows = [0, math.log(2), 1.5 * math.log(2), -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4))]
    near(patterns.entropy(A, normalised=False), sum(rows) / 4)
    near(patterns.entropy(A), sum(row / math.log(n) for row, n in zip(rows[1:], (2, 3, 4))) / 3)
    near(patterns.entropy(np.full((2, 3, 5, 6), 1 / 6)), np.ones((2, 3)))
    near(patterns.entropy([[0.5, 0.5], [0.0, 0.0]]), 1)  # a query that sees nothing does not count
    assert np.isnan(patterns.entropy([[1.0]]))


def test_where_patterns_look():
    near(patterns.previous(A), (0.5 + 0.5 + 0.3) / 3)
    near(patterns.duplicate(A[None, None], TOKENS), [(0.25 + 0.2) / 2])  # of queries 2 and 3, to 0 and 1
    near(patterns.induction(A[None, None], TOKENS), [(0.5 + 0.3) / 2])  # to 1 and 2
    three = np.array([[7, 7, 8, 7]])
    near(patterns.duplicate(A[None, None], three), [(0.5 + 0.3) / 2])  # query 1 to 0, query 3 to 0 and 1
    near(patterns.induction(A[None, None], three), [(0.5 + 0.2 + 0.3) / 2])  # query 1 to 1, query 3 to 1 and 2
    assert np.isnan(patterns.duplicate(A[None, None], [[1, 2, 3, 4]])).all()
    near(patterns.attention_to(A, A == 0.5), (1 + 0.5) / 2)  # of the two queries that want some


def test_rollout_by_hand():
    first, second = np.array([[1, 0], [0.5, 0.5]]), np.array([[0, 1], [0, 1]])
    near(patterns.rollout([first[None], second[None]]), [[0.5 + 0.5 * 0.25, 0.5 * 0.75], [0.25, 0.75]])
    near(patterns.rollout([np.stack([first, second])]), [[0.75, 0.25], [0.125, 0.875]])  # the mean over heads
    with pytest.raises(ValueError, match="one size"):
        patterns.rollout([first[None], np.ones((1, 3, 3))])


# -------------------------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("kind", ["previous", "duplicate", "induction"])
def test_designed_heads_score_as_named(kind):
    model, path, head = designed_head(kind)
    table = head_scores(model)
    assert table[kind][path][head] >= 0.99 and table.best(kind)[:2] == (path, head)
    for other in {"previous", "duplicate", "induction"} - {kind}:
        assert table[other][path][head] < 0.1
    near(table["copying"][path][head], kind == "induction", 1e-6)
    if kind == "induction":
        assert table["previous"]["blocks.0.attn"][0] >= 0.99
        tokens = repeated_tokens([7] * 8, 32, 33, mg.Generator(5))
        logits, loss = model(tokens[:, :-1], tokens[:, 1:].masked_fill(mg.arange(32) < 7, -100))
        assert (logits.argmax(-1) == tokens[:, 1:])[:, 7:].all() and loss.item() < 1e-6


def test_scores_are_of_the_patterns_that_a_trace_has():
    model = gpt()
    table = head_scores(model, periods=(5,), n=6, seed=3)
    tokens = repeated_tokens([5] * 6, 13, 12, mg.Generator(3))
    with mg.no_grad(), trace_heads(model, grads=False) as trace:
        model(tokens)
    W_U = unembedding(model)
    for path in trace:
        pattern, v = trace[path].pattern, trace[path].v
        near(table["previous"][path], patterns.previous(pattern).mean(0))
        near(table["duplicate"][path], patterns.duplicate(pattern, tokens.numpy()))
        near(table["induction"][path], patterns.induction(pattern, tokens.numpy()))
        for h in range(4):  # copying, from the definition
            weighted = 0.0
            for b, i, j in np.ndindex(6, 12, 12):
                logits = v[b, h, j] @ head_weights(trace.layers[path], h)[-1] @ W_U
                raised = np.maximum(logits - logits.mean(), 0)
                weighted += pattern[b, h, i, j] * raised[tokens[b, j].item()] / raised.sum()
            near(table["copying"][path][h], weighted / (6 * 12))


def test_batches_and_periods_are_averaged(monkeypatch):
    model = gpt(n_layer=1)
    whole = head_scores(model, periods=(3, 5), n=5)
    monkeypatch.setattr("minigrad.study.scores._NUMBERS", 2 * 4 * 12 * 12)  # two sequences at a time
    parts = head_scores(model, periods=(3, 5), n=5)
    for kind in KINDS:
        near(parts[kind]["blocks.0.attn"], whole[kind]["blocks.0.attn"])
    one = head_scores(model, periods=(3,), n=5)
    assert abs(one["induction"]["blocks.0.attn"] - whole["induction"]["blocks.0.attn"]).max() > 1e-3


def test_scoring_leaves_no_trace():
    model = gpt(dropout=0.5)
    model.blocks[0].eval()
    flags, drawn = [m.training for m in model.modules()], default_generator.state
    first, second, other = (head_scores(model, periods=(5,), n=4, seed=seed) for seed in (1, 1, 2))
    assert repr(first) == repr(second) != repr(other)
    assert [m.training for m in model.modules()] == flags and default_generator.state == drawn
    assert all(p.grad is None for p in model.parameters())
    assert not any(block.attn._head_hooks for block in model.blocks)


def test_repeated_tokens():
    tokens = repeated_tokens([3, 8], 8, 20, mg.Generator(0)).numpy()
    for row, p in zip(tokens, (3, 8)):
        assert len(set(row[:p])) == p and (row[p:] == row[:-p]).all() and set(row) <= set(range(8))


def test_errors_of_scores():
    model = gpt()
    with pytest.raises(KeyError, match="no kind of score 'inductoin'; did you mean induction"):
        head_scores(model, ["inductoin"])
    for p in (7, 0):
        with pytest.raises(ValueError, match=f"period {p}.*block_size 12"):
            head_scores(model, periods=(p,))
    with pytest.raises(ValueError, match=r"period 5.*of 4"):
        head_scores(gpt(vocab_size=4), periods=(5,))
    with pytest.raises(ValueError, match="vocab_size"):
        head_scores(nn.MultiheadAttention(8, 2))
    with pytest.raises(KeyError, match="no designed head 'previuos'; did you mean previous"):
        designed_head("previuos")
    with pytest.raises(ValueError, match="33 tokens is longer than block_size 32"):
        AttentionOnly(8, 32)(mg.zeros(1, 33).to(mg.int64))


# --------------------------------------------------------------------------------------------------------------- table


def test_head_table():
    table = HeadTable({"a": {"0": [0.5, 0.25], "1": [2.0]}, "b": {"1": [1e-5]}}, heads={"1": [3]})
    assert table["a"]["1"].tolist() == [2.0] and table.stats == ("a", "b")
    assert table.best("a") == ("1", 3, 2.0) and table.best("b") == ("1", 3, 1e-5)
    assert str(table).splitlines() == [
        "layer  head      a         b",
        "0         0  0.500         -",
        "0         1  0.250         -",
        "1         3  2.000  1.00e-05",
    ]
    assert table.sorted("a").rows == [("1", 3), ("0", 0), ("0", 1)] and table.rows[0] == ("0", 0)
    table["c"] = {"0": [math.nan, -1.0]}
    assert table.sorted("c").rows[0] == ("0", 1)
    with pytest.raises(KeyError, match="no stat 'd'; there are a, b, c"):
        table["d"]
    with pytest.raises(ValueError, match=r"'e' of 0 has shape \(3,\), for heads \[0, 1\]"):
        table["e"] = {"0": [1, 2, 3]}
    with pytest.raises(ValueError, match="no head has 'f'"):
        HeadTable({"f": {"0": [math.nan]}}).best("f")


# ------------------------------------------------------------------------------------------------------------ circuits


@pytest.mark.parametrize("sizes", [dict(), dict(num_kv_heads=2, scale=0.3), dict(kdim=5, vdim=7)])
def test_circuits_are_what_the_layer_computes(sizes):
    layer = randomised(nn.MultiheadAttention(8, 4, bias=False, **sizes))
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
        qk_circuit(nn.MultiheadAttention(8, 4, positions="rotary"), 0)


class Normed(AttentionOnly):
    """With a final RMSNorm, and no loss."""

    def __init__(self):
        super().__init__(13, 12, n_head=4, n_embd=16)
        self.norm = nn.RMSNorm(16)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(mg.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


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


class OwnBlocks(AttentionOnly):
    """Of which study.streams knows nothing: its layers have other names."""

    def __init__(self):
        super().__init__(13, 12, n_head=4, n_embd=16)
        self.layers, self.blocks = self.blocks, None

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(mg.arange(idx.shape[1]))
        for block in self.layers:
            x = block(x)
        return self.head(x)


def test_attribution_of_a_model_that_is_not_known_leaves_the_rest_in_one():
    model, idx = randomised(OwnBlocks()), mg.randint(0, 13, (3, 9))
    found = logit_attribution(model, idx, 1, 0)
    assert found.parts == {} and list(found.heads) == ["layers.0.attn", "layers.1.attn"]
    near(sum(each.sum(-1) for each in found.heads.values()) + found.rest, found.total)
    assert (abs(found.rest) > 1e-3).all()


class Encoder(nn.Module):
    """Reads tokens by a TransformerEncoder, with norms where it is told."""

    def __init__(self, norm_first, norm=None):
        self.wte, self.lm_head = nn.Embedding(13, 16), nn.Linear(16, 13)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, norm)

    def head(self, x):
        return self.lm_head(x)

    def forward(self, idx):
        return self.head(self.encoder(self.wte(idx)))


def test_attribution_within_an_encoder():
    idx = mg.randint(0, 13, (3, 9))
    found = logit_attribution(randomised(Encoder(True)), idx, 1, 0, (0, 3))
    assert list(found.parts) == ["input", "encoder.layers.0.mlp", "encoder.layers.1.mlp"]
    near(sum(each.sum(-1) for each in found.heads.values()) + sum(found.parts.values()) + found.rest, found.total)
    with pytest.raises(ValueError, match="goes through norms after its sums"):
        logit_attribution(randomised(Encoder(False)), idx, 1, 0)
    with pytest.raises(ValueError, match=r"the norm at the end of the residual stream is not model\.norm"):
        logit_attribution(randomised(Encoder(True, nn.LayerNorm(16))), idx, 1, 0)


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
    with pytest.raises(TypeError, match="has no head"):
        unembedding(nn.MultiheadAttention(8, 2))
