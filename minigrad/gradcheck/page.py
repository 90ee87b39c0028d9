"""The sweep as one self-contained HTML page: what failed and why, then a row for each op and a column for each way it
was checked. It has no script, and its policy lets none run. Every verdict is a sign and a word, not only a colour, and
what a cell sums up unfolds by a click, a tap or Enter."""

import html
import math

from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from .sweep import worst_first

WORDS = {
    PASS: ("✓", "passed"),
    KINK: ("⌃", "passed, at a kink"),
    INCONCLUSIVE: ("?", "rounding hides the answer"),
    NONFINITE: ("∞", "NaN or infinity"),
    FAIL: ("✗", "failed"),
}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

# Colours and type are those of the report of attention heads (minigrad/study/report/page/style.css).
STYLE = """
:root { color-scheme: light dark; --mono: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --bg: #fff; --raised: #f5f6f8; --ink: #1b222c; --muted: #5b6675; --line: #d9dee6; --accent: #1f5fbf;
  --good: #1d7a46; --doubt: #8a5a00; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root {
  --bg: #12161c; --raised: #1c222b; --ink: #e6eaf0; --muted: #9aa6b5; --line: #333c49; --accent: #7db2ff;
  --good: #5fcf8f; --doubt: #f0b44c; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 70rem; padding: 1.25rem 1.5rem 2rem; background: var(--bg); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums }
h1, h2, p { margin: 0; overflow-wrap: anywhere } h1 { font-size: 1.05rem; font-weight: 600 }
h2 { font-size: 1.3rem; font-weight: 600; margin: 1.5rem 0 .6rem }
header { padding-bottom: .8rem; border-bottom: 1px solid var(--line) }
.muted { color: var(--muted); font-size: .88rem }
summary { cursor: pointer; min-height: 36px; padding: .4rem .6rem; border-radius: 6px; overflow-wrap: anywhere }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
pre { margin: 0; padding: .8rem 1rem; font: .84rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--raised); border-top: 1px solid var(--line) }
.found { margin-bottom: .6rem; border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: 6px }
p.found { padding: .4rem .6rem }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: 0 0 .8rem; padding: 0; list-style: none }
table { width: 100%; border-collapse: collapse; table-layout: fixed }
th, td { text-align: left; vertical-align: top; padding: .1rem .3rem; border-bottom: 1px solid var(--line) }
th { font-weight: 600; overflow-wrap: anywhere; padding: .5rem .3rem }
.verdict { font-weight: 600 } .PASS, .KINK { color: var(--good) } .INCONCLUSIVE { color: var(--doubt) }
.FAIL, .NONFINITE { color: var(--bad) }
summary > * { white-space: nowrap }
.bar { display: inline-block; width: 2.8rem; height: .5rem; margin-right: .4rem; border: 1px solid var(--line);
  border-radius: 2px; overflow: hidden }
.bar i { display: block; height: 100%; background: var(--good) }
td ul { margin: 0 0 .5rem; padding: 0 .6rem; list-style: none; font-size: .84rem; overflow-wrap: anywhere }
td li { padding: .15rem 0 }
@media (max-width: 699px) {
  body { padding: .8rem 1rem }
  table, tbody, tr, th, td { display: block } thead { display: none }
  tr { padding: .4rem 0; border-bottom: 1px solid var(--line) } th, td { border: 0; padding: 0 }
  td::before { content: attr(data-column); color: var(--muted); font-size: .84rem; padding-left: .6rem }
  td:empty { display: none }
}
"""


def page(rows, said, unchecked=()):
    """The HTML as a string. rows: of the sweep; said: its summary; unchecked: names of ops without cases."""
    columns = sorted({_column(r) for r in rows})
    cells: dict = {}
    for r in rows:
        cells.setdefault(r.op, {}).setdefault(_column(r), []).append(r)
    ops = list(dict.fromkeys(r.op for r in worst_first(rows)))
    head = "".join(f'<th scope="col">{html.escape(_title(c))}</th>' for c in columns)
    body = "".join(
        f'<tr><th scope="row">{html.escape(op)}</th>{"".join(_cell(c, cells[op].get(c)) for c in columns)}</tr>\n'
        for op in ops
    )
    legend = "".join(f"<li>{_sign(verdict)} {meaning}</li>" for verdict, (_, meaning) in WORDS.items())
    table = (
        f"<table><thead><tr><th scope='col'>op</th>{head}</tr></thead>\n<tbody>{body}</tbody></table>" if rows else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>minigrad gradcheck</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>Gradient checks</h1><p class="muted">{html.escape(said)}</p></header>
{_failures(rows, unchecked)}
<main>
<h2>All ops</h2>
<ul class="legend muted">{legend}</ul>
<p class="muted">A bar is the largest error of an op's cases as a part of what is allowed, from 1e-10 (empty) to 1
(full), on a logarithmic scale. Open a cell to see each case.</p>
{table}
</main>
</body>
</html>
"""


def _failures(rows, unchecked):
    """What did not pass, the worst first, each with its message."""
    found = [
        f'<details class="found" open><summary>{_sign(r.verdict)} <b>{html.escape(r.op)}</b>, '
        f"{html.escape(_title(_column(r)))}: {html.escape(r.case)}</summary>"
        f"<pre>{html.escape(r.message)}</pre></details>\n"
        for r in worst_first(rows)
        if r.message
    ]
    found += [f'<p class="found">{_sign(FAIL)} <b>{html.escape(op)}</b> declares no cases</p>\n' for op in unchecked]
    return f"<section><h2>{len(found)} did not pass</h2>\n{''.join(found)}</section>" if found else ""


def _sign(verdict):
    return f'<span class="verdict {verdict}">{WORDS[verdict][0]} {verdict}</span>'


def _column(row):
    return row.device, row.order, row.numeric == "complex"


def _title(column):
    device, order, is_complex = column
    return f"{device}, {'complex step' if is_complex else ('first', 'second')[order - 1] + ' order'}"


def _cell(column, rows):
    if not rows:
        return "<td></td>"
    rows = worst_first(rows)
    worst = rows[0]
    cases = "".join(
        f"<li>{_sign(r.verdict)} {_bar(r.error)}{r.error:.1e}, {r.evaluations} evaluations, {html.escape(r.case)}</li>"
        for r in rows
    )
    bar = f"{_bar(worst.error)}{worst.error:.0e}" if worst.verdict in (PASS, KINK) else ""
    number = f'<span class="muted">{len(rows)} case{"s" * (len(rows) > 1)}</span>'
    return (
        f'<td data-column="{html.escape(_title(column))}"><details>'
        f"<summary>{_sign(worst.verdict)} {bar} {number}</summary><ul>{cases}</ul></details></td>"
    )


def _bar(error):
    part = min(max((math.log10(error) + 10) / 10, 0), 1) if error > 0 else 0
    return f'<span class="bar" aria-hidden="true"><i style="width: {100 * part:.0f}%"></i></span>'
