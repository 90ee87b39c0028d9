"""Tensors on a GPU: copies stay there, and arrays of another GPU are refused."""

import copy
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim
from minigrad.tensor import from_backend

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def values(x):
    return x.cpu().numpy().tolist()


# -------------------------------------------------------------------------------------------- beside tensors of the CPU


def test_a_number_of_the_cpu_joins_a_tensor_of_the_gpu(cupy):
    x, two = mg.tensor([1.0, 2.0, 3.0], device="cuda", requires_grad=True), mg.tensor(2.0, requires_grad=True)
    for y in (x * two, two * x, mg.maximum(x, two), x**two, mg.where(x > two, x, two), mg.stack([x[0], two])):
        assert y.device == "cuda"
    assert values(x > mg.tensor(2)) == [False, False, True]
    (x * two).sum().backward()
    assert (x.grad.device, two.grad.device, two.grad.item()) == ("cuda", "cpu", 6.0)
    for there, here in ((x, mg.tensor([2.0])), (mg.tensor(2.0, device="cuda"), mg.tensor([2.0]))):
        with pytest.raises(RuntimeError, match="mul: tensors on different devices"):
            there * here


@pytest.mark.parametrize("here, there", [("cuda", "cpu"), ("cpu", "cuda")])
def test_values_of_another_device_are_assigned(cupy, here, there):
    x = mg.zeros(2, 3, device=here)
    x[0] = mg.tensor([1, 2, 3], device=there)
    x[1, 2:] = mg.tensor(4.0, device=there)
    assert values(x) == [[1, 2, 3], [0, 0, 4]]
    assert values(x.copy_(mg.tensor([5.0, 6.0, 7.0], device=there)))[1] == [5, 6, 7] and x.device == here
    with pytest.raises(RuntimeError, match="add_: tensors on different devices"):
        x.add_(mg.ones(3, device=there))


def test_in_place_arithmetic_takes_a_number_of_the_cpu(cupy):
    x = mg.ones(2, device="cuda")
    assert values(x.mul_(mg.tensor(3.0)).clamp_(max=2.5).fill_(mg.tensor(4.0))) == [4, 4]
    with pytest.raises(RuntimeError, match="different devices"):
        mg.ones(2).mul_(mg.tensor(3.0, device="cuda"))


# --------------------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"]
)
def test_copies_stay_on_the_gpu(cupy, duplicate):
    x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="cuda")
    leaf, w = mg.ones(2, device="cuda", requires_grad=True), nn.Parameter(mg.ones(2, device="cuda"))
    for source in (x, x.T, leaf, w, mg.zeros(0, 2, device="cuda"), mg.tensor(True, device="cuda")):
        y = duplicate(source)
        assert type(y) is type(source) and y.device == "cuda" and type(y.array) is type(source.array)
        assert (y.dtype, y.requires_grad, values(y.detach())) == (
            source.dtype,
            source.requires_grad,
            values(source.detach()),
        )
        assert y.array.data.ptr != source.array.data.ptr or not y.numel()


def test_a_module_on_the_gpu_is_copied_there(cupy):
    m = nn.Linear(2, 3)
    for p in m.parameters():
        p.array, p.storage = p.to("cuda").array, mg.zeros(1, device="cuda").storage
    for d in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert {p.device for p in d.parameters()} == {"cuda"}
        assert values(d.weight.detach()) == values(m.weight.detach())


def test_a_pickle_of_a_gpu_tensor_says_what_is_missing(cupy, monkeypatch):
    pickled = pickle.dumps(mg.ones(2, device="cuda"))

    def missing():
        raise backend.DeviceError("device 'cuda': CuPy and a driver are here, but no GPU was found")

    monkeypatch.setattr(backend, "cuda", missing)
    with pytest.raises(backend.DeviceError, match="no GPU was found"):
        pickle.loads(pickled)


# ---------------------------------------------------------------------------------------------------------- another GPU


def test_arrays_of_another_gpu_are_refused(cupy, monkeypatch):
    """On a machine with one GPU, device="cuda" stands for another one."""
    there, here = cupy.array(np.ones(3, np.float32)), backend.get("cuda")
    x = from_backend(there, here)
    monkeypatch.setattr(here, "gpu", 1)
    refused = "an array of GPU 0, but device 'cuda' is GPU 1"
    for call in (lambda: x + x, lambda: here.softmax(there, 0), lambda: here.pointer(there)):
        with pytest.raises(RuntimeError, match=refused):
            call()


def test_a_model_trains_as_well_with_bfloat16():
    tokens = (np.random.default_rng(0).integers(0, 11, (20, 4, 1)) + np.arange(9)) % 11  # they count

    def losses(precision):
        mg.set_float32_matmul_precision(precision)
        mg.manual_seed(0)
        model = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=32)).to("cuda")
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        for x in (mg.tensor(batch, device="cuda") for batch in tokens):
            _, loss = model(x[:, :-1], x[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    try:
        exact, rough = list(losses("highest")), list(losses("medium"))
    finally:
        mg.set_float32_matmul_precision("highest")
    assert exact[-1] < 0.8 * exact[0] and exact != rough
    np.testing.assert_allclose(rough, exact, rtol=1e-2)


@pytest.mark.parametrize("precision, least, most", [("high", 1e-5, 2e-3), ("medium", 2e-4, 2e-2)])
def test_float32_is_rounded_where_that_is_allowed(precision, least, most):
    x = mg.randn(64, 64, device="cuda")
    product = mg.capture(lambda x: x @ x)
    exact = product(x).cpu().numpy()
    assert mg.cuda.get_float32_matmul_precision() == "highest"
    try:
        mg.set_float32_matmul_precision(precision)
        rough = product(x).cpu().numpy()  # a step that was recorded before knows it too
        np.testing.assert_array_equal((x @ x).cpu().numpy(), rough)
        assert mg.cuda.get_float32_matmul_precision() == precision
    finally:
        mg.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal(product(x).cpu().numpy(), exact)
    error = np.abs(rough - exact).max() / np.abs(exact).max()
    assert least < error < most
    with pytest.raises(ValueError, match="not 'tf32'"):
        mg.set_float32_matmul_precision("tf32")
