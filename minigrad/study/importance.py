"""The importance of each head, measured by ablation or estimated from gradients."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import enable_grad
from ..base.errors import unknown
from ..base.progress import counted
from ..nn import GPT
from ..nn import functional as F
from ..tensor import Tensor, grad, ones, tensor
from ..typing import Array
from .layers import alone, as_float64, as_list, attention_layers, numbers_of_heads, undisturbed
from .models import AttentionOnly
from .names import HeadNumbers, head_of, path_of
from .rerun import Rerun
from .stats import HeadTable

if TYPE_CHECKING:
    from ..nn.module import Module

log = logging.getLogger("minigrad")
METHODS = "ablate", "joint_path", "abs_gate_grad"
Batches = Iterable[Sequence[Any]]  # tuples of the model's arguments


def returned_loss(model, *batch):
    """Return the loss that model(*batch) returns, alone or, as from nn.GPT with targets, as the last of a tuple."""
    output = model(*batch)
    loss = output[-1] if isinstance(output, tuple) else output
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ValueError(f"{type(model).__name__} returns no loss for these {len(batch)} arguments: pass loss=")
    return loss


def prediction_losses(model: "Module", x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each prediction, divided by the number of predictions: (B, T). Their sum is the mean loss.

    model(x) returns the logits (B, T, V), alone or, as nn.GPT does, as the first of a tuple. y (B, T): the targets, and
    -100 where there is none; the loss there is 0. Raises ValueError for logits of another shape."""
    output = model(x)
    logits = output[0] if isinstance(output, tuple) else output
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != y.shape:
        got = getattr(logits, "shape", type(logits).__name__)
        raise ValueError(f"the model must return logits (B, T, V) for targets {y.shape}, got {got}: pass loss=")
    each = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="none")
    return each.reshape(y.shape) / (y != -100).sum()


def value_of(loss, model, batch):
    """Return loss(model, *batch), a Tensor with one element. Raises ValueError if it is anything else."""
    value = loss(model, *batch)
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a Tensor of shape {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"the loss must be a Tensor with one element, not {what}")
    return value


def loss_of(model, batch, loss):
    """Return loss(model, *batch) as a float. Raises ValueError unless it is a Tensor with one element."""
    return value_of(loss, model, batch).item()


def mean_loss(model: "Module", batches: Batches, loss: Callable[..., Tensor] = returned_loss) -> float:
    """Return the mean over batches, tuples of arguments, of loss(model, *batch): a float."""
    return float(np.mean([loss_of(model, batch, loss) for batch in _list_of_batches(batches)]))


def head_importance(
    model: "Module",
    batches: Batches,
    method: str = "ablate",
    steps: int = 20,
    loss: Callable[..., Tensor] = returned_loss,
) -> HeadNumbers:
    """Return the importance of each head for L = mean_loss(model, batches, loss), in the unit of L: {path: (nh,)
    float64}. importance["0.3"] is the number of one head.

        ablate         L(g_h = 0) - L, where a gate g_h multiplies the head's z. The effect itself, by one forward for
                       each head; the blocks before it are not run again. After Ctrl-C, the result's `stopped` is True,
                       and the heads that were not ablated have nan
        joint_path     -∫₀¹ ∂L/∂g_h dg, where all gates are equal to g, by the midpoints of `steps` intervals: one
                       backward for each interval. Over all heads the numbers add up to L(no heads) - L. (If only the
                       head's own gate closed, the integral would be its ablation)
        abs_gate_grad  E |∂L/∂g_h| = E |⟨z_h, ∂L/∂z_h⟩| at g_h = 1, the mean over sequences (Michel, Levy and Neubig
                       2019). A first-order estimate by one backward. It can be small for an important head, if the
                       loss is flat at g_h = 1 and rises only when the gate is almost closed

    batches: a list of tuples of arguments. loss(model, *batch): a mean over sequences, by default the last value that
    the model returns. The model runs in eval mode; the model and every .grad stay as they are. Raises ValueError for an
    unknown method, and if there are no batches."""
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    check_steps(steps)
    batches, layers = _list_of_batches(batches), attention_layers(model)
    with alone(model), undisturbed(model):
        if method == "abs_gate_grad":
            return HeadNumbers(_abs_gate_grads(model, layers, batches, loss))
        if method == "joint_path":
            return HeadNumbers(_joint_path(model, layers, batches, loss, steps))
        return _ablations(model, layers, batches, loss)


