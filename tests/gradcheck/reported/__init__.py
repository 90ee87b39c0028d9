"""Mistakes that users of other frameworks reported, rebuilt as ops (see report.py): one for each way to find them."""

from . import equal, formulas, graph, indices, large, layouts, losses, options, shapes, sizes, state, zeros
from .report import Report

PARTS = formulas, zeros, equal, large, sizes, shapes, layouts, indices, options, losses, graph, state
REPORTS: list[Report] = [report for part in PARTS for report in part.REPORTS]
