"""What hooks of a Module are given, where inputs, outputs and hooks are several or none."""

import minigrad as mg
from minigrad import nn


class Pair(nn.Module):
    """Two inputs, two outputs, of which one may be used, or only what it keeps aside."""

    def __init__(self):
        self.w = nn.Parameter(mg.full((2,), 3.0))

    def forward(self, x, y):
        self.aside = x * 5
        return x * self.w, y * 2


def made(hook=None):
    model, seen = Pair(), []
    model.register_full_backward_hook(hook or (lambda m, dxs, dys: seen.append((dxs, dys))))
    return model, seen


def test_gradients_match_inputs_and_outputs():
    model, seen = made()
    x, y = mg.ones(2, requires_grad=True), mg.ones(2)
    first, second = model(x, y)
    (first + second).sum().backward()
    ((dxs, dys),) = seen
    assert dxs[0].tolist() == [3, 3] and dxs[1] is None and [dy.tolist() for dy in dys] == [[1, 1]]
    model(y, y)[0].sum().backward()
    assert seen[1][0] == (None, None) and seen[1][1][0].tolist() == [1, 1]


def test_hooks_one_after_the_other():
    model, _ = made(lambda m, dxs, dys: (dxs[0] * 2, dxs[1]))
    model.register_full_backward_hook(lambda m, dxs, dys: (dxs[0] + 1, dxs[1]))
    x = mg.ones(2, requires_grad=True)
    model(x, mg.ones(2))[0].sum().backward()
    assert x.grad.tolist() == [7, 7]


def test_a_forward_hook_may_return_0_and_take_itself_away():
    layer, calls = nn.Identity(), []
    handle = layer.register_forward_hook(lambda m, args, y: calls.append(handle.remove()))
    layer.register_forward_hook(lambda m, args, y: mg.zeros(1))
    assert [layer(mg.ones(1)).item() for _ in range(2)] == [0, 0] and calls == [None]
