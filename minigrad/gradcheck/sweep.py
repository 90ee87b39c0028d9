"""Every declared op on every case of it, on every device asked for, at both orders. The results as a table, and as a
heat map in one self-contained HTML page."""

import html
import math
import time
import zlib
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..autograd import declared
from ..random import default_generator
from ..tensor import tensor
from .check import gradcheck
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, SEVERITY, GradcheckReport, aligned
from .subject import flat


@dataclass
class Row:
    """One check of the sweep. `report` is None if the op raised: `message` then says what."""

    op: str
    case: str
    device: str
    order: int
    numeric: str
    verdict: str
    report: GradcheckReport | None
    message: str
    seconds: float

    @property
    def error(self):
        """The largest |analytic - numeric| / allowed; inf if there is no number."""
        return float("inf") if self.report is None else self.report.error

    @property
    def evaluations(self):
        return 0 if self.report is None else self.report.evaluations

    def to_dict(self):
        names = ("op", "case", "device", "order", "numeric", "verdict", "seconds", "evaluations", "message")
        error = self.error if np.isfinite(self.error) else str(self.error)
        return {name: getattr(self, name) for name in names} | {"error": error}


def check_op(op, device="cpu", orders=(1, 2), seed=0, **options):
    """Check an op or composite (itself, or by its name) on each case that it declares. Returns a list of Rows.

    Where all ops are analytic the first order is checked by the complex step as well. options go to gradcheck."""
    declaration = declared(op)
    name = declaration.name
    if not declaration.cases:
        raise ValueError(f"op {name} declares no cases to check it on")
    rows = []
    for case in declaration.cases:
        inputs = inputs_of(name, case, seed, device)
        floats = [x for x in flat(inputs) if x.is_floating_point()]
        if not floats:
            continue
        checks = [(order, "ridders", {}) for order in orders]
        analytic = getattr(declaration.source, "analytic", False) and all(np.isfinite(x.numpy()).all() for x in floats)
        if analytic and device == "cpu" and 1 in orders:
            checks.append((1, "complex", {"probes": ()}))
        for order, numeric, extra in checks:
            state, began, report, message = default_generator.state, time.perf_counter(), None, ""
            settings = {**options, **extra, "order": order, "numeric": numeric, "seed": seed, "raise_on_fail": False}
            try:
                report = gradcheck(partial(declaration.call, **case.params), *inputs, **settings)
                verdict, message = report.verdict, "" if report else report.message()
            except Exception as error:  # an op that raises is a failed check; the others are still to be made
                verdict, message = FAIL, f"FAIL {name}: {type(error).__name__}: {error}"
            default_generator.state = state
            seconds = time.perf_counter() - began
            rows.append(Row(name, repr(case), device, order, numeric, verdict, report, message, seconds))
    return rows


def inputs_of(name, case, seed, device="cpu"):
    """A case's inputs as float64 Tensors, the same for the same name, case and seed."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {case!r}".encode())])

    def tensors(x):
        if isinstance(x, list):
            return [tensors(part) for part in x]
        return tensor(x, device=device) if isinstance(x, np.ndarray) else x

    return [tensors(x) for x in case.draw(rng)]


def worst_first(rows):
    return sorted(rows, key=lambda row: (-SEVERITY.index(row.verdict), -row.error))


# -- the rows as text


def table(rows):
    """A line for each row."""
    lines = [("verdict", "op", "order", "device", "numeric", "error/allowed", "evaluations", "ms", "case")]
    for r in rows:
        case = r.case if len(r.case) <= 60 else r.case[:59] + "…"
        numbers = f"{r.error:.1e}", str(r.evaluations), f"{1e3 * r.seconds:.0f}"
        lines.append((r.verdict, r.op, str(r.order), r.device, r.numeric, *numbers, case))
    return "\n".join(aligned(lines))


def summary(rows, seconds):
    counts = {v: sum(row.verdict == v for row in rows) for v in dict.fromkeys(row.verdict for row in rows)}
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing checked"
    ops, evaluations = len({row.op for row in rows}), sum(row.evaluations for row in rows)
    return f"{ops} ops, {len(rows)} checks: {verdicts}; {evaluations} evaluations in {seconds:.1f} s"


# -- and as a heat map: a row for each op, a column for each way it was checked

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } th { text-align: left; font-weight: 600; padding: .2rem .8rem .2rem 0 }
td { padding: 0 } td > * { display: block; min-width: 6.5rem; padding: .15rem .5rem; margin: 1px; text-align: right;
font-variant-numeric: tabular-nums } summary { cursor: pointer } details { text-align: left }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1rem } .scale span { padding: .15rem .7rem }
.FAIL, .NONFINITE, .INCONCLUSIVE { background: #b3261e; color: white; font-weight: 600 } .KINK { background: #f3c14b }
"""


def page(rows, said):
    """The HTML as a string. A cell's colour is its error as a part of what is allowed, on a logarithmic scale."""
    columns = sorted({_column(r) for r in rows})
    cells: dict = {}
    for r in rows:
        cells.setdefault(r.op, {}).setdefault(_column(r), []).append(r)
    ops = list(dict.fromkeys(r.op for r in worst_first(rows)))
    head = "".join(f"<th>{html.escape(_title(c))}</th>" for c in columns)
    body = "".join(
        f"<tr><th>{html.escape(op)}</th>" + "".join(_cell(cells[op].get(c)) for c in columns) + "</tr>\n" for op in ops
    )
    failed = "".join(f"<h2>{html.escape(r.case)}</h2><pre>{html.escape(r.message)}</pre>\n" for r in rows if r.message)
    steps = "".join(f'<span style="{_colour(10.0**e)}">1e{e}</span>' for e in range(-10, 1, 2))
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>minigrad gradcheck</title><style>{STYLE}</style>
<h1>Gradient checks</h1>
<p>{html.escape(said)}</p>
<p>Each cell is the worst case of an op: its error as a part of what is allowed (more than 1 fails), and the number of
its cases. Point at a cell to see which.</p>
<p class="scale">{steps} <span class="KINK">at a kink</span> <span class="FAIL">failed</span></p>
<table><tr><th>op</th>{head}</tr>
{body}</table>
{failed}</html>
"""


def _column(row):
    return row.device, row.order, row.numeric == "complex"


def _title(column):
    device, order, is_complex = column
    return f"{device}, {'complex step' if is_complex else ('first', 'second')[order - 1] + ' order'}"


def _cell(rows):
    if not rows:
        return "<td></td>"
    rows = worst_first(rows)
    worst = rows[0]
    title = "\n".join(f"{r.verdict} {r.error:.1e} {r.case}, {r.evaluations} evaluations" for r in rows)
    style = f' style="{_colour(worst.error)}"' if worst.verdict == PASS else f' class="{worst.verdict}"'
    words = {FAIL: "FAIL", NONFINITE: "NaN", INCONCLUSIVE: "unsure", KINK: "kink", PASS: f"{worst.error:.0e}"}
    return f'<td><span{style} title="{html.escape(title)}">{words[worst.verdict]} · {len(rows)}</span></td>'


def _colour(error):
    """White at 1e-10 of what is allowed and below, deep blue at 1."""
    part = min(max((math.log10(error) + 10) / 10, 0), 1) if error > 0 else 0
    return f"background: hsl(215 70% {98 - 48 * part:.0f}%)" + ("; color: white" if part > 0.85 else "")
