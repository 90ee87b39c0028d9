"""Train a character-level transformer on a text, and have it write.

    python examples/char_lm.py                                   train on Python's own manual: about two minutes
    python examples/char_lm.py --text book.txt --out runs/book   ... on a text of your own
    python examples/char_lm.py --resume                          go on where a run stopped, as if it never had
    python examples/char_lm.py sample --prompt "The "            have the best model so far write

--out gets last.safetensors (all that --resume needs), best.safetensors (lowest validation loss), losses.csv, loss.png.
Ctrl-C finishes the step, saves and exits with 130. Bad input gets one line and exits with 2. A run is never
overwritten: give another --out, or remove the old one yourself.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import sys
import zlib
from pathlib import Path

import minigrad as mg
from minigrad import checkpoint, nn, optim, text, training
from minigrad.viz import loss_curve

# The defaults had the lowest validation loss of some ten settings that train for two minutes on two slow cores.
SETTINGS = {  # name: (default, lowest, below, meaning). The checkpoint holds them, and --resume takes them from there.
    "n_layer": (2, 1, math.inf, "transformer blocks"),
    "n_head": (4, 1, math.inf, "attention heads per block"),
    "n_embd": (128, 1, math.inf, "numbers per character, a multiple of n_head"),
    "block_size": (64, 1, math.inf, "characters the model sees at once"),
    "batch_size": (12, 1, math.inf, "blocks per step"),
    "dropout": (0.0, 0, 1, "share of the activations dropped in training"),
    "steps": (2400, 1, math.inf, "steps in all, those before --resume included"),
    "lr": (4e-3, 0, math.inf, "learning rate after warmup"),
    "min_lr": (1e-4, 0, math.inf, "learning rate at the end of its cosine"),
    "warmup": (100, 0, math.inf, "steps of linear warmup"),
    "weight_decay": (0.1, 0, math.inf, "AdamW's, on matrices only"),
    "clip": (1.0, 0, math.inf, "largest gradient norm; 0: no clipping"),
    "eval_every": (300, 1, math.inf, "steps between two validations; each saves the run"),
    "eval_batches": (200, 0, math.inf, "batches per validation, spread evenly; 0: the whole split"),
    "seed": (1337, 0, 2**32, "of initial weights, batches, dropout and samples"),
}
SHAPE = ("block_size", "n_layer", "n_head", "n_embd")
NANOGPT = dict(lr=1e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0, eval_every=250, eval_batches=0)
PRESETS = {  # nanoGPT's own settings, from its README and config/train_shakespeare_char.py
    "nanogpt-cpu": NANOGPT | dict(batch_size=12, dropout=0.0, steps=2000),
    "nanogpt-gpu": NANOGPT | dict(batch_size=64, dropout=0.2, steps=5000),
}
for _name, _preset in PRESETS.items():
    _preset |= {size: nn.gpt.PRESETS[_name][size] for size in SHAPE}


def train(args):
    out, last, best, losses = (args.out / name for name in ("", "last.safetensors", "best.safetensors", "losses.csv"))
    with one_line_errors():  # nothing is written before all input has proved good
        defaults = {name: row[0] for name, row in SETTINGS.items()} | {"text": []}
        tensors, saved = training.load_run(last, defaults) if args.resume else ({}, {})
        settings = settings_for(args, saved["settings"] if args.resume else {})
        if not args.resume and any(path.exists() for path in (last, best, losses)):
            raise ValueError(f"{out} already holds a run: go on with --resume, or choose another --out")
        corpus = text.read_corpus(settings["text"])
        vocab, crc = text.CharVocab(corpus), zlib.crc32(corpus.encode())
        if saved:
            text.CharVocab(saved["chars"]).check_same(vocab)
        if saved.get("crc", crc) != crc:
            print("char_lm: note: this is not the text that the run began with", file=sys.stderr)
        train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
        seed, T, B = settings["seed"], settings["block_size"], settings["batch_size"]
        batches = text.Batches(train_ids, T, B, mg.random.Generator(seed + 2**32), "training split")  # a stream apart
        val_batches = text.fixed_batches(val_ids, T, B, settings["eval_batches"], "validation split")

        mg.manual_seed(seed)  # of the initial weights, then of dropout
        model = build(settings, vocab, args.device)
        parameters = list(model.parameters())
        groups = model.parameter_groups(settings["weight_decay"])
        optimizer = optim.AdamW(groups, lr=settings["lr"], betas=(0.9, 0.99))
        generators = {"default": mg.default_generator, "batches": batches.generator}
        start, steps, best_loss = saved.get("step", 0), settings["steps"], saved.get("best_loss")
        if saved:
            checkpoint.unpack(tensors, saved, model, optimizer, generators)

        def save(step, paths):
            run = dict(step=step, best_loss=best_loss, settings=settings, chars=vocab.chars, crc=crc)
            run["config"] = dataclasses.asdict(model.config)
            tensors, meta = checkpoint.pack(model, optimizer, generators, **run)
            for path in paths:
                checkpoint.save(path, tensors, meta)

        out.mkdir(parents=True, exist_ok=True)
        if not saved:
            save(0, [last])
        table = training.Table(losses, ("step", "train", "val", "lr", "grad_norm"), keep=start)

    print(f"{len(corpus):,} characters, {len(vocab)} different; {model.num_parameters():,} parameters", flush=True)
    with training.Interrupt() as interrupt, training.Progress(start, steps, B * T) as progress, table:
        for step in range(start, steps):
            lr = optim.warmup_cosine(step, total=steps, **{k: settings[k] for k in ("lr", "min_lr", "warmup")})
            for group in optimizer.param_groups:
                group["lr"] = lr
            x, y = next(batches)  # (B, T), (B, T): y is x one character later
            _, loss = model(mg.tensor(x, device=args.device), mg.tensor(y, device=args.device))  # (B, T, V), ()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, settings["clip"] or math.inf)
            if not math.isfinite(loss.item() + norm):
                stop(f"step {step}: loss {loss.item()}, gradient norm {norm}: try a lower --lr", code=1)
            optimizer.step()

            done, val_loss = step + 1, None
            progress.step(done, loss.item())
            if due := done % settings["eval_every"] == 0 or done == steps:
                val_loss = evaluate(model, val_batches, args.device)
                progress.say(f"step {done}: training loss {loss.item():.4f}, validation loss {val_loss:.4f}")
            table.row(done, loss.item(), val_loss, lr, norm)
            if due or interrupt.asked:
                improved = due and (best_loss is None or val_loss < best_loss)
                best_loss = val_loss if improved else best_loss
                with one_line_errors():
                    table.flush()
                    save(done, [best, last] if improved else [last])
            if interrupt.asked:
                stop(f"stopped and saved at step {done}; go on with --resume", code=130)

    print(f"step {steps} of {steps} (more with --resume --steps N), best validation loss {best_loss:.4f}; it writes:\n")
    print(write(model, vocab, "", 500, args.device, seed=seed))
    try:
        loss_curve(losses, out / "loss.png")
    except ImportError as error:  # matplotlib is optional
        print(f"\nno loss.png: {error}", file=sys.stderr)
    return 0


@mg.no_grad()
def evaluate(model, batches, device):
    """Mean loss over the batches, in nats per character. Draws no random numbers."""
    model.eval()
    total = sum(model(mg.tensor(x, device=device), mg.tensor(y, device=device))[1].item() * x.size for x, y in batches)
    model.train()
    return total / sum(x.size for x, _ in batches)


def write(model, vocab, prompt, tokens, device, seed, temperature=0.8, top_k=None, top_p=None):
    """The prompt and what the model adds to it. Draws from a stream of its own."""
    idx = mg.tensor(vocab.encode(prompt or "\n")[None], device=device)  # (1, T)
    generator = mg.random.Generator(seed + 2 * 2**32)
    idx = model.generate(idx, tokens, temperature, top_k, top_p, generator)  # (1, T + tokens)
    return vocab.decode(idx.numpy()[0])


def sample(args):
    with one_line_errors():
        if args.tokens < 1:
            raise ValueError(f"--tokens must be at least 1, not {args.tokens}")
        model, vocab, _ = training.load_char_model(args.checkpoint or args.out / "best.safetensors", args.device)
        choice = args.temperature, args.top_k, args.top_p
        print(write(model, vocab, args.prompt, args.tokens, args.device, args.seed, *choice))
    return 0


def build(settings, vocab, device):
    if settings["n_embd"] % settings["n_head"]:
        raise ValueError(f"n_embd {settings['n_embd']} is not a multiple of n_head {settings['n_head']}")
    shape = {name: settings[name] for name in SHAPE}
    return nn.GPT(nn.GPTConfig(len(vocab), dropout=settings["dropout"], bias=False, **shape)).to(device)


def settings_for(args, saved):
    """What was typed wins over the preset, that over the resumed run's settings, those over the defaults."""
    typed = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    settings = {name: row[0] for name, row in SETTINGS.items()} | {"text": []}
    settings |= saved | PRESETS.get(args.preset, {}) | typed
    if args.text:
        settings["text"] = [os.path.abspath(path) for path in args.text]
    for name, (_, lowest, below, _) in SETTINGS.items():
        if not lowest <= settings[name] < below:
            limit = f"at least {lowest}" + (f" and below {below}" if below < math.inf else "")
            raise ValueError(f"--{name.replace('_', '-')} must be {limit}, not {settings[name]}")
    changed = [f"{k} {saved[k]}, not {settings[k]}" for k in (*SHAPE, "seed") if saved and saved[k] != settings[k]]
    if changed:
        raise ValueError(f"the run in {args.out} has {'; '.join(changed)}: resume it as it is, or choose another --out")
    return settings


