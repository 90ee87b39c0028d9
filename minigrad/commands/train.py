"""Train a character-level transformer on a text.

    minigrad train                                    train on little stories: about two minutes
    minigrad train --text book.txt --out runs/book    train on a text of your own
    minigrad train --resume                           continue a run that stopped, as if it never had

The folder --out gets last.safetensors, from which --resume continues, best.safetensors, with the lowest validation
loss, and losses.csv; with --keep also step-*.safetensors, the models of several steps, which `minigrad report`
compares. On Ctrl-C, SIGTERM or SIGHUP the program finishes its step, saves, and exits with status 128 plus the
signal's number. A run is never overwritten: choose another --out, or remove the old run yourself.
"""

import math
from pathlib import Path

from .. import distributed
from ..base import cli
from ..base.errors import CommandError
from ..training import runs
from ..training.runner import BEST, LAST, LOSSES, PRESETS, SETTINGS, train
from .sample import write


def arguments(argv):
    parser = cli.Parser("minigrad train", description=__doc__)
    folder = f"of the run (default: {runs.FOLDER})"
    parser.add_argument("--out", type=Path, default=runs.FOLDER, metavar="FOLDER", help=folder)
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    what = "UTF-8 files (default: little stories)"
    parser.add_argument("--text", nargs="+", default=(), metavar="FILE", help=what)
    parser.add_argument("--preset", choices=PRESETS, help="fast: seconds; nanogpt-*: nanoGPT's; options override it")
    parser.add_argument("--no-capture", dest="captured", action="store_false", help="run each step in Python; slower")
    for name, (default, meaning, limits) in SETTINGS.items():
        option, kind = f"--{name.replace('_', '-')}", cli.number(type(default), **limits)
        parser.add_argument(option, type=kind, metavar="N", help=f"{meaning} (default: {default})")
    parser.add_argument("--device", **cli.DEVICE)
    return parser.parse_args(argv)


def main(argv=()):
    if distributed.world()[0] > 0:  # this joins MPI, and must come before an error that process 0 reports
        cli.discard_output()
    args = arguments(argv)
    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    how = dict(preset=args.preset, texts=args.text, resume=args.resume, device=args.device, captured=args.captured)
    try:
        run = train(args.out, given, **how)
    except CommandError as error:
        line = f"; go on with: {again(args.device, 'train', '--resume', '--out', args.out)}" * (error.status > 128)
        raise CommandError(f"{error}{line}", error.status) from None
    if distributed.first():
        finish(run, args.out)
    return 0


def again(device, *words):
    """Return the command line of another `minigrad` command, on the same device."""
    return cli.command_line(*words, *([] if device == "cpu" else ["--device", device]))


def finish(run, out):
    """Print the result of a finished run, a text by its model, and the commands to go on with."""
    bits = f"{run.best_loss:.4f} nats, or {run.best_loss / math.log(2):.2f} bits, per character"
    print(f"best validation loss: {bits}")
    print("it writes:\n")
    try:
        write(run.model, run.vocab, "", 500, run.device, seed=run.settings["seed"])
    except FloatingPointError as error:
        print(f"({error})")
    print(f"\nwrote {', '.join(str(out / name) for name in (LAST, BEST, LOSSES))}")
    kept = runs.kept_checkpoints(out)
    if kept:
        print(f"kept the models of these steps, as {out / 'step-*.safetensors'}: {', '.join(map(str, kept))}")
    print(f"have it write: {again(run.device, 'sample', out)}")
    further = again(run.device, "train", "--resume", "--steps", 2 * run.settings["steps"], "--out", out)
    print(f"train further: {further}")
