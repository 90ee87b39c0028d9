"""Names and calls that a user of PyTorch types from memory: dtypes, formats, // and %, making and changing tensors."""

import contextlib
import inspect
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F
from minigrad.ops import public

X = np.random.default_rng(0).standard_normal((3, 4))


def leaf(values, dtype=mg.float64):
    return mg.tensor(values, dtype=dtype, requires_grad=True)


def test_dtypes_by_their_other_names():
    names = dict(float=mg.float32, double=mg.float64, int=mg.int32, long=mg.int64, bool=mg.bool_)
    for name, dtype in names.items():
        assert getattr(mg, name) == dtype
        assert mg.ones(2).to(getattr(mg, name)).dtype == getattr(mg.ones(2), name)().dtype == dtype
    x = mg.ones(2)
    assert x.to(mg.float) is x and x.to("cpu", non_blocking=True) is x
    with pytest.raises(TypeError, match="no dtype bfloat16; it has float64"):
        x.to("bfloat16")


def test_a_number_in_a_format():
    loss = leaf(1.23456).exp().log()
    assert f"{loss:.4f} {loss:>8.2f} {mg.tensor(3):03d} {mg.tensor(2.5)}" == "1.2346     1.23 003 2.5"
    assert f"{mg.ones(2)}" == str(mg.ones(2))
    with pytest.raises(TypeError, match=r"'\.2f' is for tensors without dims, and this one has shape \(2,\)"):
        format(mg.ones(2), ".2f")


