"""Packing: the arrays of a report as one text, in which the heads that matter least may have coarser maps.

The maps of a head are the pattern and its gradients, (T, S) for each sequence. Of 144 heads with 256 tokens they would
take 80 MB, and a reader looks at few of them closely. So the heads that matter most have all cells, and the others the
means of blocks of cells.

page/numbers.js reads the arrays of one layer after the other. First come the layer's maps, by kind, sequence and head.
If one of them has blocks, an array of the cells that are seen follows. The arrays by token and by prediction are last.
"""

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from ..typing import Array

SIDE = 32  # a map of blocks has at most so many of them along each side
SHRINKS_TO = 0.9 * 4 / 3  # about: what deflating leaves of the floats of a map, in base64
ONE = np.frombuffer(b"\1\1\1\1", "<f4")[0]  # stands for True: four equal bytes, which run lengths make short


class View(Protocol):
    """What is packed of a report.LayerView."""

    heads: list[int]
    pattern: Array
    by_token: dict[str, Array]
    by_prediction: dict[str, Array]

    @property
    def maps(self) -> dict[str, Array]: ...


Blocks = list[list[int]]  # for each view and head, the side of a block in cells; 1: all cells


def choices(views: Sequence[View], order: Sequence[tuple[int, int]], limit: float) -> Iterator[Blocks]:
    """Yield Blocks that may fit into `limit` bytes: with all heads whole, with fewer and fewer, and with none.

    order: (number of a view, number of a head in it), those that matter most first."""
    size_of_head = [int((view.pattern > 0).any(1).sum()) * len(view.maps) * 4 for view in views]  # bytes
    whole = len(order)
    while True:
        if SHRINKS_TO * sum(size_of_head[i] for i, _ in order[:whole]) <= limit:
            chosen = set(order[:whole])
            yield [
                [1 if (i, h) in chosen else _side_for(view) for h in range(len(view.heads))]
                for i, view in enumerate(views)
            ]
        if whole == 0 or all(_side_for(view) == 1 for view in views):
            return
        whole = whole * 3 // 4


def _side_for(view):
    """The side of the blocks of a view, so that there are at most SIDE of them."""
    return -(-max(view.pattern.shape[2:]) // SIDE)


def packed(views: Sequence[View], blocks: Blocks) -> str:
    """Return all arrays as text: float32, deflated, in base64."""
    with np.errstate(over="ignore"):
        arrays = [x for view, sides in zip(views, blocks) for x in _arrays(view, sides)]
        data = b"".join(x.astype("<f4").tobytes() for x in arrays)
    # Raw deflate, which the page's DecompressionStream reads. In floats only the zeros of masks repeat: run lengths.
    packer = zlib.compressobj(wbits=-15, strategy=zlib.Z_RLE)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


def _arrays(view, sides):
    """The arrays of a view, in the order in which the page has them."""
    rest = [*view.by_token.values(), *view.by_prediction.values()]
    if max(sides) == 1:
        return [*view.maps.values(), *rest]
    seen, maps = (view.pattern > 0).any(1), []  # (B, T, S)
    for x in view.maps.values():
        for of_sequence, seen_there in zip(x, seen):
            maps += [block_means(of_head, seen_there, side) for of_head, side in zip(of_sequence, sides)]
    return [*maps, np.where(seen, ONE, 0), *rest]


def block_means(x: Array, seen: Array, side: int) -> Array:
    """Return the mean of the seen cells of each block of side · side cells, 0 if none is seen: x (T, S), seen (T, S)
    bool -> (⌈T / side⌉, ⌈S / side⌉)."""
    if side == 1:
        return x
    starts = [np.arange(0, n, side) for n in x.shape]

    def sums(values):
        return np.add.reduceat(np.add.reduceat(values, starts[0], 0), starts[1], 1)

    return sums(np.where(seen, x, 0.0)) / np.maximum(sums(seen.astype(np.float64)), 1)
