"""PyTorch's arguments of modules, optimizers and grad(): taken where they mean something, else refused with a hint."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim


class Twice(nn.Module):
    def __init__(self, sparse=False):  # the word is this class's own
        self.first = nn.Linear(2, 2)
        self.second = self.first


class Bare(nn.Module):
    pass


class Free(nn.Module):
    def __init__(self, **options):
        self.options = tuple(options)


def test_words_of_ones_own_are_taken():
    assert Free(sparse=True, reduce=1).options == ("sparse", "reduce")


def test_states_with_a_prefix_and_of_parameters():
    model = Twice(sparse=True)
    names = ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert [*model.state_dict()] == names and [*model.state_dict(prefix="m_")] == [f"m_{name}" for name in names]
    assert model.state_dict(keep_vars=True)["first.bias"] is model.first.bias
    assert not model.state_dict()["first.bias"].requires_grad
    assert [name for name, _ in model.named_parameters()] == names[:2]
    assert [name for name, _ in model.named_parameters(remove_duplicate=False)] == names
    model.register_buffer("seen", mg.zeros(1))
    assert [name for name, _ in model.named_buffers(remove_duplicate=False)] == ["seen"]


def test_a_state_is_assigned():
    model = nn.Linear(2, 2)
    weight, state = model.weight, nn.Linear(2, 2).double().state_dict()
    assert model.load_state_dict(state, assign=True).missing_keys == []
    assert model.weight is weight and weight.requires_grad and weight.is_leaf and weight.dtype == mg.float64
    state["weight"].zero_()
    assert not weight.any()
    model(mg.ones(1, 2).double()).sum().backward()
    assert weight.grad.dtype == mg.float64
    model.load_state_dict({"weight": np.ones((2, 4))[:, ::2], "bias": mg.ones(2)}, assign=True)
    assert weight.is_contiguous() and model.bias.dtype == mg.float32
    with pytest.raises(ValueError, match="bias has shape"):
        model.load_state_dict({"weight": mg.zeros(2, 2), "bias": mg.ones(3)}, assign=True)
    assert weight.all()


def test_gradients_that_are_zeros():
    x, unused = mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)
    dx, zeros = mg.grad(x.sum(), [x, unused], materialize_grads=True)
    assert dx.tolist() == [1, 1] and zeros.tolist() == [0, 0, 0]


def test_decoupled_weight_decay_is_adamw():
    p, q = (nn.Parameter(mg.ones(2)) for _ in range(2))
    steps = optim.Adam([p], 0.1, weight_decay=0.1, decoupled_weight_decay=True), optim.AdamW([q], 0.1, weight_decay=0.1)
    for optimizer in (*steps, *steps):
        p.grad = q.grad = mg.tensor([1.0, 2.0])
        optimizer.step()
    assert p.tolist() == q.tolist()


def test_words_of_init_and_optimizers():
    p = nn.Parameter(mg.ones(2, 2))
    assert nn.init.constant_(tensor=p, val=3).tolist() == [[3, 3], [3, 3]]
    assert nn.init.zeros_(tensor=p) is nn.init.normal_(tensor=p, std=0.5) is nn.init.xavier_uniform_(tensor=p) is p
    optimizer = optim.SGD([p], 0.1)
    optimizer.add_param_group(param_group={"params": mg.ones(1, requires_grad=True)})
    assert len(optimizer.param_groups) == 2


X = mg.ones(2, requires_grad=True)
REFUSED = {
    "unexpected keyword argument 'biases'": lambda: nn.Linear(2, 2, biases=True),
    r"Bare\(\) takes no arguments": lambda: Bare(3),
    r"grad\(\) got an unexpected keyword argument 'graph'": lambda: mg.grad(X.sum(), X, graph=True),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_says_so(words):
    with pytest.raises(TypeError, match=words):
        REFUSED[words]()
