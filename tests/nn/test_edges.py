"""Edge cases of nn: bounds of arguments, initial weights to the last digit, states, modules and hooks."""

import math
import warnings

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

from .heads import B, C, T, close, data, layer

# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "sizes, options, words",
    [
        ((0, 1), {}, "embed_dim 0 is not divisible by num_heads 1"),
        ((4, 0), {}, "embed_dim 4 is not divisible by num_heads 0"),
        ((4, -2), {}, "embed_dim 4 is not divisible by num_heads -2"),
        ((-4, 2), {}, "embed_dim -4"),
        ((4, 2), dict(num_kv_heads=0), "num_heads 2 is not divisible by num_kv_heads 0"),
        ((4, 2), dict(num_kv_heads=-1), "num_heads 2 is not divisible by num_kv_heads -1"),
        ((4, 2), dict(num_kv_heads=4), "num_heads 2 is not divisible by num_kv_heads 4"),
        ((4, 2), dict(dropout=-0.01), "dropout must be between 0 and 1, got -0.01"),
        ((4, 2), dict(dropout=1.01), "dropout must be between 0 and 1, got 1.01"),
        ((4, 2), dict(impl="Fused"), "impl must be one of per_head, batched, fused, got 'Fused'"),
        ((6, 2), dict(positions="rotary"), "even head size, got 3"),
        ((4, 2), dict(positions=""), "positions must be None or 'rotary', got ''"),
    ],
)
def test_attention_layers_that_cannot_be(sizes, options, words):
    with pytest.raises(ValueError, match=words):
        nn.MultiheadAttention(*sizes, batch_first=True, **options)


def test_each_input_of_attention_is_checked():
    m = layer()
    q, k, v = data(B, T, C), data(B, 4, C), data(B, 4, C)
    assert m(q, k, v)[0].shape == (B, T, C)
    for args, words in (
        ((q[0], k, v), r"query must be \(B, T, 6\), got shape \(3, 6\)"),
        ((q[..., :5], k, v), r"query must be \(B, T, 6\), got shape \(2, 3, 5\)"),
        ((q, k[0], v), r"key must be \(B, S, 6\), got shape \(4, 6\)"),
        ((q, k[..., :5], v), r"key must be \(B, S, 6\), got shape \(2, 4, 5\)"),
        ((q, k, v[0]), r"value must be \(B, S, 6\), got shape \(4, 6\)"),
        ((q, k, v[:, :3]), "do not fit each other"),
        ((q[:1], k, v), "do not fit each other"),
        ((q, k, v[:1]), "do not fit each other"),
        ((q, k[:1], v[:1]), "do not fit each other"),
    ):
        with pytest.raises(ValueError, match=words):
            m(*args)


def test_a_cache_checks_batch_heads_and_dtype_of_both():
    m = layer(4, 2)
    k = data(B, 2, 1, 2)
    for bad_k, bad_v, error, words in (
        (k[:1], k[:1], ValueError, r"a KVCache of \(2, 2, 2, 2\)"),
        (k, k[:, :1], ValueError, r"k \(2, 2, 1, 2\) and v \(2, 1, 1, 2\) do not fit"),
        (k[:, :1], k, ValueError, r"k \(2, 1, 1, 2\) and v \(2, 2, 1, 2\) do not fit"),
        (k.float(), k, TypeError, "for float64, got keys of float32 and values of float64"),
        (k, k.float(), TypeError, "for float64, got keys of float64 and values of float32"),
        (k.float(), k.float(), TypeError, "for float64, got keys of float32 and values of float32"),
    ):
        cache = m.new_cache(B, 2)
        with mg.no_grad(), pytest.raises(error, match=words):
            cache.append(bad_k, bad_v)
        assert cache.length == 0
    with mg.no_grad():
        for n in (1, 2):
            keys, values = cache.append(k * n, -k * n)
            assert cache.length == n and keys.shape == values.shape == (B, 2, n, 2)
        assert (keys[:, :, :1] == k).all() and (values[:, :, 1:] == -2 * k).all()
    wide = nn.MultiheadAttention(4, 2, batch_first=True).load_from_heads(
        *[[np.ones((4, 3))] * 2] * 2, [np.ones((4, 5))] * 2, np.ones((10, 4))
    )
    cache = wide.new_cache(3, 7)
    assert cache.k.shape == (3, 2, 7, 3) and cache.v.shape == (3, 2, 7, 5)


