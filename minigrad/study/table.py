"""A table with a row for each head."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..base.errors import unknown
from ..typing import Array

WIDTH = 120  # of a printed line
RANK = "rank"  # the stat of whole numbers


class HeadTable:
    """Statistics of heads, {stat: {path: array (nh,)}}; nan where there is no number.

        table["induction"]["blocks.1.attn"][3]   one number
        table.best("induction")                  (path, head, number) of the largest
        print(table.sorted("induction"))         a row per head, the largest first

    heads: {path: numbers of the heads in its arrays}, for layers where these are not 0 … nh - 1. A layer may lack some
    stats. Unknown stats raise KeyError, naming near matches."""

    def __init__(
        self, stats: Mapping[str, Mapping[str, Array]], heads: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._stats, self._heads, self.rows = {}, dict(heads or {}), []
        for stat, of in stats.items():
            self[stat] = of

    def __setitem__(self, stat: str, of: Mapping[str, Array]) -> None:
        """Add a stat, or replace it: {path: (nh,)}."""
        of = {path: np.asarray(x, np.float64) for path, x in of.items()}
        for path, x in of.items():
            heads = self._heads.setdefault(path, range(len(x)))
            if x.shape != (len(heads),):
                raise ValueError(f"{stat!r} of {path} has shape {x.shape}, for heads {list(heads)}")
            self.rows += [(path, head) for head in heads if (path, head) not in self.rows]
        self._stats[stat] = of

    @property
    def stats(self) -> tuple[str, ...]:
        """The names of the stats."""
        return tuple(self._stats)

    def __getitem__(self, stat: str) -> dict[str, Array]:
        if stat not in self._stats:
            raise KeyError(unknown("stat", stat, self._stats))
        return self._stats[stat]

    def best(self, stat: str) -> tuple[str, int, float]:
        """(path, head, number) of the largest number. Raises ValueError if all are nan."""
        top = self.sorted(stat).rows[:1]
        numbers = [self._number(stat, *row) for row in top]
        if not numbers or math.isnan(numbers[0]):
            raise ValueError(f"no head has {stat!r}")
        return (*top[0], numbers[0])

    def sorted(self, stat: str) -> "HeadTable":
        """The same table with its rows in the order of a stat, the largest first and nan last."""
        result = HeadTable(self._stats, self._heads)
        result.rows = sorted(self.rows, key=lambda row: _descending(self._number(stat, *row)))
        return result

    def _number(self, stat, path, head):
        of = self[stat]
        return float(of[path][list(self._heads[path]).index(head)]) if path in of else math.nan

    def __repr__(self):
        """Lines of at most WIDTH characters: columns that do not fit go into another block below."""
        rows = [["layer", *(path or "-" for path, _ in self.rows)], ["head", *(str(head) for _, head in self.rows)]]
        blocks = [[*rows]]
        for stat in self._stats:
            numbers = [self._number(stat, *row) for row in self.rows]
            column = [stat, *(map("{:.0f}".format, numbers) if stat == RANK else _written(numbers))]
            if len(blocks[-1]) > 2 and sum(_width(each) + 2 for each in blocks[-1]) + _width(column) > WIDTH:
                blocks.append([*rows])
            blocks[-1].append(column)
        return "\n\n".join(map(_block, blocks))


def _block(columns):
    layers, *others = ([cell.rjust(_width(column)) for cell in column] for column in columns)
    layers = [cell.strip().ljust(len(cell)) for cell in layers]
    return "\n".join("  ".join(line) for line in zip(layers, *others))


def _width(column):
    return max(map(len, column))


def _descending(number):
    return (math.isnan(number), -number)


def _written(numbers):
    """The numbers of a column: with three decimals, or with exponents if the largest of them is below 0.01 or huge."""
    largest = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    spec = ".3f" if largest == 0 or 0.01 <= largest < 1e5 else ".2e"
    return ["-" if math.isnan(x) else format(x, spec) for x in numbers]
