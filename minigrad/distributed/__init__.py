"""Data-parallel training on MPI, to the same bits with any number of processes. See README.md.

world       the processes: which of them this is, how they agree, and how they end together
shards      a batch in shards, each with its own random numbers                tree    sums along a fixed binary tree
gradients   gradients and loss as one vector                                  compare  `check`: are they those of one?
"""

from typing import TYPE_CHECKING

from .compare import check
from .gradients import gathered, scattered
from .shards import Shards
from .world import World, fingerprint, library, world

__all__ = ["check", "gathered", "scattered", "Shards", "World", "fingerprint", "library", "world"]
