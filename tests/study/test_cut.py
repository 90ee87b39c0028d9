"""cut_gradient, compared with a model in which every reader adds up a stream of its own, with detach() by hand."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.nn import functional as F

from .models import wild_gpt

GENERATOR = mg.Generator(5)
X, Y = (mg.randint(0, 13, (2, 7), generator=GENERATOR) for _ in range(2))


def by_hand(model, cut, factor):
    """The loss. Where cut(writer, reader) is true, the write gets `factor` times the reader's gradient."""
    writes = []

    def read(*reader):
        streams = [factor * t + (1 - factor) * t.detach() if cut(writer, reader) else t for writer, t in writes]
        return sum(streams[1:], streams[0])

    T = X.shape[1]
    writes.append(("tokens", model.wte.weight[X]))
    if model.wpe is not None:
        writes.append(("positions", model.wpe.weight[mg.arange(T)] + mg.zeros(*X.shape, 1, dtype=mg.float64)))
    for i, block in enumerate(model.blocks):
        layer, zs = block.attn, []
        for h, j in enumerate(layer.kv_of_head):
            made = []
            for p, W, b, n in zip("qkv", layer.weights(), layer.biases(), (h, j, j)):
                rows = slice(n * layer.d_k, (n + 1) * layer.d_k)
                x = F.linear(block.norm1(read(i, h, p)), W[rows], b[rows])
                made.append(nn.positions.rotary(x) if layer.positions == "rotary" and p != "v" else x)
            q, k, v = made
            hidden = mg.ones(T, T, dtype=mg.bool_).triu(1)
            pattern = (q @ k.mT / math.sqrt(layer.d_k)).masked_fill(hidden, -math.inf).softmax(-1)
            zs.append((pattern @ v) @ layer.out_proj.weight[:, h * layer.d_v : (h + 1) * layer.d_v].T)
        writes += [((i, h), z) for h, z in enumerate(zs)]
        writes.append(((i, "bias"), layer.out_proj.bias + mg.zeros(*X.shape, 1, dtype=mg.float64)))
        writes.append(((i, "mlp"), block.mlp(block.norm2(read(i, "mlp")))))
    logits = F.linear(model.norm(read("logits")), model.wte.weight)
    return F.cross_entropy(logits.reshape(-1, 13), Y.reshape(-1))


def layer(i, writer):
    return writer[0] == i and writer[1] != "mlp"


def reads(reader, i, part):
    return reader[0] == i and reader[-1] == part


A0, A1, M0 = "blocks.0.attn", "blocks.1.attn", "blocks.0.mlp"
CASES = {  # what is cut, and which pairs of (writer, reader) that are
    "a head into K": (("0.2", A1, "k"), lambda w, r: w == (0, 2) and reads(r, 1, "k")),
    "a head into a head's Q": (("0.1", "1.3", "q"), lambda w, r: w == (0, 1) and r == (1, 3, "q")),
    "a layer into a head": ((A0, "1.0"), lambda w, r: layer(0, w) and r[:2] == (1, 0)),
    "a layer into V": ((A0, A1, "v"), lambda w, r: layer(0, w) and reads(r, 1, "v")),
    "a layer into a layer": ((A0, A1), lambda w, r: layer(0, w) and r[0] == 1 and r[1] != "mlp"),
    "a layer into an MLP": ((A0, M0), lambda w, r: layer(0, w) and r == (0, "mlp")),
    "an MLP into K": ((M0, A1, "k"), lambda w, r: w == (0, "mlp") and reads(r, 1, "k")),
    "an MLP into the logits": ((M0, "logits"), lambda w, r: w == (0, "mlp") and r == ("logits",)),
    "tokens into a head": (("tokens", "0.0"), lambda w, r: w == "tokens" and r[:2] == (0, 0)),
    "positions into Q": (("positions", A0, "q"), lambda w, r: w == "positions" and reads(r, 0, "q")),
    "a head into the logits": (("1.3", "logits"), lambda w, r: w == (1, 3) and r == ("logits",)),
}


def gradients(model, loss):
    return [g.numpy() for g in mg.grad(loss, list(model.parameters()), retain_graph=True)]


