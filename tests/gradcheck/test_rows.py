"""What the sweep over all ops says: once for each, on inputs of its own, the worst first."""

from types import SimpleNamespace

from minigrad.autograd.cases import case
from minigrad.gradcheck.sweep import Row, inputs_of, sweep, worst_first
from minigrad.gradcheck.verdicts import FAIL, PASS


def row(name, verdict, error):
    return Row(name, "", "cpu", 1, verdict, SimpleNamespace(error=error), "", 0.0)


def test_the_worst_come_first():
    rows = [row("a", PASS, 0.1), row("b", PASS, 0.5), row("c", FAIL, 2.0), row("d", FAIL, 3.0)]
    assert "".join(r.op for r in worst_first(rows)) == "dcba"


def test_an_op_is_checked_once():
    found = list(sweep(["neg", "exp", "neg"], orders=(2,), probes=()))
    assert [name for name, _ in found] == ["neg", "exp"] and {r.order for _, rows in found for r in rows} == {2}


def test_each_op_has_inputs_of_its_own():
    same, again, other = (inputs_of(name, case((3,)), 5)[0].tolist() for name in ("exp", "exp", "neg"))
    assert same == again != other != inputs_of("neg", case((3,)), 6)[0].tolist()
