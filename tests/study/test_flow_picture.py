"""flow.graph(): what is drawn of a Flow, and where."""

import html
import math
import re

import pytest

from minigrad import study
from minigrad.study import flow_picture

from .models import gpt, tokens


@pytest.fixture(scope="module")
def flow():
    return study.flow(gpt(), tokens())


def places(source):
    """{name of a part: (x, y)}"""
    boxes = [line for line in source.splitlines() if re.match(r"\tn\d+ \[", line)]
    place = re.compile(r'pos="(\S+),(\S+)!".* tooltip="?(.*?)"?\]$')
    return {name: (float(x), float(y)) for x, y, name in (place.search(line).groups() for line in boxes)}


def test_every_part_has_its_place_whatever_is_shown(flow):
    whole, alone = flow.graph().source, flow.graph(flow.out_of("blocks.0.attn", 1), least=0).source
    at = places(whole)
    assert at == places(alone) and at.keys() == {*map(str, [*flow.sources, *(v for v, _ in flow.inputs)])}
    assert len(set(at.values())) == len(at)
    rows = ["tokens", "blocks.0.attn head 0", "blocks.0.mlp", "blocks.1.attn head 3", "blocks.1.mlp", "logits"]
    heights = [at[name][1] for name in rows]
    assert heights == sorted(heights) and len(set(heights)) == 6
    assert at["blocks.0.attn head 0"][0] < at["blocks.0.attn head 1"][0] < at["blocks.0.attn head 3"][0]
    assert at["blocks.0.attn head 0"][1] == at["blocks.0.attn head 3"][1] == at["blocks.0.attn.bias"][1]
    assert alone.count("penwidth") == len(flow.out_of("blocks.0.attn", 1))


def test_edges_look_as_the_legend_says(flow):
    source, largest = flow.graph().source, abs(flow.all[0][-1])
    shown = [edge for edge in flow.all if abs(edge[-1]) >= 0.05 * largest]
    assert source.count("penwidth") == len(shown) < len(flow.all)
    assert f"the {len(shown)} largest of {len(flow.all)} edges; the widest is {largest:.3g}" in source
    for i, (u, v, p, edge) in enumerate(shown):
        told = f"{u} → {v} {p}".strip() + f": {edge:+.4g}"
        (look,) = [line for line in source.splitlines() if f'tooltip="{told}"' in line]
        assert flow_picture.COLOURS[p] in look and f"penwidth={max(0.5, 8 * abs(edge) / largest):.2f}" in look
        assert "style=" + ("dashed" if edge > 0 else "solid") in look  # solid: training makes it stronger
        assert ("label=" in look) == (i < flow_picture.LABELLED)


@pytest.mark.needs("dot")
def test_graphviz_draws_it_whatever_names_are(tmp_path, flow):
    _, svg = flow.graph().save(tmp_path / "flow.svg")
    drawn = html.unescape(svg.read_text(encoding="utf-8"))
    shown = [edge for edge in flow.all if abs(edge[-1]) >= 0.05 * abs(flow.all[0][-1])]
    assert drawn.count('class="edge"') == len(shown)
    _, empty = flow.graph(study.Edges()).save(tmp_path / "empty.svg")
    assert 'class="edge"' not in empty.read_text(encoding="utf-8")
    path = "a" * 60 + ':.<b>"\\N'
    heads = [study.Node(path, h) for h in range(40)]
    first, last = study.Node("tokens"), study.Node("logits")
    hostile = study.Flow([first, *heads], [*((node, "k") for node in heads), (last, "")], None, None, 1.0, [], 1e-6)
    edges = study.Edges([(first, heads[7], "k", -2.0), (heads[7], last, "", math.nan), (heads[9], last, "", 1.0)])
    picture = hostile.graph(edges)
    assert picture.source.count("penwidth") == 2  # one is NaN
    _, svg = picture.save(tmp_path / "flow.svg")
    assert f"{path} head 9 → logits" in html.unescape(svg.read_text(encoding="utf-8")).replace("\u00a0", " ")
