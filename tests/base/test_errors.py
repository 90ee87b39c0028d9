"""What a beginner does, and what minigrad says: an error that names the thing, or a warning where nothing would
happen."""

import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.base.errors import unknown


class Square(mg.Op):
    def forward(self, x):
        return self.backend.mul(x, x)

    def backward(self, dy):
        return 2 * self.x * dy


class Net(nn.Module):
    def __init__(self):
        self.first = nn.Linear(2, 2)
        self.layers = [nn.Linear(2, 2)]


GPT = nn.GPT(nn.GPTConfig(vocab_size=5, block_size=8, n_layer=1, n_head=1, n_embd=8))
X = mg.ones(2, 3, requires_grad=True)
ERRORS = {
    "one sequence, no batch": (lambda: GPT(mg.tensor([1, 2])), ValueError, r"\(B, T\), got shape \(2,\); idx\[None\]"),
    "text for tokens": (lambda: GPT.generate("text", 3), TypeError, r"takes tokens, not text: vocab\.encode"),
    "texts for tokens": (lambda: GPT.generate(["text"], 3), TypeError, "takes tokens, not text"),
    "sizes for a config": (lambda: nn.GPT(vocab_size=5), TypeError, r"nn\.GPT\(nn\.GPTConfig\(vocab_size="),
    "a size for a config": (lambda: nn.GPT(3), TypeError, r"nn\.GPT\(nn\.GPTConfig\(vocab_size="),
    "an op called": (lambda: Square(X), TypeError, r"Square\.apply\(x, …\) runs an op"),
    "no list": (lambda: mg.cat(X, X), TypeError, r"cat takes a list of Tensors: cat\(\[a, b\], dim\)"),
    "no list to stack": (lambda: mg.stack(X), TypeError, r"stack takes a list of Tensors"),
    "a tensor for a dim": (lambda: X.softmax(mg.ones(200, 300)), TypeError, r"dim must be an int, got .{,40}$"),
    "a ragged list": (lambda: mg.tensor([[1, 2], [3]]), ValueError, "lists have different lengths; pad them"),
    "a vector that does not fit": (
        lambda: X @ mg.ones(2),
        ValueError,
        r"inner sizes of \(2, 3\) and \(2,\) differ, 3 and 2",
    ),
    "a view of another size": (
        lambda: X.view(7),
        ValueError,
        r"view: 6 elements of shape \(2, 3\) do not fit shape \(7,\)",
    ),
    "nothing to choose from": (lambda: unknown("layer", "a", []), None, "there is no layer 'a'; there are none"),
    "no gradient wanted": (lambda: mg.ones(2).sum().backward(), mg.GraphError, "say requires_grad=True, or make it an"),
}
WARNINGS = {
    "layers in a list": (lambda: list(Net().parameters()), r"Net\.layers is a list .*: make it an nn\.ModuleList"),
    "grad of a result": (lambda: (X * 2).grad, r"grad of a result of mul is None.*retain_grad\(\) before backward\(\)"),
    "a step before backward": (lambda: optim.SGD([X]).step(), r"no parameter has a gradient; call loss\.backward\(\)"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_to_write(name):
    act, error, words = ERRORS[name]
    if error is None:
        assert act() == words
        return
    with pytest.raises(error, match=words):
        act()


@pytest.mark.parametrize("name", WARNINGS)
def test_calls_without_an_effect_warn(name):
    act, words = WARNINGS[name]
    with pytest.warns(UserWarning, match=words):
        act()


def test_a_backward_that_takes_what_its_forward_has_not_kept():
    with pytest.raises(AttributeError, match="no attribute 'x'") as error:
        Square.apply(X).sum().backward()
    assert error.value.__notes__ == [
        "An op keeps what its backward needs by save_inputs(…) or save(…), in its forward."
    ]


def test_a_list_of_layers_that_are_known_otherwise_is_no_mistake():
    net = Net()
    net.known = nn.ModuleList(net.layers)
    assert len(list(net.parameters())) == 4
