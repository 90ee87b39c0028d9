"""Functions that bend or jump, at their kink and at distances of 1e-12 to 1e-2 from it; ties.

Wherever the distance is less than `NEAR`, KINK is deserved; farther away a difference has room to step."""

import numpy as np

import minigrad as mg

from .material import NEAR, Right, constant, near, near_kink, normal, pick, size, tensor, uniform

RAMPS = {
    "relu": (mg.relu, 0.0),
    "abs": (mg.abs, 0.0),
    "clamp": (lambda x: x.clamp(-10.0, 1.0), 1.0),
    "hinge": (lambda x: (1 - x).relu(), 1.0),
    "maximum": (lambda x: mg.maximum(x, 2.0), 2.0),
    "minimum": (lambda x: mg.minimum(0.5 * x, 0.25), 0.5),
    "leaky relu": (lambda x: mg.where(x > 0, x, 0.01 * x), 0.0),
    "sqrt of square": (lambda x: mg.maximum(x, -x), 0.0),
    "hard tanh of 1000": (lambda x: x.clamp(-5000.0, 1000.0), 1000.0),
    "quantile loss": (lambda x: mg.maximum(0.9 * x, -0.1 * x), 0.0),
    "elu": (lambda x: mg.where(x > 0, x, 2 * (mg.minimum(x, 0.0).exp() - 1)), 0.0),
    "selected": (lambda x: x * (x > 0).to(x.dtype), 0.0),
}
JUMPS = {
    "step": (lambda x: mg.where(x > 0, x + 1, x), 0.0),
    "floor": (lambda x: x.floor() + x, 2.0),
    "sign": (lambda x: x.sign() * 3 + x * x, 0.0),
    "fraction": (lambda x: x - x.floor(), -1.0),
}
BENDS = {  # once differentiable: only the second derivative has a jump
    "huber": (lambda x: mg.where(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5), 1.0),
    "squared hinge": (lambda x: (1 - x).relu() ** 2, 1.0),
    "squared relu": (lambda x: x.relu() ** 2, 0.0),
    "x |x|": (lambda x: x * x.abs(), 0.0),
}


def at_a(choices):
    def maker(rng):
        f, where = choices[pick(rng, list(choices))]
        x, kink = near(rng, where, (size(rng, 1, 4),))
        inner = bool(rng.integers(2))  # also where the rest of the function is curved
        return Right(lambda x: f(x).sin() if inner else f(x), x, kink=kink)

    return maker


ramp, jump, bend = at_a(RAMPS), at_a(JUMPS), at_a(BENDS)
ramp.__name__, jump.__name__, bend.__name__ = "ramp", "jump", "bend"


