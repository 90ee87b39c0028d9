"""Which heads does a character model need? Rank them in three ways, remove the least important, and plot the loss.

    python examples/prune_heads.py [--remove 4] [--out runs/prune]
    python examples/prune_heads.py --checkpoint runs/char_lm/best.safetensors

Without --checkpoint, it first trains a small model (about half a minute). It ranks the model's heads by ablation, by
gate gradients, and by the integral of these as all gates close (study.head_importance), on one half of some held-out
batches. On the other half it measures the loss without the first 0, 1, 2, … heads of each ranking. Then it removes
--remove heads for good, each time the one whose ablation then costs least, checks that the smaller model computes the
same as the whole one with those heads silenced, saves it, loads it again, and has it write. The folder --out gets
prune.png and pruned.safetensors, which `minigrad sample` takes.
"""

import copy
import dataclasses
from pathlib import Path

import minigrad as mg
from minigrad import nn, optim, study, training
from minigrad.base import cli
from minigrad.training import checkpoint, runs, text
from minigrad.viz import curves

SIZES = dict(block_size=64, n_layer=4, n_head=4, n_embd=64)
BATCH = 12


def train(train_ids, vocab, steps, seed=0):
    """A model of these SIZES, trained for that many steps."""
    mg.manual_seed(seed)
    model = nn.GPT(nn.GPTConfig(len(vocab), **SIZES))
    batches = text.Batches(train_ids, SIZES["block_size"], BATCH, mg.Generator(seed), "training split")
    optimizer = optim.AdamW(model.parameter_groups(0.1), lr=4e-3, betas=(0.9, 0.99))
    with training.Progress(0, steps, BATCH * SIZES["block_size"]) as progress:
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = optim.warmup_cosine(step, lr=4e-3, min_lr=1e-4, warmup=min(50, steps // 4), total=steps)
            x, y = next(batches)  # (B, T), (B, T)
            _, loss = model(mg.tensor(x), mg.tensor(y))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            progress.step(step + 1, loss.item())
    return model


@cli.command("prune_heads")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--checkpoint", type=cli.path, metavar="FILE", help="trained on the same --text")
    parser.add_argument(
        "--text", nargs="+", type=cli.path, default=[], metavar="FILE", help="train and measure on these files"
    )
    parser.add_argument("--steps", type=cli.WHOLE, default=600, metavar="N", help="steps of training (default: 600)")
    parser.add_argument(
        "--remove", type=cli.WHOLE, default=4, metavar="N", help="heads to remove for good (default: 4)"
    )
    parser.add_argument(
        "--batches", type=cli.COUNT, default=8, metavar="N", help="to rank on, and as many to measure on (default: 8)"
    )
    parser.add_argument("--out", type=cli.path, default=Path("runs/prune"), help="folder (default: runs/prune)")
    args = parser.parse_args(argv)

    corpus = text.read_corpus(args.text)
    vocab = text.CharVocab(corpus)
    if args.checkpoint:
        model, vocab, _ = runs.load_char_model(args.checkpoint)
        heads, T = sum(m.num_heads for m in study.attention_layers(model).values()), model.config.block_size
    else:
        heads, T = SIZES["n_layer"] * SIZES["n_head"], SIZES["block_size"]
    train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
    if args.remove > heads:
        parser.error(f"--remove must be from 0 to {heads}, the number of heads, not {args.remove}")
    windows = text.fixed_batches(val_ids, T, BATCH, 2 * args.batches, "validation split")
    batches = [(mg.tensor(x), mg.tensor(y)) for x, y in windows]
    to_rank, to_measure = batches[::2], batches[1::2]
    if not to_measure:
        parser.error(f"the text has {len(val_ids)} held-out characters, too few to rank heads and to measure the loss")
    cli.needs("matplotlib", "the plot")
    cli.folder_to_write(args.out, "--out")
    if not args.checkpoint:
        model = train(train_ids, vocab, args.steps)

    importance = {method: study.head_importance(model, to_rank, method) for method in study.METHODS}
    print("importance of each head, in nats per character")
    print(study.HeadTable(importance).sorted("ablate"))

    losses = {}
    for method, scores in importance.items():
        losses[method] = study.losses_without(model, to_measure, study.ranked(scores))
    print(f"\nloss without the k least important heads of {len(losses['ablate']) - 1}, by each ranking")
    print("  k" + "".join(f"{method:>15}" for method in losses))
    for k, row in enumerate(zip(*losses.values())):
        print(f"{k:3}" + "".join(f"{loss:15.4f}" for loss in row))
    series = {method: (list(range(len(each))), each) for method, each in losses.items()}
    curves(series, args.out / "prune.png", "heads removed", "loss (nats per character)")

    x, _ = to_measure[0]
    whole = copy.deepcopy(model)
    report = study.prune(model, to_rank, args.remove)
    print(f"\n{report}")
    with mg.no_grad():
        with study.ablate_heads(whole, study.grouped(report.removed)):
            silenced, _ = whole(x)  # (B, T, V)
        pruned, _ = model(x)
    difference = (pruned - silenced).abs().max() / silenced.abs().max()
    print(f"its logits are those with the heads silenced but for {difference.item():.0e} of the largest")
    print(f"parameters before: {whole.num_parameters():,}, after: {model.num_parameters():,}")

    path = args.out / "pruned.safetensors"
    checkpoint.save(path, *checkpoint.pack(model, config=dataclasses.asdict(model.config), chars=vocab.chars))
    again, vocab, _ = runs.load_char_model(path)
    prompt = mg.tensor(vocab.encode(corpus[:1])[None])  # (1, 1)
    written = again.generate(prompt, 200, temperature=0.8, generator=mg.Generator(1))  # (1, 201)
    print(f"\nwrote {path} and {args.out / 'prune.png'}; loaded again, it writes:\n{vocab.decode(written.numpy()[0])}")
    return 0


if __name__ == "__main__":
    cli.run(main)