def importance_table(
    model: "Module",
    batches: Batches,
    methods: Iterable[str] = METHODS,
    steps: int = 20,
    loss: Callable[..., Tensor] = returned_loss,
) -> HeadTable:
    """Return a HeadTable with the head_importance of several methods, as means over batches.

    With two batches or more there are standard errors too, in columns "± ablate" and so on. Give each sequence as a
    batch for errors over sequences. After Ctrl-C while heads are ablated, the table has what was measured by then, and
    its `stopped` is True."""
    each_batch, columns, stopped = _list_of_batches(batches), {}, False
    for method in methods:
        measured: list[HeadNumbers] = []
        for batch in each_batch:
            found = head_importance(model, [batch], method, steps, loss)
            stopped = found.stopped
            if not (stopped and measured):  # a batch that was not finished counts only if there is no other
                measured.append(found)
            if stopped:
                break
        values = {path: np.stack([each[path] for each in measured]) for path in measured[0]}  # (batches, nh)
        columns[method] = {path: x.mean(0) for path, x in values.items()}
        if len(measured) > 1:
            columns[f"± {method}"] = {path: x.std(0, ddof=1) / len(x) ** 0.5 for path, x in values.items()}
        if stopped:
            break
    table = HeadTable(columns)
    table.stopped = stopped
    return table


def check_steps(steps):
    if not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps!r}")


def check_batch(batch):
    if not isinstance(batch, (tuple, list)):
        raise ValueError(f"a batch must be a tuple of the model's arguments, got {type(batch).__name__}")


def _list_of_batches(batches):
    """Return batches as a list. Raises ValueError if it is empty or has an item that is not a tuple."""
    batches = list(batches)
    if not batches or any(not isinstance(batch, (tuple, list)) for batch in batches):
        what = f"got one of {type(batches[0]).__name__}" if batches else "there are none"
        raise ValueError(f"batches, to measure the loss on, must be a list of tuples of arguments: {what}")
    return batches


def _ablations(model, layers, batches, loss):
    """The HeadNumbers by the method ablate. After Ctrl-C, the heads that were not ablated have nan."""
    known = type(model) in (GPT, AttentionOnly)  # any other model may look into its blocks
    forwards = [Rerun(model.blocks if known else [], partial(loss_of, model, batch, loss)) for batch in batches]
    numbers = HeadNumbers({path: np.full(layer.num_heads, np.nan) for path, layer in layers.items()})
    heads, done = [(path, h) for path, layer in layers.items() for h in range(layer.num_heads)], 0
    try:
        for path, h in counted(heads, "ablating", "heads", "study.head_importance", "Ctrl-C keeps what is done"):
            with _gated_heads(layers[path], h, 0.0):
                effects = [each.value_from(each.block_with(layers[path])) - each.value for each in forwards]
            numbers[path][h] = np.mean(effects)
            done += 1
    except KeyboardInterrupt:
        if not done:
            raise
        numbers.stopped = True
        log.warning("study.head_importance: stopped after ablating %s of %s heads", done, len(heads))
    return numbers


def _joint_path(model, layers, batches, loss, steps):
    total = {path: np.zeros(layer.num_heads) for path, layer in layers.items()}
    for t in counted((np.arange(steps) + 0.5) / steps, "integrating over", "gates", "study.head_importance"):
        with ExitStack() as stack:
            gates = [stack.enter_context(_gated_heads(layer, slice(None), t)) for layer in layers.values()]
            with enable_grad():
                gradients = [grad(value_of(loss, model, batch), gates, allow_unused=True) for batch in batches]
        for of_batch in gradients:
            for path, g in zip(total, of_batch):
                total[path] -= 0.0 if g is None else as_float64(g)
    return {path: x / (steps * len(batches)) for path, x in total.items()}


def _abs_gate_grads(model, layers, batches, loss):
    """{path: (nh,)} by the method abs_gate_grad. Each sequence has its own gates. The mean loss divides by B, so the
    sum of |gradient| over sequences is the mean that is wanted."""
    total = {path: np.zeros(layer.num_heads) for path, layer in layers.items()}
    for batch in batches:
        gates = {}  # {(path, B): (B, nh, 1, 1)}: the same gates for all forwards of a layer
        with ExitStack() as stack, enable_grad():
            for path, layer in layers.items():
                stack.callback(layer.register_head_hook("z", partial(_times_gates, gates, path)).remove)
            value = value_of(loss, model, batch)
            gradients = grad(value, list(gates.values()), allow_unused=True)
        for (path, _), g in zip(gates, gradients):
            if g is not None:
                total[path] += np.abs(as_float64(g)).sum((0, 2, 3))
    return {path: x / len(batches) for path, x in total.items()}


