"""A checkpoint's model and the text that it reads: the model, batch and loss that the study commands work on."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..autograd import no_grad
from ..base import cli
from ..nn import GPT
from ..study import prediction_losses
from ..tensor import Tensor, tensor
from ..training.runs import load_char_model
from ..training.text import CharVocab, read_corpus, split


@dataclass(eq=False)
class Reading:
    """A model, and a text for it: B sequences of T characters.

    loss(model, *batch): the number that is differentiated. of: its short name, which fits into a sentence. meaning: its
    definition, in words. has_predictions: True if it is the mean loss of the predictions at all positions, False
    for a difference of logits."""

    model: GPT
    vocab: CharVocab
    batch: tuple[Tensor, ...]
    loss: Callable[..., Tensor]
    of: str
    meaning: str
    tokens: list[list[str]]

    @property
    def title(self) -> str:
        return f"{self.meaning}: {self.loss(self.model, *self.batch).item():.4f}"

    @property
    def has_predictions(self) -> bool:
        return len(self.batch) == 2

    @property
    def losses(self) -> np.ndarray | None:
        """The loss of the prediction at each position, (B, T); None if there are no predictions."""
        if not self.has_predictions:
            return None
        with no_grad():
            losses = prediction_losses(self.model, *self.batch)
        return losses.numpy() * losses.numel()

    def sequences(self) -> list[tuple[Tensor, ...]]:
        """The batch as batches of one sequence each."""
        return [tuple(x[b : b + 1] for x in self.batch) for b in range(len(self.tokens))]

    def __str__(self):
        first, *more = self.tokens
        what = f"{1 + len(more)} sequences of {len(first)} characters" if more else repr("".join(first))
        return f"{self.title}\n{what}"


def read(checkpoint, device, text=None, right=None, wrong=None, sequences=1):
    """Return the Reading of a text; without one, of `sequences` spread over the run's validation text.

    The loss is the mean over all characters but the first. With right and wrong, it is the difference of their logits
    after the last character. Raises CommandError for characters that do not fit, and a text that is too short."""
    model, vocab, saved = load_char_model(checkpoint, device)
    model.eval()
    has_pair = right is not None or wrong is not None
    if text is None and has_pair:
        raise cli.CommandError("--right and --wrong need a --text, after which they come")
    ids = _validation_split(checkpoint, vocab, saved) if text is None else vocab.encode(text)  # (n,)
    T = min(model.config.block_size, len(ids) - (not has_pair))
    if T < 1:
        raise cli.CommandError("the text is too short: the model reads one character at least, and predicts one")
    if has_pair:
        loss, of, meaning = _lead(vocab, right, wrong)
        at = np.arange(len(ids) - T, len(ids))[None]  # the last T characters
        arrays = [ids[at]]
    else:
        loss, of, meaning = _mean_loss, "the loss", "loss in nats per character"
        starts = np.arange(0, len(ids) - T, T)  # side by side; the rest at the end is shorter, and is not read
        if text is None:
            starts = starts[np.linspace(0, len(starts) - 1, min(sequences, len(starts))).astype(int)]
        at = starts[:, None] + np.arange(T)
        arrays = [ids[at], ids[at + 1]]
    batch = tuple(tensor(array, device=device) for array in arrays)
    return Reading(model, vocab, batch, loss, of, meaning, [list(vocab.decode(row)) for row in ids[at]])


def _mean_loss(model, x, y):
    return model(x, y)[1]


def _lead(vocab, right, wrong):
    """(loss(model, x), its short name, its meaning): logit(wrong) - logit(right) after the last character."""
    if right == wrong or not all(char in vocab.chars and len(char) == 1 for char in (right or "", wrong or "")):
        raise cli.CommandError("--right and --wrong must be two different characters that the model knows")
    r, w = vocab.encode(right + wrong).tolist()

    def loss(model, x):
        last = model(x)[0][:, -1]  # (B, V)
        return (last[:, w] - last[:, r]).mean()

    meaning = f"logit({wrong!r}) - logit({right!r}) after the last character; {right!r} is right"
    return loss, f"the lead of {wrong!r} over {right!r}", meaning


def _validation_split(checkpoint, vocab, saved):
    """The run's validation text, encoded."""
    if "settings" not in saved:
        raise cli.CommandError(f"{checkpoint} does not say what it was trained on: give a --text")
    corpus = read_corpus(saved["settings"]["text"])
    if zlib.crc32(corpus.encode()) != saved["crc"]:
        cli.note("the run's text has changed since: the part read here may have been trained on")
    return split(vocab.encode(corpus))[1]
