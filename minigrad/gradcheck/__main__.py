"""Check the gradient of every declared op, on every case of it: a table, the worst first. Exit status 1 on any failure.

Files and modules named on the command line are imported first, so that the ops they declare are checked too."""

import argparse
import importlib
import importlib.util
import json
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from .. import backend
from ..autograd import registry
from .page import page
from .report import KINK, PASS, aligned
from .sweep import check_op, worst_first


def arguments(argv):
    parser = argparse.ArgumentParser("python -m minigrad.gradcheck", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="my_ops.py or my_ops: imported first")
    parser.add_argument("--op", action="append", metavar="NAME", help="only this op (may be given several times)")
    parser.add_argument("--device", action="append", metavar="NAME", help="where to run: cpu (default), cuda")
    parser.add_argument("--order", type=int, choices=(1, 2), action="append", help="only this order; default both")
    parser.add_argument("--mode", choices=("auto", "full", "directional"), default="auto")
    parser.add_argument("--rtol", type=float, default=1e-7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row there")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a heat map of the errors there")
    parser.add_argument("--quiet", action="store_true", help="only failures and the last line")
    args = parser.parse_args(argv)
    args.before = dict(registry)
    for name in args.modules:
        load(parser, name)
    for op in args.op or ():
        if op not in registry:
            near = [name for name in sorted(registry) if op.lower() in name or name in op.lower()]
            parser.error(f"no op is called {op!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    for device in args.device or ():
        try:
            backend.get(device)
        except (RuntimeError, ValueError) as error:
            parser.error(str(error))
    for path in (args.json, args.html):
        if path and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    return args


def load(parser, name):
    """Import a module by its name or from its file."""
    try:
        if name.endswith(".py"):
            path = Path(name).resolve()
            sys.path.insert(0, str(path.parent))
            importlib.import_module(path.stem)
        else:
            sys.path.insert(0, "")
            importlib.import_module(name)
    except ImportError as error:
        parser.error(f"cannot import {name}: {error}")


def main(argv=None):
    args = arguments(argv)
    names = args.op or [name for name, d in registry.items() if not args.modules or d is not args.before.get(name)]
    orders, devices, began, rows = args.order or (1, 2), args.device or ["cpu"], time.perf_counter(), []
    nothing = []
    for i, name in enumerate(names):
        if sys.stderr.isatty():
            print(f"\r{i + 1}/{len(names)} {name:40.40}", end="", file=sys.stderr, flush=True)
        if not registry[name].cases:
            print(f"{name}: declares no cases, so nothing was checked", file=sys.stderr)
            continue
        found = [row for d in devices for row in check_op(name, d, orders, args.seed, mode=args.mode, rtol=args.rtol)]
        rows += found
        nothing += [] if found else [name]
    if sys.stderr.isatty():
        print("\r" + " " * 60, end="\r", file=sys.stderr)
    rows = worst_first(rows)
    failed = [row for row in rows if row.verdict not in (PASS, KINK)]
    print_table(failed if args.quiet else rows)
    for row in failed:
        print(f"\n{row.case} on {row.device}:\n{row.message}")
    if nothing:
        print(f"no float inputs, so no gradient to check: {', '.join(nothing)}")
    summary = summarized(rows, time.perf_counter() - began)
    print(summary)
    if args.json:
        made = {
            "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "numpy": np.__version__,
            "summary": summary,
        }
        args.json.write_text(json.dumps(made | {"seed": args.seed, "rows": [row.to_dict() for row in rows]}, indent=1))
    if args.html:
        args.html.write_text(page(rows, summary), encoding="utf-8")
    return 1 if failed or not rows else 0


def print_table(rows):
    if not rows:
        return
    lines = [("verdict", "op", "order", "device", "numeric", "error/allowed", "evaluations", "ms", "case")]
    for r in rows:
        case = r.case if len(r.case) <= 60 else r.case[:59] + "…"
        numbers = f"{r.error:.1e}", str(r.evaluations), f"{1e3 * r.seconds:.0f}"
        lines.append((r.verdict, r.op, str(r.order), r.device, r.numeric, *numbers, case))
    print("\n".join(aligned(lines)))


def summarized(rows, seconds):
    counts = {v: sum(row.verdict == v for row in rows) for v in dict.fromkeys(row.verdict for row in rows)}
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing checked"
    evaluations = sum(row.evaluations for row in rows)
    return (
        f"{len({row.op for row in rows})} ops, {len(rows)} checks: {said}; {evaluations} evaluations in {seconds:.1f} s"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `| head`
        sys.stderr.close()
        sys.exit(1)
