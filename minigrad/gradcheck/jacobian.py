"""The gradient element by element: each output, or some sums of them, against each element of each input."""

import numpy as np

from . import numeric as num
from .compare import CODE, scale
from .hints import patterns
from .report import FAIL, INCONCLUSIVE, PASS, Finding
from .rounding import unsteadiness


def jacobian(comparison, combinations=None):
    """Adds one finding for each leaf. combinations: so many random sums of the outputs instead of every single one."""
    c = comparison
    single = np.eye(c.y.size)[c.defined]
    rows = None if combinations is None else c.cotangents(combinations)
    gradients, noise, flow = c.rows(single if rows is None else rows)
    tables = {}
    for i, leaf in enumerate(c.subject.leaves):
        analytic = np.array([g[i].ravel() for g in gradients]).reshape(len(gradients), leaf.array.size)
        columns = [
            c.compare(c.unit(i, j), rows, noise, analytic[:, j], scale(leaf.array.flat[j]))
            for j in range(leaf.array.size if gradients else 0)
        ]
        if not columns:
            c.add(Finding("Jacobian", PASS, leaf.name, note="no elements"))
            continue
        d = num.side_by_side([column[0] for column in columns])
        codes, excess = (np.stack([column[k] for column in columns], axis=1) for k in (1, 2))
        difference = np.abs(analytic - d.value)
        small = difference <= c.trivial(analytic, flow)
        codes[small & ((codes == CODE[FAIL]) | (codes == CODE[INCONCLUSIVE]))] = CODE[PASS]
        _allow_for_backward(c.subject, i, single if rows is None else rows, difference, codes)
        wide = c.wide(analytic, d, flow[:, None])
        codes[(codes == CODE[PASS]) & wide & ~small] = CODE[INCONCLUSIVE]
        tables[leaf.name] = leaf, analytic, d, codes, excess
    for table in tables.values():
        c.add(_worst(c, *table, {name: t[2].value for name, t in tables.items()}, rows is None))


def _allow_for_backward(subject, i, rows, difference, codes):
    """What failed in leaf i and rounding in the backward itself explains is not decided."""
    for k in np.flatnonzero((codes == CODE[FAIL]).any(axis=1)):
        allowed = 8 * unsteadiness(subject, rows[k])[1][i].ravel()
        codes[k, (codes[k] == CODE[FAIL]) & (difference[k] <= allowed)] = CODE[INCONCLUSIVE]
        if CODE[FAIL] in codes[k]:
            return


def _worst(comparison, leaf, analytic, d, codes, excess, others, single_outputs):
    """The finding for one leaf: its gravest element, and what the others of its kind have in common."""
    k, j = np.unravel_index(np.lexsort((excess.ravel(), codes.ravel()))[-1], codes.shape)
    output = comparison.output_name(comparison.defined[k]) if single_outputs else f"combination {k}"
    f = comparison.finding("Jacobian", analytic, d, codes, excess, (k, j), (leaf, j), output)
    alike = codes == codes[k, j]
    if f.verdict != PASS:
        f.note = f"{alike.sum()} of {codes.size} elements of this Jacobian" + (f"; {f.note}" if f.note else "")
    if f.verdict == FAIL:
        f.hints = patterns(leaf, analytic, d.value, alike, others) + f.hints
    return f
