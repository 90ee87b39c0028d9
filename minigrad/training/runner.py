"""A run of `minigrad train`: begun or resumed, trained step by step, and saved.

Read _train first: it is the loop. A Run is a model in training; its step() is one step, save() writes a checkpoint,
restore() reads one. README.md in this folder says when a run is saved; runs.py has the files of its folder.
"""

import contextlib
import dataclasses
import math
import os
import signal
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import distributed, nn
from ..autograd import no_grad
from ..base import cli
from ..base.errors import CommandError, printable
from ..random import Generator, default_generator, manual_seed
from ..replay.captured import capture
from ..tensor import tensor
from ..typing import FilePath
from . import checkpoint, recipe, runs, text
from .loop import Interrupt, Progress, Table
from .recipe import DEFAULTS, PRESETS, SETTINGS
from .runs import BEST, LAST, LOSSES

__all__ = ["SETTINGS", "PRESETS", "DEFAULTS", "Run", "train"]


def train(
    out: Path, given: Mapping[str, Any], *, preset: str | None = None, texts: Sequence[FilePath] = (),
    resume: bool = False, device: str = "cpu", captured: bool = True,
) -> "Run":  # fmt: skip
    """Begin a run in the folder `out`, or continue the run there, and train to its last step.

    given: settings that the user has given. Any other setting is the preset's, or else the resumed run's. A new run
    without a preset then has those that suit the text's length, and everything else is the default. While this trains,
    no other process can train in the folder. Raises CommandError, TextError and CheckpointError for input that does not
    fit, before anything is written. A signal stops the run after its step; the run is saved, and CommandError is raised
    with the signal's status."""
    with contextlib.ExitStack() as held:
        if resume:
            run = _resume(out, given, preset, texts, device, captured, held)
        else:
            run = _begin(out, given, preset, texts, device, captured, held)
        return _train(run, out)


def _begin(out, given, preset, texts, device, captured, held):
    """Return a new run, saved. Its folder is claimed until `held` is closed."""
    if distributed.first():
        runs.refuse_another(out)
    paths = [os.path.abspath(path) for path in texts]
    corpus = text.read_corpus(paths)
    by_length = {} if preset else recipe.settings_for_length(len(corpus))
    run = Run(_settings(by_length, PRESETS.get(preset, {}) | given, paths), corpus, device, captured)
    if distributed.first():
        out.mkdir(parents=True, exist_ok=True)
        runs.claim(out, held)
        runs.refuse_another(out)  # another process may have begun a run since
        run.save(out / LAST)
        run.keep(out)
    return run


def _resume(out, given, preset, texts, device, captured, held):
    """Return the run of a folder as it was saved. The folder is claimed until `held` is closed."""
    last = out / LAST
    if out.is_dir() and distributed.first():
        runs.claim(out, held)
    saved = checkpoint.load(last)
    if not (isinstance(saved, dict) and "settings" in saved):
        raise CommandError(f"{last} holds no run that could continue")
    old, step = saved["settings"], saved["step"]
    chosen = old | PRESETS.get(preset, {}) | given
    changed = [name for name in (*recipe.SHAPE, "muon", "seed") if chosen[name] != old[name]]
    if changed:
        raise CommandError(f"a run that is resumed keeps its {', '.join(changed)}: choose another folder")
    steps = chosen["steps"]
    if steps < step:
        raise CommandError(f"the run in {out} has done {step} steps: give a larger total, such as {step + steps}")
    paths = [os.path.abspath(path) for path in texts] or old["text"]
    run = Run(_settings({}, chosen, paths), text.read_corpus(paths), device, captured)
    run.restore(saved)
    if not (out / BEST).exists():  # it was deleted, or there was no validation yet
        run.best_loss = math.inf
    return run


def _settings(by_length, chosen, paths):
    """Return all settings: those chosen, else those that suit the text's length, else the defaults. Without Muon, some
    defaults are different."""
    adamw = {} if chosen.get("muon", DEFAULTS["muon"]) else recipe.ADAMW
    return DEFAULTS | by_length | adamw | chosen | {"text": paths}


