"""Study the heads of a trained character model, on a text of your own.

minigrad report -o heads.html
minigrad flow --text "To be, or not to be" --of 0.2
minigrad importance
minigrad scores runs/book

CHECKPOINT, such as runs/book above, is a file of `minigrad train`, or a run's folder, which means its best.safetensors.
The default is runs/char_lm. Without a text the model reads the validation text of its run: for report 4 sequences, for
flow and importance 16.

What is differentiated is the mean loss over the characters of the text. With --right and --wrong it is logit(wrong) -
logit(right) after the last character. So less is better too: a negative edge favours the right character, and so does
a head whose importance is positive.
"""

from .. import study
from ..base import cli
from ..study.flow import METHODS
from ..study.report import LIMIT
from ..training import runs
from .reading import read

TOP = 100  # edges that are cut, a forward each for the text and for each of its sequences


# ------------------------------------------------------------------------------------------------------- the commands


def report(args):
    """Trace the loss on the text, write the report, and print its table."""
    text = _read(args, sequences=4)
    if args.by_prediction and not text.has_predictions:
        raise cli.CommandError("--by-prediction splits the mean loss: leave out --right and --wrong")
    cli.file_to_write(args.out, "--out", "heads.html", ".html", ".htm")
    with cli.as_command_errors(ValueError), cli.busy() as say:  # heads that do not exist; a file larger than --limit
        say("tracing")
        with study.trace_heads(text.model, layers=args.layers, heads=args.heads) as trace:
            if args.by_prediction:
                trace.backward(study.prediction_losses(text.model, *text.batch))
            else:
                text.loss(text.model, *text.batch).backward()
        say("silencing each head in turn")
        importance = {"ablate": study.head_importance(text.model, [text.batch], "ablate", loss=text.loss)}
        edges = study.flow(text.model, text.batch, text.loss, args.method, args.top)
        say("the lesson of a step for each head")
        lessons = study.lessons(
            text.model, text.batch, text.loss, [(path, h) for path in trace for h in trace[path].heads]
        )
        history = _history(args, text, say)
        say(f"writing {args.out}")
        path = trace.to_html(
            args.out, text.tokens, title=f"{args.checkpoint}: {text.title}", importance=importance, flow=edges,
            vocab=text.vocab, of=text.of, losses=text.losses, lessons=lessons, history=history,
            limit=int(args.limit * 1e6),
        )  # fmt: skip
    print(f"{text}\n\n{trace.table()}\n\nwrote {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _history(args, text, say):
    """The History of a run that has kept several models (minigrad train --keep), else None."""
    kept = runs.kept_checkpoints(args.checkpoint) if args.checkpoint.is_dir() else {}
    if len(kept) < 2:
        return None

    def models():
        for step, path in kept.items():
            say(f"the heads after step {step:,}")
            yield step, runs.load_char_model(path, args.device)[0]

    return study.history(models(), text.batch, text.loss)


def flow(args):
    """Print the edges between the parts of the model, the largest first."""
    text = _read(args, sequences=16)
    edges = study.flow(text.model, text.batch, text.loss, args.method, args.top, errors=args.method == "cut")
    print(f"{text}\n\n{edges.all if args.of is None else edges.around(args.of)}")
    if args.of in map(str, edges.sources):
        sums = ", ".join(f"{name} {edge:+.4g}" for name, edge in edges.by_input(args.of).items())
        print(f"\nwhat {args.of} sends, to first order, by the input that reads it: {sums}")
    return 130 if edges.stopped else 0


def importance(args):
    """Print how much each head matters, by all methods: of several sequences the mean and its standard error."""
    text = _read(args, sequences=16)
    table = study.importance_table(text.model, text.sequences(), steps=args.steps, loss=text.loss)
    print(f"{text}\n\n{table.sorted('ablate')}")
    if len(text.tokens) > 1:
        print("\n±: standard error of the mean over the sequences")
    return 130 if table.stopped else 0


def scores(args):
    """Print what kind of head each one is."""
    model, _, _ = runs.load_char_model(args.checkpoint, args.device)
    with cli.as_command_errors(ValueError), cli.busy(f"reading {args.sequences} random texts of each period"):
        print(study.head_scores(model, periods=args.periods, n=args.sequences, seed=args.seed))
    return 0


def _read(args, sequences):
    return read(args.checkpoint, args.device, args.text, args.right, args.wrong, sequences)


# ------------------------------------------------------------------------------------------------------ their options


def _number_or_name(typed):
    """A layer by number or path, or a head by name, such as 0.3, or by a number that is meant in every layer."""
    return cli.WHOLE(typed) if typed.isdecimal() else typed


def _several(typed):
    return [_number_or_name(part) for part in typed.split(",")]


def _add_report(command):
    command.add_argument("-o", "--out", type=cli.path, default="heads.html", metavar="FILE",
                         help="the file to write (default: heads.html)")  # fmt: skip
    command.add_argument("--layers", type=_several, metavar="L,L", help="only these, by number or path (default: all)")
    command.add_argument("--heads", type=_several, metavar="H,H",
                         help="only these, such as 0.3,1.1, or 0: head 0 of each layer (default: all)")  # fmt: skip
    command.add_argument(
        "--by-prediction",
        action="store_true",
        help="show also what each prediction sends to a head, by a backward pass for each position",
    )
    command.add_argument("--limit", type=cli.number(float, above=0, at_most=10**6), default=LIMIT / 1e6, metavar="MB",
                         help="largest size of the file (default: %(default)g)")  # fmt: skip
    _add_method(command)


def _add_flow(command):
    command.add_argument("--of", metavar="PART", help="only edges of this head or part, such as 0.2 (default: all)")
    _add_method(command)


def _add_method(command):
    command.add_argument("--method", choices=METHODS, default="first_order",
                         help="what an edge is; cut measures the loss without it (default: first_order)")  # fmt: skip
    command.add_argument("--top", type=cli.COUNT, default=TOP, metavar="N",
                         help="cut the N edges that are largest to first order (default: %(default)s)")  # fmt: skip


def _add_importance(command):
    command.add_argument("--steps", type=cli.COUNT, default=20, metavar="N",
                         help="how finely integrals are divided (default: 20)")  # fmt: skip


def _add_scores(command):
    command.add_argument("--periods", type=cli.numbers(at_least=2), default=[9, 16], metavar="P,P",
                         help="after how many characters the text repeats (default: 9,16)")  # fmt: skip
    command.add_argument("--sequences", type=cli.number(int, at_least=1, at_most=10**6), default=64, metavar="N",
                         help="texts of each period (default: 64)")  # fmt: skip
    command.add_argument("--seed", type=cli.SEED, default=0, metavar="N", help="of the random characters (default: 0)")


def _add_text(command):
    command.add_argument("--text", metavar="TEXT", help="what the model reads: the text itself, not a file "
                         "(default: from what the run keeps of its text for validation)")  # fmt: skip
    command.add_argument("--right", metavar="C", help="the character that should come next: see below")
    command.add_argument("--wrong", metavar="C", help="the character that should not")


COMMANDS = {  # {name: (help, function that adds the options, function that runs the command)}
    "report": ("patterns and gradients of all heads as one HTML file", _add_report, report),
    "flow": ("what each part sends to each later one's Q, K or V, and what it is worth", _add_flow, flow),
    "importance": ("how much each head matters, by all methods", _add_importance, importance),
    "scores": ("which heads are previous-token, duplicate-token or induction heads", _add_scores, scores),
}


def main(argv=()):
    parser = cli.Parser("minigrad", description=__doc__)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    doc = __doc__ or ""  # python -OO leaves it out
    examples = {line.split()[1]: line for line in doc.splitlines() if line.startswith("minigrad ")}
    differentiated = doc.rpartition("\n\n")[-1]
    for word, (does, add_options, run) in COMMANDS.items():
        reads = word != "scores"
        about = f"{does[0].upper()}{does[1:]}.\n\n    {examples.get(word, '')}"
        command = subparsers.add_parser(word, help=does, description=about, epilog=differentiated if reads else None)
        command.set_defaults(run=run)
        command.add_argument("checkpoint", nargs="?", type=cli.path, default=runs.FOLDER, metavar="CHECKPOINT",
                             help=f"a file of minigrad train, or a run's folder (default: {runs.FOLDER})")  # fmt: skip
        add_options(command)
        if reads:
            _add_text(command)
        command.add_argument("--device", **cli.DEVICE)
    args = parser.parse_args(argv)
    return args.run(args)
