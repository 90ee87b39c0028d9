"""Check the gradient of every declared op on each of its cases. Prints a table, the worst first; exits with status 1 if
anything fails.

Files and modules named on the command line are imported first, so that the ops they declare are checked too."""

import importlib
import json
import os
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from .. import backend, cli
from ..autograd import registry
from ..files import atomic_write
from .report import KINK, PASS
from .sweep import check_op, page, summary, table, worst_first


def arguments(argv):
    parser = cli.Parser("python -m minigrad.gradcheck", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="my_ops.py or my_ops: imported first")
    parser.add_argument("--op", action="append", metavar="NAME", help="only this op (may be given several times)")
    parser.add_argument("--device", action="append", metavar="NAME", help="where to run: cpu (default), cuda")
    parser.add_argument("--order", type=int, choices=(1, 2), action="append", help="only this order; default both")
    parser.add_argument("--mode", choices=("auto", "full", "directional"), default="auto")
    parser.add_argument("--rtol", type=cli.number(float, above=0, below=1), default=1e-7)
    parser.add_argument("--seed", type=cli.SEED, default=0)
    parser.add_argument("--json", type=cli.path, metavar="FILE", help="write every row there")
    parser.add_argument("--html", type=cli.path, metavar="FILE", help="write a heat map of the errors there")
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
    for path, option in ((args.json, "--json"), (args.html, "--html")):
        if path:
            cli.file_to_write(path, option, "gradcheck" + option.replace("--", "."))
    return args


def load(parser, name):
    """Import a module by its name or from its file. An error in it is its author's, and reported in one line."""
    path = Path(os.path.realpath(name)) if name.endswith(".py") else None
    if path and not path.is_file():
        parser.error(f"cannot import {name}: there is no such file")
    sys.path.insert(0, str(path.parent) if path else "")
    try:
        module = importlib.import_module(path.stem if path else name)
    except (Exception, SystemExit) as error:
        lines = [call.lineno for call in traceback.extract_tb(error.__traceback__) if call.filename == str(path)]
        where = f", at its line {lines[-1]}" if lines else ""
        parser.error(f"cannot import {name}: {type(error).__name__}: {error}{where}")
    if path and os.path.realpath(getattr(module, "__file__", None) or "") != str(path):
        parser.error(f"cannot import {name}: another module is called {path.stem!r} already; rename the file")


@cli.command("gradcheck")
def main(argv=()):
    args = arguments(argv)
    names = args.op or [name for name, d in registry.items() if not args.modules or d is not args.before.get(name)]
    orders, devices, began = args.order or (1, 2), args.device or ["cpu"], time.perf_counter()
    rows, nothing = [], []
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
    if shown := failed if args.quiet else rows:
        print(table(shown))
    for row in failed:
        print(f"\n{row.case} on {row.device}:\n{row.message}")
    if nothing:
        print(f"no float inputs, so no gradient to check: {', '.join(nothing)}")
    said = summary(rows, time.perf_counter() - began)
    print(said)
    if args.json:
        made = datetime.now(timezone.utc).isoformat(timespec="seconds")
        results = {"made": made, "numpy": np.__version__, "summary": said, "seed": args.seed}
        results["rows"] = [row.to_dict() for row in rows]
        atomic_write(args.json, json.dumps(results, indent=1).encode())
    if args.html:
        atomic_write(args.html, page(rows, said).encode())
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    cli.run(main)
