"""Are the gradients that several processes agree on those of one process? If not, what is usually wrong, by name."""

import contextlib
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import RanksError
from ..random import default_generator
from ..tensor import Tensor, as_tensor, grad
from ..training.checkpoint import as_bytes
from .gradients import gathered
from .shards import Shards, stream
from .world import fingerprint

if TYPE_CHECKING:
    from ..nn.module import Module
    from .world import World

TOLERANCE = 1e-5  # of the largest element of a gradient on any process: sums of another order differ by less
COARSE = 5e-3  # likewise, in float16
SUBNORMAL = 1e-6  # what sums of the smallest numbers of float16 may be off by, whose distance is 6e-8
ROUNDING = 1e-6  # of the largest element of any gradient: one that is 0 in theory, as of a bias of k, has its rounding
MOST = 6  # mistakes that are told at once


def check(
    world: "World",
    model: "Module",
    loss_of: Callable[..., Tensor],
    *part: Any,
    gradients: Callable[..., Any] | None = None,
    step: int = 0,
) -> str:
    """Compare the gradients that all processes have after their exchange with the mean of those that each has alone.
    Returns a line that says what was compared.

    model: a Module. loss_of(*part) -> its loss, (), the mean over dim 0. part: the part of a batch that this process
    trains on, Tensors or arrays. gradients(*part) -> {name of the parameter: array or Tensor}, the mean over all
    processes, is a loop of the caller's own; by default, ours. step: where the loop is; the processes must agree on it.

    Changes no weight and no .grad; random numbers go on where they were. Raises RanksError, on all processes, with what
    is wrong: other weights, steps, parts of other sizes or the same part twice, equal random numbers, a parameter that
    one loss depends on and another does not, a sum where the mean was meant, or gradients that were not exchanged.
    Raises ValueError if there is nothing to compare."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    mine = [np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in part]
    if not named or not mine or any(x.ndim == 0 or len(x) == 0 for x in mine):
        raise ValueError("check needs a model that has parameters to train, and this process's part of a batch, (B, …)")
    before, device = default_generator.state, next(iter(named.values())).device
    same = dict(step=step, weights=fingerprint(model), trained=list(named))
    if gradients is None:
        same["random"] = before  # which the streams of the shards are made from
    world.check_same(**same)
    parts = world.everyone(mine)
    with _random_kept():
        state = default_generator.state = before if gradients else stream(before, world.rank)
        loss = loss_of(*(as_tensor(x).to(device) for x in parts[world.rank]))
        drew = world.largest(default_generator.state != state)
    states = world.everyone(state) if drew else []
    found = grad(loss, list(named.values()), allow_unused=True)
    alone: list[Any] = world.everyone({name: None if g is None else g.numpy() for name, g in zip(named, found)})

    wrong = [*wrong_parts(parts), *wrong_random(states), *unused(alone)]
    used = {name: p for name, p in named.items() if alone[0][name] is not None}
    if not wrong:
        with _random_kept():
            found = gradients(*part) if gradients else _ours(world, loss_of, parts, used, device)
        wrong = mistakes(found, [{name: each[name] for name in used} for each in alone], world.rank)
    everyone = world.everyone(wrong)
    lines = list(dict.fromkeys(line for lines in everyone for line in lines))
    if lines:
        more = f"; and {len(lines) - MOST} more" if len(lines) > MOST else ""
        raise RanksError("; ".join(lines[:MOST]) + more)
    unused_by_all = [name for name in named if name not in used]
    rest = f"; no loss depends on {', '.join(unused_by_all)}" if unused_by_all else ""
    return f"{len(used)} gradients of {world.size} processes are those of one{rest}"


@contextlib.contextmanager
def _random_kept():
    """Random numbers go on afterwards where they were before."""
    before = default_generator.state
    try:
        yield
    finally:
        default_generator.state = before


def _ours(world, loss_of, parts, used, device):
    """{name: array} as `Shards` and `gathered` make them."""
    batch = [as_tensor(np.concatenate(arrays)).to(device) for arrays in zip(*parts)]
    total = Shards(world, world.size).sum(lambda *x: gathered(loss_of(*x), list(used.values())), *batch)
    mean, found, at = total.numpy() / world.size, {}, 0
    for name, p in used.items():
        found[name] = mean[at : at + p.numel()].reshape(p.shape)
        at += p.numel()
    return found


def wrong_parts(parts):
    """What is wrong with the parts of a batch that the processes train on."""
    sizes = [len(arrays[0]) for arrays in parts]
    if len(set(sizes)) > 1:
        said = ", ".join(f"{size} on rank {rank}" for rank, size in enumerate(sizes))
        yield f"the parts of the batch are uneven, {said}: the mean of their means is not the mean of the batch"
    first: dict = {}
    for rank, arrays in enumerate(parts):
        seen = first.setdefault(tuple(zlib.crc32(as_bytes(x)) for x in arrays), rank)
        if seen != rank:
            yield f"ranks {seen} and {rank} have the same part of the batch"


def wrong_random(states):
    """states: of the processes' generators before a loss that draws from them; empty if it draws nothing."""
    for rank, state in enumerate(states):
        if (seen := states.index(state)) != rank:
            yield f"ranks {seen} and {rank} draw the same random numbers, so dropout drops the same on both"


def unused(alone):
    """alone: for each process, {name: gradient or None}."""
    for name in alone[0]:
        without = [rank for rank, found in enumerate(alone) if found[name] is None]
        if 0 < len(without) < len(alone):
            yield f"{name}: the loss of rank {without[0]} does not depend on it, and that of others does"


def mistakes(found, alone, rank):
    """A line for each gradient of this rank that is wrong after the exchange. found: {name: array or Tensor}. alone: of
    each process, {name: array}, what it had before."""
    if not isinstance(found, dict):
        return [f"gradients must return {{name: array}}, not {type(found).__name__}"]
    sizes = {name: max(float(np.abs(each[name]).max(initial=0)) for each in alone) for name in alone[0]}
    largest = max(sizes.values(), default=0)
    lines = []
    for name, size in sizes.items():  # not that of the mean, which is less where they cancel
        each = [gradients[name] for gradients in alone]
        half = each[0].dtype == np.float16
        own = max(COARSE * size, SUBNORMAL) if half else TOLERANCE * size
        g = found.get(name)
        g = g.detach().numpy() if isinstance(g, Tensor) else g
        if line := mistake(g, each, rank, max(own, ROUNDING * largest)):
            lines.append(f"{name}: {line}")
    return lines


def mistake(found, alone, rank, allowed):
    """What is wrong with one gradient, '' if nothing is. allowed: how far its elements may be off."""
    expected = sum(g.astype(np.float64) for g in alone) / len(alone)
    if found is None or np.shape(found) != expected.shape:
        return f"no gradient of shape {expected.shape} came out of the exchange"
    if not np.isfinite(expected).all():
        return "it is not finite, before the exchange"
    if not np.isfinite(found).all():
        return "it is not finite, after the exchange"

    def close(value):
        return bool(np.abs(found - value).max(initial=0) <= allowed)

    if close(expected):
        return ""
    n = len(alone)
    usual = {
        f"it is {n} times the mean: a sum where the mean was meant": n * expected,
        f"it is 1/{n} of the mean, which was divided twice": expected / n,
        "it is that of one process alone: nothing was exchanged": alone[rank],
    }
    for words, value in usual.items():
        if close(value):
            return words
    return f"it is off by {np.abs(found - expected).max():.1e}, where {allowed:.1e} would be rounding"
