"""The recipes of minigrad/study/README.md do what their comments say."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import study

from .. import ROOT

README = (ROOT / "minigrad/study/README.md").read_text(encoding="utf-8")
CODE = re.search(r"## Recipes\n\n```python\n(.*?)```", README, re.S)[1]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The names that the recipes define, after they ran."""
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(CODE, "README.md", "exec"), names)
    return names


def test_there_are_five():
    assert len(re.findall(r"^# ", CODE, re.M)) == 5


def test_a_head_is_patched_and_a_pattern_frozen():
    """The hooks of the recipes are there while the trace looks."""
    names = {}
    parts = CODE.split("handle.remove()")
    exec(compile(parts[0].replace("patched = model(x, y)[1]", ""), "README.md", "exec"), names)
    with study.trace_heads(names["model"]) as trace:
        names["model"](names["x"])
    np.testing.assert_array_equal(trace["1.2"].z, names["other"]["1.2"].z)
    assert (trace["1.1"].z != names["other"]["1.1"].z).any()
    names["handle"].remove()
    exec(compile(parts[1].replace("frozen = model(x, y)[1]", ""), "README.md", "exec"), names)
    with study.trace_heads(names["model"]) as trace:
        names["model"](names["x"])
    np.testing.assert_array_equal(trace[1].pattern, np.broadcast_to(np.eye(16, k=-1), (3, 4, 16, 16)))


def test_the_recorded_flow_and_the_loaded_model(ran):
    assert len(ran["recorded"]) == 3 and list(ran["recorded"][0])[-1] == "total"
    assert len({each["total"] for each in ran["recorded"]}) == 3
    for p, q in zip(ran["model"].parameters(), ran["again"].parameters(), strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_gpt_2s_weights(ran, tmp_path):
    C = 128
    shapes = {"wte.weight": (5, C), "wpe.weight": (4, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    sizes = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    for part, (n, m) in sizes.items():
        shapes |= {f"h.0.{part}.weight": (n, m), f"h.0.{part}.bias": (m,)}
    shapes |= {f"h.0.ln_{i}.{part}": (C,) for i in (1, 2) for part in ("weight", "bias")}
    rng = np.random.default_rng(0)
    mg.save({name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}, "gpt2.safetensors")
    model = ran["gpt2"]("gpt2.safetensors")
    flow = study.flow(model, (mg.tensor([[1, 2, 3]]), mg.tensor([[2, 3, 4]])))
    assert flow.by_input("0.1")["logits"] and set(flow.edge("0.0", "blocks.0.mlp")) == {""}