def _train(run, out):
    """Train a run to its last step, or until a signal comes, and return it."""
    settings, last = run.settings, out / LAST
    start, steps, stopping = run.done, settings["steps"], False
    first = distributed.first()  # the process that validates and writes
    with (
        Table(out / LOSSES if first else None, ("step", "train", "val", "lr", "grad_norm"), keep=start) as table,
        Interrupt() as interrupt,
        Progress(start, steps, settings["batch_size"] * settings["block_size"]) as progress,
    ):
        size = f"{run.characters:,} characters, {len(run.vocab)} different; {run.model.num_parameters():,} parameters"
        progress.say(f"{size}; {steps - start:,} steps with dropout {settings['dropout']:g}")
        losses: list[float] = []  # since the last validation
        while run.done < steps and not stopping:
            val_loss: float | None = None
            loss, norm, lr = run.step()
            losses.append(loss)
            progress.step(run.done, loss)
            if first and (run.done % settings["eval_every"] == 0 or run.done == steps):
                val_loss, mean = run.validate(), sum(losses) / len(losses)
                progress.say(f"step {run.done}: training loss {mean:.4f}, validation loss {val_loss:.4f}")
                progress.say(f"    {run.sample()}")
                losses.clear()
            table.row(run.done, loss, val_loss, lr, norm)
            if first:
                run.keep(out)
            # All processes decide together, since a signal may reach them at different steps.
            stopping = distributed.average(bool(interrupt.signal or progress.broken)) > 0
            if first and (val_loss is not None or stopping):
                improved = val_loss is not None and val_loss < run.best_loss
                run.best_loss = min(run.best_loss, math.inf if val_loss is None else val_loss)
                table.flush()
                run.save(*[out / BEST, last] if improved else [last])
    if progress.broken and not interrupt.signal:
        raise BrokenPipeError
    if stopping or interrupt.signal:  # a signal came, perhaps to another process
        raise CommandError(f"stopped and saved at step {run.done}", 128 + (interrupt.signal or signal.SIGTERM))
    if first and run.best_loss == math.inf:  # nothing was left to train
        run.best_loss = run.validate()
        run.save(out / BEST, last)
    return run


