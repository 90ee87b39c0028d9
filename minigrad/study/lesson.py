"""The lesson of a training step: how one step of gradient descent changes the scores of a head.

A step with learning rate η changes W_Q by -η dW_Q, and W_K by -η dW_K. To first order, the score
S_ij = s (x_i W_Q)(x_j W_K)ᵀ of query i for key j then changes by η times

    lesson_ij = -s (x_i dW_Q (x_j W_K)ᵀ + x_i W_Q (x_j dW_K)ᵀ)

Here x_i are rows for positions or for tokens. Biases are included if the layer has them. A positive lesson_ij means:
after the step, query i attends more to key j. The softmax ignores a constant in a row, so the mean over the keys that
a query sees is subtracted.

dW_Q and dW_K are sums over all later parts that send a gradient to the head, so the lesson is such a sum too. `by` has
its summands: of the Q, K and V of later heads, of MLPs, and of the logits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.tables import columns
from ..nn.positions import rotary
from ..tensor import Tensor, tensor
from .importance import returned_loss
from .layers import as_float64, before_rotary
from .names import head_of
from .stream import RTOL, Pass, Write, kind_of_input, not_a_stream_error, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

MAX_TOKENS = 100  # the most frequent tokens of the batch that a Lesson compares


@dataclass(eq=False)
class Lesson:
    """The change of a head's scores by a step with learning rate 1, to first order, each row minus its mean.

    head: its name. positions (T, T): for query i and key j, 0 where the query does not see the key. by: {"q", "k", "v",
    "mlp", "logits": (T, T)}, the summands of `positions` whose gradient came through these inputs of later parts.
    tokens (n, n): for pairs of the n most frequent tokens of the batch. token_ids (n,): these tokens. Both are empty if
    the tokens are unknown."""

    head: str
    positions: np.ndarray
    by: dict[str, np.ndarray]
    tokens: np.ndarray
    token_ids: np.ndarray

    def band(self, by: str | None = None) -> float:
        """Return how much of the lesson is "attend to the previous token": the mean just below the diagonal, from query
        2 on, divided by the mean absolute value of all visible cells. nan if that is 0. by: only this summand."""
        change = self.positions if by is None else self.by[by]
        size = self._mean_size(change)
        return _below_diagonal(change) / size if size else float("nan")

    def bands(self) -> dict[str, float]:
        """Return {"q", "k", "v", "mlp", "logits", "all": previous-token band} in one unit, the mean absolute value of
        the visible cells of the whole lesson: the bands of the summands add up to that of all. nan if the unit is 0."""
        size = self._mean_size(self.positions) or float("nan")
        summands = {name: _below_diagonal(change) / size for name, change in self.by.items()}
        return summands | {"all": sum(summands.values())}

    def _mean_size(self, change):
        return float(np.abs(change).sum() / max(np.count_nonzero(self.positions), 1))

    def __str__(self) -> str:
        rows = [["through", "previous-token band", "mean size"]]
        for name, change in [*self.by.items(), ("all", self.positions)]:
            band = self.band(None if name == "all" else name)
            rows.append([name, f"{band:+.2f}", f"{self._mean_size(change):.2e}"])
        return "\n".join([f"the lesson of a step for head {self.head}", *columns(rows, right=[1, 2])])


def _below_diagonal(change):
    """The mean of the cells (i, i - 1) from query 2 on; nan if there are none."""
    cells = np.diag(change, -1)[1:]
    return float(cells.mean()) if cells.size else float("nan")


def lesson(model: "Module", batch: Sequence[Any], head: str, loss: Callable[..., Tensor] = returned_loss) -> Lesson:
    """Return the Lesson of one step of gradient descent on loss(model, *batch) for a head, such as "0.3".

    In the first layer of a model without norms, the rows x of positions and tokens are their embeddings. In other
    layers they are averages of the layer's input: for a position, over the sequences; for a token, over all its places.
    Rotary positions are the same for both tokens of a pair.

    Limits: first order only; gradient descent, while Adam takes another step; and the change of the inputs x by the
    same step is left out. One forward and one backward. Models and errors are those of study.flow."""
    measured = Pass(model, stream_of(model), batch, loss)
    layers = {sublayer.path: sublayer for sublayer in measured.stream.sublayers if sublayer.is_attention}
    path, number = head_of(head, {path: measured.trace_of(layer).heads for path, layer in layers.items()})
    if not measured.trace_of(layers[path]).has_grads:
        raise ValueError(f"the loss does not depend on {path or 'the layer'}")
    (found,) = _lessons_of_layer(measured, layers[path], [number])
    return found


def lessons(
    model: "Module", batch: Sequence[Any], loss: Callable[..., Tensor] = returned_loss,
    heads: Iterable[str | tuple[str, int]] | None = None,
) -> list[Lesson]:  # fmt: skip
    """Return the Lessons of several heads, by one forward and one backward. heads: their names, in any order; None: all
    heads that the loss depends on. The Lessons are in the order of the heads in the model. See lesson()."""
    measured = Pass(model, stream_of(model), batch, loss)
    layers = [sublayer for sublayer in measured.stream.sublayers if sublayer.is_attention]
    numbers = {layer.path: measured.trace_of(layer).heads for layer in layers}
    wanted = None if heads is None else {head_of(head, numbers) for head in heads}
    found = []
    for layer in layers:
        of_layer = [h for h in numbers[layer.path] if wanted is None or (layer.path, h) in wanted]
        if of_layer and measured.trace_of(layer).has_grads:
            found += _lessons_of_layer(measured, layer, of_layer)
    return found


def _lessons_of_layer(measured, sublayer, numbers):
    """The Lessons of some heads of an attention layer in a Pass."""
    trace, found = measured.trace_of(sublayer), []
    positions, tokens, ids = _positions_and_tokens(measured, sublayer)
    upstream = _upstream(measured, sublayer)
    for number in numbers:
        scores, visible = _Scores(trace, number), (trace.pattern[:, number] > 0).any(0)  # (T, T)
        by = {}
        for kind, dy in upstream.items():
            dq, dk = scores.gradients(dy)
            by[kind] = _centred(scores.change(positions, dq, dk, at_positions=True), visible)
        dq, dk = scores.gradients(sum(upstream.values()))
        of_tokens = scores.change(tokens, dq, dk, at_positions=False)
        of_tokens = _centred(of_tokens, np.ones(of_tokens.shape, bool))
        found.append(Lesson(str(sublayer.head(number)), sum(by.values()), by, of_tokens, ids))
    return found


class _Scores:
    """The scores of a head as a function of its W_Q and W_K. A bias is one more row of a weight, for an input of 1."""

    def __init__(self, trace, number):
        layer, self.trace, self.head = trace.layer, trace, number
        group = layer.kv_of_head[number]
        self.group_heads = [h for h, kv in enumerate(layer.kv_of_head) if kv == group]  # all heads that share this W_K
        b_q, b_k, _ = layer.biases()
        self.has_bias = b_q is not None
        self.W_Q, self.W_K = trace.W_Q[number], trace.W_K[number]  # (C, d_k) each
        if self.has_bias:
            self.W_Q = np.vstack([self.W_Q, as_float64(b_q).reshape(-1, layer.d_k)[number]])
            self.W_K = np.vstack([self.W_K, as_float64(b_k).reshape(-1, layer.d_k)[group]])
        self.x = self._with_ones(as_float64(trace.x_q))  # (B, T, C) or (B, T, C + 1)

    def _with_ones(self, x):
        return np.concatenate([x, np.ones((*x.shape[:-1], 1))], -1) if self.has_bias else x

    def gradients(self, dy):
        """Return dq of the head, and dk summed over all heads that share its keys, from the gradient dy (B, T, C) of
        the layer's output. Each is (B, T, d_k), before rotary positions."""
        dq, _ = self._backward([self.head], dy)
        _, dk = self._backward(self.group_heads, dy)
        return dq, dk

    def _backward(self, heads, dy):
        """dq and dk, each (B, T, d_k), summed over some heads."""
        q, k, v, P = (as_float64(getattr(self.trace, name)[:, heads]) for name in ("q", "k", "v", "pattern"))
        dz = dy[:, None] @ self.trace.W_O[heads].swapaxes(1, 2)  # (B, n, T, d_v)
        dP = dz @ v.swapaxes(2, 3)
        dS = P * (dP - (P * dP).sum(-1, keepdims=True))
        dq, dk = self.trace.scale * dS @ k, self.trace.scale * dS.swapaxes(2, 3) @ q
        if self.trace.layer.positions == "rotary":
            dq, dk = before_rotary(dq), before_rotary(dk)
        return dq.sum(1), dk.sum(1)

    def change(self, rows, dq, dk, at_positions):
        """Return the change of the scores (n, n) between rows x (n, C), as queries and as keys, by a step against the
        gradients dq and dk. at_positions: True if the rows stand at positions 0, 1, …, which matters to rotary ones."""
        rows = self._with_ones(rows)
        dq_rows, dk_rows = (rows @ np.tensordot(self.x, dy, ([0, 1], [0, 1])) for dy in (dq, dk))  # rows @ dW
        values = [rows @ self.W_Q, rows @ self.W_K, dq_rows, dk_rows]
        if at_positions and self.trace.layer.positions == "rotary":
            values = [rotary(tensor(x)).numpy() for x in values]
        q, k, dq_rows, dk_rows = values
        return -self.trace.scale * (dq_rows @ k.T + q @ dk_rows.T)


