"""Losses and log-likelihoods."""

import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, constant, normal, pick, tensor, uniform


def labels(rng, n, classes):
    return constant(rng.integers(0, classes, n))


def label_smoothing(rng):
    target, smoothing = labels(rng, 3, 4), pick(rng, [0.0, 0.1, 0.9])

    def loss(logits):
        logp = logits.log_softmax(-1)
        return -((1 - smoothing) * logp.gather(1, target.unsqueeze(1)).sum(1) + smoothing * logp.mean(-1)).mean()

    return Right(loss, normal(rng, 3, 4, scale=pick(rng, [1.0, 20.0])))


def library_cross_entropy(rng):
    target = labels(rng, 3, 4)
    options = dict(label_smoothing=pick(rng, [0.0, 0.2]), reduction=pick(rng, ["mean", "sum", "none"]))
    return Right(lambda x: F.cross_entropy(x, target, **options), normal(rng, 3, 4, scale=pick(rng, [1.0, 50.0])))


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


def jensen_shannon(rng):
    def js(p, q):
        p, q = p.softmax(-1), q.softmax(-1)
        m = 0.5 * (p + q)
        return 0.5 * (p * (p / m).log() + q * (q / m).log()).sum(-1)

    return Right(js, normal(rng, 2, 3), normal(rng, 2, 3))


def contrastive(rng):
    """InfoNCE of normalised embeddings, with a temperature that is learnt."""

    def unit(x):
        return x / (x * x).sum(-1, keepdim=True).sqrt()

    def loss(a, b, log_scale):
        logits = unit(a) @ unit(b).mT * log_scale.exp()
        target = constant(np.arange(a.shape[0]))
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.mT, target))

    return Right(loss, normal(rng, 3, 2), normal(rng, 3, 2), uniform(rng, 0, 3))


def hinge(rng):
    """Margins that are away from 1, on both sides."""
    y = rng.choice([-1.0, 1.0], 4)
    score = y * (1 + rng.choice([-1.0, 1.0], 4) * rng.uniform(0.1, 2, 4))
    return Right(lambda s: (1 - constant(y) * s).relu().mean(), tensor(score, rng))


def triplet(rng):
    def loss(anchor, positive, negative):
        return (((anchor - positive) ** 2).sum(-1) - ((anchor - negative) ** 2).sum(-1) + 0.5).tanh().sum()

    return Right(loss, *(normal(rng, 2, 2) for _ in range(3)))


def binary_with_logits(rng):
    y = rng.uniform(0, 1, 4)

    def loss(x):
        return (mg.stack([x, 0 * x]).logsumexp(0) - x * constant(y)).mean()

    return Right(loss, normal(rng, 4, scale=pick(rng, [1.0, 30.0])))


def huber_away_from_joints(rng):
    x = rng.choice([-1.0, 1.0], 4) * rng.choice([0.4, 1.7], 4) + rng.uniform(-0.3, 0.3, 4)
    return Right(lambda x: mg.where(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5).sum(), tensor(x, rng))


def log_cosh(rng):
    def loss(x):
        return mg.stack([x, -x]).logsumexp(0) - math.log(2)

    return Right(loss, normal(rng, 4, scale=pick(rng, [0.1, 3.0, 200.0])))


def poisson(rng):
    counts = constant(rng.integers(0, 6, 3).astype(float))
    return Right(lambda log_rate: (log_rate.exp() - counts * log_rate).sum(), normal(rng, 3, scale=2.0))


def gaussian_mixture(rng):
    x = constant(rng.standard_normal((4, 1)))

    def nll(logits, mean, log_sigma):
        z = (x - mean) * (-log_sigma).exp()
        return -(logits.log_softmax(0) - 0.5 * z * z - log_sigma).logsumexp(-1).sum()

    return Right(nll, normal(rng, 3), normal(rng, 3), normal(rng, 3))


def elbo(rng):
    def loss(x, mu, log_var):
        return ((x - mu.tanh()) ** 2).sum() - 0.5 * (1 + log_var - mu * mu - log_var.exp()).sum()

    return Right(loss, normal(rng, 3), normal(rng, 3), normal(rng, 3))


def dice(rng):
    y = constant((rng.random(5) < 0.5).astype(float))

    def loss(x):
        p = x.sigmoid()
        return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)

    return Right(loss, normal(rng, 5))


def pairwise_ranking(rng):
    y = constant(np.sign(rng.standard_normal((4, 4))))

    def loss(s):
        d = y * (s.unsqueeze(0) - s.unsqueeze(1))
        return mg.stack([-d, 0 * d]).logsumexp(0).mean()

    return Right(loss, normal(rng, 4))


def listwise_ranking(rng):
    """Plackett and Luce: the likelihood of an order."""
    order = constant(rng.permutation(4))

    def loss(s):
        s = s[order]
        return sum(s[i:].logsumexp(0) - s[i] for i in range(4))

    return Right(loss, normal(rng, 4))


def gradient_penalty(rng):
    """WGAN-GP: the function takes a gradient itself."""

    def penalty(x, w):
        x = x if x.requires_grad else x.detach().requires_grad_()
        (g,) = mg.grad((x @ w).tanh().sum(), x, create_graph=True)
        return (((g * g).sum(-1) + 1e-6).sqrt() - 1) ** 2

    return Right(penalty, normal(rng, 2, 3), normal(rng, 3, 2))


def dpo(rng):
    beta = pick(rng, [0.1, 1.0, 10.0])
    reference = constant(rng.standard_normal(3))

    def loss(chosen, rejected):
        d = beta * (chosen - rejected - reference)
        return mg.stack([-d, 0 * d]).logsumexp(0).mean()

    return Right(loss, normal(rng, 3), normal(rng, 3))


def clipped_policy(rng):
    """PPO with ratios away from the ends of the clip."""
    ratio = rng.choice([0.5, 0.9, 1.1, 1.6], 4) + rng.uniform(-0.05, 0.05, 4)
    old, advantage = rng.standard_normal(4), rng.choice([-1.0, 1.0], 4) * rng.uniform(0.3, 2, 4)

    def loss(logp):
        r, a = (logp - constant(old)).exp(), constant(advantage)
        return -mg.minimum(r * a, r.clamp(0.8, 1.2) * a).mean()

    return Right(loss, tensor(old + np.log(ratio)), kink="inside of the clip, both branches are equal")


def barlow_twins(rng):
    def loss(a, b):
        a, b = ((x - x.mean(0)) / (x.var(0) + 1e-4).sqrt() for x in (a, b))
        c = a.mT @ b / a.shape[0]
        return ((c - constant(np.eye(2))) ** 2 * constant(np.eye(2) * 0.99 + 0.01)).sum()

    return Right(loss, normal(rng, 4, 2), normal(rng, 4, 2))


def perplexity(rng):
    target = labels(rng, 3, 4)
    return Right(lambda x: F.cross_entropy(x, target).exp(), normal(rng, 3, 4, scale=pick(rng, [0.5, 5.0])))


MAKERS = [
    label_smoothing, library_cross_entropy, focal, kl_divergence, jensen_shannon, contrastive, hinge, triplet,
    binary_with_logits, huber_away_from_joints, log_cosh, poisson, gaussian_mixture, elbo, dice, pairwise_ranking,
    listwise_ranking, gradient_penalty, dpo, clipped_policy, barlow_twins, perplexity,
]  # fmt: skip