# -------------------------------------------------------------------------------------------------------------- forward


def test_the_mean_pattern_is_that_of_all_heads():
    for heads in (1, 2, 3):
        m, x = layer(6, heads, impl="batched"), data(B, T, 6)
        _, mean = m(x, need_weights=True)
        _, each = m(x, need_weights=True, average_attn_weights=False)
        assert each.shape == (B, heads, T, T)
        close(mean, each.detach().numpy().mean(1))
        np.testing.assert_allclose(mean.sum(-1).detach().numpy(), 1)


def test_the_warning_of_the_fused_form_names_the_callers_line():
    with pytest.warns(UserWarning) as caught:
        layer()(data(B, T, C), need_weights=True)
    assert caught[0].filename == __file__


def test_head_hooks_come_in_order_and_see_what_is_used():
    m, x, seen = layer(), data(B, T, C), []
    plain = m(x)[0].detach().numpy()
    handles = [
        m.register_head_hook("z", lambda layer, z: seen.append(("last", z)), last=True),
        m.register_head_hook("z", lambda layer, z: z * 2),
        m.register_head_hook("v", lambda layer, v: v / 2),
    ]
    close(m(x)[0], plain)
    assert [what for what, _ in seen] == ["last"]
    handles[1].remove()
    halves = m(x)[0].detach().numpy()
    np.testing.assert_allclose(seen[1][1].detach().numpy() * 2, seen[0][1].detach().numpy())
    assert abs(halves - plain).max() > 1e-3
    handles[2].remove()
    m.register_head_hook("q", lambda layer, q: q, last=True)
    with pytest.raises(TypeError, match=r"hook <lambda> on 'q' has last=True and must return None"):
        m(x)
    with pytest.raises(ValueError, match="there is no 'K' in attention: there are q, k, v, qk, pattern, z"):
        m.register_head_hook("K", print)
    m = layer()
    m.register_head_hook("pattern", lambda layer, p: p[..., :1])
    with pytest.raises((TypeError, ValueError, RuntimeError), match=r"the return value of hook <lambda> on 'pattern'"):
        m(x)


def test_modules_do_what_their_options_say():
    x = data(3, 4)
    np.testing.assert_allclose(nn.Softmax(0)(x).sum(0).numpy(), 1)
    np.testing.assert_allclose(nn.Softmax()(x).sum(1).numpy(), 1)
    half = nn.Dropout(0.25)(mg.ones(4000))
    assert abs((half == 0).float().mean().item() - 0.25) < 0.03 and half.amax().item() == pytest.approx(4 / 3)
    bare = nn.LayerNorm(4, eps=0.5, elementwise_affine=False)(x).numpy()
    a = x.numpy()
    np.testing.assert_allclose(bare, (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 0.5))
    rms = nn.RMSNorm(4, eps=0.5, elementwise_affine=False)(x).numpy()
    np.testing.assert_allclose(rms, a / np.sqrt((a * a).mean(1, keepdims=True) + 0.5))
    weighted = nn.RMSNorm(4, eps=0.5).double()
    weighted.weight.data = mg.arange(4).double()
    np.testing.assert_allclose(weighted(x).detach().numpy(), rms * np.arange(4))


# ------------------------------------------------------------------------------------------------------ initial weights


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64])
@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (20, 10, 3, 4), (7, 200, 2)], ids=str)
def test_bounds_and_spread_of_initial_weights(shape, dtype):
    """The fans of a weight (out, in, …) are in and out times the other sizes. Numbers have the weight's precision."""
    rest = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * rest, shape[0] * rest
    for gain in (1.0, 3.0):
        std = gain * math.sqrt(2 / (fan_in + fan_out))
        x = nn.init.xavier_uniform_(mg.zeros(*shape, dtype=dtype), gain=gain).numpy()
        bound = std * math.sqrt(3)
        assert -bound <= x.min() < -0.99 * bound and 0.99 * bound < x.max() <= bound
    for a, std in ((0.0, math.sqrt(2 / fan_in)), (2.0, math.sqrt(2 / (5 * fan_in)))):
        x = nn.init.kaiming_normal_(mg.zeros(*shape, dtype=dtype), a=a).numpy()
        assert x.std() == pytest.approx(std, rel=0.06) and abs(x.mean()) < 0.1 * std and abs(x).max() > 2.5 * std
        assert x.dtype == dtype and bool((x != x.astype(np.float32)).any()) == (dtype == mg.float64)
    x = nn.init.uniform_(mg.zeros(*shape, dtype=dtype)).numpy()
    assert 0 <= x.min() < 0.01 and 0.99 < x.max() < 1
    x = nn.init.uniform_(mg.zeros(*shape, dtype=dtype), 2, 6).numpy()
    assert 2 <= x.min() < 2.05 and 5.95 < x.max() < 6
    assert bool((x != x.astype(np.float32)).any()) == (dtype == mg.float64)
    x = nn.init.normal_(mg.zeros(*shape, dtype=dtype), 5.0, 0.1).numpy()
    assert x.mean() == pytest.approx(5, abs=0.02) and x.std() == pytest.approx(0.1, rel=0.06)
    drawn = [nn.init.normal_(mg.zeros(3), generator=mg.Generator(4)).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1] != nn.init.normal_(mg.zeros(3)).tolist()
    drawn = [nn.init.uniform_(mg.zeros(3), generator=mg.Generator(4)).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1] != nn.init.uniform_(mg.zeros(3)).tolist()


