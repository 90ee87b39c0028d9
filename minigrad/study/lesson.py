"""The lesson of a step: what one step of training would teach a head, in positions and in tokens.

A step of gradient descent with learning rate η changes W_Q by -η dW_Q, and W_K by -η dW_K. To first order, the score
S_ij = s (x_i W_Q)(x_j W_K)ᵀ of a query for a key then changes by η times

    lesson_ij = -s (x_i dW_Q (x_j W_K)ᵀ + x_i W_Q (x_j dW_K)ᵀ),

where x stands for positions or for tokens, and biases are added where the layer has them. A positive number says:
after the step, queries at i look more at keys at j. A constant in a row makes no difference to the softmax, so the mean
over the keys that a query sees is taken off.

dW_Q and dW_K are sums over everything that sends a gradient to the head. The lesson is such a sum too: `by` has the
part that comes through the Q, K or V of later heads, through MLPs, and straight from the logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.tables import columns
from ..nn.positions import rotary
from ..tensor import Tensor, tensor
from .importance import returned_loss
from .layers import as_float64, before_rotary
from .names import head_of
from .stream import Pass, Write, reading, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

MOST_TOKENS = 100  # the most frequent tokens of the batch: so many are compared


@dataclass(eq=False)
class Lesson:
    """What a step with learning rate 1 would add to the scores of a head, to first order, each row less its mean.

    positions (T, T): for the query at i and the key at j; 0 where the query does not see the key. by: {"q", "k", "v",
    "mlp" or "logits": the part of `positions` from these readers}, which add up to it. tokens (n, n): for pairs of the
    most frequent tokens of the batch, whose numbers are token_ids (n,); both empty if the tokens are not known."""

    head: str
    positions: np.ndarray
    by: dict[str, np.ndarray]
    tokens: np.ndarray
    token_ids: np.ndarray

    def band(self, by: str | None = None) -> float:
        """Return how far the lesson, or the part of it from one reader, is to look at the token before: its mean just
        below the diagonal, from query 2 on, over the mean size of all cells that a query sees; nan if it is 0."""
        change = self.positions if by is None else self.by[by]
        size = self._mean_size(change)
        return float(np.diag(change, -1)[1:].mean() / size) if size else float("nan")

    def _mean_size(self, change):
        return float(np.abs(change).sum() / max(np.count_nonzero(self.positions), 1))

    def __str__(self) -> str:
        rows = [["taught by", "previous-token band", "mean size"]]
        for name, change in [*self.by.items(), ("all", self.positions)]:
            band = self.band(None if name == "all" else name)
            rows.append([name, f"{band:+.2f}", f"{self._mean_size(change):.2e}"])
        return "\n".join([f"the lesson of a step for head {self.head}", *columns(rows, right=[1, 2])])


def lesson(model: "Module", batch: Sequence[Any], head: str, loss: Callable[..., Tensor] = returned_loss) -> Lesson:
    """Return the Lesson of one step of gradient descent on loss(model, *batch) for a head, such as "0.3".

    A position is its embedding, where the layer reads the sum of embeddings itself, and a token too: in the first layer
    of a model without norms. In other layers, a position is the mean input of the layer there, over the sequences, and
    a token the mean input where it stands. With rotary positions, pairs of tokens stand at the same position.

    Limits: it is of first order and of plain gradient descent, so Adam takes another step. It leaves out that the
    inputs x change in the step too. It takes one forward and one backward, of the models that study.flow takes, and
    raises what study.flow raises."""
    run = Pass(model, stream_of(model), batch, loss)
    path, number = head_of(head, {part.path: run.call(part).heads for part in run.stream.parts if part.is_attention})
    part = next(part for part in run.stream.parts if part.path == path)
    call = run.call(part)
    if not call.has_grads:
        raise ValueError(f"the loss does not depend on {path or 'the layer'}")
    scores, visible = _Scores(call, number), (call.pattern[:, number] > 0).any(0)  # (T, T)
    positions, tokens, ids = _positions_and_tokens(run, part)
    by, upstream = {}, _upstream(run, part)
    for name, dy in upstream.items():
        dq, dk = scores.gradients(dy)
        by[name] = _centred(scores.change(positions, dq, dk, at_positions=True), visible)
    dq, dk = scores.gradients(sum(upstream.values()))
    of_tokens = scores.change(tokens, dq, dk, at_positions=False)
    of_tokens = _centred(of_tokens, np.ones(of_tokens.shape, bool))
    return Lesson(str(part.head(number)), sum(by.values()), by, of_tokens, ids)


class _Scores:
    """How the scores of a head depend on its W_Q and W_K. A bias is one more row of a weight, for an input of 1."""

    def __init__(self, call, number):
        layer, self.call, self.head = call.layer, call, number
        group = layer.kv_of_head[number]
        self.sharing = [h for h, kv in enumerate(layer.kv_of_head) if kv == group]  # all heads that have this W_K
        b_q, b_k, _ = layer.biases()
        self.has_bias = b_q is not None
        self.W_q, self.W_k = call.W_Q[number], call.W_K[number]  # (C, d_k) each
        if self.has_bias:
            self.W_q = np.vstack([self.W_q, as_float64(b_q).reshape(-1, layer.d_k)[number]])
            self.W_k = np.vstack([self.W_k, as_float64(b_k).reshape(-1, layer.d_k)[group]])
        self.x = self._with_ones(as_float64(call.x_q))  # (B, T, C) or (B, T, C + 1)

    def _with_ones(self, x):
        return np.concatenate([x, np.ones((*x.shape[:-1], 1))], -1) if self.has_bias else x

    def gradients(self, dy):
        """dq of the head and dk of all heads that share its keys, each (B, T, d_k) and before rotary positions, from
        the gradient dy (B, T, C) of the layer's output."""
        dq, _ = self._backward([self.head], dy)
        _, dk = self._backward(self.sharing, dy)
        return dq, dk

    def _backward(self, heads, dy):
        q, k, v, P = (as_float64(getattr(self.call, name)[:, heads]) for name in ("q", "k", "v", "pattern"))
        dz = dy[:, None] @ self.call.W_O[heads].swapaxes(1, 2)  # (B, n, T, d_v)
        dP = dz @ v.swapaxes(2, 3)
        dS = P * (dP - (P * dP).sum(-1, keepdims=True))
        dq, dk = self.call.scale * dS @ k, self.call.scale * dS.swapaxes(2, 3) @ q
        if self.call.layer.positions == "rotary":
            dq, dk = before_rotary(dq), before_rotary(dk)
        return dq.sum(1), dk.sum(1)

    def change(self, rows, dq, dk, at_positions):
        """The change of the scores between rows (n, C), which stand for queries and for keys, by a step along the
        gradients dq and dk. at_positions: True if the rows stand at positions 0, 1, …; rotary positions turn them."""
        rows = self._with_ones(rows)
        step_q, step_k = (rows @ np.tensordot(self.x, dy, ([0, 1], [0, 1])) for dy in (dq, dk))  # rows @ dW
        values = [rows @ self.W_q, rows @ self.W_k, step_q, step_k]
        if at_positions and self.call.layer.positions == "rotary":
            values = [rotary(tensor(x)).numpy() for x in values]
        q, k, step_q, step_k = values
        return -self.call.scale * (step_q @ k.T + q @ step_k.T)


