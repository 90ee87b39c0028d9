"""Every declared op on every case of it, on every device asked for, at both orders, and the results as a table."""

import importlib
import multiprocessing
import os
import signal
import threading
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..autograd import declared
from ..random import default_generator
from ..tensor import tensor
from .check import gradcheck
from .probes import CHEAP
from .report import FAIL, SEVERITY, WARN, GradcheckReport, columns, raised
from .subject import flat


@dataclass
class Row:
    """One check of the sweep. `report` is None if the op raised: `message` then says what."""

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
    """Check an op or composite (itself, or by its name) on each case that it declares. Returns a list of Rows, which
    is empty for an op that is declared not to be differentiable.

    options go to gradcheck. The probes that look for other points are run on the first case only, unless `probes` says
    otherwise; strict is True for ops of minigrad."""
    declaration = declared(op)
    name = declaration.name
    if not declaration.cases:
        raise ValueError(f"op {name} declares no cases to check it on")
    rows = []
    for k, case in enumerate(declaration.cases):
        inputs = inputs_of(name, case, seed, device)
        floats = [x for x in flat(inputs) if x.is_floating_point()]
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
                verdict, message = FAIL, f"FAIL {name}: {raised(error)}"
            default_generator.state = state
            seconds = time.perf_counter() - began
            rows.append(Row(name, repr(case), device, order, verdict, report, message, seconds))
    return rows


def sweep(names, modules=(), jobs=1, devices=("cpu",), orders=(1, 2), seed=0, **options):
    """Yields (name, Rows) for each op, once, in this order, whatever the number of processes that share the work.

    modules: names of those that declare them, imported in each process. With any, even one process at a time is not
    this one: an unchecked op may crash its process. Then it has failed, and the others
    are checked again, each in a process of its own."""
    names = list(dict.fromkeys(names))
    jobs = min(jobs, len(names))
    check = partial(_on_devices, devices=devices, orders=orders, seed=seed, **options)
    if not names or (jobs < 2 and not modules):
        yield from ((name, check(name=name)) for name in names)
        return
    others, pool = set(multiprocessing.active_children()), _pool(jobs, modules)
    try:
        with _one_thread() if jobs > 1 else nullcontext():
            found = [pool.submit(check, name=name) for name in names]
        for name, rows in zip(names, found):
            try:
                yield name, rows.result()
            except BrokenProcessPool:
                yield name, _alone(name, modules, check, devices)
    finally:  # also on Ctrl-C, or if the caller stops: the processes' remaining work is not needed
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)


def _pool(jobs, modules):
    """Processes that have imported the modules. A fork of a process that has threads, or a GPU, may hang."""
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (tuple(modules),))


def _begin(modules):
    """What a process does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that shares out the work
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name in modules:
        importlib.import_module(name)


def _end_with_parent():
    """A parent that is killed closes nothing. Its processes would wait for work for ever, and hold its stdout open."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _alone(name, modules, check, devices):
    """The Rows of an op that is checked once more, in a process of its own; a failed one if it ends that."""
    with _pool(1, modules) as pool:
        try:
            return pool.submit(check, name=name).result()
        except BrokenProcessPool:
            message = f"FAIL {name}: it ended the process that checked it"
            return [Row(name, "all cases", ", ".join(devices), 1, FAIL, None, message, 0.0)]


@contextmanager
def _one_thread():
    """Processes that are started inside the with compute in one thread each."""
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


def _on_devices(name, devices, orders, seed, **options):
    return [row for d in devices for row in check_op(name, d, orders, seed, **options)]


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
    lines = [("verdict", "op", "order", "device", "error/allowed", "evaluations", "ms", "case")]
    for r in rows:
        case = r.case if len(r.case) <= 60 else r.case[:59] + "…"
        numbers = f"{r.error:.1e}", str(r.evaluations), f"{1e3 * r.seconds:.0f}"
        lines.append((r.verdict, r.op, str(r.order), r.device, *numbers, case))
    return "\n".join(columns(lines))


def summary(rows, seconds):
    counts = {v: sum(row.verdict == v for row in rows) for v in dict.fromkeys(row.verdict for row in rows)}
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing checked"
    ops, evaluations = len({row.op for row in rows}), sum(row.evaluations for row in rows)
    noun = "op" if ops == 1 else "ops"
    return f"{ops} {noun}, {len(rows)} checks: {verdicts}; {evaluations} evaluations in {seconds:.1f} s"
