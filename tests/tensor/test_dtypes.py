"""The table of dtype promotion, which tensors may require a gradient, and that an op has one device."""

import itertools

import numpy as np
import pytest

import minigrad as mg
from minigrad import dtypes
from minigrad.autograd import Storage
from minigrad.backend import reference

FLOATS = (mg.float16, mg.float32, mg.float64)
INTS = (mg.uint8, mg.int8, mg.int16, mg.int32, mg.int64)
ARITHMETIC = (mg.add, mg.sub, mg.mul, mg.div, mg.maximum, mg.minimum, mg.pow)

EXPECTED = """
          float64  float32  float16  int64    int32    int16    int8     uint8    bool     | bool     int      float
float64   float64  float64  float64  float64  float64  float64  float64  float64  float64  | float64  float64  float64
float32   float64  float32  float32  float32  float32  float32  float32  float32  float32  | float32  float32  float32
float16   float64  float32  float16  float16  float16  float16  float16  float16  float16  | float16  float16  float16
int64     float64  float32  float16  int64    int64    int64    int64    int64    int64    | int64    int64    float32
int32     float64  float32  float16  int64    int32    int32    int32    int32    int32    | int32    int32    float32
int16     float64  float32  float16  int64    int32    int16    int16    int16    int16    | int16    int16    float32
int8      float64  float32  float16  int64    int32    int16    int8     int16    int8     | int8     int8     float32
uint8     float64  float32  float16  int64    int32    int16    int16    uint8    uint8    | uint8    uint8    float32
bool      float64  float32  float16  int64    int32    int16    int8     uint8    bool     | bool     int64    float32
"""


def promotion_table():
    """{(a, b): result} over all dtypes and the Python kinds bool, int and float."""
    numbers = {"bool": True, "int": 1, "float": 1.0}
    table = {(str(a), str(b)): str(dtypes.promote(a, b)) for a in dtypes.ALL for b in dtypes.ALL}
    table |= {(str(a), f"Python {n}"): str(dtypes.promote_number(a, v)) for a in dtypes.ALL for n, v in numbers.items()}
    return table