def stop(message, code=2):
    print(f"char_lm: {message}", file=sys.stderr)
    raise SystemExit(code)


@contextlib.contextmanager
def one_line_errors():
    """Around what reads input or writes files: what the user can put right needs no traceback."""
    try:
        yield
    except OSError as error:
        stop(f"{error.filename or 'cannot write'}: {error.strerror}")
    except (ValueError, mg.DeviceError, MemoryError) as error:
        stop(str(error))
    except KeyError as error:
        stop(f"the checkpoint is not one of char_lm: it has no {error}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers()
    p = commands.add_parser("train", help="train a model: what happens without a command")
    p.set_defaults(run=train)
    p.add_argument("--resume", action="store_true", help="go on with the run in --out")
    p.add_argument("--text", nargs="+", metavar="FILE", help="train on these UTF-8 files, not on Python's manual")
    p.add_argument("--preset", choices=PRESETS, help="known settings; options override them")
    for name, (default, _, _, meaning) in SETTINGS.items():
        option = f"--{name.replace('_', '-')}"
        p.add_argument(option, type=type(default), metavar="N", help=f"{meaning} (default: {default})")
    q = commands.add_parser("sample", help="have a trained model write")
    q.set_defaults(run=sample)
    q.add_argument("--checkpoint", type=Path, metavar="FILE", help="default: best.safetensors in --out")
    q.add_argument("--prompt", default="", help="how the text begins (default: with a new line)")
    q.add_argument("--tokens", type=int, default=500, metavar="N", help="characters to add (default: 500)")
    q.add_argument("--temperature", type=float, default=0.8, metavar="N", help="0 is greedy (default: 0.8)")
    q.add_argument("--top-k", type=int, metavar="N", help="choose among the N likeliest (default: all)")
    q.add_argument("--top-p", type=float, metavar="N", help="choose among the likeliest that have this probability")
    q.add_argument("--seed", type=int, default=1337, metavar="N", help="another seed, another text")
    for command in (p, q):
        command.add_argument("--out", type=Path, default=Path("runs/char_lm"), help="folder (default: runs/char_lm)")
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for command in (parser, p, q):
        command.error = stop  # argparse's own prints the usage as well

    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv if argv and argv[0] in ("train", "sample", "-h", "--help") else ["train", *argv])
    try:
        return args.run(args)
    except KeyboardInterrupt:
        stop("stopped", code=130)


if __name__ == "__main__":
    sys.exit(main())
