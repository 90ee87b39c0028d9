"""Check declared ops on each case that they declare, on each device and at both orders, and print the results."""

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..autograd import declaration_of
from ..base.tables import columns
from ..random import default_generator
from ..tensor import tensor
from .check import gradcheck
from .probes import CHEAP
from .report import GradcheckReport, describe_exception
from .subject import tensors_in
from .verdicts import FAIL, SEVERITY, WARN


@dataclass
class Row:
    """The result of one check. `report` is None if the op raised: then `message` says what."""

    op: str
    case: str
    device: str
    order: int
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


def check_op(op: Any, device: str = "cpu", orders: Iterable[int] = (1, 2), seed: int = 0, **options: Any) -> list[Row]:
    """Check an op or composite, given as itself or by its name, on each case that it declares. Returns a list of Rows.
    It is empty for an op that is declared not to be differentiable.

    options go to gradcheck. By default the first case gets all probes, the others all but those that look at other
    points; and strict is True for ops of minigrad."""
    declaration = declaration_of(op)
    name = declaration.name
    if not declaration.cases:
        raise ValueError(f"op {name} declares no cases to check it on")
    rows = []
    for k, case in enumerate(declaration.cases):
        inputs = inputs_of(name, case, seed, device)
        floats = [x for x in tensors_in(inputs) if x.is_floating_point()]
        if not floats or not getattr(declaration.source, "differentiable", True):  # nothing has a gradient
            continue
        for order in orders:
            state, began, report, message = default_generator.state, time.perf_counter(), None, ""
            settings = {"probes": "all" if k == 0 else CHEAP, "strict": declaration.builtin, **options}
            settings |= {"order": order, "seed": seed, "raise_on_fail": False}
            try:
                report = gradcheck(partial(declaration.call, **case.params), *inputs, **settings)
                verdict = report.verdict
                message = "" if report and verdict != WARN else report.message()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # an op that raises, or exits, has failed; the others are still to come
                verdict, message = FAIL, f"FAIL {name}: {describe_exception(error)}"
            default_generator.state = state
            seconds = time.perf_counter() - began
            rows.append(Row(name, repr(case), device, order, verdict, report, message, seconds))
    return rows


def sweep(names, devices=("cpu",), orders=(1, 2), seed=0, **options):
    """Yield (name, Rows) for each op, once, in this order."""
    for name in dict.fromkeys(names):
        yield name, [row for device in devices for row in check_op(name, device, orders, seed, **options)]


def inputs_of(name, case, seed, device="cpu"):
    """Return a case's inputs as float64 Tensors: the same numbers for the same name, case and seed."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {case!r}".encode())])

    def tensors(x):
        if isinstance(x, list):
            return [tensors(part) for part in x]
        return tensor(x, device=device) if isinstance(x, np.ndarray) else x

    return [tensors(x) for x in case.draw(rng)]


def worst_first(rows):
    """Return the Rows sorted by verdict, then by error."""
    return sorted(rows, key=lambda row: (-SEVERITY.index(row.verdict), -row.error))


# -- the rows as text


def table(rows):
    """Return a table with a line for each Row."""
    lines = [("verdict", "op", "order", "device", "error/allowed", "evaluations", "ms", "case")]
    for r in rows:
        case = r.case if len(r.case) <= 60 else r.case[:59] + "…"
        numbers = f"{r.error:.1e}", str(r.evaluations), f"{1e3 * r.seconds:.0f}"
        lines.append((r.verdict, r.op, str(r.order), r.device, *numbers, case))
    return "\n".join(columns(lines))


def summary(rows, seconds):
    """Return one line: how many ops and checks, their verdicts, and the cost."""
    counts = {v: sum(row.verdict == v for row in rows) for v in dict.fromkeys(row.verdict for row in rows)}
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing checked"
    ops, evaluations = len({row.op for row in rows}), sum(row.evaluations for row in rows)
    noun = "op" if ops == 1 else "ops"
    return f"{ops} {noun}, {len(rows)} checks: {verdicts}; {evaluations} evaluations in {seconds:.1f} s"
