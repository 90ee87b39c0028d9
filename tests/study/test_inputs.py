"""The inputs and the output of a layer in a trace, and the gradients of each head's own copy of the inputs."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study

from .models import ATTN, B, T, gpt, tokens, traced

EXACT = {mg.float64: 1e-12, mg.float32: 2e-5}
S = 5


def near(x, expected, dtype=mg.float64):
    expected = np.asarray(expected)
    np.testing.assert_allclose(x, expected, rtol=EXACT[dtype], atol=EXACT[dtype] * abs(expected).max())


def leaf(*shape, dtype):
    return mg.randn(*shape, dtype=dtype, requires_grad=True)


def wild(layer):
    """The layer with biases that are not 0."""
    for p in layer.parameters():
        if p.ndim == 1:
            nn.init.normal_(p)
    return layer


LAYERS = {
    "self": dict(),
    "without bias": dict(bias=False),
    "grouped, rotary": dict(num_kv_heads=2, positions="rotary"),
    "one key for all": dict(num_kv_heads=1, scale=0.7),
}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("changes", [dict(), dict(gates=[1.0, 0.5, -2.0, 0.0])], ids=str)
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_the_gradients_of_the_heads_copies_add_up_to_that_of_the_input(options, changes, dtype):
    layer = wild(nn.MultiheadAttention(16, 4, dtype=dtype, batch_first=True, **options))
    if "gates" in changes:
        layer.head_gates = mg.tensor(changes["gates"], dtype=dtype)
    query, key, value = (leaf(B, T, 16, dtype=dtype), leaf(B, S, 16, dtype=dtype), leaf(B, S, 16, dtype=dtype))
    with study.trace_heads(layer) as trace:
        y, _ = layer(query, value=value, key=key)
        (y**2).sum().backward()
    seen = trace[0]
    for name, x in (("x_q", query), ("x_k", key), ("x_v", value)):
        np.testing.assert_array_equal(getattr(seen, name), x.detach().numpy())
        of_heads = getattr(seen, f"{name}_grad")
        assert of_heads.shape == (B, layer.num_heads, *x.shape[1:]) and of_heads.dtype == np.float64
        near(of_heads.sum(1), x.grad.numpy(), dtype)
    np.testing.assert_array_equal(seen.y, y.detach().numpy())
    near(seen.y_grad, 2 * seen.y, dtype)
    bias = 0.0 if layer.out_proj.bias is None else layer.out_proj.bias.detach().numpy()
    near((seen.z @ seen.W_O).sum(1) + bias, seen.y, dtype)
    near(seen.z_grad, seen.y_grad[:, None] @ seen.W_O.swapaxes(1, 2), dtype)


@pytest.mark.parametrize("head", range(4))
@pytest.mark.parametrize("p", "qkv")
def test_of_one_head_is_what_differences_say(p, head):
    """The head's copy of the input changes, and nothing else does."""
    model = gpt(n_kv_head=2)
    seen = traced(model)[ATTN]
    change = np.random.default_rng(0).standard_normal((B, T, 16))
    W = getattr(seen, f"W_{p.upper()}")[head]

    def loss(by):
        of_head = np.zeros((B, 4, T, 4))
        of_head[:, head] = by * change @ W
        handle = model.blocks[1].attn.register_head_hook(p, lambda layer, x: x + mg.tensor(of_head))
        value = model(*tokens())[1].item()
        handle.remove()
        return value

    expected = (getattr(seen, f"x_{p}_grad")[:, head] * change).sum()
    assert (loss(1e-5) - loss(-1e-5)) / 2e-5 == pytest.approx(expected, rel=1e-6)


def test_no_gradient_yet():
    model = gpt()
    with study.trace_heads(model, grads=False) as trace:
        model(*tokens())[1].backward()
    assert trace[0].x_q.shape == (B, T, 16) and trace[0].W_Q.shape == (4, 16, 4)
    for name, of in (("x_q_grad", "q"), ("y_grad", "y")):
        with pytest.raises(RuntimeError, match=f"no grad yet of {of} in blocks.0.attn: .* grads=False"):
            getattr(trace[0], name)


def test_a_hook_may_replace_what_comes_in_and_what_goes_out():
    layer = nn.MultiheadAttention(16, 4, dtype=mg.float64, batch_first=True)
    x, memory = (mg.randn(B, T, 16, dtype=mg.float64) for _ in range(2))
    handles = [layer.register_head_hook(p, lambda layer, given: memory) for p in ("x_k", "x_v")]
    handles.append(layer.register_head_hook("y", lambda layer, y: 2 * y))
    with study.trace_heads(layer) as trace:
        y, _ = layer(x)
    for handle in handles:
        handle.remove()
    near(y.detach().numpy(), 2 * layer(x, memory)[0].detach().numpy())
    assert trace[0].x_k is trace[0].x_v
    np.testing.assert_array_equal(trace[0].x_k, memory.numpy())
    np.testing.assert_array_equal(trace[0].y, y.detach().numpy())
    with pytest.raises(ValueError, match=r"return value of hook <lambda> on 'x_q' must have shape \(3, 6, 16\)"):
        layer.register_head_hook("x_q", lambda layer, x: x[:1])
        layer(x)
