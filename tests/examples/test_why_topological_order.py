"""examples/why_topological_order.py: the naive walk is wrong, the topological one is right."""

import re
import xml.etree.ElementTree as xml

import pytest

import minigrad as mg

from .scripts import EXAMPLES, load

pytest.importorskip("graphviz")

why = load("why_topological_order")


def texts(svg):
    return sorted("".join(e.itertext()).strip() for e in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text"))


def test_the_naive_walk_prints_3_and_all_others_print_9(capsys, tmp_path):
    why.main(["--out", str(tmp_path / "order.dot")])
    out = capsys.readouterr().out
    found = re.findall(r"^  (\D+?) +([\d.]+)$", out[out.index("dd/da\n") :], re.M)
    assert found == [
        ("first come, first served (wrong)", "3.000000"),
        ("newest first (right)", "9.000000"),
        ("minigrad's backward", "9.000000"),
        ("finite difference", "9.000000"),
    ]
    assert "2. b has 1 and sends 3 to a   <- too early: in the end it has 3" in out
    assert out.count("too early") == out.count("too late") == 1
    dot = (tmp_path / "order.dot").read_text(encoding="utf-8")
    assert "too late" in dot and "step 3: has 3" in dot and "gets 9" in dot


@pytest.mark.needs("dot")
def test_the_picture_in_the_repo_is_the_one_that_it_draws(tmp_path):
    why.main(["--out", str(tmp_path / "order.svg")])
    assert texts(tmp_path / "order.svg") == texts(EXAMPLES / "why_topological_order.svg")


def test_the_order_of_two_arguments_can_hide_the_mistake():
    a = mg.tensor(1.0, requires_grad=True, dtype=mg.float64)
    b = 3 * a
    d = 2 * b + b  # instead of b + 2 * b: now c happens to come first
    assert why.walk(d, why.first_come)[0][a.node].item() == 9


def test_newest_first_is_right_on_a_tangle():
    values = [mg.randn((), dtype=mg.float64, requires_grad=True) for _ in range(3)]
    leaves, wrong = list(values), 0
    for i in range(30):
        values.append((values[-1] * values[7 * i % len(values)] + values[5 * i % len(values)]).tanh())
    gradients, steps = why.walk(values[-1], why.newest_first)
    naive, _ = why.walk(values[-1], why.first_come)
    values[-1].backward()
    for x in leaves:
        assert gradients[x.node].item() == pytest.approx(x.grad.item(), rel=1e-12)
        wrong += abs(naive[x.node].item() - x.grad.item()) > 1e-6
    assert wrong
    assert len({op for op, _, _ in steps}) == len(steps)
