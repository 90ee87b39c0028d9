"""Are the gradients that several processes agree on those of one process? If not, what is usually wrong, by name."""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RanksError
from ..random import default_generator
from ..tensor import Tensor, as_tensor, grad
from ..training.tensorfile import as_bytes
from .gradients import gathered
from .shards import Shards, stream
from .world import fingerprint

if TYPE_CHECKING:
    from ..nn.module import Module
    from .world import World

TOLERANCE = 1e-5  # of the largest element of a gradient: sums of another order differ by less
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
    trains on, Tensors or arrays. gradients(*part) -> {name of the parameter: array}, the mean over all processes, is
    a loop of the caller's own; by default, ours. step: where the loop is; the processes must agree on it.

    Changes no weight and no .grad; random numbers go on where they were. Raises RanksError, on all processes, with what
    is wrong: other weights, steps, parts of other sizes or the same part twice, equal random numbers, a parameter that
    one loss depends on and another does not, a sum where the mean was meant, or gradients that were not exchanged."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    world.check_same(step=step, weights=fingerprint(model), trained=list(named))
    before, device = default_generator.state, next(iter(named.values())).device
    parts = world.everyone([np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in part])
    state = default_generator.state = before if gradients else stream(before, world.rank)
    loss = loss_of(*(as_tensor(x).to(device) for x in parts[world.rank]))
    drew = world.largest(default_generator.state != state)
    states = world.everyone(state) if drew else []
    found = grad(loss, list(named.values()), allow_unused=True)
    alone: list[Any] = world.everyone({name: None if g is None else g.numpy() for name, g in zip(named, found)})
    default_generator.state = before

    wrong = [*wrong_parts(parts), *wrong_random(states), *unused(alone)]
    if not wrong:
        used = {name: p for name, p in named.items() if alone[0][name] is not None}
        mean = {name: sum(each[name].astype(np.float64) for each in alone) / world.size for name in used}
        found = gradients(*part) if gradients else _ours(world, loss_of, parts, used, device)
        default_generator.state = before
        wrong = [line for name in used if (line := mistake(name, found.get(name), mean, alone[world.rank], world.size))]
    everyone = world.everyone(wrong)
    lines = list(dict.fromkeys(line for lines in everyone for line in lines))
    if lines:
        more = f"; and {len(lines) - MOST} more" if len(lines) > MOST else ""
        raise RanksError("; ".join(lines[:MOST]) + more)
    return f"{len(named)} gradients of {world.size} processes are those of one"


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


def mistake(name, found, mean, alone, size):
    """What is wrong with a gradient after the exchange, '' if nothing is. mean, alone: {name: array}, the mean over all
    processes, and that of this process alone."""
    expected = mean[name]
    if found is None or np.shape(found) != expected.shape:
        return f"{name}: no gradient of shape {expected.shape} came out of the exchange"
    if _close(found, expected):
        return ""
    usual = {
        f"it is {size} times the mean: a sum where the mean was meant": size * expected,
        f"it is 1/{size} of the mean, which was divided twice": expected / size,
        "it is that of one process alone: nothing was exchanged": alone[name],
    }
    for words, value in usual.items():
        if _close(found, value):
            return f"{name}: {words}"
    apart = np.abs(found - expected).max() / max(np.abs(expected).max(), np.finfo(np.float64).tiny)
    return f"{name}: it is off by {apart:.1e} of its largest element"


def _close(found, expected):
    return bool(np.abs(found - expected).max(initial=0) <= TOLERANCE * np.abs(expected).max(initial=0))
