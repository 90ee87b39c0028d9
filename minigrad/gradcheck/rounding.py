"""How much the rounding inside a function changes its value, read off its own graph; and how much its gradient."""

import numpy as np

from ..autograd import Value, no_grad, reachable, watch
from .subject import PRECISION, host, wrapped


class Rounding:
    """A value v on the way is off by about eps |v|, and the function then by |dv| eps |v|, dv being v's gradient in the
    walk back from a cotangent. `noise` is four times the root of the sum of their squares over all v.

    The output alone would not tell: 1 - erf(5) is 1e-12, and off by 1e-16. Source: Iri 1984; Langlois 2001."""

    def __init__(self):
        self.values: dict = {}  # node -> the array that an op computed
        self.begin()

    def look(self, op, inputs, outputs):
        """For `watch`: remember what each op computed."""
        for y in outputs:
            if y is not None and y.node is not None:
                self.values[y.node] = host(y)

    def listen(self, run):
        """Have every later walk through this run's graph add up what rounding does."""
        for nodes in reachable(run.roots, 0).values():
            for node in nodes.values():
                v = self.values.get(node)
                if v is not None:
                    node.hooks = {None: lambda g, v=v, eps=float(PRECISION[v.dtype]): self.add(host(g), v, eps)}

    def add(self, g, v, eps):
        effect = np.multiply(g, v, dtype=np.float64)
        square = float(np.square(effect, where=np.isfinite(effect), out=np.zeros(effect.shape)).sum())
        self.flow_squared += square
        self.noise_squared += eps * eps * square

    def begin(self):
        """Before a walk: forget the one before."""
        self.flow_squared = self.noise_squared = 0.0

    @property
    def noise(self):
        return 4 * np.sqrt(self.noise_squared)

    @property
    def flow(self):
        """The size of what is added up to the value, before anything cancels."""
        return np.sqrt(self.flow_squared)


def unsteadiness(subject, vector, arrays=None, times=4):
    """By how much outputs, and the gradient of vector @ outputs, change if every result on the way there and back is
    off by its rounding: (array, [array for each leaf]), the largest of `times` random trials.

    arrays: another point, or dtype.

    softmax's backward of values near 1e6, say, cancels what is left at 1: 1e-16 there is 1e-10 here. Source: Parker
    1997, Monte Carlo arithmetic."""
    rng = np.random.default_rng(0)

    def rounded(v):
        return v * (1 + PRECISION[v.dtype] * rng.uniform(-1, 1, v.shape))

    def repeat(op, inputs, outputs):
        """Run an op that rounds inside again, on inputs off by a rounding: so a fused op shows what its parts would."""
        if op.rounds_inside:
            off = [wrapped(rounded(host(x)).astype(x.dtype), x) if _is_float(x) else x for x in inputs]
            with no_grad(), watch(None):
                again = type(op).apply(*off, **op.params)
            for y, z in zip(outputs, again if isinstance(again, tuple) else (again,)):
                y.storage.backend.setitem(y.array, (...,), z.array)

    def look(op, inputs, outputs):
        repeat(op, inputs, outputs)
        for y in outputs:
            if y is not None and y.dtype in PRECISION and not _handed_through(y, inputs):
                on = y.storage.backend
                on.setitem(y.array, (...,), on.from_numpy(rounded(host(y)).astype(y.dtype)))

    def results(trial):
        with watch(look if trial else None):
            run = subject.run(arrays)
        for nodes in reachable(run.roots, 0).values() if trial else ():
            for node in nodes.values():
                node.hooks = {None: lambda g: wrapped(rounded(host(g)).astype(g.dtype), g)}
        with watch(repeat if trial else None):
            return [run.y, *run.gradient(run.cotangents(vector))]

    trials = [results(trial) for trial in range(times + 1)]
    change, *changes = [np.max([np.abs(a - each[0]) for a in each[1:]], axis=0) for each in zip(*trials)]
    return change, changes


def _is_float(x):
    return isinstance(x, Value) and x.dtype in PRECISION


def _handed_through(y, inputs):
    """Does y consist of numbers that were there before? A view does, what relu and amax give does, and is exact."""
    given = [host(x).ravel() for x in inputs if isinstance(x, Value)]
    return bool(given) and bool(np.isin(host(y), np.concatenate(given)).all())