def test_layers_begin_within_pytorchs_bounds():
    m = nn.Linear(100, 2000)
    for p in m.weight, m.bias:
        p = p.detach().numpy()
        assert -0.1 - 1e-8 <= p.min() < -0.099 and 0.099 < p.max() <= 0.1 + 1e-8
    assert nn.Linear(0, 2).bias.tolist() == [0, 0]
    table = nn.Embedding(100, 50).weight.detach().numpy()
    assert table.std() == pytest.approx(1, rel=0.03) and abs(table.mean()) < 0.05
    m = nn.MultiheadAttention(40, 4, num_kv_heads=2, batch_first=True)
    packed = math.sqrt(6 / (40 + 80))
    assert 0.98 * packed < abs(m.in_proj_weight.detach().numpy()).max() <= packed  # as one matrix, as PyTorch does
    assert (m.in_proj_bias == 0).all() and (m.out_proj.bias == 0).all() and m.in_proj_bias.shape == (80,)
    assert 0.97 / math.sqrt(40) < abs(m.out_proj.weight.detach().numpy()).max() <= 1 / math.sqrt(40)
    with nn.init.skipped():
        before = mg.default_generator.state
        nn.GPT(nn.GPTConfig(5, 4, 1, 1, 4))
        assert mg.default_generator.state == before
    assert abs(nn.Linear(4, 4).weight).sum().item() > 0


# ---------------------------------------------------------------------------------------------------- modules and state


class Counter(nn.Module):
    def __init__(self):
        self.w = nn.Parameter(mg.ones(2))
        self.register_buffer("n", mg.tensor(3))
        self.register_buffer("half", mg.ones(2), persistent=False)

    def forward(self, x):
        return x * self.w


def test_to_takes_all_its_forms_and_refuses_ints():
    m = Counter()
    for change in (lambda: m.to(mg.float64), lambda: m.to(dtype=mg.float64), lambda: m.to("cpu", mg.float64), m.double):
        change()
        assert m.w.dtype == m.half.dtype == mg.float64 and m.n.dtype == mg.int64
        assert m.w.requires_grad and m.w.is_leaf and not m.half.requires_grad
        m.float()
    array = m.w.array
    assert m.to("cpu").w.array is array and m.float().w.array is array  # nothing to do
    with pytest.raises(TypeError, match=r"Counter\.to: parameters are floats, not int64"):
        m.to(mg.int64)
    frozen = Counter().requires_grad_(False).double()
    assert not frozen.w.requires_grad
    assert nn.Linear(1, 1).half().weight.dtype == mg.float16


def test_wrong_modules_and_parameters_raise():
    with pytest.raises(TypeError, match=r"data must be a Tensor, got a NumPy array of float64: write mg\.tensor"):
        nn.Parameter(np.ones(2))
    with pytest.raises(TypeError, match=r"Module must define forward\(\)"):
        nn.Module()(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = nn.Parameter(mg.ones(4)[1:])
    assert p.is_contiguous() and "x" not in nn.ModuleDict({"y": nn.ReLU()})
    d = nn.ModuleDict({"y": nn.ReLU(), "x": nn.Tanh()})
    assert list(d.keys()) == ["y", "x"] and [type(m) for m in d.values()] == [nn.ReLU, nn.Tanh]
    assert [(name, type(m)) for name, m in d.items()] == [("y", nn.ReLU), ("x", nn.Tanh)]
