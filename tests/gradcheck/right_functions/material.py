"""What the families make, and the numbers they make it of.

A maker is a function of a random generator that returns `Right(fn, *inputs)`. It also says what a checker may answer
there other than PASS, and why: that follows from how the numbers were drawn, never from what a checker said."""

import numpy as np

import minigrad as mg

NEAR = 1e-5  # relative to the larger of 1 and |x|: so near to a kink, a difference may step across it
BESIDE = "beside a kink"  # not at it: its differences are of the kink, its gradient is of one side
DISTANCES = [0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2]  # of an input to a kink


class Right:
    """A function whose gradient is right, and the inputs to check it at.

    kink        why the function bends or jumps here, so that KINK is deserved; '' if it is smooth
    nonfinite   why a value or a derivative is infinite or NaN
    coarse      why rounding inside the function may hide the answer: INCONCLUSIVE is deserved
    orders      the derivatives that are right: a backward in NumPy is right, but cannot be differentiated again
    """

    def __init__(self, fn, *inputs, kink="", nonfinite="", coarse="", orders=(1, 2)):
        self.fn, self.inputs = fn, inputs
        self.kink, self.nonfinite, self.coarse, self.orders = kink, nonfinite, coarse, orders
        self.kind = self.name = ""

    @property
    def allowed(self):
        """The verdicts that are right answers."""
        deserved = {"KINK": self.kink, "NONFINITE": self.nonfinite, "INCONCLUSIVE": self.coarse}
        if self.kink.startswith(BESIDE):
            deserved["INCONCLUSIVE"] = self.kink
        return {"PASS"} | {verdict for verdict, reason in deserved.items() if reason}


def tensor(array, rng=None):
    """A float64 Tensor of an array (float32 and float16 stay); with a generator, sometimes not in row-major order."""
    array = np.asarray(array)
    layout = rng.integers(8) if rng is not None and array.ndim else -1
    if layout == 0:
        return mg.tensor(array.T.copy()).permute(*range(array.ndim)[::-1])
    if layout == 1:  # every second element of something longer
        return mg.tensor(np.repeat(array, 2, axis=-1))[..., ::2]
    return mg.tensor(array)


def normal(rng, *shape, scale=1.0):
    return tensor(scale * rng.standard_normal(shape), rng)


def uniform(rng, low, high, *shape):
    return tensor(rng.uniform(low, high, shape), rng)


def apart(rng, *shape):
    """Distinct numbers, at least 0.1 from each other and from 0."""
    n = int(np.prod(shape))
    steps = (0.15 + 0.25 * np.arange(n)) * np.where(np.arange(n) % 2, 1.0, -1.0) + rng.uniform(-0.05, 0.05, n)
    return tensor(rng.permutation(steps).reshape(shape), rng)


def constant(array):
    return mg.tensor(np.asarray(array))


def size(rng, low=2, high=4):
    return int(rng.integers(low, high + 1))


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def positive_definite(rng, n):
    a = rng.standard_normal((n, n))
    return tensor(a @ a.T / n + np.eye(n), rng)


def near(rng, where, shape, distances=DISTANCES):
    """(numbers of which the first lies at a drawn distance from `where`, and none elsewhere near it; the reason for a
    KINK, if that distance is none to speak of)."""
    distance = pick(rng, distances) * pick(rng, [-1.0, 1.0])
    x = where + rng.uniform(0.1, 2, shape) * rng.choice([-1.0, 1.0], shape)
    x.flat[0] = where + distance
    left = abs(x.flat[0] - where)
    return tensor(x, rng), near_kink(left, x.flat[0])


def near_kink(distance, x=1.0):
    """The reason for a KINK of a point x at that distance from one; '' if that is far."""
    if distance > NEAR * max(1.0, abs(x)):
        return ""
    return f"{BESIDE}, at {distance:.1g}" if distance else "at a kink"
