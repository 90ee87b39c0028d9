"""A batch cut into shards, which any number of processes compute to the same bits."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from ..base.errors import RanksError
from ..random import Generator, default_generator
from ..tensor import Tensor
from ..typing import Array
from .tree import is_power_of_two, tree_sum

if TYPE_CHECKING:
    from .world import World

APART = 2**40  # between the seeds of two shards


def stream(state, shard):
    """The state that a shard's random numbers begin at, given that of the generator."""
    return {"seed": (state["seed"] + shard * APART) % 2**64, "offset": state["offset"]}


class Shards:
    """A batch is cut into `count` shards side by side: a power of two, which the batch size is a multiple of.

    Each of the processes of `world`, of which there are a power of two and no more than shards, computes those that
    are its own. Every shard draws random numbers from a stream of its own, which `generator` is set to: shard s begins
    at the state of the generator, with a seed that is s * 2^40 larger. After a step, the generator of every process is
    where that of shard 0 is. So neither sums nor random numbers depend on how many processes there are.

    Raises RanksError for numbers that do not fit."""

    def __init__(self, world: "World", count: int, generator: Generator = default_generator) -> None:
        if not is_power_of_two(count):
            raise RanksError(f"the number of shards must be a power of two, not {count}")
        if not is_power_of_two(world.size):
            raise RanksError(f"the number of processes must be a power of two, not {world.size}")
        if world.size > count:
            why = "each computes one at least, and the batch size is a multiple of their number"
            raise RanksError(f"{world.size} processes need as many shards or more, not {count}: {why}")
        self.world, self.count, self.generator = world, count, generator
        each = count // world.size
        self.mine = range(world.rank * each, (world.rank + 1) * each)

    def sum(self, function: Callable[..., Tensor], *batch: Tensor | Array) -> Tensor:
        """The sum over all shards of function(*shard), a Tensor (n,), along the tree: the same on every process.

        batch: Tensors or arrays with the same size of dim 0, the same on every process. A shard is as many slices of
        them. Raises RanksError where the batch cannot be cut, where shards draw different amounts of random numbers,
        and where processes have different batches (which is not looked at on a GPU)."""
        before = self.generator.state
        try:
            return self.world.sum(tree_sum(self._parts(function, batch)), self._checksum(batch))
        except BaseException:
            self.generator.state = before
            raise

    def _checksum(self, batch):
        """What tells batches apart in the host's memory."""
        if self.world.size == 1:
            return ""
        crc = 0
        for x in batch:
            if x.device == "cpu":
                crc = crc32(np.ascontiguousarray(x.detach().numpy() if isinstance(x, Tensor) else x).data, crc)
        return f"over the batch {crc:08x}"

    def _parts(self, function, batch):
        """function(*shard) for each shard of this process."""
        size = len(batch[0]) if batch else 0
        if any(len(x) != size for x in batch) or size % self.count or not batch:
            raise RanksError(f"a batch of {size} cannot be cut into {self.count} shards of one size")
        each, before, offsets = size // self.count, self.generator.state, set()
        for shard in self.mine:
            self.generator.state = stream(before, shard)
            yield function(*(x[shard * each : (shard + 1) * each] for x in batch)).detach()
            offsets.add(self.generator.state["offset"])
        if len(offsets) > 1:
            raise RanksError(f"shards of a batch have drawn different amounts of random numbers: {sorted(offsets)}")
        self.generator.state = {"seed": before["seed"], "offset": offsets.pop()}
