"""Numbers that are hard on differences: saturated, cancelling, tiny, huge, or of very different sizes."""

import math

import numpy as np

import minigrad as mg

from .material import Right, constant, normal, pick, size, tensor, uniform

EPS = 2.0**-52


def logsumexp_with_gaps(rng):
    gaps = rng.choice([0.0, 40.0, 100.0, 300.0, 700.0], (2, size(rng, 2, 5)))
    return Right(
        lambda x: x.logsumexp(-1), tensor(gaps * rng.choice([-1, 1], gaps.shape) + rng.standard_normal(gaps.shape), rng)
    )


def logsumexp_by_hand(rng):
    def by_hand(x):
        top = x.detach().amax(-1, keepdim=True)
        return (x - top).exp().sum(-1).log() + top.squeeze(-1)

    return Right(by_hand, tensor(rng.choice([0.0, 30.0, 50.0, 500.0], (2, 3)) + rng.standard_normal((2, 3)), rng))


def saturated_softmax(rng):
    x = rng.choice([-100.0, -30.0, 0.0, 30.0, 100.0], (2, size(rng, 2, 4))) + rng.standard_normal()
    return Right(lambda x: x.softmax(-1), tensor(x, rng))


def saturated_log_softmax(rng):
    x = rng.choice([-100.0, 0.0, 100.0], (2, size(rng, 2, 4))) + rng.standard_normal((2, 1))
    return Right(lambda x: x.log_softmax(-1), tensor(x, rng))


def log_of_softmax(rng):
    """log(softmax(x)) where the smallest is still a normal number."""
    x = rng.choice([-60.0, -20.0, 0.0, 20.0], (2, 3)) + rng.standard_normal((2, 3))
    return Right(lambda x: x.softmax(-1).log(), tensor(x, rng))


def variance_of_a_large_mean(rng):
    mean = pick(rng, [1e3, 1e5, 1e7])
    by_hand = bool(rng.integers(2))

    def variance(x):
        d = x - x.mean()
        return (d * d).mean() if by_hand else x.var()

    return Right(variance, tensor(mean + rng.standard_normal(size(rng, 3, 6)), rng))


def textbook_variance(rng):
    """E x² - (E x)², which cancels."""
    x = tensor(pick(rng, [1.0, 30.0, 1e3]) + rng.standard_normal(size(rng, 3, 6)), rng)
    return Right(lambda x: (x * x).mean() - x.mean() * x.mean(), x)


def cumulative_products(rng):
    def running(x):
        products, p = [], 1.0
        for factor in x.unbind(0):
            p = p * factor
            products.append(p)
        return mg.stack(products)

    n = size(rng, 3, 8)
    return Right(running, tensor(10 ** rng.uniform(-4, 4, n) * rng.choice([-1.0, 1.0], n), rng))


def product_with_zeros(rng):
    x = rng.standard_normal((2, 4))
    x[0, rng.integers(4)] = 0
    x[1, rng.permutation(4)[:2]] = 0
    return Right(lambda x: x.prod(-1), tensor(x, rng))


def difference_of_near_equals(rng):
    gap = pick(rng, [1e-4, 1e-7, 1e-10])
    a = rng.standard_normal(3)
    f = pick(
        rng,
        [lambda a, b: a - b, lambda a, b: a * a - b * b, lambda a, b: a.exp() - b.exp(), lambda a, b: (a - b) * 1e8],
    )
    return Right(f, tensor(a, rng), tensor(a + gap * rng.standard_normal(3), rng))


def scaled_values(rng):
    scale = pick(rng, [1e-150, 1e-100, 1e-30, 1e-8, 1e8, 1e30, 1e100, 1e150])
    f = pick(
        rng,
        [
            lambda x: x * 3,
            lambda x: (x / scale).sin() * scale,
            lambda x: x.sum() / 7,
            lambda x: x / (x + scale * 3),
            lambda x: (x / scale).exp(),
            lambda x: x.log(),
            lambda x: (x * x.mean()).sqrt(),
        ],
    )
    return Right(f, tensor(scale * rng.uniform(0.5, 2, size(rng, 1, 4)), rng))


