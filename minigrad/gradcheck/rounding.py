"""How much rounding inside a function changes its value, according to its graph, and its gradient."""

import numpy as np

from ..autograd import Value, no_grad, watch
from .adapters.foreign import Foreign
from .plateaus import measured_noise
from .subject import PRECISION, host, wrapped

SAMPLE = 1000  # values, of which the noise is measured
TRIALS = 4  # random trials that unsteadiness() takes the largest of


class Rounding:
    """One forward of a Subject. Backward walks through it estimate its rounding.

    A value v on the way is off by about eps |v|, and the weighted outputs then by |dv| eps |v|, where dv is v's
    gradient in the walk. `noise` is four times the root of the sum of their squares over all v. `flow` is that root
    without eps: the size of the terms that add up to the result, before any of them cancel. `gain` is the root of the
    sum of |dv|²: how an absolute error on the way, such as 1e-20 in 1 + 1e-20, shows in the result.

    The outputs alone would not tell: 1 - erf(5) is 1e-12, and off by 1e-16. Source: Iri 1984; Langlois 2001."""

    def __init__(self, subject, hidden=None):
        """hidden: see below; None: to be measured."""
        self.noise_squared = self.flow_squared = self.gain_squared = 0.0
        self.coarsest = PRECISION[np.dtype("float64")]  # eps of the coarsest float dtype on the way
        self.hidden = hidden or 0.0  # eps of the dtype in which another framework's function computes inside
        self.steps = False  # did an op run whose values go in steps, such as round?
        self.by_op: dict = {}  # op -> its part of the noise squared, in all walks so far
        foreign = False
        values = {}  # node -> the array that an op computed

        def keep(op, inputs, outputs):
            nonlocal foreign
            foreign |= isinstance(op, Foreign)
            self.steps |= not op.differentiable and any(y is not None and y.dtype.kind in "if" for y in outputs)
            for y in outputs:
                if y is not None and y.node is not None:
                    values[y.node] = host(y)

        with watch(keep):
            self.run = subject.run()
        for op, node in self.run.results():
            if node in values:
                self.coarsest = max(self.coarsest, PRECISION.get(values[node].dtype, 0))
                node.add_hook(lambda g, op=op, v=values[node]: self._add(host(g), op, v))
        eps = PRECISION[np.dtype("float32")]
        if hidden is None and foreign and self.coarsest < eps and _rounds_to_float32(subject, self.run.y):
            self.hidden = eps
        self.coarsest = max(self.coarsest, self.hidden)

    @property
    def roughest(self):
        """The op whose rounding is the largest part of the noise, described; "" if there is none."""
        op = max(self.by_op, key=self.by_op.__getitem__, default=None)
        return op.describe() if op is not None and self.by_op[op] else ""

    def _add(self, g, op, v):
        square = _sum_of_squares(np.multiply(g, np.maximum(np.abs(v), op.rounds_as), dtype=np.float64))
        self.flow_squared += square
        noise_squared = max(PRECISION[v.dtype], self.hidden) ** 2 * square
        self.noise_squared += noise_squared
        self.by_op[op] = self.by_op.get(op, 0.0) + noise_squared
        self.gain_squared += _sum_of_squares(np.asarray(g, np.float64))

    @property
    def gain(self):
        """Of the latest gradient()."""
        return np.sqrt(self.gain_squared)

    def gradient(self, dys):
        """(the gradients of the leaves, noise, flow) for these dys. It may be asked any number of times."""
        self.noise_squared = self.flow_squared = self.gain_squared = 0.0
        gradient = self.run.gradient(dys, retain_graph=True)
        return gradient, 4 * np.sqrt(self.noise_squared), np.sqrt(self.flow_squared)


def _rounds_to_float32(subject, y):
    """Do the values y of another framework's function have float32's rounding, as if it computed in float32 inside?
    Then at least a quarter of them vary by that much between close points, whatever the distance. (The point itself is
    left out: a kink may be very near.)"""
    if not y.size:
        return False
    few = slice(0, SAMPLE)
    rng, largest = np.random.default_rng(0), np.abs(y[few][np.isfinite(y[few])]).max(initial=0)
    direction = [a * rng.uniform(0.5, 1, a.shape) for a in subject.arrays]

    def noise(h):
        off = measured_noise(lambda t: (subject.values(subject.shifted(direction, t)) - y)[few], h, 3 * h)
        return float(np.quantile(off, 0.75))

    try:
        found = noise(1.07e-4)
        return 1e-9 * largest < found < 1e-6 * largest and found / 8 < noise(1.07e-5) < 8 * found
    except Exception:  # it does not support such numbers
        return False


def _sum_of_squares(x):
    return float(np.square(x, where=np.isfinite(x), out=np.zeros(x.shape)).sum())


def unsteadiness(subject, cotangent, arrays=None):
    """By how much the outputs, and the gradient of cotangent @ outputs, change if every result on the way there and
    back is off by its rounding: (array, [array for each leaf]), the largest of some random trials. Infinite where that
    makes NaN of a number.

    arrays: another point, or another dtype.

    One case: softmax's backward of values near 1e6 cancels all but what is near 1, so 1e-16 in them is 1e-10 in the
    gradient. Source: Parker 1997, Monte Carlo arithmetic."""
    rng = np.random.default_rng(0)

    def rounded(v, least=0.0):
        size = np.where(np.isfinite(v), np.maximum(np.abs(v), least), 0.0)
        return v + size * PRECISION[v.dtype] * rng.uniform(-1, 1, v.shape)

    def overwrite(y, array):
        y.storage.backend.setitem(y.array, (...,), array)

    def repeat(op, inputs, outputs):
        """Run an op that rounds inside again, on inputs that are off by their rounding. A fused op then shows what the
        ops that it stands for would show."""
        if op.rounds_inside:
            off = [wrapped(rounded(host(x)).astype(x.dtype), x) if _is_float(x) else x for x in inputs]
            with no_grad(), watch(None):
                again = type(op).apply(*off, **op.params)
            for y, z in zip(outputs, again if isinstance(again, tuple) else (again,)):
                if y is not None:
                    overwrite(y, z.array)

    def disturb(op, inputs, outputs):
        repeat(op, inputs, outputs)
        for y in outputs:
            if y is not None and y.dtype in PRECISION and not _handed_through(y, inputs):
                overwrite(y, y.storage.backend.from_numpy(rounded(host(y), op.rounds_as).astype(y.dtype)))

    def results(disturbed):
        with watch(disturb if disturbed else None):
            run = subject.run(arrays)
        for _, node in run.results() if disturbed else ():
            node.add_hook(lambda g: wrapped(rounded(host(g)).astype(g.dtype), g))
        with watch(repeat if disturbed else None):
            return [run.y, *run.gradient(run.dys(cotangent))]

    exact, *trials = [results(trial > 0) for trial in range(TRIALS + 1)]
    change, *changes = [np.max([difference_of(a, b) for b in others], axis=0) for a, *others in zip(exact, *trials)]
    return change, changes


def difference_of(a, b):
    """|a - b|: 0 where both are NaN or the same infinity, and infinite where only one is."""
    equal = (a == b) | ((a != a) & (b != b))
    return np.where(equal, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))


def _is_float(x):
    return isinstance(x, Value) and x.dtype in PRECISION


def _handed_through(y, inputs):
    """Does y consist of numbers of the inputs? Views do, and so do the results of relu and amax: those are exact."""
    given = [host(x).ravel() for x in inputs if isinstance(x, Value)]
    numbers = host(y)[~np.isnan(host(y))]
    return bool(given) and bool(np.isin(numbers, np.concatenate(given)).all())
