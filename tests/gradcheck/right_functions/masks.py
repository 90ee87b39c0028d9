"""-inf masks, guards by where, 0 log 0, and functions that are constant around the point."""

import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, apart, constant, normal, pick, size, tensor, uniform

INF = math.inf


def causal_attention(rng):
    t, d = size(rng, 2, 3), size(rng, 1, 3)
    added = np.triu(np.full((t, t), -INF), 1)
    form = int(rng.integers(3))

    def attend(q, k, v):
        scores = q @ k.mT / math.sqrt(d)
        if form == 0:
            scores = scores + constant(added)
        elif form == 1:
            scores = scores.masked_fill(constant(added < 0), -INF)
        else:
            scores = mg.where(constant(added < 0), -INF, scores)
        return scores.softmax(-1) @ v

    return Right(attend, normal(rng, t, d), normal(rng, t, d), normal(rng, t, d))


def softmax_by_hand_with_mask(rng):
    keep = rng.random((2, 4)) < 0.6
    keep[:, 0] = True

    def softmax(x):
        x = x.masked_fill(constant(~keep), -INF)
        e = (x - x.detach().amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    return Right(softmax, normal(rng, 2, 4, scale=pick(rng, [1.0, 30.0])))


def logsumexp_with_masked_entries(rng):
    keep = rng.random((3, 4)) < 0.5
    keep[0] = False  # a whole row: -inf, with gradient 0
    rest = bool(rng.integers(2))
    return Right(
        lambda x: x.masked_fill(constant(~keep), -INF).logsumexp(-1)[int(rest) :],
        normal(rng, 3, 4),
        nonfinite="" if rest else "the first row is all -inf",
    )


def empty_row_of_softmax(rng):
    """A row in which nothing is left is zeros here."""
    keep = rng.random((3, 3)) < 0.5
    keep[1] = False
    return Right(lambda x: x.masked_fill(constant(~keep), -INF).softmax(-1), normal(rng, 3, 3))


def log_softmax_picked(rng):
    keep = rng.random((2, 4)) < 0.6
    keep[:, 1] = True
    return Right(lambda x: x.masked_fill(constant(~keep), -INF).log_softmax(-1)[:, 1], normal(rng, 2, 4))


def xlogy(rng):
    x = rng.uniform(0.1, 2, 4)
    x[rng.integers(4)] = 0.0  # a constant here: only y varies

    def guarded(y):
        x0 = constant(x)
        return mg.where(x0 == 0, 0.0, x0 * y.log())

    return Right(guarded, uniform(rng, 0.1, 3, 4))


def entropy_with_zeros(rng):
    """Zeros that come from a mask: the entropy of what is left."""
    keep = np.array([True, True, False, True])

    def entropy(x):
        p = x.masked_fill(constant(~keep), -INF).softmax(-1)
        return -mg.where(p > 0, p * mg.where(p > 0, p, 1.0).log(), 0.0).sum(-1)

    return Right(entropy, normal(rng, 2, 4))


def kl_with_zeros(rng):
    p = np.array([0.0, 0.25, 0.75, 0.0])
    safe = np.where(p > 0, p, 1.0)

    def kl(logits):
        return (constant(p) * (constant(np.log(safe)) - logits.log_softmax(-1))).sum(-1)

    return Right(kl, normal(rng, 2, 4))


def guarded_norm(rng):
    """√(x²) with the row of zeros left out by where, inside and outside."""
    x = rng.standard_normal((3, 2))
    x[1] = 0

    def norm(x):
        square = (x * x).sum(-1)
        zero = square == 0
        return mg.where(zero, 0.0, mg.where(zero, 1.0, square).sqrt())

    return Right(norm, tensor(x, rng), kink="a norm at 0")


def guarded_division(rng):
    """a / b where b is not 0; the zeros of b are constants."""
    b = np.array([0.0, 2.0, -0.5])
    return Right(lambda a: mg.where(constant(b != 0), a / constant(np.where(b != 0, b, 1.0)), 0.0), normal(rng, 3))


def guarded_sinc(rng):
    """sin x / x, and its series where x is small."""
    x = rng.choice([0.0, 1e-5, 1e-3, 0.5, 2.0], 4)

    def sinc(x):
        small = x.abs() < 1e-2
        safe = mg.where(small, 1.0, x)
        return mg.where(small, 1 - x * x / 6 + x**4 / 120 - x**6 / 5040, safe.sin() / safe)

    return Right(sinc, tensor(x, rng))


def sqrt_at_zero(rng):
    return Right(mg.sqrt, tensor(np.array([0.0, 1.0])), nonfinite="the slope of √ at 0 is infinite")


def log_at_zero(rng):
    return Right(lambda x: x.log(), tensor(np.array([0.0, 1.0, 2.0])), nonfinite="log 0")


def infinite_beside_finite(rng):
    """Outputs of which some are constants, -inf."""
    keep = rng.random(4) < 0.5
    keep[0], keep[1] = True, False
    return Right(
        lambda x: x.exp().masked_fill(constant(~keep), -INF), normal(rng, 4), nonfinite="-inf among the outputs"
    )


def masked_mean(rng):
    keep = rng.random((3, 4)) < 0.6
    weights = constant(keep.astype(float))
    return Right(lambda x: (x * weights).sum(-1) / weights.sum(-1).clamp(1.0), normal(rng, 3, 4))


def masked_fill_of_a_number(rng):
    keep = rng.random((2, 3)) < 0.5
    value = pick(rng, [0.0, -1e9, -1e4, 7.0])
    return Right(lambda x: x.masked_fill(constant(keep), value).logsumexp(-1), normal(rng, 2, 3))


def library_attention_with_mask(rng):
    t = size(rng, 2, 3)
    allowed = rng.random((t, t)) < 0.7
    return Right(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=constant(allowed)),
        normal(rng, 1, t, 2),
        normal(rng, 1, t, 2),
        normal(rng, 1, t, 2),
    )


