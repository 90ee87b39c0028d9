"""Smooth functions as people write them out by hand: linear algebra, loops, layers, losses, indexing."""

import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, constant, normal, pick, positive_definite, size, tensor, uniform


def well(rng, n):
    """A matrix that is far from singular, and needs no pivots."""
    return tensor(rng.standard_normal((n, n)) * 0.4 + (2 + rng.random()) * np.eye(n), rng)


def cholesky_rows(a):
    """L with a = L Lᵀ, as a list of lists of 0-d Tensors."""
    n, rows = a.shape[0], []
    for i in range(n):
        row = []
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s = s - row[k] * (row[k] if i == j else rows[j][k])
            row.append(s.sqrt() if i == j else s / rows[j][j])
        rows.append(row)
    return rows


def cholesky(rng):
    n = size(rng)
    return Right(lambda a: mg.stack([x for row in cholesky_rows(a) for x in row]), positive_definite(rng, n))


def conjugate_gradients(rng):
    n = size(rng, 3, 4)

    def solve(a, b):
        x, r = 0 * b, b
        p, rr = r, (b * b).sum()
        for _ in range(n - 1):
            ap = a @ p
            alpha = rr / (p * ap).sum()
            x, r = x + alpha * p, r - alpha * ap
            before, rr = rr, (r * r).sum()
            p = r + rr / before * p
        return x

    return Right(solve, positive_definite(rng, n), normal(rng, n))


def lstm(rng):
    n = size(rng, 1, 2)

    def run(x, w, b):
        h, c = constant(np.zeros(n)), constant(np.zeros(n))
        for step in x.unbind(0):
            i, f, g, o = (mg.cat([step, h]) @ w + b).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h, c

    return Right(run, normal(rng, size(rng, 2, 4), 1), normal(rng, 1 + n, 4 * n), normal(rng, 4 * n))


def runge_kutta(rng):
    steps, h = size(rng, 1, 4), pick(rng, [0.01, 0.1, 0.3])

    def pendulum(state, damping):
        def slope(s):
            return mg.stack([s[1], -s[0].sin() - damping * s[1]])

        for _ in range(steps):
            k1 = slope(state)
            k2 = slope(state + h / 2 * k1)
            k3 = slope(state + h / 2 * k2)
            k4 = slope(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state

    return Right(pendulum, normal(rng, 2), uniform(rng, 0, 1))


def sinkhorn(rng):
    steps = size(rng, 2, 5)

    def plan(cost):
        logp = -cost
        for _ in range(steps):
            logp = logp.log_softmax(0).log_softmax(1)
        return logp.exp()

    return Right(plan, normal(rng, 3, 3, scale=pick(rng, [1.0, 10.0])))


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


def mixture_of_experts(rng):
    def mix(x, router, experts):
        return mg.einsum("te,eij,ti->tj", (x @ router).softmax(-1), experts, x)

    return Right(mix, normal(rng, 2, 2), normal(rng, 2, 3), normal(rng, 3, 2, 2))


def labels(rng, n, classes):
    return constant(rng.integers(0, classes, n))


def focal(rng):
    target, gamma = labels(rng, 3, 3).unsqueeze(1), pick(rng, [0.5, 2.0, 5.0])

    def loss(logits):
        logp = logits.log_softmax(-1).gather(1, target)
        return -((1 - logp.exp()) ** gamma * logp).mean()

    return Right(loss, normal(rng, 3, 3))


def kl_divergence(rng):
    def kl(p, q):
        p, q = p.log_softmax(-1), q.log_softmax(-1)
        return (p.exp() * (p - q)).sum(-1)

    return Right(kl, normal(rng, 2, 3), normal(rng, 2, 3))


def contrastive(rng):
    """InfoNCE of normalised embeddings, with a temperature that is learnt."""

    def unit(x):
        return x / (x * x).sum(-1, keepdim=True).sqrt()

    def loss(a, b, log_scale):
        logits = unit(a) @ unit(b).mT * log_scale.exp()
        target = constant(np.arange(a.shape[0]))
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.mT, target))

    return Right(loss, normal(rng, 3, 2), normal(rng, 3, 2), uniform(rng, 0, 3))


def bilinear_interpolation(rng):
    """At places that are inside of their cells."""
    cell = constant(rng.integers(0, 2, (2, 3)))

    def sample(image, inside):
        (i, j), (u, v) = cell.unbind(0), inside.unbind(0)
        rows = (1 - u) * image[i, j] + u * image[i + 1, j], (1 - u) * image[i, j + 1] + u * image[i + 1, j + 1]
        return (1 - v) * rows[0] + v * rows[1]

    return Right(sample, normal(rng, 3, 3), uniform(rng, 0.1, 0.9, 2, 3))


def segment_softmax(rng):
    """Attention over a graph's edges: a softmax among those that lead to the same node."""
    to = rng.integers(0, 3, 5)
    one_hot = constant(np.eye(3)[to].T)

    def softmax(scores):
        e = scores.exp()
        return e / (one_hot @ e)[constant(to)]

    return Right(softmax, normal(rng, 5))


def outputs_that_are_views(rng):
    return Right(
        pick(rng, [lambda x: x, lambda x: (x, x), lambda x: x.T, lambda x: (x[0], x[1:]), lambda x: x.expand(2, 2, 3)]),
        normal(rng, 2, 3),
    )


MAKERS = [
    cholesky,
    conjugate_gradients,
    lstm,
    runge_kutta,
    sinkhorn,
    online_softmax,
    mixture_of_experts,
    focal,
    kl_divergence,
    contrastive,
    bilinear_interpolation,
    segment_softmax,
    outputs_that_are_views,
]
