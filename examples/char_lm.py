"""Train a character-level transformer on a text, and have it write.

    minigrad train                                    train on Python's own manual: about two minutes
    minigrad train --text book.txt --out runs/book    train on a text of your own
    minigrad train --resume                           continue a run that stopped, as if it never had
    minigrad sample --prompt "The "                   have the best model so far write; runs/book, the one there
    mpiexec -n 2 minigrad train …                     train on two processes, of one machine or of several

`python examples/char_lm.py …` does the same, where `train` may be left out.

The folder --out gets last.safetensors (all that --resume needs), best.safetensors (the lowest validation loss),
losses.csv and loss.png. On Ctrl-C, SIGTERM or SIGHUP the program finishes its step, saves, and exits with that signal's
status: 130, 143 or 129. Bad input is answered in one line, with exit status 2. A run is never overwritten: choose
another --out, or remove the old run yourself.

Several processes compute what one process does with the same --shards, bit for bit, and --resume may go on with
another number of them: see minigrad/distributed/README.md. Only rank 0 reads and writes files.
"""

import contextlib
import dataclasses
import math
import os
import sys
import zlib

import minigrad as mg
from minigrad import distributed, nn, optim, training
from minigrad.base import cli
from minigrad.base.files import claimed
from minigrad.training import checkpoint, runs, text
from minigrad.viz import loss_curve

NAME = "char_lm"  # of this program in what it says, unless it runs as a part of `minigrad`

# Of about ten settings that train for two minutes on two slow cores, the defaults had the lowest validation loss.
SETTINGS = {  # name: (default, meaning, limits). The checkpoint stores them, and --resume reads them from there.
    "n_layer": (2, "transformer blocks", dict(at_least=1, at_most=1000)),
    "n_head": (4, "attention heads per block", dict(at_least=1)),
    "n_embd": (128, "numbers per character, a multiple of --n-head", dict(at_least=1)),
    "block_size": (64, "characters the model sees at once", dict(at_least=1)),
    "batch_size": (12, "blocks per step", dict(at_least=1)),
    "dropout": (0.0, "share of the activations dropped in training", dict(at_least=0, below=1)),
    "steps": (2400, "steps in all, including those before --resume", dict(at_least=1)),
    "lr": (4e-3, "learning rate after warmup", dict(at_least=0)),
    "min_lr": (1e-4, "learning rate at the end of the cosine", dict(at_least=0)),
    "warmup": (100, "steps of linear warmup", dict(at_least=0)),
    "weight_decay": (0.1, "weight decay of AdamW, on matrices only", dict(at_least=0)),
    "clip": (1.0, "largest norm of the gradient; 0: no clipping", dict(at_least=0)),
    "eval_every": (300, "steps between validations, each of which saves the run", dict(at_least=1)),
    "eval_batches": (200, "batches per validation, spread evenly over the split; 0: all of it", dict(at_least=0)),
    "shards": (1, "parts of a batch, for as many processes or fewer; under mpiexec 8, if that fits", dict(at_least=1)),
    "seed": (1337, "of initial weights, batches, dropout and samples", dict(at_least=0, below=2**32)),
}
SHAPE = ("block_size", "n_layer", "n_head", "n_embd")
NANOGPT = dict(lr=1e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0, eval_every=250, eval_batches=0)
PRESETS = {  # nanoGPT's own settings, from its README and config/train_shakespeare_char.py
    "nanogpt-cpu": NANOGPT | dict(batch_size=12, dropout=0.0, steps=2000),
    "nanogpt-gpu": NANOGPT | dict(batch_size=64, dropout=0.2, steps=5000),
}
for _name, _preset in PRESETS.items():
    _preset |= {size: nn.gpt.model.PRESETS[_name][size] for size in SHAPE}


def begin(args, world):
    with contextlib.ExitStack() as held:
        return train(args, world, held)


