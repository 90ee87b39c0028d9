"""One spelling of a head, "0.3", wherever one is named."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study.names import head_of, layer_names, part_of

from .models import ATTN, EncoderDecoder, gpt, tokens, traced

HEADS = {"blocks.0.attn": range(4), ATTN: range(4)}
WRONG = "there is no head '1.4'; the heads are 0.0 to 0.3, 1.0 to 1.3"


def test_layers_are_numbered_where_their_paths_are():
    for paths, names in (
        (["blocks.0.attn", "blocks.1.attn"], ["0", "1"]),
        ([""], ["0"]),
        (["attn"], ["0"]),
        (["blocks.0.one", "blocks.0.two"], ["blocks.0.one", "blocks.0.two"]),
        (["layers.1.attn", "layers.3.attn"], ["layers.1.attn", "layers.3.attn"]),
        (["encoder.attn", "decoder.attn"], ["encoder.attn", "decoder.attn"]),
    ):
        assert [*layer_names(paths).values()] == names
    trace = traced(gpt(), layers=[1], heads=[2])
    assert [line.split()[0] for line in str(trace.table()).splitlines() if line] == ["head", "1.2"]
    assert trace.table()["norm"]["1.2"] == trace.table()["norm"][ATTN][0]


def test_every_form_of_a_name_is_understood():
    for name in "1.3", f"{ATTN}.3", (1, 3), ("1", 3), (ATTN, 3), study.Part(ATTN, 3):
        assert head_of(name, HEADS) == (ATTN, 3) and str(part_of(name, HEADS)) == "1.3"
    for name in 1, "1", ATTN:
        assert part_of(name, HEADS) == study.Part(ATTN)
    assert str(part_of("blocks.1.mlp", HEADS)) == "blocks.1.mlp"
    for name in ATTN, "blocks.0.mlp", "logits", 1, "x.3":
        with pytest.raises(KeyError, match=f"there is no head '{name}'; the heads are 0.0 to 0.3, 1.0 to 1.3"):
            head_of(name, HEADS)
    many = {f"blocks.{i}.attn": range(12) for i in range(12)}
    with pytest.raises(KeyError, match=r"the heads are 0.0 to 0.11, 1.0 to 1.11, …, 11.0 to 11.11"):
        head_of("12.0", many)


@pytest.mark.parametrize(
    "named",
    [
        lambda model, name: traced(model)[name],
        lambda model, name: traced(model, heads=[name]),
        lambda model, name: traced(model).table()["norm"][name],
        lambda model, name: study.flow(model, tokens()).edge("0.0", name),
        lambda model, name: study.flow(model, tokens()).into(name),
        lambda model, name: study.flow(model, tokens()).out_of(name),
        lambda model, name: study.flow(model, tokens()).around(name),
        lambda model, name: study.flow(model, tokens()).by_input(name),
        lambda model, name: study.flow(model, tokens(), method="cut", between=[name, "0.0"]),
        lambda model, name: study.ledger(lambda: model(*tokens())[1], head=name, names=model),
        lambda model, name: study.ledger(lambda: model(*tokens())[1], head=name),
        lambda model, name: study.head_importance(model, [tokens()], "joint_path", steps=1)[name],
        lambda model, name: study.ablate_heads(model, [name]).__enter__(),
        lambda model, name: study.cut_gradient(model, "0.0", name).__enter__(),
    ],
)
def test_every_function_reads_it_and_lists_the_heads(named):
    named(gpt(), "1.3")
    with pytest.raises(KeyError, match=WRONG):
        named(gpt(), "1.4")


def test_one_head_of_a_trace():
    trace = traced(gpt(n_kv_head=2))
    layer, head = trace[ATTN], trace["1.3"]
    for name in "q", "k_grad", "pattern", "scores_grad", "x_q_grad":
        np.testing.assert_array_equal(getattr(head, name), getattr(layer, name)[:, 3])
    np.testing.assert_array_equal(head.W_O, layer.W_O[3])
    assert head.y is layer.y and head.y_grad is layer.y_grad and head.x_k is layer.x_k
    assert "pattern_grad" in dir(head)
    with pytest.raises(KeyError, match=r"there is no head '1.3'; the heads are 1.0, 1.2"):
        traced(gpt(), heads=["1.0", "1.2"])["1.3"]
    with pytest.raises(ValueError, match=r"none of the heads \['1.0'\] is in the layers \['blocks.0.attn'\]"):
        traced(gpt(), layers=[0], heads=["1.0"])
    with pytest.raises(RuntimeError, match=r"blocks.0.attn has none of the traced heads"):
        traced(gpt(), heads=["1.0", "1.2"])[0]


def test_a_ledger_of_a_head():
    model = gpt()

    def loss():
        return model(*tokens())[1]

    by_name, by_path = study.ledger(loss, head="1.2", names=model), study.ledger(loss, ATTN, head=2, names=model)
    assert by_name.title == by_path.title and len(by_name.entries) == len(by_path.entries) > 5


def test_layers_that_share_a_block_have_long_names():
    model, (src, tgt) = EncoderDecoder(), tokens()
    found = study.head_importance(model, [(src, tgt)], "abs_gate_grad", loss=lambda model, *batch: model(*batch))
    path = "decoder.1.multihead_attn"
    assert found[f"{path}.2"] == found[path][2] == found["4.2"]
    assert f"\n{path}.2  " in str(study.HeadTable({"x": found}))
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    with study.trace_heads(layer) as trace:
        layer(mg.randn(1, 3, 8))
    assert trace["0.1"].pattern.shape == (1, 3, 3)
