"""study where one slip would go unseen: losses of one's own, hooks after an error, gates, small dtypes, chunks."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn import functional as F
from minigrad.study.stream import back_through_norm

from .models import ATTN, EncoderDecoder, V, gpt, tokens, traced

PATHS = "blocks.0.attn", ATTN
GATES = [1.0, 0.5, -1.5, -2.0]


def near(x, expected, rtol=1e-12):
    np.testing.assert_allclose(x, expected, rtol=0, atol=rtol * abs(np.asarray(expected)).max())


def summed(model, x, y):
    """Not the mean, which the model returns."""
    return F.cross_entropy(model(x)[0].reshape(-1, V), y.reshape(-1), reduction="sum")


def gated(dtype=mg.float64, requires_grad=False):
    model = gpt(dtype)
    model.blocks[1].attn.head_gates = mg.tensor(GATES, dtype=dtype, requires_grad=requires_grad)
    return model


def assert_untouched(model):
    assert not any(layer._head_hooks for layer in study.attention_layers(model).values())
    assert all(layer.head_gates is None for layer in study.attention_layers(model).values())
    assert not any(m.has_hooks for m in model.modules())


class Fails:
    """A loss that raises when it is asked for the nth time, after the forward."""

    def __init__(self, n):
        self.left = n

    def __call__(self, model, x, y):
        loss, self.left = model(x, y)[1], self.left - 1
        if self.left == 0:
            raise ZeroDivisionError
        return loss


# ------------------------------------------------------------------------------------------------------------- recorder


def test_a_recorder_takes_gradients_and_edges_of_the_loss_it_is_given():
    model, batch = gpt(), tokens()
    record = study.Recorder(model, batch, loss=summed, flow=True)
    with study.trace_heads(model) as trace:
        summed(model, *batch).backward()
    table, (_, series) = trace.table(), record.series("gate_grad")
    for path in PATHS:
        near(series[path][0], table["gate_grad"][path])
    step, found = record.flows[0]
    expected = study.flow(model, batch, summed)
    assert step == 0 and found.loss == expected.loss == pytest.approx(18 * model(*batch)[1].item())
    np.testing.assert_array_equal(found.edges, expected.edges)


@pytest.mark.parametrize("with_flow", [False, True])
def test_a_recorder_leaves_no_hooks_when_the_loss_raises(with_flow):
    model = gpt()
    with pytest.raises(ZeroDivisionError):
        study.Recorder(model, tokens(), loss=Fails(1 + with_flow), flow=with_flow)
    assert_untouched(model)


# -------------------------------------------------------------------------------------------------------------- effects


@pytest.mark.parametrize("method", study.METHODS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_importance_leaves_no_hooks_and_no_gates_when_the_loss_raises(method, nth):
    model = gpt()
    with pytest.raises(ZeroDivisionError):
        study.head_importance(model, [tokens()] * 3, method, loss=Fails(nth))
    assert_untouched(model)


# ---------------------------------------------------------------------------------------------------- edges and streams


def test_a_loss_that_is_not_finite_has_a_flow():
    found = study.flow(gpt(), tokens(), lambda model, x, y: model(x, y)[1] * float("inf"))
    assert np.isinf(found.loss) and not np.isfinite(found.edges).all()


def test_a_norm_without_eps_adds_that_of_its_dtype():
    """Where the stream is so small that it is eps which the norm divides by."""
    generator = np.random.default_rng(0)
    x, dy = (generator.standard_normal((5, 8)).astype(np.float32) for _ in range(2))
    norm, x = nn.RMSNorm(8, eps=None), x * np.float32(1e-4)
    given = mg.tensor(x, requires_grad=True)
    expected = mg.grad((norm(given) * mg.tensor(dy)).sum(), given)[0].numpy()
    near(back_through_norm(norm, x.astype(np.float64), dy.astype(np.float64), np.float32), expected, 1e-5)


# -------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_gradients_of_projections_are_float64(positions):
    seen = traced(gpt(mg.float32, positions=positions))[ATTN]
    assert seen.q_grad.dtype == np.float32
    assert all(seen.projection_grad(p).dtype == np.float64 for p in "qkv")


# ----------------------------------------------------------------------------------------------------------- statistics


def test_how_much_a_head_writes_counts_its_gate():
    model = gated()
    trace, layer = traced(model), model.blocks[1].attn
    written = [GATES[h] * trace[ATTN].z[:, h] @ layer.head(h).W_O.detach().numpy() for h in range(4)]
    near(trace.table()["norm"][ATTN], [np.linalg.norm(each, axis=-1).mean() for each in written])


def test_statistics_of_float16_neither_underflow_nor_overflow():
    mg.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    layer, x = (each.to(dtype=mg.float16) for each in (layer, mg.randn(2, 4, 8)))
    with study.trace_heads(layer) as trace:
        (layer(x)[0] * 2e-4).sum().backward()
    seen = trace[0]
    dS = seen.scores_grad.astype(np.float64)
    assert (seen.scores_grad**2 == 0).all() and dS.any()
    near(trace.table()["dS"][""], np.sqrt((dS**2).sum((0, 2, 3))))

    for p in layer.parameters():
        p.detach().fill_(1.0)
    with study.trace_heads(layer) as trace:
        (layer(mg.full((2, 4, 8), 10.0, dtype=mg.float16))[0] * 10.0).backward(mg.ones(2, 4, 8, dtype=mg.float16))
    seen = trace[0]
    assert (seen.z == 80).all() and (seen.z_grad == 80).all()  # sums of 32 times 6400 are more than float16 holds
    assert trace.table()["gate_grad"][""].tolist() == [32 * 6400.0] * 2


# ---------------------------------------------------------------------------------------------- trace, report and steps


def test_what_a_report_shows_of_a_layer_is_what_the_trace_has():
    model = EncoderDecoder().double()
    with study.trace_heads(model) as trace:
        model(*tokens()).backward()
    table = trace.table()
    for path in trace:
        view = trace[path].view(table)
        assert view.crossed == path.endswith("multihead_attn")
        np.testing.assert_array_equal(view.gradients["dS"], trace[path].scores_grad)
        np.testing.assert_array_equal(view.gradients["dP"], trace[path].pattern_grad)
        np.testing.assert_array_equal(view.by_token["dk"], np.linalg.norm(trace[path].k_grad, axis=-1))


@pytest.mark.parametrize("head", range(4))
def test_a_ledger_shows_the_gradient_of_the_heads_own_gate(head):
    model = gated(requires_grad=True)
    book = study.ledger(lambda: model(*tokens())[1], ATTN, head=head)
    model(*tokens())[1].backward()
    expected = model.blocks[1].attn.head_gates.grad.numpy()[head]
    found = {g.shape: g.array for entry in book.entries for g in entry.gives if g.shape in ((4, 1, 1), (4,))}
    assert {shape: array.shape for shape, array in found.items()} == {(4, 1, 1): (1, 1, 1), (4,): (1,)}
    near([array.item() for array in found.values()], expected)