def printed(table):
    """The table as text: a row for each dtype; a column for each dtype and, after the bar, each kind of number."""
    names = [str(d) for d in dtypes.ALL]
    rows = [("", *names, "|", "bool", "int", "float")]
    for a in names:
        numbers = [table[a, f"Python {kind}"] for kind in ("bool", "int", "float")]
        rows.append((a, *(table[a, b] for b in names), "|", *numbers))
    lines = [
        "".join(f"{cell:<{2 if cell == '|' else 10 if i == 0 else 9}}" for i, cell in enumerate(row)) for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def test_promotion_table_as_printed():
    text = printed(promotion_table())
    print(text)
    assert [line.split() for line in text.splitlines()] == [line.split() for line in EXPECTED.strip().splitlines()]


@pytest.mark.parametrize("op", [mg.add, mg.mul, mg.maximum, mg.minimum], ids=lambda op: op.__name__)
def test_the_ops_keep_to_the_table(op):
    table = promotion_table()
    for a, b in itertools.product(dtypes.ALL, repeat=2):
        x, y = mg.ones(2, dtype=a), mg.ones(3, 1, dtype=b)
        assert str(op(x, y).dtype) == table[str(a), str(b)], (a, b)
        assert (x == y).dtype == mg.bool_
        assert str(mg.cat([x, y[:, 0]]).dtype) == table[str(a), str(b)]
    for a in dtypes.ALL:
        for number, kind in ((True, "bool"), (1, "int"), (1.0, "float")):
            assert str(op(mg.ones(2, dtype=a), number).dtype) == table[str(a), f"Python {kind}"]
            assert str(op(number, mg.ones(2, dtype=a)).dtype) == table[str(a), f"Python {kind}"]


def test_division_keeps_to_the_table_and_makes_floats():
    table = promotion_table()
    for a, b in itertools.product(dtypes.ALL, repeat=2):
        result = (mg.ones(2, dtype=a) / mg.ones(2, dtype=b)).dtype
        expected = table[str(a), str(b)]
        assert str(result) == (expected if expected.startswith("float") else "float32"), (a, b)
    third = mg.tensor([1.0], dtype=mg.float64) / mg.tensor([2**24 + 1])
    assert third.item() == 1 / (2**24 + 1)  # the integer did not pass through float32


@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_are_weak(op, dtype):
    x = mg.full((3,), 0.5, dtype=dtype, requires_grad=True)
    for number in (2, 2.0, np.float64(2.0), np.float32(2.0), np.int64(2), True):
        for y in (op(x, number), op(number, x)):
            assert y.dtype == dtype
            y.sum().backward()
            assert x.grad.dtype == dtype


def test_numpy_scalars_are_weak_on_either_side():
    x = mg.ones(2)
    for number in (np.float64(2), np.float32(2), np.int64(2)):
        for y in (x * number, number * x, number + x, number - x, number / x):
            assert y.dtype == mg.float32
    assert (np.ones(2) * x).dtype == mg.float64  # an array is no scalar


def test_functions_of_integers_are_float32_and_floats_stay():
    for f in (mg.exp, mg.log, mg.sqrt, mg.rsqrt, mg.sin, mg.cos, mg.tanh, mg.sigmoid, mg.erf):
        assert all(f(mg.ones(2, dtype=d)).dtype == mg.float32 for d in (*INTS, mg.bool_))
        assert all(f(mg.ones(2, dtype=d)).dtype == d for d in FLOATS)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_dtypes_of_reductions(dtype):
    x = mg.ones(2, 3, dtype=dtype)
    of_a_sum = dtype if dtype in FLOATS else mg.int64
    assert x.sum().dtype == x.sum(1).dtype == x.cumsum(1).dtype == of_a_sum
    assert x.amax().dtype == x.sort().values.dtype == x.topk(1).values.dtype == dtype
    assert x.argmax().dtype == x.argsort().dtype == x.max(1).indices.dtype == mg.int64
    assert x.any().dtype == x.all(1).dtype == x.isnan().dtype == mg.bool_
    assert x.sum().item() == 6
    for f in (mg.mean, mg.var, lambda x: x.softmax(0), lambda x: x.logsumexp(0)):
        if dtype in FLOATS:
            assert f(x).dtype == dtype
        else:
            with pytest.raises(TypeError, match=str(dtype)):
                f(x)


def test_float16_reductions_do_not_overflow_inside():
    x = mg.full((70_000,), 1.0, dtype=mg.float16)
    assert x.mean().item() == 1.0
    assert mg.full((1000,), 100.0, dtype=mg.float16).var().item() == 0.0
    assert mg.tensor(np.arange(1000) % 2 * 200).half().mean().item() == 100.0


def test_where_of_two_numbers_has_their_dtype():
    condition = mg.tensor([True, False])
    assert mg.where(condition, 1.0, 0.0).dtype == mg.where(condition, 1, 0.5).dtype == mg.float32
    assert mg.where(condition, 1, 0).dtype == mg.int64 and mg.where(condition, True, False).dtype == mg.bool_
    assert mg.where(condition, mg.ones(2, dtype=mg.float16), 0.5).dtype == mg.float16


def test_default_dtypes_of_data():
    assert mg.tensor([1.0, 2]).dtype == mg.tensor([]).dtype == mg.full((2,), 0.5).dtype == mg.float32
    assert mg.tensor([1, 2]).dtype == mg.full((2,), 1).dtype == mg.arange(3).dtype == mg.int64
    assert mg.tensor([True]).dtype == mg.full((2,), True).dtype == mg.bool_
    assert mg.tensor(np.ones(2)).dtype == mg.tensor([np.float64(1)]).dtype == mg.float64
    assert mg.tensor(np.ones(2), dtype="float16").dtype == mg.float16
    assert mg.tensor([1.5], dtype=int).tolist() == [1]
    assert mg.ones(1, dtype=float).dtype == mg.ones(1).to("float").dtype == mg.float32
    for bad in (np.ones(1, complex), np.array(["a"]), np.array([None]), np.ones(1, np.uint32)):
        with pytest.raises(TypeError, match="minigrad has no dtype"):
            mg.tensor(bad)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**63, -1e30, 10**400])