MODELS = {"learned": {}, "shared keys": dict(n_kv_head=2), "rotary": dict(positions="rotary")}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_streams_by_hand(name):
    names, cut = CASES[name]
    for kind, changes in MODELS.items():
        if kind == "rotary" and names[0] == "positions":
            continue
        model = wild_gpt(impl="batched", **changes)
        plain = model(X, Y)[1]
        for factor in (0.0, -0.5):
            with study.cut_gradient(model, *names, factor=factor):
                loss = model(X, Y)[1]
            rounding = 1e-15 if "attn" in names[1] else 0  # q, k and v are products of their own there
            assert loss.item() == pytest.approx(plain.item(), rounding, 0)
            found, wanted = gradients(model, loss), gradients(model, by_hand(model, cut, factor))
            for x, y in zip(found, wanted):
                np.testing.assert_allclose(x, y, rtol=0, atol=1e-12 * max(1, np.abs(y).max()))
            assert any(np.abs(x - y).max() > 1e-6 for x, y in zip(found, gradients(model, plain)))


WRITERS = ["tokens", "positions", *((i, w) for i in range(2) for w in (*range(4), "bias", "mlp"))]
READERS = [("logits",), *((i, *r) for i in range(2) for r in (("mlp",), *((h, p) for h in range(4) for p in "qkv")))]
EDGES = {name: {(w, r) for w in WRITERS for r in READERS if cut(w, r)} for name, (_, cut) in CASES.items()}
PAIRS = [(a, b) for a in CASES for b in CASES if not EDGES[a] & EDGES[b]]


def test_captured_training_with_a_cut_is_eager_training_to_the_bit():
    ends = []
    for run in (lambda f: f, mg.capture):
        mg.manual_seed(0)
        model = study.AttentionOnly(13, 12, n_layer=2, n_head=2, n_embd=8)
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def step(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            _, loss = model(x, y)
            loss.backward()
            optimizer.step()
            return loss

        with study.cut_gradient(model, "blocks.0.attn", "blocks.1.attn", "k"):
            replay = run(step)
            for _ in range(4):
                replay(X, Y)
        ends.append([p.detach().numpy() for p in model.parameters()])
    assert all((x == y).all() for x, y in zip(*ends))


def test_a_factor_by_the_number_of_the_forward():
    model, seen = wild_gpt(), []
    with study.cut_gradient(model, "0.0", "logits", factor=lambda n: seen.append(n) or 0.5):
        for _ in range(3):
            model(X, Y)
            with mg.no_grad():
                model(X, Y)
        mg.capture(lambda x, y: model(x, y)[1])(X, Y)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "names, error, words",
    [
        (("1.0", "blocks.0.attn"), ValueError, "1.0 does not come before blocks.0.attn"),
        (("0.0", "0.1"), ValueError, "does not come before"),
        (("0.4", "logits"), KeyError, "no head '0.4'; the heads are 0.0 to 0.3, 1.0 to 1.3"),
        ((("blocks.0.mlp", 1), "logits"), KeyError, "no head 'blocks.0.mlp.1'; the heads are"),
        (("2.0", "logits"), KeyError, "no head '2.0'; the heads are 0.0 to 0.3, 1.0 to 1.3"),
        (("blocks.0.atn", "logits"), KeyError, "did you mean blocks.0.attn"),
        (("tokens", "tokens"), KeyError, "no part that reads the stream 'tokens'; there are"),
        (("logits", "0.0"), KeyError, "no part that writes into the stream 'logits'; there are input, tokens"),
        (("tokens", "blocks.0.mlp", "k"), ValueError, "input must be 'q', 'k' or 'v', of attention"),
        (("tokens", "0.0", "z"), ValueError, "input must be"),
    ],
)
def test_wrong_cuts_raise(names, error, words):
    with pytest.raises(error, match=words), study.cut_gradient(wild_gpt(), *names):
        pass


def test_models_that_cannot_be_cut():
    model, later = wild_gpt(dropout=0.1), A0.replace("0", "1")
    with pytest.raises(ValueError, match="without dropout"), study.cut_gradient(model, A0, later):
        pass
