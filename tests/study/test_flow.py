"""study.flow, compared with a forward in which every input of every head has its own copy of the stream."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study
from minigrad.nn import functional as F
from minigrad.nn.positions import rotary
from minigrad.study.cut import EdgeCut
from minigrad.study.stream import stream_of

from .models import V, gpt, tokens

MODELS = {
    "learned positions": {},
    "shared keys": {"n_kv_head": 2},
    "rotary, one key for all": {"positions": "rotary", "n_kv_head": 1, "bias": False},
    "no positions, three layers": {"positions": "none", "n_layer": 3},
}


class Copies:
    """A forward of an nn.GPT by hand, which keeps what each node writes, and each reader's own copy of the stream."""

    def __init__(self, model, idx, targets):
        self.model, self.reads = model, {}
        at = mg.arange(idx.shape[1])
        if model.wpe is not None:
            put_in = {"tokens": model.wte(idx), "positions": model.wpe(at)}
        else:
            put_in = {"tokens": model.wte(idx)}
        self.writes = {study.Part(name): x + mg.zeros(*idx.shape, 16, dtype=mg.float64) for name, x in put_in.items()}
        for i, block in enumerate(model.blocks):
            self.attend(f"blocks.{i}.attn", block)
            self.writes[study.Part(f"blocks.{i}.mlp")] = block.mlp(
                block.norm2(self.read(study.Part(f"blocks.{i}.mlp")))
            )
        logits = model.unembed(model.norm(self.read(study.Part("logits"))))
        self.loss = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))

    def read(self, node, p=""):
        x = sum(self.writes.values()).clone()
        self.reads[node, p] = x
        return x

    def attend(self, path, block):
        layer, written = block.attn, {}
        biases = [[None] * n if b is None else b.split(d) for b, (n, d) in zip(layer.biases(), layer.sizes)]
        for h in range(layer.num_heads):
            node, head, j = study.Part(path, h), layer.head(h), layer.kv_of_head[h]
            q, k, v = (
                block.norm1(self.read(node, p)) @ W + (0 if b[n] is None else b[n])
                for p, W, b, n in zip("qkv", (head.W_Q, head.W_K, head.W_V), biases, (h, j, j))
            )
            if layer.positions == "rotary":
                q, k = rotary(q), rotary(k)
            written[node] = F.attention_pattern(q @ k.mT, None, True, head.scale) @ v @ head.W_O
        if layer.out_proj.bias is not None:
            written[study.Part(f"{path}.bias")] = layer.out_proj.bias + 0 * sum(written.values())
        self.writes |= written

    def edges(self):
        """{(source, reader, input): edge}"""
        found = mg.grad(self.loss, list(self.reads.values()))
        order = list(self.reads)
        return {
            (u, v, p): float((write * g).sum())
            for (v, p), g in zip(order, found)
            for u, write in self.writes.items()
            if self.before(u, v)
        }

    def before(self, u, v):
        def place(node):
            block = {"tokens": -1, "positions": -1, "logits": 99}.get(node.path)
            return (block, 0) if block is not None else (int(node.path.split(".")[1]), "mlp" in node.path)

        return place(u) < place(v)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_edges_are_what_copies_of_the_stream_get(changes):
    model, batch = gpt(**changes), tokens()
    flow, copies = study.flow(model, batch), Copies(model, *batch)
    assert flow.loss == pytest.approx(copies.loss.item(), abs=1e-12)
    expected = copies.edges()
    found = {(u, v, p): edge for u, v, p, edge in flow.all}
    assert found.keys() <= expected.keys()
    largest = max(map(abs, expected.values()))
    for key, edge in expected.items():
        assert found.get(key, 0.0) == pytest.approx(edge, abs=1e-12 * largest), key


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_a_cut_edge_is_a_write_that_one_reader_lacks(changes):
    class Cut(Copies):
        def read(self, node, p=""):
            x = super().read(node, p)
            return x - self.writes[self.source] if (node, p) == self.target else x

    model, batch = gpt(**changes), tokens()
    flow = study.flow(model, batch, method="cut")
    assert {each[:3] for each in flow.all} >= {each[:3] for each in study.flow(model, batch).all}
    for u, v, p, edge in flow.all[::7]:
        without = type("C", (Cut,), {"source": u, "target": (v, p)})(model, *batch).loss.item()
        assert edge == pytest.approx(flow.loss - without, abs=1e-12), (u, v, p)


def attention_only():
    return study.AttentionOnly(V, 6, n_layer=3, n_embd=16)


OTHERS = {"attention only": attention_only, "untied": lambda: gpt(tied=False)}


@pytest.mark.parametrize("name", OTHERS)
def test_to_first_order_an_edge_is_the_slope_of_its_cut(name):
    """The slope, by autograd, as a share of the write is taken away: another way to the same number, for any norm."""
    model, batch = OTHERS[name]().double().eval(), tokens()
    found, flow = stream_of(model), study.flow(model, batch)
    for u, v, p, edge in flow.all[::11]:
        share = mg.ones(1, dtype=mg.float64, requires_grad=True)
        with EdgeCut(found, u, v, p or None, lambda write, share=share: (1 - share) * write).hooked(model):
            slope = mg.grad(study.importance.returned_loss(model, *batch), share)[0].item()
        assert slope == pytest.approx(edge, rel=1e-9, abs=1e-13), (u, v, p)


