"""`minigrad train`: a character model trained so that nothing is lost.

A run's folder has last.safetensors (everything that resuming needs), best.safetensors (the lowest validation loss) and
losses.csv. On a signal the step finishes and the run is saved; resumed, it ends with the same bits as one that never
stopped.
"""

import contextlib
import dataclasses
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..autograd import no_grad
from ..base import cli
from ..base.errors import CommandError, printable
from ..base.files import claimed
from ..random import Generator, default_generator, manual_seed
from ..replay.captured import capture
from ..tensor import tensor
from ..typing import FilePath
from . import checkpoint, recipe, runs, text
from .loop import Interrupt, Progress, Table

__all__ = ["SETTINGS", "PRESETS", "Run", "train"]

# Of about ten settings that train for two minutes on two cores, the defaults had the lowest validation loss.
SETTINGS = {  # name: (default, meaning, limits). The checkpoint stores them, and resuming reads them from there.
    "n_layer": (3, "transformer blocks", dict(at_least=1, at_most=1000)),
    "n_head": (4, "attention heads per block", dict(at_least=1)),
    "n_embd": (96, "numbers per character, a multiple of --n-head", dict(at_least=1)),
    "block_size": (128, "characters the model sees at once", dict(at_least=1)),
    "batch_size": (16, "blocks per step", dict(at_least=1)),
    "dropout": (0.0, "share of the activations dropped in training", dict(at_least=0, below=1)),
    "steps": (2200, "steps in all, including those before --resume", dict(at_least=1)),
    "muon": (1, "1: Muon trains the matrices within blocks; 0: nanoGPT's recipe, lr .004", dict(at_least=0, at_most=1)),
    "lr": (0.02, "learning rate after warmup", dict(at_least=0)),
    "min_lr": (0.001, "learning rate at the end", dict(at_least=0)),
    "warmup": (10, "steps of linear warmup", dict(at_least=0)),
    "weight_decay": (0.0, "weight decay, on matrices only", dict(at_least=0)),
    "clip": (0.0, "largest norm of the gradient; 0: no clipping", dict(at_least=0)),
    "eval_every": (200, "steps between validations, each of which saves the run", dict(at_least=1)),
    "eval_batches": (200, "batches per validation, spread evenly over the split; 0: all of it", dict(at_least=0)),
    "seed": (1337, "of initial weights, batches, dropout and samples", dict(at_least=0, below=2**32)),
}
DEFAULTS: dict[str, Any] = {name: row[0] for name, row in SETTINGS.items()} | {"text": []}
SHAPE = ("block_size", "n_layer", "n_head", "n_embd")
ADAMW: dict[str, Any] = dict(lr=4e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0)  # defaults with --muon 0
NANOGPT = ADAMW | dict(muon=0, lr=1e-3, eval_every=250, eval_batches=0)
FAST = dict(n_layer=2, n_head=4, n_embd=96, block_size=64, batch_size=16, steps=280, lr=0.04, min_lr=0.002)
PRESETS = {  # nanogpt-*: nanoGPT's own settings, from its README and config/train_shakespeare_char.py
    "fast": FAST | dict(eval_every=140),
    "nanogpt-cpu": NANOGPT | dict(batch_size=12, dropout=0.0, steps=2000),
    "nanogpt-gpu": NANOGPT | dict(batch_size=64, dropout=0.2, steps=5000),
}
for _name in "nanogpt-cpu", "nanogpt-gpu":
    PRESETS[_name] |= {size: nn.gpt.model.PRESETS[_name][size] for size in SHAPE}

SCORED = 20_000  # characters of the validation split whose loss is also computed with context
LAST, BEST, LOSSES, PICTURE = runs.LAST, runs.BEST, "losses.csv", "loss.png"


