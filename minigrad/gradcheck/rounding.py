"""How much the rounding inside a function changes its value: read off its own graph."""

import numpy as np

from ..autograd import reachable
from .subject import PRECISION, host


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