def test_numbers_that_int64_does_not_hold(value):
    x, index = mg.tensor([1, 2]), mg.tensor([0])
    calls = {
        "tensor": [lambda: mg.tensor([0, value], dtype=mg.int64), lambda: mg.as_tensor(value, dtype=mg.int64)],
        "full": [lambda: mg.full((2,), value, dtype=mg.int64), lambda: mg.full_like(x, value)],
        "scatter": [lambda: x.scatter(0, index, value)],
        "fill": [lambda: x.fill_(value)],
        "assignment": [lambda: x.__setitem__(0, value)],
    }
    for name, made in calls.items():
        for call in made:
            with pytest.raises(OverflowError, match=f"^{name}: int64 holds .* to 9223372036854775807, not "):
                call()
    assert x.tolist() == [1, 2]


def test_floats_that_integers_hold_lose_their_fraction():
    assert mg.tensor([-0.9, 255.9], dtype=mg.uint8).tolist() == [0, 255]
    assert mg.full((1,), np.float32(-128.5), dtype=mg.int8).tolist() == [-128]
    assert mg.tensor([-(2.0**63)], dtype=mg.int64).tolist() == mg.full((1,), np.float64(-(2**63)), mg.int64).tolist()
    assert mg.tensor(np.array([300.0]), dtype=mg.uint8).tolist() == [44]  # an array is cast, as by to()
    for n in (2**63, 2**70, [1, -(2**70)]):
        with pytest.raises(OverflowError, match=r"^tensor: int64 holds .* to 9223372036854775807, not"):
            mg.tensor(n)


# ------------------------------------------------------------------------------ which tensors may require a gradient


@pytest.mark.parametrize("dtype", [*INTS, mg.bool_], ids=str)
def test_integers_cannot_require_a_gradient(dtype):
    attempts = [
        lambda: mg.ones(2, dtype=dtype, requires_grad=True),
        lambda: mg.tensor([1, 0], dtype=dtype, requires_grad=True),
        lambda: mg.ones(2, dtype=dtype).requires_grad_(),
        lambda: setattr(mg.ones(2, dtype=dtype), "requires_grad", True),
        lambda: mg.nn.Parameter(mg.ones(2, dtype=dtype)),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match=str(dtype)):
            attempt()


# -------------------------------------------------------------------------------------------- an op has one device


def on_a_fake_device(x):
    if not hasattr(on_a_fake_device, "backend"):
        on_a_fake_device.backend = type(reference)()
        on_a_fake_device.backend.device = "fake"
    return mg.Tensor._wrap(x.array, Storage(on_a_fake_device.backend))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: y @ x,
        lambda x, y: mg.cat([x, y]),
        lambda x, y: mg.where(x > 0, x, y),
        lambda x, y: mg.nn.functional.linear(x, y),
        lambda x, y: x.requires_grad_().exp().backward(y),
        lambda x, y: x.requires_grad_().backward(y),
        lambda x, y: setattr(x.requires_grad_(), "grad", y),
        lambda x, y: x.add_(y),
    ],
)
def test_mixing_devices_raises_and_names_both(mix):
    x, y = mg.ones(2, 2), on_a_fake_device(mg.ones(2, 2))
    assert (y + y).device == "fake" and (y + 1).sum().device == "fake"
    with pytest.raises((RuntimeError, ValueError), match=r"cpu.*fake|fake.*cpu"):
        mix(x, y)


def test_an_unknown_device_and_a_missing_one():
    with pytest.raises(ValueError, match=r"'tpu'.*'cpu' and 'cuda'"):
        mg.ones(2, device="tpu")
    with pytest.raises((ValueError, TypeError), match="tpu"):
        mg.ones(2).to("tpu")
    try:
        x = mg.ones(2, device="cuda")
    except mg.DeviceError as error:
        assert any(word in str(error) for word in ("CuPy", "driver", "GPU"))
    else:
        assert x.device == "cuda"
