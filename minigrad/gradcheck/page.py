"""A heat map of a sweep as one self-contained HTML page: a row for each op, a column for each way it was checked."""

import html
import math

from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from .sweep import worst_first

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } th { text-align: left; font-weight: 600; padding: .2rem .8rem .2rem 0 }
td { padding: 0 } td > * { display: block; min-width: 6.5rem; padding: .15rem .5rem; margin: 1px; text-align: right;
font-variant-numeric: tabular-nums } summary { cursor: pointer } details { text-align: left }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1rem } .scale span { padding: .15rem .7rem }
.FAIL, .NONFINITE, .INCONCLUSIVE { background: #b3261e; color: white; font-weight: 600 } .KINK { background: #f3c14b }
"""


def page(rows, summary):
    """The HTML as a string. The colour is the error as a part of what is allowed, on a logarithmic scale."""
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
<p>{html.escape(summary)}</p>
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
    said = {FAIL: "FAIL", NONFINITE: "NaN", INCONCLUSIVE: "unsure", KINK: "kink"}.get(
        worst.verdict, f"{worst.error:.0e}"
    )
    return f'<td><span{style} title="{html.escape(title)}">{said} · {len(rows)}</span></td>'


def _colour(error):
    """White at 1e-10 of what is allowed and below, deep blue at 1."""
    part = min(max((math.log10(error) + 10) / 10, 0), 1) if error > 0 else 0
    return f"background: hsl(215 70% {98 - 48 * part:.0f}%)" + ("; color: white" if part > 0.85 else "")
