"""Numbers beside tensors: ints that a dtype does not hold, devices, and tensors without dims."""

import pickle

import pytest

import minigrad as mg
from minigrad.nn import functional as F


def leaf(values):
    return mg.tensor(values, dtype=mg.float64, requires_grad=True)


def test_ints_beside_a_tensor_whose_dtype_does_not_hold_them():
    x = mg.tensor([200, 100], dtype=mg.uint8)
    wrapped = {  # as PyTorch has them
        (244, 144): x + 300, (56, 156): x * -1, (156, 56): x - 300, (100, 200): 300 - x, (200, 100): x + 2**40,
        (0, 0): x * 2**63, (44, 44): mg.zeros(2, dtype=mg.uint8).add_(300),
    }  # fmt: skip
    for values, y in wrapped.items():
        assert y.dtype == mg.uint8 and tuple(y.tolist()) == values
    assert (mg.tensor([1, 2]) + 2**63).tolist() == [1 - 2**63, 2 - 2**63]
    assert (x < 300).all() and not (x == 300).any() and (x / 400).tolist() == [0.5, 0.25]
    index = mg.tensor([0])
    refused = {
        "floor_divide": lambda: x // 300, "where": lambda: x.masked_fill(x > 150, 300), "pow": lambda: x**300,
        "fill": lambda: x.fill_(300), "assignment": lambda: x.__setitem__(0, -1), "full": lambda: mg.full_like(x, 300),
        "scatter": lambda: x.scatter(0, index, 300), "pad": lambda: F.pad(x, (1, 0), value=300),
        "mul": lambda: x * 2**64,
    }  # fmt: skip
    for name, call in refused.items():
        with pytest.raises(OverflowError, match=rf"^{name}: uint8 holds 0 to 255, not"):
            call()
    assert x.tolist() == [200, 100]


def test_a_device_is_asked_for_its_kind():
    d = mg.ones(1).device
    assert (d.type, d.index, str(d), f"{d}", repr(d)) == ("cpu", None, "cpu", "cpu", "'cpu'")
    assert isinstance(d, mg.device) and d == "cpu" and {"cpu": 1}[d] == 1 and pickle.loads(pickle.dumps(d)) == d
    assert mg.device("cuda", 0) == mg.device("cuda:0") == "cuda" and mg.device("cuda").index == 0
    assert mg.zeros(1, device="cpu:0").device == mg.ones(1).to("cpu:0").device == mg.device(type="cpu")
    for given in (("cuda", 1), ("gpu",), ("cuda:0", 0)):
        with pytest.raises(ValueError, match="unknown device"):
            mg.device(*given)


def test_numbers_are_picked_from_as_vectors():
    x, first = leaf(5.0), mg.tensor(0)
    assert mg.gather(x, 0, first).shape == () and mg.gather(x, -1, mg.tensor([0, 0])).tolist() == [5, 5]
    assert mg.gather(mg.tensor([1, 2]), 0, mg.tensor(1)).item() == 2
    mg.gather(x, 0, mg.tensor([0, 0])).sum().backward()
    assert x.grad.item() == 2
    for call in (lambda: mg.gather(x, 0, mg.tensor(1)), lambda: mg.gather(x, 1, first)):
        with pytest.raises(IndexError, match="gather"):
            call()
