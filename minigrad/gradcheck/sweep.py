"""Every declared op on every case of it, on every device asked for, at both orders."""

import time
import zlib
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import backend
from ..autograd import Storage, declared
from ..random import default_generator
from ..tensor import Tensor
from .check import gradcheck
from .report import FAIL, SEVERITY, GradcheckReport
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
        plain = ("op", "case", "device", "order", "numeric", "verdict", "seconds", "evaluations", "message")
        error = self.error if np.isfinite(self.error) else str(self.error)
        return {name: getattr(self, name) for name in plain} | {"error": error}


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
        if not any(x.is_floating_point() for x in flat(inputs)):
            continue
        checks = [(order, "ridders") for order in orders]
        if getattr(declaration.source, "analytic", False) and device == "cpu" and 1 in orders and _finite(inputs):
            checks.append((1, "complex"))
        for order, numeric in checks:
            extra = {"probes": ()} if numeric == "complex" else {}
            state, began, report, message = default_generator.state, time.perf_counter(), None, ""
            try:
                report = gradcheck(
                    partial(declaration.call, **case.params), *inputs, order=order, numeric=numeric, seed=seed,
                    raise_on_fail=False, **{**options, **extra},
                )  # fmt: skip
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
    on = backend.get(device)

    def tensors(x):
        if isinstance(x, list):
            return [tensors(part) for part in x]
        return Tensor._wrap(on.from_numpy(x), Storage(on)) if isinstance(x, np.ndarray) else x

    return [tensors(x) for x in case.draw(rng)]


def worst_first(rows):
    return sorted(rows, key=lambda row: (-SEVERITY.index(row.verdict), -row.error))


def _finite(inputs):
    return all(np.isfinite(x.numpy()).all() for x in flat(inputs) if x.is_floating_point())