def tied(rng, n):
    """(n numbers whose two largest, and whose two in the middle, are at a drawn distance; the reason for a KINK)."""
    distance = pick(rng, [0.0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2])
    x = np.arange(n, dtype=float)
    x[n - 1] = x[n - 2] + distance
    x[n // 2 - 1] = x[n // 2] - distance
    return tensor(rng.permutation(x), rng), near_kink(distance, n)


def of_ties(f, low=2):
    def maker(rng):
        n = size(rng, low, 6)
        x, kink = tied(rng, n)
        return Right(f(rng, n), x, kink=kink)

    return maker


def sorted_values(rng, n):
    weights = constant(rng.standard_normal(n))
    return lambda x: x.sort(-1)[0] * weights


def top(rng, n):
    k = int(rng.integers(1, n + 1))
    return lambda x: x.topk(k)[0]


def median(rng, n):
    return lambda x: x.sort(-1)[0][(n - 1) // 2]


MAXIMA = {
    "amax": lambda rng, n: lambda x: x.amax(),
    "max": lambda rng, n: lambda x: x.max(0)[0],
    "min of negative": lambda rng, n: lambda x: (-x).amin(0),
    "sort": sorted_values,
    "topk": top,
    "median": median,
    "range": lambda rng, n: lambda x: x.amax() - x.amin(),
    "normalised": lambda rng, n: lambda x: x / (x + 1).amax(),
    "max pool": lambda rng, n: lambda x: mg.stack([x[:-1], x[1:]]).amax(0),
}


def ties(rng):
    return of_ties(MAXIMA[pick(rng, list(MAXIMA))])(rng)


def integer_ties(rng):
    """Whole numbers as floats: many are equal, and many are 0."""
    x = rng.integers(-2, 3, (2, size(rng, 2, 4))).astype(float)
    f = pick(
        rng,
        [
            lambda x: x.amax(-1),
            lambda x: x.relu(),
            lambda x: x.sort(-1)[0],
            lambda x: (x - x[:, :1]).abs(),
            lambda x: x.topk(2)[0],
            lambda x: mg.maximum(x, x.flip(-1)),
        ],
    )
    return Right(f, tensor(x, rng), kink="whole numbers: zeros and ties")


def maximum_of_itself(rng):
    """Kinked by its formula, yet as smooth as x."""
    nowhere = [lambda x: mg.maximum(x, x), lambda x: mg.where(x > 0, x, x)]
    # At 0 itself the gradient of these would be 0, not 1.
    beside_0 = [lambda x: x.relu() - (-x).relu(), lambda x: x.abs() * x.sign()]
    f = pick(rng, nowhere + beside_0)
    x = rng.choice([0.0 if f in nowhere else 1e-6, 1e-9, 0.5, -1.0], 4)
    return Right(f, tensor(x, rng), kink=near_kink(np.abs(x).min()))


def two_kinks_around(rng):
    """Kinks on both sides, at different distances."""
    left, right = (float(d) for d in 10 ** rng.uniform(-4, -1, 2))
    return Right(lambda x: (x + left).abs() + (x - right).relu() * 3, tensor(np.zeros(1)))


def hidden_layer(rng):
    """relu of a hidden unit that is at, or near, its kink for the first sample."""
    distance = pick(rng, [0.0, 1e-9, 1e-4, 1e-2])
    w, x = rng.standard_normal((3, 2)), rng.standard_normal((2, 2)) + 2
    b = 5 * rng.choice([-1.0, 1.0], 3)
    b[0] = distance - x[0] @ w[0]
    others = np.abs(x @ w.T + b)
    others[0, 0] = 1
    steepest, largest = max(1.0, np.abs(w).max(), np.abs(x).max()), max(np.abs(x).max(), np.abs(b).max())
    reason = near_kink(min(distance, others.min()) / steepest, largest)
    return Right(lambda x, w, b: (x @ w.T + b).relu().sum(-1), tensor(x), tensor(w), tensor(b), kink=reason)


def l1_and_linf_norms(rng):
    x, kink = near(rng, 0.0, (size(rng, 2, 4),))
    largest = np.sort(np.abs(x.numpy()))[-2:]
    kink = kink or near_kink(largest[1] - largest[0])
    return Right(
        pick(rng, [lambda x: x.abs().sum(), lambda x: x.abs().amax(), lambda x: x / x.abs().sum()]), x, kink=kink
    )


def triangle_wave(rng):
    x = rng.integers(-3, 4, 3) + rng.choice([0.0, 1e-9, 1e-3, 0.25, 0.4], 3)
    distance = np.abs(2 * x - np.round(2 * x)).min() / 2  # kinks at every half
    return Right(lambda x: (x - (x + 0.5).floor()).abs(), tensor(x), kink=near_kink(distance, np.abs(x).max()))


def soft_threshold(rng):
    x, kink = near(rng, 0.5, (3,))
    absolute = np.abs(x.numpy())
    kink = kink or near_kink(np.abs(absolute - 0.5).min()) or near_kink(absolute.min())
    return Right(lambda x: x.sign() * (x.abs() - 0.5).relu(), x, kink=kink)


def smooth_with_a_far_kink(rng):
    """A kink that is a thousandth of x away, beside one number of another size."""
    x = np.array([1e3, 1e-3 * (1 + pick(rng, [3e-2, 1e-1]))])
    return Right(lambda x: (x - constant([0.0, 1e-3])).relu(), tensor(x))


def kinked_in_one_input_only(rng):
    x, kink = near(rng, 0.0, (3,))
    return Right(lambda x, y: x.relu() * y + y.exp(), x, normal(rng, 3), kink=kink)


def clamped_probability(rng):
    """log of a probability clamped away from 0."""
    eps = pick(rng, [1e-7, 1e-12])
    p = uniform(rng, 0.05, 0.95, 4)
    return Right(lambda p: p.clamp(eps, 1 - eps).log(), p)


def barely_outside(rng):
    """Just farther than what is called near: a difference has to look at so small a scale."""
    distance = pick(rng, [3, 10, 30]) * NEAR
    return Right(
        pick(rng, [mg.relu, mg.abs, lambda x: x.clamp(0.0, 1.0)]), tensor(rng.choice([-1.0, 1.0], 2) * distance)
    )


MAKERS = [
    ramp, ramp, jump, bend, ties, ties, ties, integer_ties, maximum_of_itself, two_kinks_around, hidden_layer,
    l1_and_linf_norms, triangle_wave, soft_threshold, smooth_with_a_far_kink, kinked_in_one_input_only,
    clamped_probability, barely_outside,
]  # fmt: skip