def _upstream(run, part):
    """{"q", "k", "v", "mlp" or "logits": (B, T, C)}: the gradient of a layer's output, by the input that reads it."""
    shape, found = run.x[run.stream.start].shape, {}
    for b in range(shape[0]):
        has_written = False
        for event in run.events(b):
            if isinstance(event, Write):
                has_written = has_written or event.nodes[0].path == part.path
            elif has_written:
                found.setdefault(reading(*event.inputs[0]), np.zeros(shape))[b] += event.G.sum(0)
    return {name: found[name] for name in ("q", "k", "v", "mlp", "logits") if name in found}


def _positions_and_tokens(run, part):
    """(T, C) rows that stand for positions, (n, C) rows that stand for tokens, and the tokens' numbers (n,)."""
    beginning, x, ids = run.beginning(), as_float64(run.call(part).x_q), run.trace.tokens
    embeddings = part is run.stream.parts[0] and part.norm is None and "positions" in beginning
    positions, tokens = (beginning["positions"], beginning["tokens"]) if embeddings else (x, x)
    if ids is None or ids.shape != x.shape[:2]:
        return positions.mean(0), x[0, :0], np.empty(0, int)
    known, counts = np.unique(ids, return_counts=True)
    known = np.sort(known[np.argsort(-counts, kind="stable")][:MOST_TOKENS])
    return positions.mean(0), np.stack([tokens[ids == token].mean(0) for token in known]), known


def _centred(change, visible):
    """change, less the mean of each row over its visible cells, and 0 elsewhere."""
    mean = np.where(visible, change, 0.0).sum(-1, keepdims=True) / np.maximum(visible.sum(-1, keepdims=True), 1)
    return np.where(visible, change - mean, 0.0)
