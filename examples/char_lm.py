"""Train a small GPT on a text, character by character, and have it write.

    python examples/char_lm.py                       on little stories: half a minute
    python examples/char_lm.py --text book.txt       on a text of your own

This is the loop itself. `minigrad train` has a faster recipe (minigrad/training/recipe.py), checkpoints that a stopped
run goes on from, and several processes if there are. `minigrad report FILE` reads what --out has.
"""

import dataclasses

import minigrad as mg
from minigrad import nn, optim
from minigrad.base import cli
from minigrad.training import checkpoint, text

B, T = 12, 64  # blocks per step; characters the model sees at once


@mg.no_grad()
def evaluate(model, batches):
    """The mean loss over the batches, in nats per character. Without dropout, and without recording a graph."""
    model.eval()
    losses = [model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in batches]
    model.train()
    return sum(losses) / len(losses)


@cli.command("char_lm")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--text", nargs="+", type=cli.path, default=(), metavar="FILE", help="default: little stories")
    parser.add_argument("--steps", type=cli.COUNT, default=1000, metavar="N", help="steps of training (default: 1000)")
    parser.add_argument("--lr", type=cli.number(float, above=0), default=4e-3, metavar="N", help="default: 0.004")
    parser.add_argument("--seed", type=cli.SEED, default=1337, metavar="N", help="default: 1337")
    parser.add_argument("--out", type=cli.path, metavar="FILE", help="save the model there (default: nowhere)")
    args = parser.parse_args(argv)
    if args.out:
        cli.file_to_write(args.out, "--out", "model.safetensors", ".safetensors")

    # The text as numbers: every character has one. The last tenth is held out.
    corpus = text.read_corpus(args.text)
    vocab = text.CharVocab(corpus)
    train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
    batches = text.Batches(train_ids, T, B, mg.Generator(args.seed), "training split")
    val_batches = text.fixed_batches(val_ids, T, B, limit=50, name="validation split")
    print(f"{len(corpus):,} characters, {len(vocab)} different")

    mg.manual_seed(args.seed)
    model = nn.GPT(nn.GPTConfig(len(vocab), block_size=T, n_layer=2, n_head=4, n_embd=128, bias=False))
    optimizer = optim.AdamW(model.parameter_groups(weight_decay=0.1), lr=args.lr, betas=(0.9, 0.99))
    print(f"{model.num_parameters():,} parameters")

    @mg.capture  # its arithmetic is recorded once, and then run in one piece
    def train_step(x, y):
        _, loss = model(x, y)  # (B, T, V), ()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(step, total=args.steps, lr=args.lr, min_lr=args.lr / 40, warmup=100)
        x, y = next(batches)  # (B, T), (B, T): y is x one character later
        loss = train_step(mg.tensor(x), mg.tensor(y))
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            held_out = evaluate(model, val_batches)
            print(f"step {step + 1}: training loss {loss.item():.4f}, validation loss {held_out:.4f}")

    if args.out:
        about = {"chars": vocab.chars, "config": dataclasses.asdict(model.config)}
        checkpoint.save(args.out, *checkpoint.pack(model, **about))
        print(f"wrote {args.out}")
    prompt = vocab.encode(corpus[:1])[None]  # (1, 1)
    written = model.generate(mg.tensor(prompt), 300, temperature=0.8, generator=mg.Generator(args.seed))  # (1, 301)
    print(f"\n{vocab.decode(written.numpy()[0])}")
    return 0


if __name__ == "__main__":
    cli.run(main)
