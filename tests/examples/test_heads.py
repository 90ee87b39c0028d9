"""The examples about heads, with small sizes, print the right numbers and write their files."""

import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

from .scripts import EXAMPLES, load


def test_backprop_through_heads(capsys, tmp_path):
    backprop = load("backprop_through_heads")
    backprop.main(["--out", str(tmp_path / "backward.dot")])
    printed = capsys.readouterr().out
    number = r"-?\d+\.\d{4}"
    rows = re.findall(rf"^ {{6,}}(?:{number} +)*{number}$", printed, re.MULTILINE)
    assert len(rows) == 2 * (3 + 6 * 3 + 2 + 3 * 4)
    for row in rows:  # the same numbers by hand, by autograd and by differences, and the pattern twice
        numbers = [float(x) for x in row.split()]
        columns = np.array(numbers).reshape(2 if len(numbers) == 6 and numbers[:3] == numbers[3:] else 3, -1)
        np.testing.assert_allclose(columns - columns[0], 0, atol=1.01e-4)
    assert float(re.search(r"largest disagreement: (\S+)", printed)[1]) < 1e-8 and "FAILS" not in printed
    text = (tmp_path / "backward.dot").read_text(encoding="utf-8")
    for name in ("dq", "dk", "dv", "dpattern", "dqk", "dz", "in_proj_weight.grad"):
        assert name in text


def test_backprop_between_heads(capsys):
    load("backprop_between_heads").main([])
    printed = capsys.readouterr().out
    rows = re.findall(r"^ +((?:to|all|⟨z).*?)  +(-?\d+\.\d{4}(?: +-?\d+\.\d{4})*)$", printed, re.MULTILINE)
    assert len(rows) == 2 * (3 + 3 + 1 + 1 + 1)
    sums = {}
    for name, row in rows:  # by hand, by study.flow, and by differences
        numbers = [float(x) for x in row.split()]
        assert len(numbers) == (2 if "⟨z" in name else 3)
        np.testing.assert_allclose(numbers, numbers[0], atol=1.01e-4)
        sums[name] = sums.get(name, 0.0) + numbers[0]
    edges = sum(number for name, number in sums.items() if name.startswith("to "))
    assert edges == pytest.approx(sums["all together"], abs=2e-3) == sums["⟨z, dz⟩"]
    edge, S, dS, products = (
        np.array(re.search(rf"^ +{name} +(-?\d.*)$", printed, re.MULTILINE)[1].split(), float)
        for name in ("to head 1.0, k", "S = q kᵀ", "dS", "dS S")
    )
    np.testing.assert_allclose(S * dS, products, atol=3e-4)
    assert products.sum() == pytest.approx(edge[0], abs=3e-4)
    assert float(re.search(r"largest disagreement, of 42 edges: (\S+)", printed)[1]) < 1e-8 and "FAILS" not in printed


@pytest.mark.needs("dot")
def test_the_backward_graph_in_the_repo_is_the_one_that_it_draws(tmp_path):
    pytest.importorskip("graphviz")
    load("backprop_through_heads").main(["--out", str(tmp_path / "backward.svg")])

    def texts(svg):
        return sorted("".join(e.itertext()).strip() for e in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text"))

    assert texts(tmp_path / "backward.svg") == texts(EXAMPLES / "backprop_through_heads.svg")
