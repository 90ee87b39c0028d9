"""How many heads? The same model, with its width cut into 1, 2, 4, … heads and trained in the same way.

    python examples/head_count.py [--out head_count.png] [--steps 400] [--seeds 2]

All have the same number of parameters and of multiplications. What differs is how many patterns there are, and from how
many numbers each of them is computed. Trains on little stories, or on --text. On tiny Shakespeare one head is best
after 400 steps (validation loss 2.16; four: 2.27), and two or four after 2,000 (1.80; one: 1.82).
"""

import statistics
import time

import minigrad as mg
from minigrad import nn, optim
from minigrad.base import cli
from minigrad.training import text
from minigrad.viz import curves

HEADS = 1, 2, 4, 8, 16
T, B = 64, 12


def validation_loss(heads, train_ids, val_batches, vocab_size, steps, seed, n_embd=64, n_layer=2):
    """Mean nats per character on held-out text after `steps` steps."""
    mg.manual_seed(seed)
    model = nn.GPT(nn.GPTConfig(vocab_size, T, n_layer=n_layer, n_head=heads, n_embd=n_embd))
    batches = text.Batches(train_ids, T, B, mg.Generator(seed + 2**32), "training split")  # the same for all
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=4e-3, betas=(0.9, 0.99))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(step, lr=4e-3, min_lr=1e-4, warmup=min(50, steps // 4), total=steps)
        x, y = next(batches)  # (B, T), (B, T)
        _, loss = model(mg.tensor(x), mg.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with mg.no_grad():
        losses = [model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in val_batches]
    return statistics.fmean(losses)


@cli.command("head_count")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--out", type=cli.picture("head_count.png"), metavar="FILE", help="draw the table as a PNG")
    parser.add_argument("--text", nargs="+", type=cli.path, default=[], metavar="FILE", help="train on these files")
    parser.add_argument("--steps", type=cli.WHOLE, default=400, metavar="N", help="for each model (default: 400)")
    parser.add_argument("--seeds", type=cli.COUNT, default=2, metavar="N", help="models for each number (default: 2)")
    args = parser.parse_args(argv)

    corpus = text.read_corpus(args.text)
    vocab = text.CharVocab(corpus)
    train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
    val_batches = list(text.fixed_batches(val_ids, T, B, 30, "validation split"))
    text.Batches(train_ids, T, B, mg.Generator(0), "training split")  # raises if that is too short
    print("heads  d_k  validation loss, nats per character")
    found = []
    for heads in HEADS:
        began = time.perf_counter()
        losses = [validation_loss(heads, train_ids, val_batches, len(vocab), args.steps, s) for s in range(args.seeds)]
        found.append(losses)
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        took = time.perf_counter() - began
        print(f"{heads:5} {64 // heads:4}  {statistics.fmean(losses):.3f} ({each}; {took:.0f} s)", flush=True)
    if args.out:
        title = f"after {args.steps} steps" + f": mean of {args.seeds} models, the pale dots" * (args.seeds > 1)
        series = {title: (HEADS, list(zip(*found)))}
        curves(series, args.out, "heads, at equal width", "validation loss (nats per character)", log="x")
        print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    cli.run(main)
