"""Datasets, random orders, loaders and collation."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, default_collate


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        return np.float32(index), index * index


PAIRS = TensorDataset(mg.arange(10), mg.arange(20).reshape(10, 2))


def test_batches():
    batches = list(DataLoader(PAIRS, batch_size=4))
    assert [x.numpy().tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[2][1].shape == (2, 2) and len(DataLoader(PAIRS, 4)) == 3
    assert len(list(DataLoader(PAIRS, 4, drop_last=True))) == len(DataLoader(PAIRS, 4, drop_last=True)) == 2
    x, y = next(iter(DataLoader(Squares(), batch_size=3)))
    assert (x.dtype, y.dtype) == (mg.float32, mg.int64) and y.numpy().tolist() == [0, 1, 4]
    assert list(DataLoader(Squares(), 5, collate_fn=len, num_workers=2, pin_memory=True)) == [5, 5]
    assert [x.numpy().tolist() for x, _ in DataLoader(PAIRS, 2, sampler=[3, 1, 2])] == [[3, 1], [2]]


def test_a_tensor_dataset_is_read_batch_by_batch_as_item_by_item():
    whole = list(DataLoader(PAIRS, 3, shuffle=True, generator=mg.Generator(1)))
    one_by_one = list(DataLoader([PAIRS[i] for i in range(10)], 3, shuffle=True, generator=mg.Generator(1)))
    for a, b in zip(whole, one_by_one, strict=True):
        assert all((x == y).all() for x, y in zip(a, b, strict=True))


def test_random_orders():
    loader = DataLoader(PAIRS, 4, shuffle=True, generator=mg.Generator(3))
    orders = [np.concatenate([x.numpy() for x, _ in loader]).tolist() for _ in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == list(range(10))
    again = DataLoader(PAIRS, 4, shuffle=True, generator=mg.Generator(3))
    assert np.concatenate([x.numpy() for x, _ in again]).tolist() == orders[0]
    endless = RandomSampler(PAIRS, replacement=True, num_samples=int(1e10))
    assert len(endless) == 1e10 and next(iter(DataLoader(PAIRS, 2, sampler=endless)))[0].shape == (2,)
    assert len(list(RandomSampler(PAIRS, num_samples=25))) == 25
    a, b, c = (list(RandomSampler(range(3000), generator=mg.Generator(seed))) for seed in (1, 1, 2))
    assert a == b != c and sorted(a) == list(range(3000))


def test_a_dataset_of_ones_own():
    class Negative(TensorDataset):
        def __getitem__(self, index):
            return tuple(-x for x in super().__getitem__(index))

    assert next(iter(DataLoader(Negative(mg.arange(4)), 3)))[0].tolist() == [0, -1, -2]


def test_collation_keeps_dtypes_and_kinds():
    assert default_collate([np.ones(2), np.ones(2)]).dtype == mg.float64 and default_collate([b"a", b"b"]) == [
        b"a",
        b"b",
    ]
    found = default_collate([[1, 2.0], [3, 4.0]])
    assert isinstance(found, list) and found[0].tolist() == [1, 3]


def test_collation():
    found = default_collate([{"a": 1, "b": ("s", [mg.ones(2), 0.5])}, {"a": 2, "b": ("t", [mg.zeros(2), 1.5])}])
    assert found["a"].numpy().tolist() == [1, 2] and found["b"][0] == ["s", "t"]
    assert found["b"][1][0].shape == (2, 2) and found["b"][1][1].dtype == mg.float64
    assert default_collate([True, False]).dtype == mg.bool_ and default_collate([2.5, 1]).dtype == mg.float64


WRONG = {
    "both": (lambda: DataLoader(PAIRS, shuffle=True, sampler=[1]), ValueError, "exclude each other"),
    "batch_size": (lambda: DataLoader(PAIRS, 0), ValueError, "batch_size must be a positive int or None, got 0"),
    "half": (lambda: DataLoader(PAIRS, 0.5), ValueError, "batch_size must be a positive int or None, got 0.5"),
    "no batches": (lambda: DataLoader(PAIRS, None, drop_last=True), ValueError, "batch_size=None and drop_last"),
    "rows": (lambda: TensorDataset(mg.ones(3), mg.ones(4)), ValueError, "3, 4 rows"),
    "objects": (lambda: default_collate([object()]), TypeError, "pass a collate_fn"),
    "parts": (lambda: default_collate([(1, 2), (1,)]), ValueError, "zip"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_items_one_by_one():
    items = [{"x": np.full(2, i, np.float32), "name": f"{i}", "pair": (np.int64(i), i)} for i in range(3)]
    loader = DataLoader(items, batch_size=None, sampler=[2, 0], persistent_workers=True)
    first, second = loader
    assert len(loader) == 2 and (first["name"], second["name"]) == ("2", "0")
    assert first["x"].dtype == mg.float32 and first["x"].tolist() == [2, 2]
    assert first["pair"][0].tolist() == 2 and first["pair"][1] == 2
    assert list(DataLoader([3, 4], batch_size=None, collate_fn=lambda x: x * 2)) == [6, 8]