class Run:
    """A model in training: its checkpoint's contents, and its step.

    done: steps done. kept: those saved in last.safetensors. best_loss: the lowest validation loss, or None. Raises
    CommandError and TextError for settings and a corpus that do not fit."""

    def __init__(self, settings: dict[str, Any], corpus: str, device: str = "cpu", captured: bool = True) -> None:
        self.settings, self.device = settings, device
        self.corpus, self.vocab, self.crc = corpus, text.CharVocab(corpus), zlib.crc32(corpus.encode())
        self.done, self.kept = 0, 0
        self.best_loss: float | None = None
        seed, T, B = settings["seed"], settings["block_size"], settings["batch_size"]
        train_ids, val_ids = text.split(self.vocab.encode(corpus), 0.9)
        # Batches draw from a generator of their own.
        self.batches = text.Batches(train_ids, T, B, Generator(seed + 2**32), "training split")
        self.val_ids = val_ids
        self.val_batches = text.fixed_batches(val_ids, T, B, settings["eval_batches"], "validation split")
        manual_seed(seed)  # for the initial weights, then for dropout
        self.model = model = build(settings, self.vocab, device)
        self.parameters = parameters = list(model.parameters())
        self.optimizer = optimizer = recipe.optimizer(model, settings)
        self.shares = [group["lr"] for group in optimizer.param_groups]  # of the learning rate
        self.generators = {"default": default_generator, "batches": self.batches.generator}

        def train_step(x, y):
            _, loss = model(x, y)  # (B, T, V), ()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, settings["clip"] or math.inf)
            optimizer.step()
            optimizer.zero_grad()  # last: gradients that outlived a captured step would be copied out of its memory
            return loss, norm

        def loss_of(x, y):
            return model(x, y)[1]

        may_capture: Callable[..., Any] = capture if captured else lambda function: function
        self._train_step, self._loss_of = may_capture(train_step), may_capture(loss_of)

    def step(self) -> tuple[float, float, float]:
        """Train on the next batch. Returns (loss, norm of the gradient, learning rate)."""
        lr = recipe.rate(self.done, self.settings)
        recipe.set_rates(self.optimizer, self.shares, self.done, lr)
        x, y = (tensor(ids, device=self.device) for ids in next(self.batches))  # (B, T): y is x one character later
        loss, norm = (number.item() for number in self._train_step(x, y))
        if not math.isfinite(loss + norm):
            raise diverged(self, f"step {self.done}: loss {loss}, gradient norm {norm}")
        self.done += 1
        return loss, norm, lr

    @no_grad()
    def validate(self) -> float:
        """The mean loss over the validation split, in nats per character. Draws no random numbers."""
        self.model.eval()
        total = 0.0
        for x, y in self.val_batches:
            loss = self._loss_of(tensor(x, device=self.device), tensor(y, device=self.device))
            total += loss.item() * x.size
        self.model.train()
        return total / sum(x.size for x, _ in self.val_batches)

    @no_grad()
    def loss_with_context(self) -> float:
        """Nats per character at the beginning of the validation split, each predicted from half a block or more."""
        T, half, ids = self.settings["block_size"], -(-self.settings["block_size"] // 2), self.val_ids[:SCORED]
        at = np.arange(0, max(1, len(ids) - T), half)[:, None] + np.arange(T)
        total = 0.0
        self.model.eval()
        for part in np.array_split(at, -(-len(at) // 16)):
            logits = self.model(tensor(ids[part], device=self.device))[0][:, -half:]  # (b, half, V)
            targets = tensor(ids[part + 1][:, -half:].ravel(), device=self.device)
            total += nn.functional.cross_entropy(logits.reshape(-1, len(self.vocab)), targets, reduction="sum").item()
        self.model.train()
        return total / (len(at) * half)

    def sample(self, tokens: int = 100) -> str:
        """A sample of the model's text, on one line. Random numbers come from a separate stream."""
        generator = Generator(self.settings["seed"] + 3 * 2**32)
        idx = tensor(self.vocab.encode(self.vocab.beginning)[None], device=self.device)
        try:
            written = self.model.generate(idx, tokens, 0.8, None, None, generator)
        except FloatingPointError as error:  # weights so large that the logits overflow
            return f"({error})"
        self.model.train()
        return printable(" ".join(self.vocab.decode(written.numpy()[0]).split()))

    def save(self, *paths: Path) -> None:
        """Write the run to each of the paths."""
        about = dict(step=self.done, best_loss=self.best_loss, settings=self.settings, chars=self.vocab.chars)
        about |= dict(crc=self.crc, config=dataclasses.asdict(self.model.config))
        tensors, meta = checkpoint.pack(self.model, self.optimizer, self.generators, **about)
        for path in paths:
            checkpoint.save(path, tensors, meta)
        self.kept = self.done

    def restore(self, tensors: Mapping[str, Any], saved: dict[str, Any]) -> None:
        """Continue a saved run. Optimizer options typed now, such as --weight-decay, override saved ones."""
        text.CharVocab(saved["chars"]).check_same(self.vocab)
        options = [{name: value for name, value in g.items() if name != "params"} for g in self.optimizer.param_groups]
        checkpoint.unpack(tensors, saved, self.model, self.optimizer, self.generators)
        for group, typed in zip(self.optimizer.param_groups, options):
            group.update(typed)
        self.done = self.kept = saved["step"]
        self.best_loss = saved["best_loss"]


def train(
    out: Path,
    typed: Mapping[str, Any],
    *,
    preset: str | None = None,
    texts: Sequence[FilePath] = (),
    resume: bool = False,
    device: str = "cpu",
    captured: bool = True,
) -> Run:
    """Begin a run in the folder `out`, or continue the one there, to its last step. Typed settings override the preset,
    that the resumed run's settings, and these the defaults.

    Meanwhile no other process can train in `out`. Raises CommandError, TextError and CheckpointError for input that
    does not fit, before anything is written, and CommandError with a signal's status if that stopped the run, which is
    then saved."""
    last, best, losses = (out / name for name in (LAST, BEST, LOSSES))
    with contextlib.ExitStack() as held:
        tensors, saved = saved_run(out, held) if resume else ({}, {})
        settings = settings_for(out, typed, preset, texts, saved)
        if not resume:
            refuse_another(out)
        corpus = read_text(out, settings, saved, texts)
        suited = {} if saved or preset else recipe.suited(len(corpus), DEFAULTS["steps"])
        settings |= (chosen := {k: v for k, v in suited.items() if k not in typed and settings[k] != v})
        run = Run(settings, corpus, device, captured)
        if saved:
            run.restore(tensors, saved)
            if saved.get("crc", run.crc) != run.crc:
                cli.note("the text has changed since the run began; the new text is used")
        if not best.exists():  # it was deleted or not copied: the best starts over
            run.best_loss = None
        begin_writing(out, held, new=not saved)
        if not saved:
            run.save(last)
        start, steps, columns = run.done, settings["steps"], ("step", "train", "val", "lr", "grad_norm")
        tokens = settings["batch_size"] * settings["block_size"]
        with (
            Table(losses, columns, keep=start) as table,
            Interrupt() as interrupt,
            Progress(start, steps, tokens) as progress,
        ):
            about = f"{len(corpus):,} characters, {len(run.vocab)} different"
            progress.say(f"{about}; {run.model.num_parameters():,} parameters")
            if chosen:
                progress.say(f"for so short a text: {', '.join(f'{name} {value}' for name, value in chosen.items())}")
            if saved and start == steps:
                progress.say("nothing is left to train: the run is complete")
            trained: list[float] = []  # losses since the last validation
            while run.done < steps:
                loss, norm, lr = run.step()
                val_loss: float | None = None
                trained.append(loss)
                progress.step(run.done, loss)
                if due := run.done % settings["eval_every"] == 0 or run.done == steps:
                    progress.note("validating")
                    val_loss = run.validate()
                    progress.note(f"val {val_loss:.3f}")
                    mean = sum(trained) / len(trained)
                    trained.clear()
                    progress.say(f"step {run.done}: training loss {mean:.4f}, validation loss {val_loss:.4f}")
                    if math.isfinite(val_loss):
                        progress.say(f"    {run.sample()}")
                stopping = bool(interrupt.asked or progress.broken)  # read once: a signal may come at any time
                if (due or stopping) and not all(p.isfinite().all() for p in run.parameters):
                    raise diverged(run, f"step {run.done}: some weights are no longer finite")
                if val_loss is not None and not math.isfinite(val_loss):
                    raise diverged(run, f"step {run.done}: validation loss {val_loss}")
                try:
                    table.row(run.done, loss, val_loss, lr, norm)
                    if due or stopping:
                        improved = val_loss is not None and (run.best_loss is None or val_loss < run.best_loss)
                        run.best_loss = val_loss if improved else run.best_loss
                        table.flush()
                        run.save(*[best, last] if improved else [last])
                except OSError as error:
                    why = f"cannot save step {run.done} in {out}: {error.strerror}"
                    raise CommandError(f"{why}; step {run.kept} is saved: make room, then --resume") from None
                if stopping:
                    break
        if interrupt.asked:
            line = again(device, "train", "--resume", "--out", out)
            raise CommandError(f"stopped and saved at step {run.done}; go on with: {line}", status=interrupt.status)
        if progress.broken:
            raise progress.broken
        if run.best_loss is None:  # it was stopped before its first validation, and resumed with no steps left
            run.best_loss = run.validate()
            run.save(best, last)
    return run


def diverged(run, why):
    return CommandError(f"{why}: try a lower --lr; step {run.kept} is saved", status=1)


def begin_writing(out, held, new):
    cli.folder_to_write(out, "--out")
    for path in (out / name for name in (LAST, BEST, LOSSES, PICTURE)):
        if path.is_dir():
            raise CommandError(f"{path} is a folder, but a file is to be written there: choose another --out")
    if new:
        claim(out, held)
        refuse_another(out)  # again: another process may have begun one since


def claim(out, held):
    """Keep other processes out of the run folder until `held` is closed."""
    try:
        held.enter_context(claimed(out))
    except BlockingIOError:
        raise CommandError(f"another process trains in {out} now: choose another --out") from None


def refuse_another(out):
    if any((out / name).exists() for name in (LAST, BEST, LOSSES)):
        raise CommandError(f"{out} already holds a run: go on with --resume, or choose another --out")


def again(device, *words):
    """The command line for a command on the same device."""
    return cli.typed(*words, *([] if device == "cpu" else ["--device", device]))


def build(settings, vocab, device):
    """The model. Raises CommandError for sizes that do not fit together, or that this machine cannot hold."""
    n_layer, C, nh, V = settings["n_layer"], settings["n_embd"], settings["n_head"], len(vocab)
    if C % nh:
        raise CommandError(f"--n-embd {C} is not a multiple of --n-head {nh}")
    if settings["muon"] and C // nh % 2:
        raise CommandError(f"--n-embd {C} over --n-head {nh} gives heads of odd size, for which there is only --muon 0")
    parameters = 12 * n_layer * C**2 + (V + settings["block_size"]) * C
    activations = settings["batch_size"] * settings["block_size"] * (16 * n_layer * C + 2 * V)
    needed = 4 * (4 * parameters + activations)  # bytes, at least: float32 weights, gradients and AdamW's two moments
    if device == "cpu" and needed > text.memory():
        raise CommandError(
            f"to train {parameters:,} parameters on batches of {settings['batch_size']} blocks takes at least "
            f"{needed / 1e9:,.0f} GB of memory; this machine has {text.memory() / 1e9:.0f}"
        )
    return recipe.model(settings, V).to(device)


def saved_run(out, held):
    """(tensors, meta) of a run to resume, after claiming its folder and checking that the file holds one."""
    if out.is_dir():
        claim(out, held)
    path = out / LAST
    if not path.exists():
        raise CommandError(f"there is no checkpoint {path} to resume from: begin a run without --resume")
    tensors, saved = runs.load_run(path, DEFAULTS)
    for name, (default, _, limits) in SETTINGS.items():
        if wrong := cli.out_of_limits(saved["settings"].get(name, default), **limits):
            raise CommandError(f"{path} holds no run to go on with: its {name} {wrong}")
    return tensors, saved


def settings_for(out, typed, preset, texts, saved):
    """The settings of a run. preset: a name of PRESETS, or None. saved: what its checkpoint says, or {}."""
    old = {"muon": 0} | saved.get("settings", {}) if saved else {}  # earlier runs had nanoGPT's recipe
    chosen = old | PRESETS.get(preset, {}) | typed
    settings = DEFAULTS | ({} if chosen.get("muon", DEFAULTS["muon"]) else ADAMW) | chosen
    if texts:
        settings["text"] = [os.path.abspath(path) for path in texts]
    changed = [
        f"{k} {old[k]}, not {settings[k]}" for k in (*SHAPE, "muon", "seed") if k in old and old[k] != settings[k]
    ]
    if changed:
        other = "resume it as it is, or choose another --out"
        raise CommandError(f"the run in {out} has {'; '.join(changed)}: {other}")
    if saved and settings["steps"] < (step := saved["step"]):
        raise CommandError(
            f"the run in {out} is at step {step} already, and --steps counts all steps, so {settings['steps']} "
            f"leave nothing to do: give a larger number, such as --steps {step + settings['steps']}"
        )
    return settings


def read_text(out, settings, saved, texts):
    try:
        corpus = text.read_corpus(settings["text"])
    except OSError as error:
        hint = f": the run in {out} began with it; if it has moved, say where it is now with --text"
        raise CommandError(cli.said(error) + (hint if saved and not texts else "")) from None
    if saved and not settings["text"] and saved.get("crc", 0) not in (0, zlib.crc32(corpus.encode())):
        raise CommandError(f"the run in {out} began with another default text: say where it is with --text")
    return corpus