def train(args, world, held):
    """Begin a run, or continue one. `held` gets the claim on its folder, which keeps other programs out.

    All processes of `world` do the same. What touches files, rank 0 does for all."""
    names = "", "last.safetensors", "best.safetensors", "losses.csv", "loss.png"
    out, last, best, losses, picture = (args.out / name for name in names)
    # Nothing is written until all input has been checked.
    tensors, saved = world.first(lambda: saved_run(out, last, held)) if args.resume else ({}, {})
    settings = settings_for(args, saved, world.size)
    if not args.resume:
        world.first(lambda: refuse_another(out, last, best, losses))
    corpus = world.first(lambda: read_text(args, settings, saved))
    vocab, crc = text.CharVocab(corpus), zlib.crc32(corpus.encode())
    if saved:
        text.CharVocab(saved["chars"]).check_same(vocab)
    train_ids, val_ids = text.split(vocab.encode(corpus), 0.9)
    seed, T, B = settings["seed"], settings["block_size"], settings["batch_size"]
    shards = distributed.Shards(world, settings["shards"])
    world.check_same(device=args.device, **{name: settings[name] for name in SETTINGS})
    batches = text.Batches(train_ids, T, B, mg.random.Generator(seed + 2**32), "training split")  # a separate stream
    val_batches = text.fixed_batches(val_ids, T, B, settings["eval_batches"], "validation split")

    mg.manual_seed(seed)  # for the initial weights, then for dropout
    model = build(settings, vocab, args.device)
    model.load_state_dict(world.first(model.state_dict))
    parameters = list(model.parameters())
    groups = model.parameter_groups(settings["weight_decay"])
    optimizer = optim.AdamW(groups, lr=settings["lr"], betas=(0.9, 0.99))
    generators = {"default": mg.default_generator, "batches": batches.generator}

    def gradient(x, y):
        _, loss = model(x, y)  # (B / shards, T, V), ()
        return distributed.gathered(loss, parameters)  # (n + 1,)

    def update(total):
        loss = distributed.scattered(total / shards.count, parameters)
        norm = nn.utils.clip_grad_norm_(parameters, settings["clip"] or math.inf)
        optimizer.step()
        return loss, norm

    def loss_of(x, y):
        return model(x, y)[1]

    if args.capture:
        gradient, update, loss_of = mg.capture(gradient), mg.capture(update), mg.capture(loss_of)
    start, steps, best_loss = saved.get("step", 0), settings["steps"], saved.get("best_loss")
    if saved:
        options = [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
        checkpoint.unpack(tensors, saved, model, optimizer, generators)
        for group, typed in zip(optimizer.param_groups, options):
            group.update(typed)  # the options of this command line, such as --weight-decay, win over the file's
    if not world.first(best.exists):  # it was deleted or not copied along: start over with the best from here on
        best_loss = None
    if saved.get("crc", crc) != crc and world.rank == 0:
        cli.note(NAME, "the text has changed since the run began; the new text is used")

    def save(step, paths):
        world.check_same(step=step, weights=distributed.fingerprint(model), random=mg.default_generator.state)
        world.first(lambda: write_checkpoint(step, paths))

    def write_checkpoint(step, paths):
        run = dict(step=step, best_loss=best_loss, settings=settings, chars=vocab.chars, crc=crc)
        run["config"] = dataclasses.asdict(model.config)
        tensors, meta = checkpoint.pack(model, optimizer, generators, **run)
        for path in paths:
            checkpoint.save(path, tensors, meta)

    def begin_writing():
        cli.folder_to_write(out, "--out")
        for path in (last, best, losses, picture):
            if path.is_dir():
                raise cli.CommandError(f"{path} is a folder, but a file is to be written there: choose another --out")
        if not saved:
            claim(out, held)
            refuse_another(out, last, best, losses)  # again: another process may have begun one since

    world.first(begin_writing)
    if not saved:
        save(0, [last])
    columns = "step", "train", "val", "lr", "grad_norm"
    done = kept = start  # the steps done, and those that last.safetensors holds
    with (
        training.Table(losses if world.rank == 0 else None, columns, keep=start) as table,
        training.Interrupt() as interrupt,
        training.Progress(start, steps, B * T, silent=world.rank > 0) as progress,
    ):
        progress.say(f"{len(corpus):,} characters, {len(vocab)} different; {model.num_parameters():,} parameters")
        for step in range(start, steps):
            lr = optim.warmup_cosine(step, total=steps, **{k: settings[k] for k in ("lr", "min_lr", "warmup")})
            for group in optimizer.param_groups:
                group["lr"] = lr
            x, y = next(batches)  # (B, T), (B, T): y is x one character later
            total = shards.sum(gradient, mg.tensor(x, device=args.device), mg.tensor(y, device=args.device))  # (n + 1,)
            loss, norm = (number.item() for number in update(total))
            if not math.isfinite(loss + norm):
                raise diverged(f"step {step}: loss {loss}, gradient norm {norm}", kept)

            done, val_loss = step + 1, None
            progress.step(done, loss)
            if due := done % settings["eval_every"] == 0 or done == steps:
                progress.note("validating")
                val_loss = evaluate(world, model, loss_of, val_batches, args.device)
                progress.note(f"val {val_loss:.3f}")
                progress.say(f"step {done}: training loss {loss:.4f}, validation loss {val_loss:.4f}")
            # Read once: a signal may come at any time, and to one process alone.
            stopping = max(world.everyone(bool(interrupt.asked or progress.broken)))
            if (due or stopping) and not all(p.isfinite().all() for p in parameters):
                raise diverged(f"step {done}: some weights are no longer finite", kept)
            if due and not math.isfinite(val_loss):
                raise diverged(f"step {done}: validation loss {val_loss}", kept)
            try:
                table.row(done, loss, val_loss, lr, norm)
                if due or stopping:
                    improved = due and (best_loss is None or val_loss < best_loss)
                    best_loss = val_loss if improved else best_loss
                    world.first(table.flush)
                    save(done, [best, last] if improved else [last])
                    kept = done
            except OSError as error:
                why = f"cannot save step {done} in {out}: {error.strerror}"
                raise cli.CommandError(f"{why}; step {kept} is saved: make room, then --resume") from None
            if stopping:
                break
    if status := max(world.everyone(interrupt.status if interrupt.asked else 0)):
        line = again(args, "train", "--resume", "--out", out)
        raise cli.CommandError(f"stopped and saved at step {done}; go on with: {line}", status=status)
    if broken := world.first(lambda: progress.broken):
        raise broken

    if best_loss is None:  # the run was stopped before its first validation, and resumed with no steps left
        best_loss = evaluate(world, model, loss_of, val_batches, args.device)
        save(done, [best, last])
    if world.rank > 0:
        return 0
    print(f"step {steps} of {steps}, best validation loss {best_loss:.4f}; it writes:\n")
    write(model, vocab, "", 500, args.device, seed=seed)
    wrote = [last, best, losses, picture]
    try:
        loss_curve(losses, picture)
    except (ImportError, ValueError, OSError) as error:  # matplotlib is optional, and losses.csv may have been edited
        print(f"\nno {wrote.pop().name}: {error}", file=sys.stderr)
    print(f"\nwrote {', '.join(map(str, wrote))}")
    prompt = next((word for word in corpus[:1000].split() if word.isprintable()), "")[:20]
    print(f"have it write: {again(args, 'sample', out, f'--prompt={prompt}')}")
    print(f"train further: {again(args, 'train', '--resume', '--steps', 2 * steps, '--out', out)}")
    return 0


def diverged(why, kept):
    return cli.CommandError(f"{why}: try a lower --lr; step {kept} is saved", status=1)


def claim(out, held):
    """Keep other processes out of the run folder until `held` is closed."""
    try:
        held.enter_context(claimed(out))
    except BlockingIOError:
        raise cli.CommandError(f"another process trains in {out} now: choose another --out") from None


def refuse_another(out, *paths):
    if any(path.exists() for path in paths):
        raise cli.CommandError(f"{out} already holds a run: go on with --resume, or choose another --out")


def again(args, command, *words):
    """What to type to run a command on the same device."""
    device = () if args.device == "cpu" else ("--device", args.device)
    return cli.typed(__file__, command, *words, *device, together=command == "train")


@mg.no_grad()
def evaluate(world, model, loss_of, batches, device):
    """The mean of loss_of(x, y) over the batches, in nats per character. Draws no random numbers."""
    model.eval()
    losses = world.dealt(lambda xy: loss_of(*(mg.tensor(ids, device=device) for ids in xy)).item(), batches)
    model.train()
    sizes = [x.size for x, _ in batches]
    return sum(loss * size for loss, size in zip(losses, sizes)) / sum(sizes)


def write(model, vocab, prompt, tokens, device, seed, temperature=0.8, top_k=None, top_p=None):
    """Print the prompt, or for an empty one a new line if the text has any, and what the model adds to it, each
    character as soon as it is drawn. Only the first waits for the second: until then kernels may have to be compiled,
    and what a terminal is told of that would run into the text.

    Random numbers come from a separate stream."""
    prompt = prompt or next(c for c in ("\n", " ", vocab.chars[0]) if c in vocab.chars)
    idx = mg.tensor(vocab.encode(prompt)[None], device=device)  # (1, T)
    waiting = [prompt]

    def say(drawn):  # (1,)
        waiting.append(vocab.decode(drawn))
        if len(waiting) != 2:
            print(*waiting, sep="", end="", flush=True)
            waiting.clear()

    generator = mg.random.Generator(seed + 2 * 2**32)
    try:
        model.generate(idx, tokens, temperature, top_k, top_p, generator, each=say)
    finally:
        if waiting != [prompt]:  # otherwise nothing was drawn
            print(*waiting, sep="")  # what is said next begins a line of its own, also after Ctrl-C


def sample(args, world):
    if world.rank > 0:
        return 0
    if args.checkpoint and args.named:
        raise cli.CommandError(f"give the checkpoint once: {args.checkpoint} or {args.named}")
    file = runs.model_file(named := args.checkpoint or args.named or runs.FOLDER, train=cli.typed(__file__, "train"))
    if file != named and file.name == "last.safetensors":
        cli.note(NAME, f"{file} writes, as there is no best.safetensors before the first validation of a run")
    model, vocab, _ = runs.load_char_model(file, args.device)
    choice = args.temperature, args.top_k, args.top_p
    with cli.refusing(FloatingPointError):  # weights so large that the logits overflow
        write(model, vocab, args.prompt, args.tokens, args.device, args.seed, *choice)
    return 0


def build(settings, vocab, device):
    """The model. Refuses sizes that do not fit together, or that are hopelessly too large for this machine."""
    n_layer, C, nh, V = settings["n_layer"], settings["n_embd"], settings["n_head"], len(vocab)
    if C % nh:
        raise cli.CommandError(f"--n-embd {C} is not a multiple of --n-head {nh}")
    parameters = 12 * n_layer * C**2 + (V + settings["block_size"]) * C
    activations = settings["batch_size"] * settings["block_size"] * (16 * n_layer * C + 2 * V)
    needed = 4 * (4 * parameters + activations)  # bytes, at least: float32 weights, gradients and AdamW's two moments
    if device == "cpu" and needed > text.memory():
        raise cli.CommandError(
            f"to train {parameters:,} parameters on batches of {settings['batch_size']} blocks takes at least "
            f"{needed / 1e9:,.0f} GB of memory; this machine has {text.memory() / 1e9:.0f}"
        )
    shape = {name: settings[name] for name in SHAPE}
    return nn.GPT(nn.GPTConfig(V, dropout=settings["dropout"], bias=False, **shape)).to(device)


def saved_run(out, path, held):
    """(tensors, meta) of a run to resume, after claiming its folder and checking that the file holds one."""
    if out.is_dir():
        claim(out, held)
    if not path.exists():
        raise cli.CommandError(f"there is no checkpoint {path} to resume from: begin a run without --resume")
    tensors, saved = runs.load_run(path, {name: row[0] for name, row in SETTINGS.items()} | {"text": []})
    for name, (default, _, limits) in SETTINGS.items():
        if wrong := cli.out_of_limits(saved["settings"].get(name, default), **limits):
            raise cli.CommandError(f"{path} holds no run to go on with: its {name} {wrong}")
    return tensors, saved


def settings_for(args, saved, processes):
    """What was typed wins over the preset, the preset over the resumed run's settings, and those over the defaults."""
    typed = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    settings = {name: row[0] for name, row in SETTINGS.items()} | {"text": []}
    old = saved.get("settings", {})
    settings |= old | PRESETS.get(args.preset, {}) | typed
    if processes > 1 and not saved and "shards" not in typed:
        settings["shards"] = math.gcd(settings["batch_size"], max(8, processes))
    if settings["batch_size"] % settings["shards"]:
        raise cli.CommandError("--batch-size {batch_size} is not a multiple of --shards {shards}".format(**settings))
    if args.text:
        settings["text"] = [os.path.abspath(path) for path in args.text]
    changed = [f"{k} {old[k]}, not {settings[k]}" for k in (*SHAPE, "seed") if k in old and old[k] != settings[k]]
    if changed:
        raise cli.CommandError(
            f"the run in {args.out} has {'; '.join(changed)}: resume it as it is, or choose another --out"
        )
    if saved and settings["steps"] < (step := saved["step"]):
        raise cli.CommandError(
            f"the run in {args.out} is at step {step} already, and --steps counts all steps, so {settings['steps']} "
            f"leave nothing to do: give a larger number, such as --steps {step + settings['steps']}"
        )
    return settings


def read_text(args, settings, saved):
    try:
        return text.read_corpus(settings["text"])
    except OSError as error:
        hint = f": the run in {args.out} began with it; if it has moved, say where it is now with --text"
        raise cli.CommandError(cli.said(error) + (hint if saved and not args.text else "")) from None


@cli.command(NAME)
def main(argv=()):
    with distributed.world() as world:
        args = read_options(argv)
        return args.run(args, world)


def read_options(argv):
    parser = cli.Parser(description=__doc__)
    commands = parser.add_subparsers()
    about = "Train a character-level transformer on a text.\n\n    minigrad train --text book.txt --out runs/book"
    about += (__doc__ or "").partition("left out.")[2]
    p = commands.add_parser("train", help="train a model; this is the default command", description=about)
    folder = f"(default: {runs.FOLDER})"
    p.add_argument("--out", type=cli.path, default=runs.FOLDER, metavar="FOLDER", help=f"of the run {folder}")
    p.add_argument("--resume", action="store_true", help="continue the run in --out")
    p.add_argument("--text", nargs="+", type=cli.path, metavar="FILE", help="UTF-8 files (default: Python's manual)")
    p.add_argument("--preset", choices=PRESETS, help="nanoGPT's settings; options override them (default: none)")
    p.add_argument("--no-capture", dest="capture", action="store_false", help="run each step in Python; slower")
    for name, (default, meaning, limits) in SETTINGS.items():
        option, kind = f"--{name.replace('_', '-')}", cli.number(type(default), **limits)
        p.add_argument(option, type=kind, metavar="N", help=f"{meaning} (default: {default})")
    about = 'Have a trained model write.\n\n    minigrad sample runs/book --prompt "The "'
    q = commands.add_parser("sample", help="have a trained model write", description=about)
    what = f"a file of minigrad train, or a run's folder {folder}"
    q.add_argument("checkpoint", nargs="?", type=cli.path, metavar="CHECKPOINT", help=what)
    q.add_argument("--checkpoint", "--out", dest="named", type=cli.path, metavar="PATH", help="the same as CHECKPOINT")
    q.add_argument("--prompt", default="", metavar="TEXT", help="how it begins (default: a new line, if possible)")
    q.add_argument("--tokens", type=cli.COUNT, default=500, metavar="N", help="characters to add (default: 500)")
    heat, share = cli.number(float, at_least=0), cli.number(float, above=0, at_most=1)
    q.add_argument("--temperature", type=heat, default=0.8, metavar="N", help="0 is greedy (default: 0.8)")
    q.add_argument("--top-k", type=cli.COUNT, metavar="N", help="choose among the N likeliest (default: all)")
    q.add_argument("--top-p", type=share, metavar="N", help="choose among the likeliest of this share (default: 1)")
    q.add_argument("--seed", type=cli.SEED, default=1337, metavar="N", help="of the random choices (default: 1337)")
    for each, run in (p, begin), (q, sample):
        each.set_defaults(run=run)
        each.add_argument("--device", **cli.DEVICE)
    cli.known_command(argv, commands.choices)
    known = *commands.choices, "-h", "--help"
    args, rest = parser.parse_known_args(argv if argv and argv[0] in known else ["train", *argv])
    for word in rest[:1]:
        if args.run is begin and (word.isdecimal() or os.path.isfile(word)):
            parser.error(f"{word} needs an option before it: {'--steps' if word.isdecimal() else '--text'} {word}")
        parser.error(f"{word} is a command: it goes first" if word in commands.choices else parser.surplus(word))
    return args


if __name__ == "__main__":
    cli.run(main)
