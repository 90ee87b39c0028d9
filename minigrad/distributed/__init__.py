"""Data-parallel training on MPI, to the same bits with any number of processes. See README.md.

world       the processes: which of them this is, how they agree, and how they end together
shards      a batch in shards, each with its own random numbers                tree    sums along a fixed binary tree
gradients   gradients and loss as one vector                                  compare  `check`: are they those of one?

Contents
    check         Compare the gradients that all processes have after their exchange with the mean of those that each …
    gathered      d loss / d parameters one after another, and the loss itself: (n + 1,), of the dtype that all of …
    scattered     Give each parameter its part of a vector as `gathered` makes it for .grad, a view
    Shards        A batch is cut into `count` shards side by side: a power of two, which the batch size is a multiple of
    World         The processes that train together, as one of them sees them
    fingerprint   A checksum of a Module's weights and buffers
    library       The name and version of mpi4py's MPI, such as 'MPICH 5.0.0'
    world         The World of this process, for a with-block around all that the processes do together
"""

from typing import TYPE_CHECKING

from .compare import check
from .gradients import gathered, scattered
from .shards import Shards
from .world import World, fingerprint, library, world
from ..base.missing import explaining, listing

__all__ = ["check", "gathered", "scattered", "Shards", "World", "fingerprint", "library", "world"]

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__, __dir__ = explaining(__name__), listing(__name__)