def mixed_scales(rng):
    n = size(rng, 2, 4)
    x = 10 ** rng.uniform(-12, 12, n)
    f = pick(
        rng,
        [
            lambda x: x * x,
            lambda x: x.log(),
            lambda x: 1 / x,
            lambda x: x.sqrt(),
            lambda x: x * x.flip(0),
            lambda x: x**-1.5,
        ],
    )
    return Right(f, tensor(x, rng))


def outputs_of_many_sizes(rng):
    weights = 10 ** rng.uniform(-12, 12, (4, 3))
    return Right(lambda x: constant(weights) @ x.tanh(), normal(rng, 3))


def expm1_by_tanh(rng):
    x = rng.choice([1e-8, 1e-4, 1e-2, 1.0, 5.0], 4) * rng.choice([-1.0, 1.0], 4)
    return Right(lambda x: (x / 2).tanh() * (x.exp() + 1), tensor(x, rng))


def exp_minus_one(rng):
    x = rng.choice([1e-6, 1e-4, 1e-2, 1.0], 4) * rng.choice([-1.0, 1.0], 4)
    return Right(lambda x: x.exp() - 1, tensor(x, rng))


def log_of_one_plus(rng):
    x = rng.choice([1e-9, 1e-6, 1e-3, 1.0, 1e6], 4)
    return Right(lambda x: (1 + x).log(), tensor(x, rng))


def kahan_log1p(rng):
    def log1p(x):
        u = 1 + x
        return u.log() - ((u - 1) - x) / u

    return Right(log1p, tensor(rng.choice([1e-9, 1e-6, 1e-3, 1.0, 1e3], 4), rng))


def softplus(rng):
    x = rng.choice([-700.0, -40.0, -1.0, 1.0, 40.0, 700.0], 4) + rng.standard_normal(4)
    return Right(lambda x: mg.stack([x, 0 * x]).logsumexp(0), tensor(x, rng), coarse=tail(-x))


def logistic_tails(rng):
    x = rng.choice([-300.0, -40.0, -20.0, 20.0, 35.0, 300.0], 4) + rng.standard_normal(4)
    f = pick(rng, [mg.sigmoid, mg.tanh, lambda x: 1 - x.sigmoid(), lambda x: (-x).sigmoid()])
    return Right(f, tensor(x, rng))


def log_sigmoid(rng):
    x = rng.choice([-500.0, -30.0, 0.0, 30.0], 4) + rng.standard_normal(4)
    return Right(lambda x: -mg.stack([-x, 0 * x], -1).logsumexp(-1), tensor(x, rng), coarse=tail(x))


def tail(x):
    """Of ln(1 + e^-x) for large x."""
    return "1 + e^-x keeps few digits of e^-x" if (x > 15).any() else ""


def log_normal_density(rng):
    def density(x, mu, log_sigma):
        z = (x.log() - mu) * (-log_sigma).exp()
        return -0.5 * z * z - x.log() - log_sigma - 0.5 * math.log(2 * math.pi)

    return Right(density, tensor(10 ** rng.uniform(-6, 6, 3), rng), normal(rng, 3), uniform(rng, -3, 3, 3))


def student_log_density(rng):
    nu = pick(rng, [0.5, 3.0, 1e4])
    x = rng.standard_normal(4) * 10 ** rng.uniform(-4, 4, 4)
    return Right(
        lambda x, s: -(nu + 1) / 2 * (1 + (x / s) ** 2 / nu).log() - s.log(), tensor(x, rng), uniform(rng, 0.5, 2)
    )


def tiny_denominators(rng):
    eps = pick(rng, [1e-4, 1e-6, 1e-8])
    f = pick(rng, [lambda x, y: x / (y + eps), lambda x, y: x / (y * y + eps), lambda x, y: x * (y * y + eps).rsqrt()])
    return Right(f, normal(rng, 3), tensor(eps * rng.uniform(1, 10, 3), rng))


