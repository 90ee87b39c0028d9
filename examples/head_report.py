"""Everything that minigrad.study and minigrad.viz show of a trained character model, in one folder.

    minigrad train                                   first train a model, for about two minutes
    python examples/head_report.py                   then look into its heads
    python examples/head_report.py --checkpoint RUN --text "to be or not to be"

Prints a table of the heads, the identities that their gradients satisfy, and how much each head matters. The folder
--out gets heads.html, the report to open in a browser; heads.png, all patterns; backward.svg (with Graphviz), the
backward pass by modules; and ledger.txt, the backward pass of one head, step by step, checked by finite differences.
"""

from pathlib import Path

import minigrad as mg
from minigrad import study, viz
from minigrad.base import cli
from minigrad.training import checkpoint, runs

TEXT = "The statement is the same as the other statement."


@cli.command("head_report")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument(
        "--checkpoint", type=cli.path, default="runs/char_lm", metavar="RUN", help="of minigrad train, or its file"
    )
    parser.add_argument("--text", default=TEXT, help="what the model reads")
    parser.add_argument("--out", type=cli.path, default=Path("runs/heads"), help="folder (default: runs/heads)")
    args = parser.parse_args(argv)
    try:
        model, vocab, _ = runs.load_char_model(args.checkpoint)
    except checkpoint.CheckpointError as error:
        parser.error(f"{error} ({cli.typed('train')} trains a model)")
    ids = vocab.encode(args.text[: model.config.block_size + 1])
    if len(ids) < 2:
        parser.error("--text needs two characters at least: one to read, one to predict")
    for package in ("graphviz", "matplotlib"):
        cli.needs(package, "this report")
    cli.folder_to_write(args.out, "--out")
    model.eval()
    x, y = mg.tensor(ids[None, :-1]), mg.tensor(ids[None, 1:])  # (1, T)

    with study.trace_heads(model) as trace:
        _, loss = model(x, y)
        loss.backward(retain_graph=True)  # kept for the picture
    print(f"loss {loss.item():.3f} nats per character\n\n{trace.table()}\n\n{trace.check()}")
    importance = {m: study.head_importance(model, [(x, y)], m) for m in study.METHODS}
    table = study.HeadTable(importance).sorted("ablate")
    print(f"\nimportance for this text, in nats per character\n{table}")

    bars = {"ablate": importance["ablate"]}
    page = dict(importance=bars, flow=study.flow(model, (x, y)), vocab=vocab)
    wrote = [trace.to_html(args.out / "heads.html", title=args.text, **page)]
    patterns = {path: trace[path].pattern[0] for path in trace}
    viz.heads_grid(patterns, args.out / "heads.png", tokens=args.text[: len(ids) - 1], title=args.text)
    picture = viz.graph(loss, names=model, direction="backward", depth=2, show=("grad_norm",))
    wrote += [args.out / "heads.png", *picture.save(args.out / "backward.svg")]
    path, head = table.rows[0]
    book = study.ledger(lambda: model(x, y)[1], scope=path, head=head, fd_check=True, names=model)
    wrote.append(args.out / "ledger.txt")
    wrote[-1].write_text(f"{book}\n", encoding="utf-8")
    print("\nwrote", *wrote)
    return 0


if __name__ == "__main__":
    cli.run(main)
