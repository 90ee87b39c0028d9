"""flow.graph(): what is drawn of a Flow, and where."""

import html
import math
import re

import pytest

from minigrad import study
from minigrad.study.residual import picture

from .models import gpt, tokens


@pytest.fixture(scope="module")
def flow():
    return study.flow(gpt(), tokens())


def places(source):
    """{name of a part: (x, y)}"""
    found = re.findall(r'^\tn\d+ \[.*? pos="(\S+),(\S+)!".* tooltip="?(.*?)"? width=', source, re.M)
    return {name: (float(x), float(y)) for x, y, name in found}


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
    used = {str(node) for u, v, *_ in flow.out_of("blocks.0.attn", 1) for node in (u, v)}
    for name in at:  # the others are grey
        look = next(line for line in alone.splitlines() if re.search(rf'tooltip="?{re.escape(name)}"? width', line))
        assert (picture.STYLES["middle"]["fillcolor"] in look) == (name not in used)


def test_edges_look_as_the_legend_says(flow):
    source = flow.graph().source
    largest = abs(flow.all[0][-1])
    shown = [edge for edge in flow.all if abs(edge[-1]) >= 0.05 * largest]
    assert source.count("penwidth") == len(shown) < len(flow.all)
    assert f"the {len(shown)} largest of {len(flow.all)} edges; the widest is {largest:.3g}" in source
    at = places(source)
    for i, (u, v, p, edge) in enumerate(shown):
        told = f"{u} → {v} {p}".strip() + f": {edge:+.4g}"
        label, look = (
            [x for x in source.splitlines() if f' tooltip="{told}"' in x and ("->" in x) == n] for n in (0, 1)
        )
        assert len(look) == 1 and len(label) == (i < picture.LABELLED)
        (look,) = look
        assert picture.COLOURS[p] in look and f"penwidth={max(0.5, 8 * abs(edge) / largest):.2f}" in look
        assert "style=" + ("dashed" if edge > 0 else "solid") in look  # solid: training makes it stronger
        tip, start, *_ = (tuple(map(float, point.split(","))) for point in re.search(r'pos="e,(.*?)"', look)[1].split())
        half = 22 / 2
        assert start[1] == pytest.approx(at[str(u)][1] + half) and tip[1] == pytest.approx(at[str(v)][1] - half)
        assert abs(start[0] - at[str(u)][0]) < 50 and abs(tip[0] - at[str(v)][0]) < 50


@pytest.mark.needs("dot")
def test_graphviz_draws_it(tmp_path, flow):
    _, svg = flow.graph().save(tmp_path / "flow.svg")
    drawn = html.unescape(svg.read_text(encoding="utf-8"))
    shown = [edge for edge in flow.all if abs(edge[-1]) >= 0.05 * abs(flow.all[0][-1])]
    assert drawn.count('class="edge"') == len(shown)
    assert all(f"{u} → {v} {p}".strip() + f": {edge:+.4g}" in drawn for u, v, p, edge in shown)
    _, empty = flow.graph(study.Edges()).save(tmp_path / "empty.svg")
    assert 'class="edge"' not in empty.read_text(encoding="utf-8")


def test_it_can_be_read_on_light_and_on_dark_pages(flow):
    def luminance(colour):  # of WCAG 2
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(one, other):
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    for colour in picture.COLOURS.values():
        assert contrast(colour, "#ffffff") >= 3 and contrast(colour, "#0d1117") >= 3
    assert "bgcolor=transparent" in flow.graph().source


def test_labels_do_not_overlap_while_there_is_room():
    chips = [(0, 50, 30, 10)]  # something lies in the middle
    line = [(0, 0), (0, 33), (0, 67), (0, 100)]
    heights = [picture._free(line, chips)[1] for _ in range(3)]
    assert len(chips) == 4
    for i, y in enumerate([50, *heights]):
        assert all(abs(y - other) > 11 for other in heights[:i][: max(i - 1, 0)])


@pytest.mark.needs("dot")
def test_hostile_names_and_many_heads(tmp_path):
    path = "a" * 60 + ':.<b>"\\N'
    heads = [study.Node(path, h) for h in range(40)]
    first, last = study.Node("tokens"), study.Node("logits")
    inputs = [*((node, "k") for node in heads), (last, "")]
    flow = study.Flow([first, *heads], inputs, None, None, 1.0, [], 1e-6)
    edges = study.Edges([(first, heads[7], "k", -2.0), (heads[7], last, "", math.nan), (heads[9], last, "", 1.0)])
    picture = flow.graph(edges)
    assert picture.source.count("penwidth") == 2  # one is NaN
    _, svg = picture.save(tmp_path / "flow.svg")
    drawn = html.unescape(svg.read_text(encoding="utf-8"))
    assert f"{path} head 9 → logits" in drawn.replace("\u00a0", " ") and "…" in drawn
