"""Study the heads of a trained character model, on a text of your own.

minigrad report -o heads.html
minigrad ledger --text "To be, or not to be" --scope blocks.1.attn --head 2
minigrad flow --text "To be, or not to be" --of 0.2
minigrad importance
minigrad scores runs/book

CHECKPOINT, such as runs/book above, is a file of `minigrad train`, or a run's folder, which means its best.safetensors.
The default is runs/char_lm. Without a text the model reads its run's validation text: the beginning; for report, 4
sequences; for flow and importance, 16 sequences.

What is differentiated is the mean loss over the characters of the text. With --right and --wrong it is logit(wrong) -
logit(right) after the last character, so that less of it is better too: a negative edge favours the right character,
and so does a head whose importance is positive.
"""

from ..base import cli
from ..study.flow import METHODS
from ..study.report import LIMIT
from ..training import runs
from . import readings
from .readings import MOST_CUT


def layer(text):
    """A layer by its number or its path."""
    return cli.WHOLE(text) if text.isdecimal() else text


def layers(text):
    return [layer(part) for part in text.split(",")]


numbers = cli.numbers(at_least=0)


def add_report(command):
    command.add_argument("-o", "--out", type=cli.path, default="heads.html", metavar="FILE",
                         help="the file to write (default: heads.html)")  # fmt: skip
    command.add_argument("--layers", type=layers, metavar="L,L", help="only these, by number or path (default: all)")
    command.add_argument("--heads", type=numbers, metavar="H,H", help="only those of these numbers (default: all)")
    command.add_argument("--limit", type=cli.number(float, above=0, at_most=10**6), default=LIMIT / 1e6, metavar="MB",
                         help="largest size of the file (default: %(default)g)")  # fmt: skip


def add_ledger(command):
    command.add_argument("--scope", default="", metavar="PATH", help="a module, such as blocks.1.attn (default: all)")
    command.add_argument(
        "--head", type=cli.WHOLE, metavar="H", help="only this head of the layer --scope (default: all)"
    )
    command.add_argument("--values", choices=("summary", "full"), default="summary",
                         help="full prints all numbers (default: summary)")  # fmt: skip


def add_flow(command):
    command.add_argument("--of", metavar="PART",
                         help="only edges of this head or part, such as 0.2 (default: all)")  # fmt: skip
    command.add_argument("--method", choices=METHODS, default="cut",
                         help="what an edge is: cut measures the loss without it (default: cut)")  # fmt: skip
    command.add_argument("--most", type=cli.COUNT, default=MOST_CUT, metavar="N",
                         help="cut the N edges that are largest to first order (default: %(default)s)")  # fmt: skip


def add_steps(command):
    command.add_argument("--steps", type=cli.COUNT, default=20, metavar="N",
                         help="how finely integrals are divided (default: 20)")  # fmt: skip


def add_scores(command):
    command.add_argument("--periods", type=cli.numbers(at_least=2), default=[9, 16], metavar="P,P",
                         help="after how many characters the text repeats (default: 9,16)")  # fmt: skip
    command.add_argument("--sequences", type=cli.number(int, at_least=1, at_most=10**6), default=64, metavar="N",
                         help="texts of each period (default: 64)")  # fmt: skip
    command.add_argument("--seed", type=cli.SEED, default=0, metavar="N", help="of the random characters (default: 0)")


COMMANDS = {  # {name: (help, function that adds the options, function that runs the command)}
    "report": ("patterns and gradients of all heads as one HTML file", add_report, readings.report),
    "ledger": ("the backward pass step by step", add_ledger, readings.write_ledger),
    "flow": (
        "what each part sends to each later one's Q, K or V, and what that is worth",
        add_flow,
        readings.write_flow,
    ),
    "importance": ("how much each head matters, by all methods", add_steps, readings.write_importance),
    "scores": ("is a head a previous-token, duplicate-token or induction head?", add_scores, readings.write_scores),
}


def main(argv=()):
    parser = cli.Parser("minigrad", description=__doc__)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    told = __doc__ or ""  # python -OO leaves it out
    examples = {line.split()[1]: line for line in told.splitlines() if line.startswith("minigrad ")}
    differentiated = told.rpartition("\n\n")[-1]
    for word, (does, add_options, run) in COMMANDS.items():
        about = f"{does[0].upper()}{does[1:]}.\n\n    {examples.get(word, '')}"
        epilog = differentiated if word != "scores" else None
        command = subparsers.add_parser(word, help=does, description=about, epilog=epilog)
        command.set_defaults(run=run)
        command.add_argument("checkpoint", nargs="?", type=cli.path, default=runs.FOLDER, metavar="CHECKPOINT",
                             help=f"a file of minigrad train, or a run's folder (default: {runs.FOLDER})")  # fmt: skip
        add_options(command)
        if word != "scores":
            command.add_argument("--text", metavar="TEXT", help="what the model reads: the text itself, not a file "
                                 "(default: from what the run keeps of its text for validation)")  # fmt: skip
            command.add_argument("--right", metavar="C", help="the character that should come next: see below")
            command.add_argument("--wrong", metavar="C", help="the one that should not")
        command.add_argument("--device", **cli.DEVICE)
    args = parser.parse_args(argv)
    return args.run(args)
