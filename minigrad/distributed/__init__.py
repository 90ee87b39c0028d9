"""Data-parallel training on MPI, to the same bits with any number of processes. See README.md.

world       the processes: rank and size, agreement, ending together
shards      a batch in shards, each with its own random numbers                tree    sums along a fixed binary tree
gradients   gradients and loss as one vector
"""

from .gradients import gathered, scattered
from .shards import Shards
from .world import World, world

__all__ = ["gathered", "scattered", "Shards", "World", "world"]
