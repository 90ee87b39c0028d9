"""Train a small GPT on the characters of a text, and print a sample of what it writes.

    python examples/char_lm.py                       on little stories: half a minute
    python examples/char_lm.py --text book.txt       on a text of your own

This is the loop itself. `minigrad train` has a faster recipe (minigrad/training/recipe.py) and saves checkpoints, from
which a stopped run continues. `minigrad report FILE` shows the heads of the model that --out saves.
"""

import argparse
import dataclasses

import minigrad as mg
from minigrad import nn, optim
from minigrad.training import text

B, T = 12, 64  # blocks per step; characters the model sees at once


def read(files=()):
    """Return (vocabulary, training ids, validation batches) of a text. The last tenth is held out for validation."""
    corpus = text.read_corpus(files)
    vocab = text.CharVocab(corpus)  # every character has a number
    train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
    return vocab, train_ids, text.fixed_batches(val_ids, T, B, limit=50)


def train(model, train_ids, steps, lr=4e-3, seed=1337, watch=None):
    """Train a model with AdamW. watch(step, loss) is called after each step."""
    batches = text.Batches(train_ids, T, B, mg.Generator(seed))
    optimizer = optim.AdamW(model.parameter_groups(weight_decay=0.1), lr=lr, betas=(0.9, 0.99))

    @mg.capture  # the first call captures the kernel launches, later calls replay them in one piece
    def train_step(x, y):
        _, loss = model(x, y)  # (B, T, V), ()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(step - 1, total=steps, lr=lr, min_lr=lr / 40, warmup=min(100, steps // 4))
        x, y = next(batches)  # (B, T), (B, T): y is x one character later
        loss = train_step(mg.tensor(x), mg.tensor(y))
        if watch is not None:
            watch(step, loss.item())


@mg.no_grad()
def evaluate(model, batches):
    """Return the mean loss over the batches, in nats per character, without dropout."""
    model.eval()
    losses = [model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in batches]
    model.train()
    return sum(losses) / len(losses)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", default=(), metavar="FILE", help="default: little stories")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--out", metavar="FILE", help="save the model there")
    args = parser.parse_args(argv)

    vocab, train_ids, val_batches = read(args.text)
    mg.manual_seed(args.seed)
    model = nn.GPT(nn.GPTConfig(len(vocab), block_size=T, n_layer=2, n_head=4, n_embd=128, bias=False))
    print(f"{len(train_ids):,} characters, {len(vocab)} different; {model.num_parameters():,} parameters")

    def watch(step, loss):
        if step % 100 == 0 or step == args.steps:
            print(f"step {step}: training loss {loss:.4f}, validation loss {evaluate(model, val_batches):.4f}")

    train(model, train_ids, args.steps, seed=args.seed, watch=watch)
    if args.out:
        mg.save({"model": model, "config": dataclasses.asdict(model.config), "chars": vocab.chars}, args.out)
    prompt = mg.tensor(vocab.encode(vocab.beginning)[None])  # (1, 1)
    written = model.generate(prompt, 300, temperature=0.8, generator=mg.Generator(args.seed))  # (1, 301)
    print(vocab.decode(written.numpy()[0]))


if __name__ == "__main__":
    main()
