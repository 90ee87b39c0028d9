"""Datasets and loaders, with PyTorch's names.

    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    for x, y in loader:  # (B, …) each
        …

Items are read in the process that asks for a batch. Random orders come from a minigrad Generator: the same seed gives
the same batches. For texts, the batches of `training.text` are faster.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..autograd.keywords import accepts_keywords_of_pytorch
from ..ops.public import stack
from ..random import Generator
from ..tensor import Tensor, randint, randperm, tensor

__all__ = ["Dataset", "TensorDataset", "RandomSampler", "default_collate", "default_convert", "DataLoader"]

T_co = TypeVar("T_co", covariant=True)  # type of an item: Dataset[tuple[Tensor, int]]


class HasItems(Protocol[T_co]):
    """A Dataset, a list, or any other object with items by index."""

    def __getitem__(self, index: Any, /) -> T_co: ...


class Dataset(Generic[T_co]):
    """Base class. A subclass defines __getitem__(index) and __len__. For type checkers, Dataset[tuple[Tensor, int]] has
    items of this type."""

    def __getitem__(self, index: Any) -> T_co:
        """Return the item at an index."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of Tensors (n, …), as n tuples. Raises ValueError if the numbers of rows differ."""

    def __init__(self, *tensors: Tensor):
        if len({len(x) for x in tensors}) != 1:
            raise ValueError(f"TensorDataset: Tensors of {', '.join(str(len(x)) for x in tensors)} rows differ")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(x[index] for x in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class RandomSampler:
    """Indices of a dataset in random order, a new order for each iteration. With replacement, num_samples indices that
    are drawn independently."""

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ):  # fmt: skip
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        n, left = len(self.data_source), self.num_samples
        while left > 0 and n:
            some = min(left, 1024 if self.replacement else n)  # a part at a time, since num_samples may be huge
            if self.replacement:
                drawn = randint(0, n, (some,), generator=self.generator)
            else:
                drawn = randperm(n, generator=self.generator)[:some]
            yield from drawn.tolist()
            left -= some

    def __len__(self) -> int:
        return self.num_samples


def default_collate(batch: Sequence[Any]) -> Any:
    """Combine a list of B items into one batch.

    Tensors, arrays and numbers are stacked to Tensors (B, …); tuples, lists and dicts are collated part by part;
    strings stay in a list. Python floats become float64, as in PyTorch. Raises TypeError for other items, and
    ValueError for shapes or lengths that differ."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray | np.generic | int | float):
        return tensor(np.stack(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, tuple | list):
        return [default_collate(part) for part in zip(*batch, strict=True)]
    raise TypeError(f"default_collate cannot stack a {type(first).__name__}: pass a collate_fn")


def default_convert(item: Any) -> Any:
    """Return an item with Tensors in place of NumPy's arrays and scalars, also within tuples, lists and dicts."""
    if isinstance(item, np.ndarray | np.generic) and item.dtype.kind in "biuf":
        return tensor(np.asarray(item))
    if isinstance(item, Mapping):
        return {key: default_convert(part) for key, part in item.items()}
    return type(item)(map(default_convert, item)) if type(item) in (tuple, list) else item


class DataLoader(Generic[T_co]):
    """An iterable of a dataset's batches. Each iteration begins anew.

    dataset: an object with __getitem__ and __len__. shuffle: take a new random order for each iteration, drawn from
    `generator` or the default one. sampler: indices to take instead. collate_fn: a function from a list of items to a
    batch; see default_collate. drop_last: leave out a last batch that is shorter. num_workers and pin_memory are
    accepted for PyTorch programs and ignored. batch_size None: the items one by one, as collate_fn returns them; by
    default arrays become Tensors. Raises ValueError for a batch_size below 1, and for choices that exclude each
    other."""

    @accepts_keywords_of_pytorch
    def __init__(
        self, dataset: HasItems[T_co], batch_size: int | None = 1, shuffle: bool = False, sampler: Any = None, *,
        collate_fn: Callable[[list[Any]], Any] | None = None, drop_last: bool = False,
        generator: Generator | None = None, num_workers: int = 0, pin_memory: bool = False,
    ):  # fmt: skip
        if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
            raise ValueError(f"DataLoader: batch_size must be a positive int or None, got {batch_size!r}")
        if shuffle and sampler is not None:
            raise ValueError("DataLoader: shuffle and sampler exclude each other")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None and drop_last exclude each other")
        self.dataset: Any = dataset
        self.batch_size, self.drop_last = batch_size, drop_last
        self.collate_fn = collate_fn or (default_convert if batch_size is None else default_collate)
        self.sampler = RandomSampler(dataset, generator=generator) if shuffle else sampler

    def __iter__(self) -> Iterator[Any]:  # a collate_fn decides the type of batches
        indices = iter(range(len(self.dataset)) if self.sampler is None else self.sampler)
        # The rows of a TensorDataset are read all at once, which is faster than one by one.
        reads_at_once = type(self.dataset) is TensorDataset and self.collate_fn is default_collate
        if self.batch_size is None:
            yield from (self.collate_fn(self.dataset[i]) for i in indices)
            return
        while True:
            batch = list(itertools.islice(indices, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                return
            yield list(self.dataset[batch]) if reads_at_once else self.collate_fn([self.dataset[i] for i in batch])

    def __len__(self) -> int:
        """Return the number of batches."""
        n = len(self.dataset if self.sampler is None else self.sampler)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
