"""Norms and attention, written out as in papers."""

import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, constant, normal, pick, size, tensor


def layer_norm(rng):
    eps = pick(rng, [1e-12, 1e-5, 1e-2])

    def norm(x, weight, bias):
        d = x - x.mean(-1, keepdim=True)
        return d / ((d * d).mean(-1, keepdim=True) + eps).sqrt() * weight + bias

    n = size(rng, 3, 5)
    return Right(norm, normal(rng, 2, n), normal(rng, n), normal(rng, n))


def library_layer_norm(rng):
    n, scale = size(rng, 3, 5), pick(rng, [1e-6, 1.0, 1e6])
    return Right(lambda x, w: F.layer_norm(x, n, w, eps=1e-5), normal(rng, 2, n, scale=scale), normal(rng, n))


def norm_of_equal_numbers(rng):
    """Variance 0: eps alone keeps it finite."""
    eps = pick(rng, [1e-5, 1e-3, 0.1])

    def norm(x):
        d = x - x.mean(-1, keepdim=True)
        return d * ((d * d).mean(-1, keepdim=True) + eps).rsqrt()

    return Right(norm, tensor(np.full((2, 3), rng.standard_normal())))


def batch_norm(rng):
    def norm(x, weight, bias):
        return (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt() * weight + bias

    n, c = size(rng, 3, 5), size(rng, 1, 3)
    return Right(norm, normal(rng, n, c), normal(rng, c), normal(rng, c))


def group_norm(rng):
    def norm(x, weight):
        groups = x.reshape(x.shape[0], 2, -1)
        d = groups - groups.mean(-1, keepdim=True)
        return (d / ((d * d).mean(-1, keepdim=True) + 1e-5).sqrt()).reshape(*x.shape) * weight

    return Right(norm, normal(rng, 2, 6), normal(rng, 6))


def rms_norm(rng):
    def norm(x, weight):
        return x * ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    n = size(rng, 2, 5)
    return Right(norm, normal(rng, 2, n, scale=pick(rng, [1e-3, 1.0, 1e3])), normal(rng, n))


def weight_norm(rng):
    def layer(x, v, g):
        return x @ (v * (g / (v * v).sum(1, keepdim=True).sqrt())).mT

    return Right(layer, normal(rng, 2, 3), normal(rng, 2, 3), normal(rng, 2, 1))


def spectral_norm(rng):
    """One power iteration, differentiated through; held constant, as in practice, it would be no derivative."""
    u = rng.standard_normal(3)

    def differentiable(w):
        v = w.mT @ constant(u)
        v = v / (v * v).sum().sqrt()
        u1 = w @ v
        return w / (u1 * u1).sum().sqrt()

    return Right(differentiable, normal(rng, 3, 2))


def instance_norm(rng):
    def norm(x):
        return (x - x.mean((-2, -1), keepdim=True)) / (x.var((-2, -1), keepdim=True, correction=0) + 1e-5).sqrt()

    return Right(norm, normal(rng, 2, 1, 2, 3))


def softmax_attention(q, k, v, scores=lambda s: s):
    return scores(q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def heads(rng, nh=2, t=2, d=2):
    return normal(rng, nh, t, d)


def rotary_attention(rng):
    t, d = size(rng, 2, 3), 4
    angle = np.arange(t)[:, None] * 100.0 ** -(np.arange(d // 2) / (d // 2))
    cos, sin = np.cos(angle), np.sin(angle)

    def turned(x):
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return mg.cat([a * constant(cos) - b * constant(sin), a * constant(sin) + b * constant(cos)], -1)

    return Right(
        lambda q, k, v: softmax_attention(turned(q), turned(k), v),
        normal(rng, t, d),
        normal(rng, t, d),
        normal(rng, t, 2),
    )


def alibi_attention(rng):
    t, nh = size(rng, 2, 3), 2
    slopes = 2.0 ** -np.arange(1, nh + 1)[:, None, None]
    bias = -slopes * np.maximum(np.arange(t)[:, None] - np.arange(t), 0)

    def causal(s):
        return (s + constant(bias)).masked_fill(constant(np.triu(np.ones((t, t), bool), 1)), -math.inf)

    return Right(lambda q, k, v: softmax_attention(q, k, v, causal), *(heads(rng, nh, t) for _ in range(3)))


def grouped_query_attention(rng):
    nh, nkv, t = 4, 2, 2

    def attend(q, k, v):
        return softmax_attention(q, k.repeat_interleave(nh // nkv, 0), v.repeat_interleave(nh // nkv, 0))

    return Right(attend, heads(rng, nh, t), heads(rng, nkv, t), heads(rng, nkv, t))


def library_grouped_query(rng):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k.expand(2, 2, 2), v.expand(2, 2, 2), is_causal=True)

    return Right(attend, heads(rng, 2), heads(rng, 1), heads(rng, 1))


def sliding_window(rng):
    t, width = 4, size(rng, 1, 2)
    i, j = np.arange(t)[:, None], np.arange(t)
    outside = (j > i) | (j < i - width)
    return Right(
        lambda q, k, v: softmax_attention(q, k, v, lambda s: s.masked_fill(constant(outside), -math.inf)),
        *(normal(rng, t, 2) for _ in range(3)),
    )


def linear_attention(rng):
    """φ(q) Σ φ(k) vᵀ, with φ = elu + 1 as a smooth softplus."""

    def phi(x):
        return mg.stack([x, 0 * x]).logsumexp(0)

    def attend(q, k, v):
        state = (phi(k).unsqueeze(-1) * v.unsqueeze(-2)).cumsum(0)
        total = phi(k).cumsum(0)
        return (phi(q).unsqueeze(-2) @ state).squeeze(-2) / (phi(q) * total).sum(-1, keepdim=True)

    return Right(attend, *(normal(rng, 3, 2) for _ in range(3)))


def online_softmax(rng):
    """Attention of one query, key after key, with a running maximum (FlashAttention)."""

    def attend(q, k, v):
        top, total, out = constant(-math.inf), constant(0.0), v[0] * 0
        for i in range(k.shape[0]):
            score = (q * k[i]).sum()
            new = mg.maximum(top, score.detach())
            shrink, weight = (top - new).exp(), (score - new).exp()
            total, out, top = total * shrink + weight, out * shrink + weight * v[i], new
        return out / total

    return Right(attend, normal(rng, 2), normal(rng, 3, 2), normal(rng, 3, 2))


def multi_head_with_projections(rng):
    t, c, nh = 2, 4, 2

    def attend(x, w_qkv, w_out):
        q, k, v = (part.reshape(t, nh, c // nh).transpose(0, 1) for part in (x @ w_qkv).chunk(3, -1))
        return softmax_attention(q, k, v).transpose(0, 1).reshape(t, c) @ w_out

    return Right(attend, normal(rng, t, c), normal(rng, c, 3 * c), normal(rng, c, c))


def capped_scores(rng):
    cap = pick(rng, [1.0, 30.0])
    return Right(
        lambda q, k, v: softmax_attention(q, k, v, lambda s: cap * (s / cap).tanh()),
        *(normal(rng, 3, 2) for _ in range(3)),
    )


def relative_position_bias(rng):
    t = 3
    index = constant(np.arange(t)[:, None] - np.arange(t) + t - 1)
    return Right(
        lambda q, k, v, table: softmax_attention(q, k, v, lambda s: s + table[index]),
        *(normal(rng, t, 2) for _ in range(3)),
        normal(rng, 2 * t - 1),
    )


def swiglu(rng):
    def mlp(x, gate, up, down):
        return (F.silu(x @ gate) * (x @ up)) @ down

    return Right(mlp, normal(rng, 2, 2), normal(rng, 2, 3), normal(rng, 2, 3), normal(rng, 3, 2))


def mixture_of_experts(rng):
    def mix(x, router, experts):
        return mg.einsum("te,eij,ti->tj", (x @ router).softmax(-1), experts, x)

    return Right(mix, normal(rng, 2, 2), normal(rng, 2, 3), normal(rng, 3, 2, 2))


def larger_block(rng):
    """More than 512 numbers, for random directions."""

    def block(x, w):
        h = F.layer_norm(x, x.shape[-1])
        return x + F.gelu(h @ w)

    return Right(block, normal(rng, 20, 24), normal(rng, 24, 24, scale=0.2))


MAKERS = [
    layer_norm, library_layer_norm, norm_of_equal_numbers, batch_norm, group_norm, rms_norm, weight_norm,
    spectral_norm, instance_norm, rotary_attention, alibi_attention, grouped_query_attention, library_grouped_query,
    sliding_window, linear_attention, online_softmax, multi_head_with_projections, capped_scores,
    relative_position_bias, swiglu, mixture_of_experts, larger_block,
]  # fmt: skip
