"""`minigrad train`: a character model trained so that nothing is lost.

A run's folder has last.safetensors (everything that resuming needs), best.safetensors (the lowest validation loss) and
losses.csv. On a signal the step finishes and the run is saved; resumed, it ends with the same bits as one that never
stopped.
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
from ..base.files import claimed
from ..random import Generator, default_generator, manual_seed
from ..replay.captured import capture
from ..tensor import Tensor, tensor
from ..typing import FilePath
from . import checkpoint, recipe, text
from .loop import Interrupt, Progress, Table
from .recipe import DEFAULTS, PRESETS, SETTINGS
from .runs import BEST, LAST

__all__ = ["SETTINGS", "PRESETS", "DEFAULTS", "Run", "train"]

LOSSES = "losses.csv"


class Run:
    """A model in training: its checkpoint's contents, and its step.

    done: steps done. kept: those saved. best_loss: the lowest validation loss so far. Raises CommandError and TextError
    for settings and a corpus that do not fit."""

    def __init__(self, settings: dict[str, Any], corpus: str, device: str = "cpu", captured: bool = True) -> None:
        self.settings, self.device, self.done, self.kept, self.best_loss = settings, device, 0, 0, math.inf
        self.vocab, self.characters, self.crc = text.CharVocab(corpus), len(corpus), zlib.crc32(corpus.encode())
        seed, T, B = settings["seed"], settings["block_size"], settings["batch_size"]
        rank, size = distributed.world()
        if B % size:
            raise CommandError(f"batch_size {B} cannot be divided among {size} processes")
        self.part = slice(rank * B // size, (rank + 1) * B // size)  # rows of this process
        train_ids, val_ids = text.split(self.vocab.encode(corpus))
        # Batches draw from a generator of their own.
        self.batches = text.Batches(train_ids, T, B, Generator(seed + 2**32), "training split")
        self.val_batches = text.fixed_batches(val_ids, T, B, settings["eval_batches"], "validation split")
        manual_seed(seed)  # seeds the initial weights, which are the same in all processes
        with cli.refusing(ValueError):
            self.model = model = recipe.model(settings, len(self.vocab)).to(device)
        self.optimizer = optimizer = recipe.optimizer(model, settings)
        self.shares = [group["lr"] for group in optimizer.param_groups]  # each group's share of the learning rate
        self._own_stream()

        def backward(x: Tensor, y: Tensor) -> Tensor:
            _, loss = model(x, y)  # (B, T, V), ()
            loss.backward()
            return loss

        def update() -> Tensor:
            norm = nn.utils.clip_grad_norm_(model.parameters(), settings["clip"] or math.inf)
            optimizer.step()
            optimizer.zero_grad()  # last: gradients that outlived a captured step would be copied out of its memory
            return norm

        may_capture: Callable[..., Any] = capture if captured else lambda function: function
        if size == 1:
            self._train_step = may_capture(lambda x, y: (backward(x, y), update()))
        else:  # two captured steps, and the exchange between them
            backward, update = may_capture(backward), may_capture(update)

            def train_step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
                loss = backward(x, y)
                distributed.average_gradients_(model.parameters())
                return loss, update()

            self._train_step = train_step
        self._loss_of = may_capture(lambda x, y: model(x, y)[1])

    def _own_stream(self) -> None:
        """Let dropout draw other numbers in each process."""
        if rank := distributed.world()[0]:
            default_generator.state = default_generator.state | {"seed": self.settings["seed"] + rank * 2**34}

    def step(self) -> tuple[float, float, float]:
        """Train on the next batch. Returns (loss, norm of the gradient, learning rate)."""
        lr = recipe.rate(self.done, self.settings)
        recipe.set_rates(self.optimizer, self.shares, self.done, lr)
        x, y = (tensor(ids[self.part], device=self.device) for ids in next(self.batches))  # (B, T): y is one later
        loss, norm = (distributed.average(number.item()) for number in self._train_step(x, y))
        self.check_finite(loss + norm, f"loss {loss}, gradient norm {norm}")
        self.done += 1
        return loss, norm, lr

    def check_finite(self, number: float, shown: str) -> None:
        """Raise CommandError for NaN and infinity: training has diverged."""
        if not math.isfinite(number):
            raise CommandError(f"step {self.done}: {shown}: try a lower lr; step {self.kept} is saved", status=1)

    @no_grad()
    def validate(self) -> float:
        """The mean loss over the validation split, in nats per character. Draws no random numbers. Raises CommandError
        if it is not finite."""
        total = 0.0
        with nn.utils.evaluating(self.model):
            for x, y in self.val_batches:
                loss = self._loss_of(tensor(x, device=self.device), tensor(y, device=self.device))
                total += loss.item() * x.size
        mean = total / sum(x.size for x, _ in self.val_batches)
        self.check_finite(mean, f"validation loss {mean}")
        return mean

    def sample(self, tokens: int = 100) -> str:
        """A sample of the model's text, on one line. Random numbers come from a separate stream."""
        idx = tensor(self.vocab.encode(self.vocab.beginning)[None], device=self.device)
        generator = Generator(self.settings["seed"] + 3 * 2**32)
        try:
            written = self.model.generate(idx, tokens, temperature=0.8, generator=generator)
        except FloatingPointError as error:  # weights so large that the logits overflow
            return f"({error})"
        return printable(" ".join(self.vocab.decode(written.numpy()[0]).split()))

    def save(self, *paths: Path) -> None:
        """Write the run to each of the paths. Raises CommandError, and writes nothing, if a weight is not finite."""
        if not all(p.isfinite().all() for p in self.model.parameters()):
            self.check_finite(math.nan, "some weights are no longer finite")
        generators = {"default": default_generator, "batches": self.batches.generator}
        about = dict(step=self.done, best_loss=self.best_loss, settings=self.settings, chars=self.vocab.chars)
        about |= dict(crc=self.crc, config=dataclasses.asdict(self.model.config))
        for path in paths:
            checkpoint.save({"model": self.model, "optimizer": self.optimizer, **generators, **about}, path)
        self.kept = self.done

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue a saved run. Options of the optimizer given now, such as weight_decay, override saved ones."""
        if saved["chars"] != self.vocab.chars:
            changed = sorted(set(saved["chars"]) ^ set(self.vocab.chars))
            raise CommandError(f"the text has other characters than the run: {' '.join(map(repr, changed[:10]))}")
        if saved["crc"] != self.crc:
            cli.note("the text has changed since the run began; the new text is used")
        options = [{name: value for name, value in g.items() if name != "params"} for g in self.optimizer.param_groups]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for group, typed in zip(self.optimizer.param_groups, options):
            group.update(typed)
        default_generator.state, self.batches.generator.state = saved["default"], saved["batches"]
        self._own_stream()
        self.done = self.kept = saved["step"]
        self.best_loss = saved["best_loss"]


def train(
    out: Path, typed: Mapping[str, Any], *, preset: str | None = None, texts: Sequence[FilePath] = (),
    resume: bool = False, device: str = "cpu", captured: bool = True,
) -> Run:  # fmt: skip
    """Begin a run in the folder `out`, or continue the one there, to its last step. Typed settings override the preset,
    that the resumed run's settings, and these the defaults.

    Meanwhile no other process can train there. Raises CommandError, TextError and CheckpointError for input that does
    not fit, before anything is written, and CommandError with a signal's status if that stopped the run, which is then
    saved."""
    with contextlib.ExitStack() as held:
        if resume:
            run = _resumed(out, typed, preset, texts, device, captured, held)
        else:
            run = _begun(out, typed, preset, texts, device, captured, held)
        return _trained(run, out)


def _begun(out, typed, preset, texts, device, captured, held):
    """A new run, saved. Its folder is claimed until `held` is closed."""
    if distributed.first():
        _refuse_another(out)
    paths = [os.path.abspath(path) for path in texts]
    corpus = text.read_corpus(paths)
    suited = {} if preset else recipe.suited(len(corpus))
    run = Run(_settings(suited, PRESETS.get(preset, {}) | typed, paths), corpus, device, captured)
    if distributed.first():
        out.mkdir(parents=True, exist_ok=True)
        _claim(out, held)
        _refuse_another(out)  # another process may have begun one since
        run.save(out / LAST)
    return run


def _resumed(out, typed, preset, texts, device, captured, held):
    """The run in a folder, where it was saved. The folder is claimed until `held` is closed."""
    last = out / LAST
    if out.is_dir() and distributed.first():
        _claim(out, held)
    saved = checkpoint.load(last)
    if not (isinstance(saved, dict) and "settings" in saved):
        raise CommandError(f"{last} holds no run to go on with")
    old, step = saved["settings"], saved["step"]
    chosen = old | PRESETS.get(preset, {}) | typed
    if changed := [name for name in (*recipe.SHAPE, "muon", "seed") if chosen[name] != old[name]]:
        raise CommandError(f"a run that is resumed keeps its {', '.join(changed)}: choose another folder")
    if (steps := chosen["steps"]) < step:
        raise CommandError(f"the run in {out} has done {step} steps: give a larger total, such as {step + steps}")
    paths = [os.path.abspath(path) for path in texts] or old["text"]
    run = Run(_settings({}, chosen, paths), text.read_corpus(paths), device, captured)
    run.restore(saved)
    if not (out / BEST).exists():  # it was deleted, or there was no validation yet
        run.best_loss = math.inf
    return run


def _settings(suited, chosen, paths):
    adamw = {} if chosen.get("muon", DEFAULTS["muon"]) else recipe.ADAMW
    return DEFAULTS | suited | adamw | chosen | {"text": paths}


def _claim(out, held):
    try:
        held.enter_context(claimed(out))
    except BlockingIOError:
        raise CommandError(f"another process trains in {out} now: choose another folder") from None


def _refuse_another(out):
    if any((out / name).exists() for name in (LAST, BEST, LOSSES)):
        raise CommandError(f"{out} already holds a run: resume it, or choose another folder")


def _trained(run, out):
    """The run after its last step, or after a signal."""
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
            # Read once: a signal may come at any time, and to the processes at different ones.
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
