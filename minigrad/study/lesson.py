"""The lesson of a step: what one step of training would teach a head, in positions and in tokens.

A step of gradient descent with learning rate η changes W_Q by -η dW_Q, and W_K by -η dW_K. To first order, the score
S_ij = s (x_i W_Q)(x_j W_K)ᵀ of a query for a key then changes by η times

    lesson_ij = -s (x_i dW_Q (x_j W_K)ᵀ + x_i W_Q (x_j dW_K)ᵀ),

where x stands for positions or for tokens. A positive number says: after the step, queries at i look more at keys at j.
A constant in a row makes no difference to the softmax, so the mean over the keys that a query sees is taken off.

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
        size = np.abs(change).sum() / max(np.count_nonzero(self.positions), 1)
        return float(np.diag(change, -1)[1:].mean() / size) if size else float("nan")

    def __str__(self) -> str:
        rows = [["taught by", "previous-token band", "mean size"]]
        for name, change in [*self.by.items(), ("all", self.positions)]:
            size = np.abs(change).sum() / max(np.count_nonzero(self.positions), 1)
            band = self.band(None if name == "all" else name)
            rows.append([name, f"{band:+.2f}", f"{size:.2e}"])
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
    call, layer = run.call(part), part.module
    if not call.has_grads:
        raise ValueError(f"the loss does not depend on {path or 'the layer'}")

    i, group = call.heads.index(number), layer.kv_of_head[number]
    sharing = [call.heads.index(h) for h, kv in enumerate(layer.kv_of_head) if kv == group]  # heads with the same W_K
    W_q, W_k = _with_bias(layer, 0, number, call.W_Q[i]), _with_bias(layer, 1, group, call.W_K[i])  # (C + 1, d_k)
    has_bias = float(layer.biases()[0] is not None)
    x = _with_ones(as_float64(call.x_q), has_bias)  # (B, T, C + 1)

    def change(rows, dq, dk, turn):
        """The lesson for rows (n, C) that stand for queries and keys, from the gradients dq and dk (B, T, d_k)."""
        rows = _with_ones(rows, has_bias)
        step_q, step_k = (rows @ np.tensordot(x, dy, ([0, 1], [0, 1])) for dy in (dq, dk))
        q, k, step_q, step_k = map(turn, (rows @ W_q, rows @ W_k, step_q, step_k))
        return -call.scale * (step_q @ k.T + q @ step_k.T)

    turn = (lambda a: rotary(tensor(a)).numpy()) if layer.positions == "rotary" else (lambda a: a)
    of_positions, of_tokens, ids = _positions_and_tokens(run, part)
    visible = (call.pattern[:, i] > 0).any(0)  # (T, T)
    by, gradients = {}, []
    for name, dy in _upstream(run, part).items():
        dq, dk = _backward(call, [i], dy)[0], _backward(call, sharing, dy)[1]
        by[name] = _centred(change(of_positions, dq, dk, turn), visible)
        gradients.append((dq, dk))
    dq, dk = (sum(each) for each in zip(*gradients))
    tokens = change(of_tokens, dq, dk, lambda a: a)
    return Lesson(str(part.head(number)), sum(by.values()), by, _centred(tokens, np.ones(tokens.shape, bool)), ids)


def _with_ones(rows, value):
    """rows (…, C) with a column of `value` at the end, by which a bias, the last row of a weight, is multiplied."""
    return np.concatenate([rows, np.full((*rows.shape[:-1], 1), value)], -1)


def _with_bias(layer, which, n, W):
    """W (C, d_k) with the bias of the n-th queries (which=0) or keys (1) below it, or zeros: (C + 1, d_k)."""
    bias = layer.biases()[which]
    return np.vstack([W, 0 * W[0] if bias is None else as_float64(bias).reshape(-1, layer.d_k)[n]])


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


def _backward(call, heads, dy):
    """(dq, dk), each (B, T, d_k) and before rotary positions, of some heads together, from dy (B, T, C)."""
    q, k, v, P = (as_float64(getattr(call, name)[:, heads]) for name in ("q", "k", "v", "pattern"))
    dz = dy[:, None] @ call.W_O[heads].swapaxes(1, 2)  # (B, n, T, d_v)
    dP = dz @ v.swapaxes(2, 3)
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    dq, dk = call.scale * dS @ k, call.scale * dS.swapaxes(2, 3) @ q
    if call.layer.positions == "rotary":
        dq, dk = before_rotary(dq), before_rotary(dk)
    return dq.sum(1), dk.sum(1)


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
