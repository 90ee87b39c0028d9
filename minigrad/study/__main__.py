"""Study the heads of a trained character model: a checkpoint of examples/char_lm.py, on a text of your own.

python -m minigrad.study report CHECKPOINT --text "To be, or not to be" -o heads.html
python -m minigrad.study ledger CHECKPOINT --text "To be, or not to be" --scope blocks.1.attn --head 2
python -m minigrad.study flow CHECKPOINT --text "To be, or not to be" --of blocks.0.attn:2 -o flow.svg
python -m minigrad.study stats
"""

import dataclasses
import os
import sys
from contextlib import ExitStack

import numpy as np

from .. import cli
from ..nn.attention import FORMS
from ..nn.heads import known_heads
from ..tensor import tensor
from ..training.runs import load_char_model
from .flow import flow
from .importance import head_importance
from .layers import attention_layers
from .ledger import ledger
from .report import LIMIT
from .stats import listed
from .trace import trace_heads


def report(args):
    """Trace the loss on the text, write the report and print its table."""
    model, vocab, x, y = given(args)
    with ExitStack() as stack:
        with cli.refusing(ValueError):  # unknown heads
            trace = stack.enter_context(trace_heads(model, layers=args.layers, heads=args.heads))
        cli.file_to_write(args.out, "--out", "heads.html")
        loss = model(x, y)[1]
        loss.backward()
    importance = {"ablation": head_importance(model, [(x, y)])}
    tokens = [list(vocab.decode(row)) for row in x.numpy()]
    title = f"{os.path.basename(args.checkpoint)}: loss {loss.item():.3f} nats per character"
    with cli.refusing(ValueError):  # larger than --limit
        path = trace.to_html(args.out, tokens, title=title, importance=importance, limit=int(args.limit * 1e6))
    print(f"{trace.table()}\n\nwrote {path}: {path.stat().st_size / 1e6:.1f} MB, {title}")
    return 0


def write_ledger(args):
    """Print the ledger of the loss on the text."""
    model, _, x, y = given(args)
    layers = attention_layers(model)
    if args.head is not None:
        if args.scope not in layers:
            raise cli.CommandError(f"--head needs the --scope of one attention layer: {', '.join(layers)}")
        with cli.refusing(ValueError):
            known_heads([args.head], layers[args.scope].num_heads)
    for layer in layers.values():
        layer.impl = args.impl
    book = ledger(lambda: model(x, y)[1], args.scope, args.head, args.values, args.check, names=model)
    print(book)
    return 1 if book.failed else 0


def write_flow(args):
    """Print where the gradients of the loss on the text come from, the largest edges first, and draw them."""
    model, _, x, y = given(args)
    if args.out is not None:
        cli.file_to_write(args.out, "--out", "flow.svg")
    model.config = dataclasses.replace(model.config, recompute=False)  # each layer has to run once
    found = flow(model, (x, y))
    with cli.refusing(KeyError):
        edges = found.all if args.of is None else found.around(*args.of)
    print(edges)
    if args.out is not None:
        with cli.refusing(ValueError, ImportError):
            print(f"wrote {', '.join(map(str, found.graph(edges, args.least).save(args.out)))}")
    return 0


def node(text):
    path, _, head = text.partition(":")
    return (path, cli.WHOLE(head)) if head else (path,)


def list_stats(args):
    """Print what the columns of the table and the bars of the report are."""
    print(listed())
    return 0


def given(args):
    """The model, in eval mode, its vocabulary, and the text as inputs and targets, (B, T) each."""
    model, vocab, _ = load_char_model(args.checkpoint, args.device)
    ids, T = vocab.encode(args.text), model.config.block_size
    if len(ids) < 2:
        raise cli.CommandError("--text needs two characters at least: one to read, one to predict")
    T = min(T, len(ids) - 1)
    used = (len(ids) - 1) // T * T  # a text longer than the model sees at once is cut into several sequences
    if used < len(ids) - 1:
        print(f"the last {len(ids) - 1 - used} characters are left out: the model reads {T} at once", file=sys.stderr)
    x, y = (tensor(np.reshape(part, (-1, T)), device=args.device) for part in (ids[:used], ids[1 : used + 1]))
    return model.eval(), vocab, x, y


def numbers_or_paths(text):
    return [cli.WHOLE(part) if part.isdecimal() else part for part in text.split(",")]


def numbers(text):
    return [cli.WHOLE(part) for part in text.split(",")]


@cli.command("study")
def main(argv=()):
    parser = cli.Parser("python -m minigrad.study", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    p = commands.add_parser("report", help="patterns and gradients of all heads as one HTML file")
    p.set_defaults(run=report)
    p.add_argument("-o", "--out", type=cli.path, default="heads.html", metavar="FILE", help="default: heads.html")
    p.add_argument("--layers", type=numbers_or_paths, metavar="L,L", help="only these, by number or path")
    p.add_argument("--heads", type=numbers, metavar="H,H", help="only these numbers")
    p.add_argument("--limit", type=cli.number(float, above=0, at_most=1e6), default=LIMIT / 1e6, metavar="MB",
                   help="largest file (default: %(default)g)")  # fmt: skip
    q = commands.add_parser("ledger", help="the backward pass step by step")
    q.set_defaults(run=write_ledger)
    q.add_argument("--scope", default="", metavar="PATH", help="a module, such as blocks.1.attn (default: all)")
    q.add_argument("--head", type=cli.WHOLE, metavar="N", help="only this head's part of what heads divide")
    q.add_argument("--values", choices=("summary", "full"), default="summary", help="full: with all numbers")
    q.add_argument("--check", action="store_true", help="against finite differences; exit status 1 if one differs")
    q.add_argument("--impl", choices=FORMS, default="batched", help="the form of attention (default: batched)")
    r = commands.add_parser("stats", help="what the columns of the table and the bars of the report are")
    r.set_defaults(run=list_stats)
    f = commands.add_parser("flow", help="where gradients come from: from which later part, by Q, K or V")
    f.set_defaults(run=write_flow)
    f.add_argument("--of", type=node, metavar="PATH[:HEAD]", help="only edges of this part, such as blocks.0.attn:2")
    f.add_argument("-o", "--out", type=cli.path, metavar="FILE", help="draw them: .svg, .png or .dot, by graphviz")
    f.add_argument("--least", type=cli.number(float, above=0, at_most=1), default=0.05, metavar="PART",
                   help="draw no edges below this part of the largest (default: %(default)g)")  # fmt: skip
    for command in (p, q, f):
        command.add_argument("checkpoint", type=cli.path, metavar="CHECKPOINT", help="a file of examples/char_lm.py")
        command.add_argument("--text", required=True, help="what the model reads; its loss is traced")
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args(argv)
    return args.run(args)


if __name__ == "__main__":
    cli.run(main)
