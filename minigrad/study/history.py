"""The heads of a model over its training: numbers of the models of several steps, side by side.

    history = study.history(((step, load_model(step)) for step in steps), (x, y))
    print(history.table("0.3"))

For each head there are its scores (previous token, duplicate token, induction), the parts of its gate gradient by the
input of the later part that sends them, as Flow.by_input has them, and how far the next step moves its attention
towards the previous token, as Lesson.bands has it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.tables import columns
from ..tensor import Tensor
from ..typing import Array
from .flow import flow
from .importance import returned_loss
from .layers import attention_layers, numbers_of_heads
from .lesson import lessons
from .names import head_of, part_of
from .scores import KINDS, head_scores, largest_period

if TYPE_CHECKING:
    from ..nn.module import Module

SCORES, GRADIENT, BANDS = "scores", "gate_grad", "lesson"  # groups of series
BY_INPUT = "q", "k", "v", "mlp", "logits"
SERIES = {SCORES: [*KINDS], GRADIENT: [*BY_INPUT, "total"], BANDS: [*BY_INPUT, "all"]}


@dataclass(eq=False)
class History:
    """Numbers of each head at several steps of a training.

    steps: in the order in which the models were given. losses (steps,): the loss of each model. series: {"scores",
    "gate_grad" or "lesson": {name, as in SERIES: {path of an attention layer: (steps, nh)}}}. A number is nan if it is
    not known, and 0 for an input that no later part has."""

    steps: list[int]
    losses: Array
    series: dict[str, dict[str, dict[str, Array]]]

    def __getitem__(self, head: str) -> dict[str, dict[str, Array]]:
        """{group: {name: (steps,)}} of a head, such as "0.3". Raises KeyError for an unknown head."""
        first = next(iter(self.series[SCORES].values()))
        path, number = head_of(head, {path: range(x.shape[1]) for path, x in first.items()})
        return {
            group: {name: numbers[path][:, number] for name, numbers in of_group.items()}
            for group, of_group in self.series.items()
        }

    def table(self, head: str) -> str:
        """Return the numbers of a head as text, with a row for each step. Raises KeyError for an unknown head."""
        found = self[head]
        blocks = []
        for group, of_group in found.items():
            rows = [["step", "loss", *of_group]]
            for i, (step, loss) in enumerate(zip(self.steps, self.losses)):
                numbers = (f"{x[i]:+.2g}" if group != SCORES else f"{x[i]:.2f}" for x in of_group.values())
                rows.append([str(step), f"{loss:.4f}", *numbers])
            blocks += [f"{group} of head {head}", *columns(rows, right=range(len(rows[0]))), ""]
        return "\n".join(blocks[:-1])


def history(
    models: "Iterable[tuple[int, Module]]",
    batch: Sequence[Any],
    loss: Callable[..., Tensor] = returned_loss,
    periods: Sequence[int] = (9, 16),
) -> History:
    """Return the History of models (step, Module) on one batch, for loss(model, *batch).

    models: of one architecture; a generator keeps only one of them in memory at a time. periods: for head_scores; those
    that do not fit into the models are left out, and without any the scores are nan. The others are to first order.
    Each model takes two forwards and backwards, and those of head_scores. Models and errors are those of study.flow;
    raises ValueError if there are no models, or if they have different heads."""
    steps, losses, rows = [], [], []
    for step, model in models:
        steps.append(int(step))
        value, row = _numbers(model, batch, loss, periods)
        losses.append(value)
        rows.append(row)
    if not rows:
        raise ValueError("history needs at least one model")
    shapes = [{path: x.shape for path, x in row[SCORES]["previous"].items()} for row in rows]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("history needs models with the same attention layers and heads")
    series = {
        group: {
            name: {path: np.stack([row[group][name][path] for row in rows]) for path in shapes[0]} for name in names
        }
        for group, names in SERIES.items()
    }
    return History(steps, np.array(losses), series)


def _numbers(model, batch, loss, periods):
    """(loss, {group: {name: {path: (nh,)}}}) of one model."""
    heads = numbers_of_heads(attention_layers(model))
    found = {
        group: {name: {path: np.full(len(heads[path]), np.nan) for path in heads} for name in names}
        for group, names in SERIES.items()
    }
    fitting = [p for p in periods if p <= largest_period(model)]
    if fitting:
        scores = head_scores(model, periods=fitting)
        found[SCORES] = {kind: dict(scores[kind]) for kind in KINDS}
    edges = flow(model, batch, loss)
    for part in edges.sources:
        if part.head is not None:
            _fill(found[GRADIENT], part, edges.by_input(part))
    for each in lessons(model, batch, loss):
        _fill(found[BANDS], part_of(each.head, heads), each.bands())
    return edges.loss, found


def _fill(group, part, numbers):
    """Write the numbers of a head, {name: number}, into a group, with 0 for names that it lacks."""
    for name, of_name in group.items():
        of_name[part.path][part.head] = numbers.get(name, 0.0)