def test_the_largest_edges_are_cut_and_the_table_says_so():
    model, batch = gpt(), tokens()
    first, flow = study.flow(model, batch), study.flow(model, batch, method="cut", top=30)
    whole = study.flow(model, batch, method="cut")
    np.testing.assert_array_equal(flow.first_order, first.edges)
    cut = {each[:3]: each[3] for each in flow.all}
    assert cut.keys() == {each[:3] for each in first.all[:30]}
    assert cut == {each[:3]: each[3] for each in whole.all if each[:3] in cut}
    u, v, p, edge = flow.all[0]
    assert flow.edge(u, v)[p] == edge and np.isnan(flow.edge(*first.all[40][:2])[first.all[40][2]])
    table, (source, reader, by, _) = str(flow).splitlines(), first.all[0]
    assert table[0].split() == ["from", "to", "by", "edge", "first", "order"]
    assert f"edges of the model, smaller to first order, that were not cut: {np.isnan(flow.edges).sum():,}" in table
    assert table[-1] == "edge: the loss with it minus the loss without it; first order: what its gradient says"
    row = next(line for line in str(flow.into(reader)).splitlines() if line.startswith(str(source)))
    assert f"{cut[source, reader, by]:+.4g}" in row and "gradient where the target reads it" in str(first)
    for wrong, words in (
        (dict(method="path"), "no method 'path'"),
        (dict(method="cut", top=0), "top must be at least"),
    ):
        with pytest.raises(ValueError, match=words):
            study.flow(model, batch, **wrong)


def test_a_wrong_backward_is_seen(monkeypatch):
    """k's gradient is 1.3 times what the trace saw."""
    model = gpt()
    model.blocks[1].attn.register_head_hook("k", lambda layer, k: k * 1.0 + (0.3 * k - (0.3 * k).detach()))
    with pytest.raises(ValueError, match=r"edges from blocks\.0\.mlp do not add up"):
        study.flow(model, tokens())


def test_frozen_parameters_do_not_matter():
    model, batch = gpt(), tokens()
    free = study.flow(model, batch)
    for p in model.parameters():
        p.requires_grad_(False)
    frozen = study.flow(model, batch)
    np.testing.assert_array_equal(free.edges, frozen.edges)


def test_names_and_errors():
    flow = study.flow(gpt(), tokens())
    assert flow.edge("tokens", "logits")[""] == next(e for u, _, _, e in flow.into("logits") if u.path == "tokens")
    assert set(flow.edge(("blocks.0.attn", 1), ("blocks.1.attn", 0))) == {"q", "k", "v"}
    assert flow.edge(("blocks.1.attn", 1), ("blocks.0.attn", 0)) == {"q": 0, "k": 0, "v": 0}
    assert all(u == study.Part("blocks.0.attn", 1) for u, *_ in flow.out_of("0.1"))
    assert " 1.0 " in str(flow.into("1.0")) and "smaller ones" in str(flow)
    assert flow.edge("0.1", "1.0") == flow.edge((0, 1), ("blocks.1.attn", 0)) != flow.edge("0.2", "1.0")
    assert flow.edge("blocks.0.attn.1", "logits") == flow.edge(("blocks.0.attn", 1), "logits")
    assert len(flow.around("blocks.0.mlp")) == len(flow.out_of("blocks.0.mlp")) + len(flow.into("blocks.0.mlp"))
    with pytest.raises(ValueError, match="a batch must be a tuple"):
        study.flow(gpt(), tokens()[0])
    with pytest.raises(ValueError, match="the loss must be a Tensor"):
        study.flow(gpt(), tokens(), lambda model, x, y: model(x, y)[1].item())
    with pytest.raises(KeyError, match=r"there is no head '7.0'; the heads are 0.0 to 0.3, 1.0 to 1.3"):
        flow.out_of("7.0")
    with pytest.raises(KeyError, match=r"there is no part 'blocks.1.mpl'; did you mean blocks.1.mlp"):
        flow.into("blocks.1.mpl")
    with pytest.raises(ValueError, match=r"ran (twice|2 times)"):
        study.flow(gpt(), tokens(), lambda model, x, y: model(x, y)[1] + model(x, y)[1])
    with pytest.raises(ValueError, match="the loss does not depend on the residual stream"):
        study.flow(gpt(), tokens(), lambda model, x, y: model(x, y)[1].detach())


def test_a_loss_that_reads_the_stream_before_its_end_is_refused():
    model, batch, seen = gpt(), tokens(), []
    model.blocks[0].register_forward_hook(lambda module, args, output: seen.append(output))

    def loss(model, *batch):
        seen.clear()
        model(*batch)
        return (seen[-1] ** 2).mean()

    with pytest.raises(ValueError, match="do not add up to its gradient"):
        study.flow(model, batch, loss)


