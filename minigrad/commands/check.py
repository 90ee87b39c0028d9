"""Check the gradient of every declared op on each of its cases.

    minigrad check my_ops.py

Prints a table, the worst first. The exit status is 1 if anything fails or if there was nothing to check. The first case
of each op is also tried with other sizes, numbers and parameters.

Files and modules named on the command line are imported first. Then only the ops that they declare are checked.
"""

import importlib
import os
import sys
import time
import traceback
from pathlib import Path

from .. import backend
from ..autograd import registry
from ..base import cli
from ..base.errors import similar
from ..gradcheck.report import exception_text
from ..gradcheck.sweep import summary, sweep, table, worst_first
from ..gradcheck.verdicts import KINK, PASS, WARN


def arguments(argv):
    """Return the parsed arguments, with .modules, the names of the modules read, and .names, the ops to check."""
    parser = cli.Parser("minigrad check", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="FILE", help="my_ops.py, or a module my_ops: its ops only")
    parser.add_argument("--op", action="append", metavar="NAME",
                        help="only this op; may be given several times (default: all)")  # fmt: skip
    parser.add_argument("--device", action="append", metavar="NAME",
                        help="where to compute: cpu or cuda; may be given twice (default: cpu)")  # fmt: skip
    parser.add_argument("--order", type=int, choices=(1, 2), action="append",
                        help="only this derivative (default: both)")  # fmt: skip
    parser.add_argument("--mode", choices=("auto", "full", "directional"), default="auto",
                        help="all elements, or random directions (default: auto, by their number)")  # fmt: skip
    parser.add_argument("--rtol", type=cli.number(float, above=0, below=1), default=1e-7, metavar="N",
                        help="relative error allowed (default: 1e-7)")  # fmt: skip
    parser.add_argument("--seed", type=cli.SEED, default=0, metavar="N", help="of the random inputs (default: 0)")
    parser.add_argument("--strict", action="store_true", help="a WARN fails (default: only for ops of minigrad)")
    parser.add_argument("--quiet", action="store_true", help="print only failures and the last line")
    args = parser.parse_args(argv)
    of_files: dict = {}  # declarations of the files read so far
    files, args.modules = args.modules, []
    for file in files:
        args.modules.append(load(file))
        for name, d in of_files.items():
            if registry[name] is not d:
                parser.error(f"{d.module} and {registry[name].module} both have an op called {name!r}: rename one")
        of_files = {name: d for name, d in registry.items() if any(is_in(d.module, m) for m in args.modules)}
    args.names = list(of_files if files else registry)
    if args.op:
        args.names = [name for op in args.op for name in full_names(op, of_files if files else registry, files)]
    for device in args.device or ():
        try:
            backend.get(device)
        except (RuntimeError, ValueError) as error:
            parser.error(str(error))
    return args


def is_in(module, package):
    """True if the module of this name is the package, or inside it."""
    return f"{module}.".startswith(f"{package}.")


def full_names(op, known, files):
    """Return the full names of the ops called `op` among the `known` declarations. A user's tanh in mine.py is
    mine.tanh, since minigrad has a tanh. Raises CommandError if there is none."""
    short = {name: name.removeprefix(f"{d.module}.") for name, d in known.items()}
    matches = [op] if op in known else [name for name in known if short[name] == op]
    if matches:
        return matches
    names = sorted(set(short.values()))
    similar_names = ", ".join(name for name in names if op.lower() in name) or similar(op.lower(), names)
    declare = "declares" if len(files) == 1 else "declare"
    wrong = f"{' and '.join(files)} {declare} no op {op!r}" if files else f"no op is called {op!r}"
    raise cli.CommandError(wrong + (f"; did you mean {similar_names}?" if similar_names else ""))


def load(name):
    """Import a module, given its name or its file. Returns its name. Raises CommandError, of one line, if it fails."""
    if not name:
        raise cli.CommandError("FILE must not be empty")
    file = Path(name)
    if file.is_dir() and not (file / "__init__.py").is_file():
        raise cli.CommandError(f"{name} is a folder: give a file, such as {file / 'my_ops.py'}")
    if file.is_file() and file.suffix != ".py":
        raise cli.CommandError(f"cannot import {name}: the name of a Python file ends with .py")
    path = Path(os.path.realpath(name)) if file.suffix == ".py" else None
    if path and "." in path.stem:
        raise cli.CommandError(f"cannot import {name}: Python imports no file that has a dot in its name; rename it")
    if path and not path.is_file():
        raise cli.CommandError(f"cannot import {name}: there is no such file")
    sys.path.insert(0, str(path.parent) if path else "")
    try:
        module = importlib.import_module(path.stem if path else name)
    except (Exception, SystemExit) as error:
        lines = [call.lineno for call in traceback.extract_tb(error.__traceback__) if call.filename == str(path)]
        where = f", at its line {lines[-1]}" if lines else ""
        raise cli.CommandError(f"cannot import {name}: {exception_text(error)}{where}") from None
    if path and os.path.realpath(getattr(module, "__file__", None) or "") != str(path):
        raise cli.CommandError(f"cannot import {name}: another module is called {path.stem!r} already; rename the file")
    return module.__name__


def main(argv=()):
    """Check the ops and print the rows. Returns the exit status."""
    args = arguments(argv)
    began = time.perf_counter()
    names = [name for name in args.names if registry[name].cases]
    unchecked = [n for n in args.names if n not in names and getattr(registry[n].source, "differentiable", True)]
    for name in unchecked:
        print(f"{name}: declares no cases, so nothing was checked", file=sys.stderr)
    if not args.names:
        print(f"no op is declared in {', '.join(args.modules)}, so nothing was checked", file=sys.stderr)
    options = {"devices": args.device or ["cpu"], "orders": args.order or (1, 2), "seed": args.seed, "mode": args.mode}
    options |= {"rtol": args.rtol} | ({"strict": True} if args.strict else {})
    rows, without_gradient = [], []
    with cli.busy(f"0/{len(names)}") as say:
        for i, (name, of_op) in enumerate(sweep(names, **options), 1):
            say(f"{i}/{len(names)} {name}")
            rows += of_op
            without_gradient += [] if of_op else [name]
    rows = worst_first(rows)
    failed = [row for row in rows if row.verdict not in (PASS, KINK, WARN)]
    failed_or_warned = [row for row in rows if row.verdict not in (PASS, KINK)]
    shown = failed_or_warned if args.quiet else rows
    if shown:
        print(table(shown))
    for row in failed_or_warned:
        print(f"\n{row.case} on {row.device}:\n{row.message}")
    if without_gradient:
        print(f"no gradient to check: {', '.join(without_gradient)}")
    print(summary(rows, time.perf_counter() - began))
    return 1 if failed or unchecked or not rows else 0