def _times_gates(gates, path, layer, z):
    """A head hook: z (B, nh, T, d_v) times gates of 1, which the layer's first forward puts into `gates`."""
    key = path, z.shape[0]
    if key not in gates:
        gates[key] = ones(*z.shape[:2], 1, 1, dtype=z.dtype, device=z.device, requires_grad=True)
    return z * gates[key]


@contextmanager
def _gated_heads(layer, h, value):
    """Within the with-block, multiply head h of a layer, or a slice of heads, by value. Yields the gates (nh,), a
    Tensor that requires a gradient: 1 for the other heads, times the layer's own head_gates."""
    weight, before = layer.out_proj.weight, layer.head_gates
    factors = np.ones(layer.num_heads)
    factors[h] = value
    gates = tensor(factors, dtype=weight.dtype, device=weight.device, requires_grad=True)
    with enable_grad():
        layer.head_gates = gates if before is None else gates * before.detach()
    try:
        yield gates
    finally:
        layer.head_gates = before


@contextmanager
def ablate_heads(
    model: "Module",
    heads: str | Iterable[str | tuple[int | str, int]] | Mapping[int | str, int | Iterable[int]],
    mode: str = "zero",
) -> Iterator[None]:
    """Within the with-block, ablate heads: "0.3", ["0.3", "1.1"], or {path or number of a layer: numbers of heads}.

    mode: "zero" sets z_h to 0; "mean" sets it to its mean over all sequences and positions of the forward, a constant
    for gradients. These layers run with impl="batched". Raises KeyError for an unknown head, ValueError for an unknown
    mode."""
    if mode not in ("zero", "mean"):
        raise ValueError(unknown("mode", mode, ("zero", "mean")))
    layers = attention_layers(model)
    masks = {}  # {layer: (nh, 1, 1)}, 0 for ablated heads and 1 for the others
    for path, head in _pairs(heads, numbers_of_heads(layers)):
        layer = layers[path]
        masks.setdefault(layer, np.ones((layer.num_heads, 1, 1)))[head] = 0
    with alone(model), ExitStack() as stack:
        for layer, mask in masks.items():
            stack.callback(layer.register_head_hook("z", partial(_masked, mask, mode)).remove)
        yield


def _pairs(heads, heads_of):
    """Return [(path, head)] of the `heads` of ablate_heads. heads_of: {path of each layer: numbers of its heads}."""
    if isinstance(heads, Mapping):
        heads = [(path_of(layer, heads_of), h) for layer, numbers in heads.items() for h in as_list(numbers)]
    return [head_of(name, heads_of) for name in as_list(heads)]


def _masked(mask, mode, layer, z):
    """A head hook: z where the mask is 1; where it is 0, zero or the mean of z."""
    mask = tensor(mask, dtype=z.dtype, device=z.device)  # (nh, 1, 1)
    return z * mask if mode == "zero" else z * mask + z.detach().mean((0, 2), keepdim=True) * (1 - mask)


def ranked(importance: Mapping[str, Array]) -> list[tuple[str, int]]:
    """Return [(path, head)] of {path: (nh,)}, the least important first."""
    pairs = [(path, h) for path, scores in importance.items() for h in range(len(scores))]
    return sorted(pairs, key=lambda pair: importance[pair[0]][pair[1]])


def losses_without(
    model: "Module",
    batches: Batches,
    order: Sequence[str | tuple[str, int]],
    loss: Callable[..., Tensor] = returned_loss,
) -> list[float]:
    """Return len(order) + 1 mean losses: with the first 0, 1, … of the heads in `order` ablated."""
    losses = []
    with alone(model), undisturbed(model):
        for k in range(len(order) + 1):
            with ablate_heads(model, order[:k]):
                losses.append(mean_loss(model, batches, loss))
    return losses


def grouped(heads: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return {path: [head]} of [(path, head)]."""
    by_path = {}
    for path, head in heads:
        by_path.setdefault(path, []).append(head)
    return by_path
