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
    hostile = study.Flow([first, *heads], [*((node, "k") for node in heads), (last, "")], None, None, 1.0)
    edges = study.Edges([(first, heads[7], "k", -2.0), (heads[7], last, "", math.nan), (heads[9], last, "", 1.0)])
    picture = hostile.graph(edges)
    assert picture.source.count("penwidth") == 2  # one is NaN
    _, svg = picture.save(tmp_path / "flow.svg")
    assert f"{path} head 9 → logits" in html.unescape(svg.read_text(encoding="utf-8")).replace("\u00a0", " ")