def test_division_without_rounding_is_exact():
    x = leaf(1.0)
    assert (x // 0.1).item() == 1.0 // 0.1 and (x % 0.1).item() == 1.0 % 0.1
    assert (mg.tensor(2**62 + 1) // 3).item() == (2**62 + 1) // 3 and (mg.tensor(2**62 + 1) % 10).item() == 5
    assert (mg.tensor(1e20, dtype=mg.float64) % 3.0).item() == 1e20 % 3.0
    with pytest.raises(ZeroDivisionError, match="integers divided by zero"):
        mg.arange(3) // 0
    with pytest.raises(TypeError, match="not defined for bools"):
        mg.ones(2).bool() % True
    assert math.isnan((mg.tensor(1.0) % 0).item()) and (mg.tensor(1.0) // 0).item() == math.inf


INDEX, MASK = mg.tensor([[2], [0]]), mg.tensor([[True, False, True]])
ARGUMENTS = {  # of functions that take more than Tensors of one shape
    "clamp": (0.2, 0.7), "cumsum": (1,), "cumprod": (1,), "masked_fill": (MASK, 2.0), "scatter": (1, INDEX, 0.8),
    "scatter_add": (1, INDEX, mg.ones(2, 1)), "index_add": (0, INDEX[1], mg.ones(1, 3)), "index_fill": (1, INDEX[0], 7),
}  # fmt: skip
TWINS = {name: f for name, f in vars(public).items() if hasattr(f, "also_in_place")}


@pytest.mark.parametrize("name", TWINS)
def test_in_place_twins(name):
    """x.exp_() writes x.exp() into x, bools as 0 and 1; so does every op whose result has x's shape."""
    function = TWINS[name]
    dtype = mg.bool_ if name.startswith(("logical", "bitwise")) else mg.float32
    x, y = ((mg.rand(2, 3) + 0.1).to(dtype) for _ in range(2))
    takes_two = {"other", "exponent"} & {*inspect.signature(function).parameters}
    args = ARGUMENTS.get(function.__name__, (y,) if takes_two else ())
    expected, view = function(x, *args), x.view(6)
    assert getattr(x, f"{name}_")(*args) is x
    assert x.dtype == dtype and x.tolist() == view.view(2, 3).tolist() == expected.to(dtype).tolist()


def test_in_place_twins_that_do_not_fit():
    with pytest.raises(ValueError, match=r"exp_: float32 \(3,\) does not fit into int64 \(3,\)"):
        mg.arange(3).exp_()
    with pytest.raises(ValueError, match=r"mul_: float32 \(2, 3\) does not fit"):
        mg.ones(3).mul_(mg.ones(2, 3))
    with pytest.raises(mg.GraphError, match=r"sigmoid_ changes a leaf.*write y = x.sigmoid\(…\)"):
        leaf([1.0]).sigmoid_()


def test_uint8_is_a_mask():
    """As in PyTorch, and unlike in NumPy, where it holds indices."""
    x, mask = mg.tensor([10.0, 20.0, 30.0]), mg.tensor([0, 1, 255], dtype=mg.uint8)
    for given in (mask, mask.numpy(), (mask,), (..., mask)):
        assert x[given].tolist() == [20, 30]
        y = x.clone()
        y[given] = 0.0
        assert y.tolist() == [10, 0, 0]
    assert mg.ones(2, 3)[:, mask].shape == (2, 2) and mg.ones(2, 3)[1, mask].shape == (2,)
    assert mg.where(mask, x, -x).tolist() == [-10, 20, 30] and x.masked_fill(mask, 1).tolist() == [10, 1, 1]
    assert x[[np.uint8(2)]].tolist() == [30] and x[np.uint8(2)].item() == 30  # numbers stay numbers
    with pytest.raises(IndexError, match="shape"):
        x[mask[:2]]
    with pytest.raises(TypeError, match=r"mask must be a bool Tensor, got a Tensor of int32; mask.bool\(\) casts"):
        x.masked_fill(mask.int(), 0.0)


def test_making_like_another():
    x = mg.ones(2, 3, dtype=mg.float64)
    for y in (x.new_zeros(4), x.new_zeros((4,)), x.new_zeros(size=(4,)), x.new_full((4,), 0), x.new_tensor([0] * 4)):
        assert y.dtype == mg.float64 and y.tolist() == [0] * 4 and not y.requires_grad
    assert x.new_ones(1, 2, dtype=mg.int32, requires_grad=False).dtype == mg.int32 and x.new_empty(3).shape == (3,)
    assert x.new_ones(2, requires_grad=True).requires_grad and x.new_tensor(2.0).shape == ()
    assert mg.rand_like(x).dtype == mg.float64 and mg.empty_like(x, dtype=mg.int64).shape == (2, 3)
    assert mg.randint_like(x, 5, 6).tolist() == [[5.0] * 3] * 2 and mg.randint_like(x, 1).sum().item() == 0
    assert mg.FloatTensor([1, 2]).dtype == mg.float32 and mg.LongTensor(2, 3).shape == (2, 3)
    assert mg.ByteTensor([[1, 0]]).dtype == mg.uint8 and mg.DoubleTensor(np.ones(2, np.int8)).tolist() == [1, 1]
    assert mg.BoolTensor([0, 1]).tolist() == [False, True] and mg.HalfTensor((2, 2)).dtype == mg.float16
    assert x.new(3).shape == (3,) and x.new([1, 2]).dtype == mg.float64 and x.ndimension() == 2
    assert x.type(mg.LongTensor).dtype == x.type(mg.int64).dtype == mg.int64
    assert mg.Tensor(2, 3).shape == (2, 3) and mg.Tensor([[1, 2]]).dtype == mg.float32 and mg.Tensor(0).shape == (0,)
    assert mg.Tensor(np.arange(3)).tolist() == [0, 1, 2] and math.inf == mg.inf and mg.nan != mg.nan and mg.pi > 3
    assert mg.Tensor().shape == (0,) and mg.Tensor(np.int64(3)).shape == (3,)
    assert mg.ones(2, dtype=mg.int64).new([2**40 + 1]).tolist() == [2**40 + 1]  # not by way of float32
    for call, words in {
        lambda: mg.arange(): "arange needs an end",
        lambda: mg.randint(5): "randint needs a size",
        lambda: type("Own", (mg.Tensor,), {})([1.0]): "Own must define __new__",
    }.items():
        with pytest.raises(TypeError, match=words):
            call()
    assert type(nn.Parameter(mg.Tensor(2))) is nn.Parameter and type(mg.Tensor([1])) is mg.Tensor
    assert x.nelement() == 6
    assert not (x.is_sparse or x.is_cuda or x.is_complex())
    with pytest.raises(OverflowError):
        x.new_full((2,), 300, dtype=mg.uint8)


def test_initial_values():
    w = mg.empty(400, 100)
    assert (nn.init.constant_(w, 2.5) == 2.5).all()
    assert nn.init.xavier_normal_(w).std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    bound = (6 / 100) ** 0.5
    nn.init.kaiming_uniform_(w, nonlinearity="relu")
    assert w.abs().max().item() <= bound and w.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    with pytest.raises(ValueError, match="mode is"):
        nn.init.kaiming_uniform_(w, mode="fan")


def test_making():
    assert mg.randint(5, (2, 3)).shape == mg.randint(0, 5, (2, 3)).shape == (2, 3)
    assert set(mg.randint(3, (100,)).tolist()) == {0, 1, 2} and mg.randint(2, (3,), dtype=mg.int32).dtype == mg.int32
    x = mg.ones(2, dtype=mg.float16)
    assert mg.ones_like(x, requires_grad=True).requires_grad and mg.zeros_like(x, dtype=mg.long).dtype == mg.int64
    assert F.one_hot(mg.tensor([0, 2])).shape == (2, 3)


def test_a_list_of_tensors_keeps_no_gradient_and_says_so():
    x = leaf([1.0, 2.0])
    with pytest.raises(mg.GraphError, match=r"drop the gradients.*minigrad\.stack"):
        mg.tensor([x[0], x[1]])
    with mg.no_grad():
        assert mg.tensor([x[0], [*x][1]]).tolist() == [1, 2]
    assert mg.tensor([x.detach()[0], 3.0]).tolist() == [1, 3]


def test_changes_in_place():
    for change in (lambda x: x.clamp_(0.5, 1.5), lambda x: x.masked_fill_(x > 1, 0.0)):
        x, y = mg.tensor(X), mg.tensor(X)
        version = y.storage.version
        assert change(y) is y and y.storage.version > version
        np.testing.assert_array_equal(y.numpy(), x.clamp(0.5, 1.5) if y.min() == 0.5 else x.masked_fill(x > 1, 0.0))
    with pytest.raises(mg.GraphError, match="clamp_ changes a leaf"):
        leaf(X).clamp_(0, 1)
    with pytest.raises(ValueError, match=r"clamp_: float32 .* does not fit into int64"):
        mg.arange(3).clamp_(0.5)
    with pytest.raises(mg.GraphError, match="read-only"):
        mg.ones(1).expand(3).clamp_(0, 1)


def test_devices():
    device = mg.device("cuda" if mg.cuda.is_available() else "cpu")
    x = mg.ones(2).to(device)
    assert x.device == device == mg.device(device) and mg.device("cuda:0") == "cuda"
    assert mg.cuda.device_count() == (device == "cuda")
    with pytest.raises(ValueError, match="unknown device 'cuda:1'; there are 'cpu' and 'cuda', which is one GPU"):
        mg.device("cuda:1")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        mg.ones(2).to("gpu")
    x.pin_memory().to(device, non_blocking=True)  # as nanoGPT does
    mg.cuda.manual_seed_all(3)  # as minGPT and makemore do
    drawn = mg.rand(2)
    mg.manual_seed(3)
    assert mg.equal(drawn, mg.rand(2))
    with contextlib.nullcontext() if device == "cuda" else pytest.raises(mg.DeviceError):
        mg.cuda.synchronize()


@pytest.mark.parametrize("dtype", [mg.float16, mg.float32, mg.float64])
@pytest.mark.parametrize("shape", [(), (0,), (50, 3)])
def test_values_that_are_drawn(dtype, shape):
    for draw, fill in (
        (lambda x: x.normal_(1.0, 0.5), nn.init.normal_),
        (lambda x: x.uniform_(1, 1.5), nn.init.uniform_),
    ):
        mg.manual_seed(3)
        layer = nn.Parameter(mg.zeros(*shape, dtype=dtype))
        assert draw(layer.data).dtype == dtype
        mg.manual_seed(3)
        assert mg.equal(layer, fill(mg.empty(*shape, dtype=dtype), 1.0, 0.5 if fill is nn.init.normal_ else 1.5))
    assert ((layer >= 1) & (layer <= 1.5)).all()


def test_values_that_are_drawn_into_a_part():
    x = mg.zeros(40, 50)
    assert x.T[:20].normal_(generator=mg.Generator(1)) is not x and abs(x[:, :20].std().item() - 1) < 0.1
    assert not x[:, 20:].any()
    with pytest.raises(ValueError, match=r"from 1 up to 0"):
        x.uniform_(1, 0)
    with pytest.raises(ValueError, match="std must not be negative, got -1"):
        x.normal_(0, -1)
    with pytest.raises(TypeError, match="normal_: the numbers are floats, and this tensor is int64"):
        mg.arange(3).normal_()
    leaf, state = mg.ones(2, requires_grad=True), mg.default_generator.state
    with pytest.raises(mg.GraphError, match=r"normal_ changes a leaf .* one: change it under no_grad"):
        leaf.normal_()
    assert mg.default_generator.state == state and leaf.tolist() == [1, 1]
    with mg.no_grad():
        y = leaf.normal_(mean=5.0, std=np.float32(0))
    assert y is leaf and leaf.requires_grad and leaf.tolist() == [5, 5]


def test_queries_of_a_tensor():
    x = mg.tensor(X)
    assert x.stride() == (4, 1) and x.stride(0) == 4 and x.dim() == 2 and x.size(1) == 4
    assert 2 in mg.arange(3) and 5 not in mg.arange(3) and (+x) is x


def test_options_of_torch_that_change_nothing():
    x = leaf([1.0])
    assert (x * 2).numpy(force=True).tolist() == [2]
    g = mg.Generator(device="cpu").manual_seed(3)
    assert mg.rand(2, generator=g).tolist() == mg.rand(2, generator=mg.Generator(3)).tolist()
    with pytest.raises(ValueError, match="unknown device"):
        mg.Generator(device="tpu")


def test_short_names():
    x = leaf(X)
    assert mg.absolute is mg.abs and mg.clip is mg.clamp and mg.concat is mg.cat
    np.testing.assert_allclose(mg.mm(x, x.T).detach(), X @ X.T, 1e-14)
    assert x.type_as(mg.ones(2)).dtype == mg.float32 and mg.ones(4).expand_as(x).shape == (3, 4)
    with pytest.raises(ValueError, match=r"mm is of two matrices, got shapes \(3, 4\) and \(4,\); use matmul"):
        x.mm(x[0])
    assert mg.max(mg.tensor([1, 5]), mg.tensor([3, 2])).tolist() == [3, 5] and mg.ones(2).min(mg.zeros(2)).sum() == 0


def test_round_takes_halves_to_the_even_number():
    x = mg.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, -0.3, 1e300, math.inf], dtype=mg.float64)
    np.testing.assert_array_equal(mg.round(x), np.round(x.numpy()))
    assert math.isnan(mg.tensor(math.nan).round().item()) and mg.arange(3).round().tolist() == [0, 1, 2]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8, 13])
