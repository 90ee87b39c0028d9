"""Datasets and batches of them, under PyTorch's names.

    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    for x, y in loader:  # (B, …) each
        …

All is read in the process that asks for it. Random orders come from a minigrad Generator: the same seed, the same
batches. The batches of `training.text` are for texts, and quicker.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..ops import stack
from ..random import Generator
from ..tensor import Tensor, from_numpy, multinomial, randint, randperm, tensor

__all__ = [
    "Dataset", "IterableDataset", "TensorDataset", "Subset", "ConcatDataset", "random_split", "Sampler",
    "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler",
    "default_convert", "default_collate", "DataLoader",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)  # of an item: Dataset[tuple[Tensor, int]]
S = TypeVar("S")


class Indexed(Protocol[T_co]):
    """A Dataset, a list, or whatever else gives items by index."""

    def __getitem__(self, index: Any, /) -> T_co: ...


# ------------------------------------------------------------------------------------------------------------ datasets


class Dataset(Generic[T_co]):
    """Base class: define __getitem__(index), and __len__ for all but a sampler of one's own. Optional: __getitems__, a
    list of the items at a list of indices. To type checkers, Dataset[tuple[Tensor, int]] gives such items."""

    def __getitem__(self, index: Any) -> T_co:
        """The item at an index."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: "Indexed[S]") -> "ConcatDataset[T_co | S]":
        """The items of both, as a ConcatDataset."""
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base class of a stream: define __iter__."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of Tensors of the same first size, as tuples: of (n, …), n items. Raises ValueError for different sizes,
    and TypeError for what is no Tensor of at least one dim."""

    def __init__(self, *tensors: Tensor):
        if not tensors or not all(isinstance(x, Tensor) and x.ndim for x in tensors):
            raise TypeError("TensorDataset takes one or more Tensors of at least one dim")
        if len({len(x) for x in tensors}) > 1:
            raise ValueError(f"TensorDataset: Tensors of {', '.join(str(len(x)) for x in tensors)} rows differ")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(x[index] for x in self.tensors)

    def batch(self, indices: Sequence[int]) -> list[Tensor]:
        """The rows at these indices, collated: as one by one, but sooner. [Tensor (B, …) of each]."""
        return [x[list(indices)] for x in self.tensors]

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset[T_co]):
    """The items of a dataset at some indices, in their order. Raises IndexError as lists do."""

    def __init__(self, dataset: Indexed[T_co], indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> T_co:
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other. Raises IndexError for an item that there is not."""

    def __init__(self, datasets: Iterable[Indexed[T_co]]):
        self.datasets: list[Any] = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> T_co:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} items")
        index %= len(self)
        i = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[i][index - (self.cumulative_sizes[i - 1] if i else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.datasets else 0


def _items(dataset, indices):
    several = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if several is None else several(indices)


def random_split(dataset: Indexed[S], lengths: Sequence[float], generator: Generator | None = None) -> list[Subset[S]]:
    """Parts of a dataset, a list of Subsets, drawn at random, that share no item. lengths: how many each has, adding up
    to all; or the share of each, adding up to 1, where what is left over goes to the first ones. Raises ValueError if
    they do not add up."""
    n = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and all(0 <= share <= 1 for share in lengths):
        sizes = [math.floor(n * share) for share in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != n:
        raise ValueError(f"random_split: lengths of {list(lengths)} do not add up to {n}, or to 1")
    order = randperm(n, generator=generator).numpy().tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends)]


# ------------------------------------------------------------------------------------------------------------ samplers


class Sampler(Generic[T_co]):
    """Base class of the orders in which a dataset is read: define __iter__, which gives indices."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order; with replacement, num_samples of them, each drawn from all. Raises ValueError unless
    num_samples is positive."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"RandomSampler: num_samples must be positive, got {num_samples}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    def __iter__(self) -> Iterator[int]:
        n, left = len(self.data_source), len(self)
        while left and n:
            some = min(left, 1024 if self.replacement else n)  # few at a time: it may be asked for very many
            if self.replacement:
                drawn = randint(0, n, (some,), generator=self.generator)
            else:
                drawn = randperm(n, generator=self.generator)[:some]
            yield from drawn.numpy().tolist()
            left -= some

    def __len__(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order, a new one each time."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = randperm(len(self.indices), generator=self.generator).numpy().tolist()
        return (self.indices[i] for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """num_samples indices, drawn in proportion to weights, a number ≥ 0 for each; replacement=False: each at most once.
    Raises ValueError, when they are drawn, for weights that are negative, not finite or all 0."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None):
        self.weights = tensor(np.asarray(weights, dtype=np.float64))
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(self.weights, self.num_samples, self.replacement, self.generator)
        return iter(drawn.numpy().tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[Any]]):
    """Lists of batch_size indices each, from those of a sampler. drop_last: without a last one that is shorter. Raises
    ValueError unless batch_size is a positive int."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool):
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive int, got {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


# -------------------------------------------------------------------------------------------------------------- loader


def default_convert(item: Any) -> Any:
    """An item that is no batch: arrays and NumPy's numbers as Tensors of their shape and dtype, in tuples, lists and
    dicts too; anything else stays as it is."""
    if isinstance(item, np.ndarray):
        return from_numpy(item)
    if isinstance(item, np.generic):
        return tensor(item)
    if isinstance(item, Mapping):
        return {key: default_convert(part) for key, part in item.items()}
    if isinstance(item, tuple | list):
        parts = [default_convert(part) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return item


def default_collate(batch: Sequence[Any]) -> Any:
    """A list of B items as one: Tensors, arrays and numbers are stacked to Tensors (B, …), tuples, lists and dicts are
    collated part by part, and strings stay in a list. Python floats become float64, or float32 if the first number is
    an int, as in PyTorch. Raises TypeError for other items, and ValueError for shapes or lengths that differ."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray):
        return from_numpy(np.stack(batch))
    if isinstance(first, np.generic | float):
        return tensor(np.array(batch))
    if isinstance(first, int):
        return tensor(list(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, tuple | list):
        if len({len(item) for item in batch}) > 1:
            raise ValueError("default_collate: items of one batch have different numbers of parts")
        parts = [default_collate(part) for part in zip(*batch)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts  # a namedtuple
    raise TypeError(
        f"default_collate takes Tensors, arrays, numbers, strings, and tuples, lists and dicts of them, not "
        f"{type(first).__name__}: pass a collate_fn"
    )


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches, each time from the beginning.

    dataset: with __getitem__ and __len__, or an IterableDataset. batch_size None: items one by one, arrays as Tensors.
    shuffle: a new random order each time, drawn from `generator`, or the default one. sampler, batch_sampler: indices,
    or lists of them, in their place. collate_fn: from a list of items to a batch; see default_collate. Batches
    are made in the process that asks for them. So all that PyTorch has for workers changes nothing: num_workers,
    timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers, pin_memory,
    pin_memory_device, in_order.

    Raises ValueError for options that contradict each other."""

    def __init__(self, dataset: Indexed[T_co], batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Any = None, batch_sampler: Any = None, num_workers: int = 0,
                 collate_fn: Callable[[list[Any]], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Any = None, multiprocessing_context: Any = None, generator: Generator | None = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True):  # fmt: skip
        if num_workers < 0:
            raise ValueError(f"DataLoader: num_workers must not be negative, got {num_workers}")
        streams = isinstance(dataset, IterableDataset)
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: give sampler or shuffle, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler takes the place of batch_size, shuffle, sampler and drop_last")
        if streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset has an order of its own: no shuffle, no sampler")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: drop_last needs a batch_size")
        if sampler is None and not streams and batch_sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not streams:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        elif streams and batch_size is not None:
            BatchSampler([], batch_size, drop_last)  # which checks batch_size
        self.dataset: Any = dataset
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.pin_memory = num_workers, pin_memory
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def __iter__(self) -> Iterator[Any]:  # of batches, whose type a collate_fn decides
        if isinstance(self.dataset, IterableDataset):
            return self._streamed()
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        whole = isinstance(self.dataset, TensorDataset) and self.collate_fn is default_collate
        if whole and type(self.dataset).__getitem__ is TensorDataset.__getitem__:
            return (self.dataset.batch(indices) for indices in self.batch_sampler)
        return (self.collate_fn(_items(self.dataset, indices)) for indices in self.batch_sampler)

    def _streamed(self) -> Iterator[Any]:
        items = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, items)
            return
        while batch := list(itertools.islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def __len__(self) -> int:
        """How many batches there are."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        n = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