def test_a_shared_mlp_is_refused():
    model = gpt()
    model.blocks[1].mlp = model.blocks[0].mlp
    with pytest.raises(ValueError, match=r"blocks\.[01]\.mlp ran twice"):
        study.flow(model, tokens())


# ------------------------------------------------------------------------------------- errors, sums, and what is cut


def each_sequence(batch):
    return [tuple(x[b : b + 1] for x in batch) for b in range(len(batch[0]))]


def test_standard_errors_are_over_the_sequences():
    """The model's loss is the mean over sequences, so an edge of the batch is the mean of the sequences' edges."""
    model, batch = gpt(), tokens()
    flow = study.flow(model, batch)
    each = np.stack([study.flow(model, one).edges for one in each_sequence(batch)])
    np.testing.assert_allclose(flow.edges, each.mean(0), atol=1e-14)
    np.testing.assert_allclose(flow.errors, each.std(0, ddof=1) / np.sqrt(len(each)), atol=1e-12)
    cut = study.flow(model, batch, method="cut", top=5, errors=True)
    assert np.isfinite(cut.errors).sum() == 5
    u, v, p, edge = cut.all[0]
    worth = [study.flow(model, one, method="cut", between=[u, v]).edge(u, v)[p] for one in each_sequence(batch)]
    assert edge == pytest.approx(np.mean(worth), abs=1e-12)
    assert cut.all.errors[0] == pytest.approx(np.std(worth, ddof=1) / np.sqrt(len(worth)), abs=1e-12)
    for table in str(flow), str(cut):
        assert "±" in table.splitlines()[0] and table.endswith("±: standard error over the sequences")
    for alone in (
        study.flow(model, each_sequence(batch)[0]),
        study.flow(model, batch, method="cut", top=5),
        study.flow(model, each_sequence(batch)[0], method="cut", top=5, errors=True),
    ):
        assert not np.isfinite(alone.errors).any() and "±" not in str(alone)
    with pytest.raises(ValueError, match=r"errors=True needs a batch whose arguments are all Tensors"):
        study.flow(model, (batch[0], None), lambda m, x, _: m(x, batch[1])[1], "cut", 1, errors=True)


def test_edges_added_up_by_input_are_the_gradient_of_a_gate():
    model, batch = gpt(), tokens()
    flow = study.flow(model, batch)
    with study.trace_heads(model) as trace:
        model(*batch)[1].backward()
    gates = trace.table()["gate_grad"]
    for method in flow, study.flow(model, batch, method="cut", top=3):
        for name in "0.3", "1.1":
            sums = method.by_input(name)
            assert list(sums) == ["q", "k", "v", "mlp", "logits", "total"]
            assert sums["total"] == pytest.approx(gates[name]) == sum(sums[p] for p in sums if p != "total")
    edges = flow.out_of("0.3")
    assert flow.by_input("0.3")["k"] == pytest.approx(sum(edge for _, _, p, edge in edges if p == "k"))
    assert list(study.flow(attention_only(), batch).by_input("1.0")) == ["q", "k", "v", "logits", "total"]


def test_only_edges_between_the_named_parts_are_cut():
    model, batch = gpt(), tokens()
    flow = study.flow(model, batch, method="cut", between=["0.3", "1.1", "1.2", "logits"])
    ends = {(str(u), str(v)) for u, v, *_ in flow.all}
    assert ends == {("0.3", "1.1"), ("0.3", "1.2"), ("0.3", "logits"), ("1.1", "logits"), ("1.2", "logits")}
    assert len(study.flow(model, batch, method="cut", between=["0.3", "1.1"], top=2).all) == 2


def test_a_stopped_flow_has_what_was_cut(caplog):
    model, batch, calls = gpt(), tokens(), []

    def loss(model, *batch):
        calls.append(1)
        if len(calls) == 6:  # one backward, one whole loss, and three edges before
            raise KeyboardInterrupt
        return model(*batch)[1]

    flow = study.flow(model, batch, loss, "cut", top=20)
    whole = study.flow(model, batch, method="cut", top=20)
    assert flow.stopped and not whole.stopped and np.isfinite(flow.edges[flow._known]).all()
    assert len(flow.all) == 3 and {e[:3] for e in flow.all} == {e[:3] for e in study.flow(model, batch).all[:3]}
    assert "stopped after cutting 3 of 20 edges" in caplog.text
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    calls[:] = [1] * 3
    with pytest.raises(KeyboardInterrupt):  # nothing has been cut yet
        study.flow(model, batch, loss, "cut", top=20)


def test_a_long_way_to_go_is_said(caplog, monkeypatch):
    monkeypatch.setattr("minigrad.base.progress.WARN_ABOVE", 0)
    study.flow(gpt(), tokens(), method="cut", top=5)
    assert caplog.text.count("cutting 5 edges will take about 0 s; top=50 or between") == 1
