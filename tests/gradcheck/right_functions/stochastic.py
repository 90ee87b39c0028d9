"""Functions that draw random numbers: the same at every call, because the generator is made, or seeded, inside; or from
the default generator, which gradcheck rewinds."""

import math

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, apart, constant, normal, pick, size, uniform


def dropout_of_its_own(rng):
    seed, p = int(rng.integers(1000)), pick(rng, [0.1, 0.5, 0.9])
    return Right(lambda x: F.dropout(x, p, generator=mg.Generator(seed)) * x, normal(rng, 3, 3))


def dropout_by_hand(rng):
    seed, keep = int(rng.integers(1000)), pick(rng, [0.3, 0.8])

    def dropped(x):
        mask = mg.rand(*x.shape, generator=mg.Generator(seed)) < keep
        return mg.where(mask, x / keep, 0.0).exp()

    return Right(dropped, normal(rng, 2, 3))


def dropout_of_the_default(rng):
    return Right(lambda x: F.dropout(x.tanh(), 0.5) + F.dropout(x, 0.2), normal(rng, 3, 2))


def gumbel_softmax(rng):
    seed, tau = int(rng.integers(1000)), pick(rng, [0.3, 1.0, 3.0])

    def sample(logits):
        u = mg.rand(*logits.shape, generator=mg.Generator(seed), dtype=mg.float64)
        noise = -(-(u.clamp(1e-9, 1 - 1e-9)).log()).log()
        return ((logits + noise) / tau).softmax(-1)

    return Right(sample, normal(rng, 2, 3))


def reparameterised_gaussian(rng):
    seed = int(rng.integers(1000))

    def loss(mu, log_var):
        eps = mg.randn(*mu.shape, generator=mg.Generator(seed), dtype=mg.float64)
        z = mu + (0.5 * log_var).exp() * eps
        kl = -0.5 * (1 + log_var - mu * mu - log_var.exp()).sum()
        return (z.sin() ** 2).sum() + kl

    return Right(loss, normal(rng, 3), normal(rng, 3))


def permuted(rng):
    seed = int(rng.integers(1000))
    return Right(
        lambda x: x[mg.randperm(x.shape[0], generator=mg.Generator(seed))].cumsum(0), normal(rng, size(rng, 2, 5), 2)
    )


def noise_of_the_default(rng):
    f = pick(
        rng,
        [
            lambda x: x * mg.randn(3, dtype=mg.float64),
            lambda x: (x + mg.rand(3)).sin(),
            lambda x: x[mg.randperm(3)] * x,
        ],
    )
    return Right(f, normal(rng, 3))


def antithetic_pair(rng):
    seed = int(rng.integers(1000))

    def mean(mu, sigma):
        eps = mg.randn(4, generator=mg.Generator(seed), dtype=mg.float64)
        return 0.5 * ((mu + sigma * eps).exp() + (mu - sigma * eps).exp()).mean()

    return Right(mean, normal(rng), uniform(rng, 0.2, 1))


def monte_carlo_option(rng):
    """The price of a call, path by path, away from the strike: the pay-off's kink is smoothed."""
    seed = int(rng.integers(1000))

    def price(spot, sigma):
        z = mg.randn(6, generator=mg.Generator(seed), dtype=mg.float64)
        end = spot * (sigma * z - 0.5 * sigma * sigma).exp()
        return mg.stack([(end - 1) * 20, 0 * end]).logsumexp(0).mean() / 20

    return Right(price, uniform(rng, 0.8, 1.2), uniform(rng, 0.1, 0.5))


def random_features(rng):
    seed = int(rng.integers(1000))

    def features(x):
        w = mg.randn(x.shape[-1], 4, generator=mg.Generator(seed), dtype=mg.float64)
        return (x @ w).cos() * math.sqrt(2 / 4)

    return Right(features, normal(rng, 2, 3))


def score_function(rng):
    """REINFORCE: actions drawn from the detached policy's own numbers, fixed by the seed."""
    actions = constant(rng.integers(0, 3, (4, 1)))
    rewards = constant(rng.standard_normal((4, 1)))
    return Right(lambda logits: -(logits.log_softmax(-1).gather(1, actions) * rewards).mean(), normal(rng, 4, 3))


def stochastic_depth(rng):
    seed = int(rng.integers(1000))

    def blocks(x, w):
        g = mg.Generator(seed)
        for _ in range(3):
            if float(mg.rand(1, generator=g).numpy()[0]) < 0.7:
                x = x + (x @ w).tanh() / 0.7
        return x

    return Right(blocks, normal(rng, 2, 2), normal(rng, 2, 2))


def langevin_steps(rng):
    seed = int(rng.integers(1000))

    def chain(x, step):
        g = mg.Generator(seed)
        for _ in range(3):
            x = x - step * x**3 + (2 * step).sqrt() * mg.randn(*x.shape, generator=g, dtype=mg.float64)
        return x

    return Right(chain, normal(rng, 2), uniform(rng, 0.01, 0.1))


def dropped_attention(rng):
    seed = int(rng.integers(1000))

    def attend(q, k, v):
        pattern = (q @ k.mT).softmax(-1)
        return F.dropout(pattern, 0.3, generator=mg.Generator(seed)) @ v

    return Right(attend, normal(rng, 3, 2), normal(rng, 3, 2), normal(rng, 3, 2))


def top_of_a_noisy_gate(rng):
    """A mixture of experts: noise and the choice are fixed, the chosen gates are differentiated."""
    noise = constant(rng.standard_normal((2, 3)) * 0.1)

    def gates(x):
        values, index = (x + noise).topk(2)
        return mg.cat([values.softmax(-1), x.gather(1, index)], 1)

    return Right(gates, apart(rng, 2, 3) * 3)


MAKERS = [
    dropout_of_its_own, dropout_by_hand, dropout_of_the_default, gumbel_softmax, reparameterised_gaussian, permuted,
    noise_of_the_default, antithetic_pair, monte_carlo_option, random_features, score_function, stochastic_depth,
    langevin_steps, dropped_attention, top_of_a_noisy_gate,
]  # fmt: skip