class Run:
    """A model in training, with all that its checkpoint holds.

    done: the number of steps done. saved: the step of the last checkpoint. best_loss: the lowest validation loss so
    far. Raises CommandError and TextError for settings and a corpus that do not fit."""

    def __init__(self, settings: dict[str, Any], corpus: str, device: str = "cpu", captured: bool = True) -> None:
        self.settings, self.device, self.done, self.saved, self.best_loss = settings, device, 0, 0, math.inf
        self.steps_to_keep = recipe.steps_to_keep(settings)
        self.vocab, self.characters, self.crc = text.CharVocab(corpus), len(corpus), zlib.crc32(corpus.encode())
        seed, T, B = settings["seed"], settings["block_size"], settings["batch_size"]
        rank, size = distributed.world()
        if B % size:
            raise CommandError(f"batch_size {B} cannot be divided among {size} processes")
        self.part = slice(rank * B // size, (rank + 1) * B // size)  # rows of this process
        train_ids, val_ids = text.split(self.vocab.encode(corpus))
        # Batches have their own generator, so that dropout does not change which batches come.
        self.batches = text.Batches(train_ids, T, B, Generator(seed + 2**32), "training split")
        self.val_batches = text.fixed_batches(val_ids, T, B, settings["eval_batches"], "validation split")
        manual_seed(seed)  # for the initial weights, which are the same in all processes
        with cli.as_command_errors(ValueError):
            self.model = model = recipe.model(settings, len(self.vocab)).to(device)
        self.optimizer = optimizer = recipe.optimizer(model, settings)
        self.shares = [group["lr"] for group in optimizer.param_groups]  # each group's share of the learning rate
        self._separate_dropout()
        maybe_capture: Callable[..., Any] = capture if captured else lambda function: function
        self._train_step = _train_step(model, optimizer, settings["clip"] or math.inf, maybe_capture)
        self._loss_of = maybe_capture(lambda x, y: model(x, y)[1])

    def _separate_dropout(self) -> None:
        """Make dropout draw other numbers in each process."""
        rank, _ = distributed.world()
        if rank:
            default_generator.state = default_generator.state | {"seed": self.settings["seed"] + rank * 2**34}

    def step(self) -> tuple[float, float, float]:
        """Train on the next batch. Return (loss, norm of the gradient, learning rate)."""
        lr = recipe.rate(self.done, self.settings)
        recipe.set_rates(self.optimizer, self.shares, self.done, lr)
        x, y = (tensor(ids[self.part], device=self.device) for ids in next(self.batches))  # (B, T): y is one later
        loss, norm = (distributed.average(number.item()) for number in self._train_step(x, y))
        self.check_finite(loss + norm, f"loss {loss}, gradient norm {norm}")
        self.done += 1
        return loss, norm, lr

    def check_finite(self, number: float, shown: str) -> None:
        """Raise CommandError if a number is NaN or infinite: training has diverged. shown: the number, in words."""
        if not math.isfinite(number):
            raise CommandError(f"step {self.done}: {shown}: try a lower lr; step {self.saved} is saved", status=1)

    @no_grad()
    def validate(self) -> float:
        """Return the mean loss over the validation split, in nats per character. No random numbers are drawn. Raises
        CommandError if the loss is not finite."""
        total = 0.0
        with nn.utils.evaluating(self.model):
            for x, y in self.val_batches:
                loss = self._loss_of(tensor(x, device=self.device), tensor(y, device=self.device))
                total += loss.item() * x.size
        mean = total / sum(x.size for x, _ in self.val_batches)
        self.check_finite(mean, f"validation loss {mean}")
        return mean

    def sample(self, tokens: int = 100) -> str:
        """Return some text that the model writes, on one line. Its random numbers come from a separate stream."""
        idx = tensor(self.vocab.encode(self.vocab.beginning)[None], device=self.device)
        generator = Generator(self.settings["seed"] + 3 * 2**32)
        try:
            written = self.model.generate(idx, tokens, temperature=0.8, generator=generator)
        except FloatingPointError as error:  # weights so large that the logits overflow
            return f"({error})"
        return printable(" ".join(self.vocab.decode(written.numpy()[0]).split()))

    def save(self, *paths: Path) -> None:
        """Write the run to each of the paths. Raises CommandError, and writes nothing, if a weight is not finite."""
        about = self._checked_about()
        generators = {"default": default_generator, "batches": self.batches.generator}
        for path in paths:
            checkpoint.save({"model": self.model, "optimizer": self.optimizer, **generators, **about}, path)
        self.saved = self.done

    def keep(self, folder: Path) -> None:
        """Write the model to a checkpoint of its own, if the settings want one of this step."""
        if self.done in self.steps_to_keep:
            checkpoint.save({"model": self.model, **self._checked_about()}, runs.kept_at(folder, self.done))

    def _checked_about(self) -> dict[str, Any]:
        """Return all numbers and words of a checkpoint. Raises CommandError if a weight is not finite."""
        if not all(p.isfinite().all() for p in self.model.parameters()):
            self.check_finite(math.nan, "some weights are no longer finite")
        about = dict(step=self.done, best_loss=self.best_loss, settings=self.settings, chars=self.vocab.chars)
        return about | dict(crc=self.crc, config=dataclasses.asdict(self.model.config))

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue a saved run. Options of the optimizer given now, such as weight_decay, replace the saved ones."""
        if saved["chars"] != self.vocab.chars:
            changed = sorted(set(saved["chars"]) ^ set(self.vocab.chars))
            raise CommandError(f"the text has other characters than the run: {' '.join(map(repr, changed[:10]))}")
        if saved["crc"] != self.crc:
            cli.note("the text has changed since the run began; the new text is used")
        options = [{name: value for name, value in g.items() if name != "params"} for g in self.optimizer.param_groups]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for group, given in zip(self.optimizer.param_groups, options):
            group.update(given)
        default_generator.state, self.batches.generator.state = saved["default"], saved["batches"]
        self._separate_dropout()
        self.done = self.saved = saved["step"]
        self.best_loss = saved["best_loss"]


def _train_step(model, optimizer, clip, maybe_capture):
    """Return a function of a batch that makes a step and returns (loss, norm of the gradient)."""

    def backward(x, y):
        _, loss = model(x, y)  # (B, T, V), ()
        loss.backward()
        return loss

    def update():
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()  # last: gradients that outlive a captured step must be copied out of its memory
        return norm

    if distributed.world()[1] == 1:
        return maybe_capture(lambda x, y: (backward(x, y), update()))
    backward, update = maybe_capture(backward), maybe_capture(update)  # two captured steps, the exchange between them

    def step(x, y):
        loss = backward(x, y)
        distributed.average_gradients_(model.parameters())
        return loss, update()

    return step