# ------------------------------------------------------------------------------------------------- constant around here


def middle(rng, *shape):
    """Numbers in the middle between whole ones."""
    return tensor(rng.integers(-4, 4, shape) + rng.uniform(0.2, 0.8, shape), rng)


def floors(rng):
    f = pick(rng, [mg.floor, lambda x: x.floor() * x, lambda x: -(-x).floor(), lambda x: x - x.floor()])
    return Right(f, middle(rng, 3))


def rounds(rng):
    x = tensor(rng.integers(-4, 4, 3) + rng.uniform(-0.3, 0.3, 3), rng)
    return Right(pick(rng, [lambda x: (x + 0.5).floor(), lambda x: (x + 0.5).floor() + x.sin()]), x)


def signs(rng):
    return Right(pick(rng, [mg.sign, lambda x: x.sign() * x, lambda x: x.sign() + x * x]), apart(rng, 2, 2))


def comparisons(rng):
    f = pick(
        rng,
        [
            lambda x: (x > 0).to(x.dtype),
            lambda x: mg.where(x > 0, 2.0, -2.0) * x,
            lambda x: (x < x.flip(0)).double() + x * 0,
            lambda x: mg.one_hot(x.argmax(), 4).double() * x,
        ],
    )
    return Right(f, apart(rng, 4))


def constants(rng):
    f = pick(rng, [lambda x: x * 0, lambda x: 0 * x + 5, lambda x: x.detach() * 0 + 1, lambda x: x - x, lambda x: x / x,
                   lambda x: x.softmax(-1).sum(), lambda x: x.sin() ** 2 + x.cos() ** 2])  # fmt: skip
    return Right(f, apart(rng, 3))


def saturated(rng):
    return Right(
        pick(rng, [mg.relu, lambda x: x.clamp(0.0, 1.0), lambda x: x.relu() * 1e6, lambda x: x.sigmoid()]),
        uniform(rng, -900, -800, 3),
    )


def unused_input(rng):
    return Right(lambda x, unused: x.exp(), normal(rng, 3), normal(rng, 2))


def partly_used(rng):
    return Right(lambda x: x[1:] * x[1:], normal(rng, 4))


def integer_outputs_too(rng):
    return Right(lambda x: (x * x, x.argmax(-1), x > 0), apart(rng, 2, 3))


def index_computed_from_x(rng):
    return Right(lambda x: x[x.argsort(0)] * constant([1.0, 2.0, 3.0]), apart(rng, 3))


MAKERS = [
    causal_attention, softmax_by_hand_with_mask, logsumexp_with_masked_entries, empty_row_of_softmax,
    log_softmax_picked, xlogy, entropy_with_zeros, kl_with_zeros, guarded_norm, guarded_division, guarded_sinc,
    sqrt_at_zero, log_at_zero, infinite_beside_finite, masked_mean, masked_fill_of_a_number,
    library_attention_with_mask, floors, rounds, signs, comparisons, constants, saturated, unused_input, partly_used,
    integer_outputs_too, index_computed_from_x,
]  # fmt: skip