def test_prod(n):
    x = np.random.default_rng(n).standard_normal((2, n, 3))
    np.testing.assert_allclose(mg.prod(mg.tensor(x), 1), x.prod(1), 1e-14)
    np.testing.assert_allclose(mg.tensor(x).prod(1, keepdim=True), x.prod(1, keepdims=True), 1e-14)
    np.testing.assert_allclose(mg.tensor(x).prod(), x.prod(), 1e-14)
    assert mg.arange(1, n + 1).prod().item() == math.prod(range(1, n + 1)) and mg.tensor(3.0).prod(0).item() == 3
    y = leaf(np.where(x > 0.5, 0.0, x))  # several zeros in a product, or one
    y.prod(1).sum().backward()
    others = np.stack([np.delete(y.detach(), i, 1).prod(1) for i in range(n)], 1) if n else x
    np.testing.assert_allclose(y.grad, others, 1e-13)


def test_in_place_names_of_optimizers():
    x, a, b = (mg.tensor(np.abs(X) + k) for k in (0, 1, 2))
    kept = x.clone()
    assert x.addcmul_(a, b, value=0.5) is x
    np.testing.assert_allclose(x, kept + 0.5 * a * b)
    np.testing.assert_allclose(x.clone().addcdiv_(a, b, value=-2), x - 2 * a / b)
    np.testing.assert_allclose(x.clone().lerp_(a, 0.3), x + 0.3 * (a - x))
    np.testing.assert_allclose(x.clone().sqrt_(), x.sqrt())


def test_a_mask_may_be_larger_than_what_it_fills():
    x, mask = mg.arange(4).reshape(1, 4), mg.tensor([[True, False, False, True], [False, True, True, False]])
    assert x.masked_fill(mask, 9).tolist() == [[9, 1, 2, 9], [0, 9, 9, 3]]
    with pytest.raises(ValueError, match="masked_fill_"):
        x.masked_fill_(mask, 9)


def test_losses_by_distance():
    x, y = leaf([0.0, 1.0, 5.0]), mg.tensor([0.25, 3.0, 5.0], dtype=mg.float64)
    assert F.l1_loss(x, y).item() == nn.L1Loss()(x, y).item() == 0.75
    assert F.l1_loss(x, y, reduction="sum").item() == 2.25
    assert F.smooth_l1_loss(x, y, reduction="none").tolist() == [0.03125, 1.5, 0.0]
    assert nn.SmoothL1Loss(beta=0.5)(x, y).item() == pytest.approx((0.0625 + 1.75) / 3)
    with pytest.raises(ValueError, match="beta must be positive, got 0"):
        F.smooth_l1_loss(x, y, beta=0)
