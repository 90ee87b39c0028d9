"""Mistakes that users of other frameworks reported, rebuilt as ops: see report.py."""

from . import equal, formulas, graph, indices, large, layouts, losses, options, precision, second, shapes, sizes, state
from . import zeros
from .report import Report

PARTS = (
    formulas, zeros, equal, large, precision, sizes, shapes, layouts, indices, options, losses, graph, state, second,
)  # fmt: skip
REPORTS: list[Report] = [report for part in PARTS for report in part.REPORTS]