def _upstream(measured, sublayer):
    """{"q", "k", "v", "mlp" or "logits": (B, T, C)}: the summands of the gradient of a sublayer's output in a Pass, by
    the kind of input that reads it."""
    shape, sums, size = measured.x[measured.stream.start].shape, {}, 0.0
    for b in range(shape[0]):
        has_written = False
        for event in measured.events(b):
            if isinstance(event, Write):
                has_written = has_written or event.parts[0].path == sublayer.path
            elif has_written:
                sums.setdefault(kind_of_input(*event.inputs[0]), np.zeros(shape))[b] += event.G.sum(0)
                size += event.sizes.sum()
    error = np.abs(sum(sums.values()) - measured.dx[sublayer.module, "out"]).sum()
    error /= max(size * shape[-1] ** 0.5, np.finfo(measured.dtype).tiny ** 0.5)  # the sum of |x| is at most √C ‖x‖
    if error > RTOL[measured.dtype.itemsize]:
        raise not_a_stream_error(f"parts of the gradient of {sublayer.path}", error)
    return {kind: sums[kind] for kind in ("q", "k", "v", "mlp", "logits") if kind in sums}


def _positions_and_tokens(measured, sublayer):
    """Rows (T, C) for positions, rows (n, C) for tokens, and these tokens (n,), as lesson() describes them."""
    start, x, ids = measured.beginning(), as_float64(measured.trace_of(sublayer).x_q), measured.trace.tokens
    reads_embeddings = sublayer is measured.stream.sublayers[0] and sublayer.norm is None and "positions" in start
    positions, tokens = (start["positions"], start["tokens"]) if reads_embeddings else (x, x)
    if ids is None or ids.shape != x.shape[:2]:
        return positions.mean(0), x[0, :0], np.empty(0, int)
    frequent, counts = np.unique(ids, return_counts=True)
    frequent = np.sort(frequent[np.argsort(-counts, kind="stable")][:MAX_TOKENS])
    return positions.mean(0), np.stack([tokens[ids == token].mean(0) for token in frequent]), frequent


def _centred(change, visible):
    """change minus the mean of each row over its visible cells, and 0 in the others."""
    mean = np.where(visible, change, 0.0).sum(-1, keepdims=True) / np.maximum(visible.sum(-1, keepdims=True), 1)
    return np.where(visible, change - mean, 0.0)