def stable_quadratic_root(rng):
    """The root that does not cancel, and the other one by the product of both."""

    def roots(a, b, c):
        q = -0.5 * (b + (b * b - 4 * a * c).sqrt())
        return q / a, c / q

    b = pick(rng, [10.0, 1e3, 1e5])
    return Right(roots, uniform(rng, 0.5, 1), uniform(rng, b, 2 * b), uniform(rng, 0.5, 1), coarse=lost(b))


def cancelling_quadratic_root(rng):
    b = pick(rng, [10.0, 100.0, 1e3])
    root = lambda a, b, c: (-b + (b * b - 4 * a * c).sqrt()) / (2 * a)  # noqa: E731
    return Right(root, uniform(rng, 0.5, 1), uniform(rng, b, 2 * b), uniform(rng, 0.5, 1), coarse=lost(b))


def lost(b):
    """Of √(b² - 4ac) with a and c near 1, the part that depends on c is 1 / b² of the whole."""
    return f"rounding is {EPS * b * b:.0e} of what c changes" if EPS * b * b > 1e-10 else ""


def welford(rng):
    def variance(x):
        mean, m2 = x[0] * 0, x[0] * 0
        for k, value in enumerate(x.unbind(0), 1):
            delta = value - mean
            mean = mean + delta / k
            m2 = m2 + delta * (value - mean)
        return mean, m2

    return Right(variance, tensor(pick(rng, [0.0, 1e3, 1e6]) + rng.standard_normal(size(rng, 2, 5)), rng))


def kahan_sum(rng):
    def total(x):
        s, c = x[0], 0 * x[0]
        for value in x[1:].unbind(0):
            y = value - c
            t = s + y
            c = (t - s) - y
            s = t
        return s

    return Right(total, tensor(rng.standard_normal(5) * 10 ** rng.uniform(-8, 8, 5), rng))


def polynomial_near_a_multiple_root(rng):
    """(x - 1)^n written out: rounding is far larger than the value."""
    n, distance = size(rng, 3, 5), pick(rng, [0.3, 0.1])
    coefficients = [math.comb(n, k) * (-1.0) ** (n - k) for k in range(n, -1, -1)]

    def horner(x):
        y = 0 * x
        for c in coefficients:
            y = y * x + c
        return y

    return Right(horner, tensor(1 + distance * rng.uniform(0.5, 1, 3), rng))


def arctanh_near_one(rng):
    x = 1 - 10 ** rng.uniform(-9, -1, 3)
    return Right(lambda x: 0.5 * ((1 + x) / (1 - x)).log(), tensor(x * rng.choice([-1.0, 1.0], 3), rng))


def erfc_tail(rng):
    return Right(mg.erfc, uniform(rng, 2, 20, 4))


def fast_oscillation(rng):
    frequency = pick(rng, [1e3, 1e5, 1e7])
    return Right(lambda x: (frequency * x).sin(), normal(rng, 3))


def nearly_singular(rng):
    """A 2 × 2 determinant and inverse of a matrix with condition 1e4 to 1e8."""
    gap = 10 ** rng.uniform(-8, -4)
    a = np.array([[1.0, 1.0], [1.0, 1.0 + gap]]) * rng.uniform(0.5, 2)

    def determinant(a):
        return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]

    inverse = bool(rng.integers(2))
    return Right(lambda a: a.flip(0, 1).T / determinant(a) if inverse else determinant(a), tensor(a, rng))


MAKERS = [
    logsumexp_with_gaps, logsumexp_by_hand, saturated_softmax, saturated_log_softmax, log_of_softmax,
    variance_of_a_large_mean, textbook_variance, cumulative_products, product_with_zeros, difference_of_near_equals,
    scaled_values, mixed_scales, outputs_of_many_sizes, expm1_by_tanh, exp_minus_one, log_of_one_plus, kahan_log1p,
    softplus, logistic_tails, log_sigmoid, log_normal_density, student_log_density, tiny_denominators,
    stable_quadratic_root, cancelling_quadratic_root, welford, kahan_sum, polynomial_near_a_multiple_root,
    arctanh_near_one, erfc_tail, fast_oscillation, nearly_singular,
]  # fmt: skip
