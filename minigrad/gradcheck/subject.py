"""What is checked: a function of the float64 arrays that vary, its outputs as one vector, and its gradient."""

import numpy as np

from .. import autograd, dtypes
from ..autograd import Storage
from ..random import default_generator
from ..tensor import Tensor

PRECISION = {np.dtype(name): np.finfo(name).eps for name in ("float16", "float32", "float64")}


class Leaf:
    """One array that varies: a Tensor among the inputs, or a parameter of a Module among them."""

    def __init__(self, name, tensor, parameter=False):
        self.name, self.tensor, self.parameter = name, tensor, parameter
        self.given = tensor.storage.backend.to_numpy(tensor.array)  # as it came: dtype and strides
        self.array = np.array(self.given, np.float64, order="C")
        self.backend = tensor.storage.backend


class Run:
    """One forward, with the graph that it left. y: the float outputs as one float64 vector of M."""

    def __init__(self, leaves, outputs):
        self.leaves = leaves  # tensors
        self.nodes = [x.node for x in leaves]  # a parameter's next run gives it another
        self.outputs = [y for y in flat(outputs) if y.dtype.kind in dtypes.FLOATS]
        self.y = joined([host(y) for y in self.outputs])

    @property
    def roots(self):
        return [y.node for y in self.outputs if y.node is not None]

    def cotangents(self, vector):
        """A vector of M as one array for each output."""
        arrays, start = [], 0
        for y in self.outputs:
            arrays.append(vector[start : start + y.numel()].reshape(y.shape).astype(y.dtype))
            start += y.numel()
        return arrays

    def gradient(self, cotangents, retain_graph=False, create_graph=False, wrt=None):
        """Of each leaf, as host arrays, for one array per output (cast to its dtype); zeros where none arrives."""
        leaves = range(len(self.leaves)) if wrt is None else wrt
        pairs = [(y, wrapped(c.astype(y.dtype, copy=False), y)) for y, c in zip(self.outputs, cotangents) if y.node]
        gradients = autograd.backward(
            [y.node for y, _ in pairs],
            [c for _, c in pairs],
            [self.nodes[i] for i in leaves],
            retain_graph=retain_graph,
            create_graph=create_graph,
        )
        return [np.zeros(self.leaves[i].shape) if g is None else host(g) for i, g in zip(leaves, gradients)]


def wrapped(array, like):
    backend = like.storage.backend
    return array if isinstance(array, Tensor) else Tensor._wrap(backend.from_numpy(array), Storage(backend))


def host(x):
    return x.storage.backend.to_numpy(x.array)


def joined(arrays):
    return np.concatenate([np.zeros(0), *[np.ravel(a) for a in arrays]])


def flat(tree):
    """The Tensors in tuples, lists, dicts and single ones; what is no Tensor is left out."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (tuple, list)):
        return []
    return [x for branch in tree for x in flat(branch)]


class Subject:
    """call(tensors) -> outputs, for one Tensor per leaf. Every call sees the same random numbers."""

    def __init__(self, call, leaves, label, passed=()):
        self.call, self.leaves, self.label = call, leaves, label
        self.passed = passed  # constants of the latest call: (name, the array passed, what it held before)
        self.random_state = default_generator.state
        self.evaluations = 0

    @property
    def arrays(self):
        return [leaf.array for leaf in self.leaves]

    @property
    def size(self):
        return sum(leaf.array.size for leaf in self.leaves)

    def run(self, arrays=None, on=None, copy=True, needs=None, tie=None):
        """Forward at `arrays` (default: the point itself), recorded.

        on: another backend; needs: which leaves require a gradient (default: all); tie: leaf tie[1] is leaf tie[0]."""
        default_generator.state = self.random_state
        tensors = []
        for i, (leaf, array) in enumerate(zip(self.leaves, self.arrays if arrays is None else arrays)):
            backend = on or leaf.backend
            x = leaf.tensor if leaf.parameter else Tensor.__new__(Tensor)
            array = np.array(array) if copy else np.asarray(array)  # sums of 0-d arrays are no arrays
            x.array, x.storage, x.node = backend.from_numpy(array), Storage(backend), None
            if needs is None or needs[i]:
                x.node = autograd.Node(None, 0, x.array.shape, x.array.dtype, backend.device)
            tensors.append(x)
        if tie:
            tensors[tie[1]] = tensors[tie[0]]
        return Run(tensors, self.call(tensors))

    def values(self, arrays):
        """The outputs at `arrays` as one vector."""
        self.evaluations += 1
        return self.run(arrays).y

    def complex_step(self, directions, h=1e-30):
        """The derivative along `directions` as Im f(x + ih u) / h: no difference is taken, so nothing cancels."""
        arrays = [x + 1j * h * u for x, u in zip(self.arrays, (0 if u is None else u for u in directions))]
        try:
            with autograd.no_grad():
                return self.values(arrays).imag / h
        except (TypeError, KeyError) as why:
            raise ValueError(f"gradcheck: numeric='complex' does not go through here ({why}); use 'ridders'") from why

    def moved(self, directions, t):
        """The point, t along `directions` (one array, or None, for each leaf)."""
        return [a if u is None else a + t * u for a, u in zip(self.arrays, directions)]

    def derivative(self, rng):
        """The subject whose outputs are this one's gradients, a function of the leaves and of the cotangents."""
        run = self.run()
        n = len(self.leaves)
        connected = [i for i, y in enumerate(run.outputs) if y.node is not None]
        drawn = [rng.standard_normal(run.outputs[i].shape) for i in connected]
        outputs = [run.outputs[i] for i in connected]
        leaves = [Leaf(f"dy[{i}]", wrapped(c, y)) for i, c, y in zip(connected, drawn, outputs)]

        def call(tensors):
            run = Run(tensors[:n], self.call(tensors[:n]))
            dys = [None] * len(run.outputs)
            for i, dy in zip(connected, tensors[n:]):
                dys[i] = dy
            pairs = [(y.node, dy) for y, dy in zip(run.outputs, dys) if dy is not None and y.node is not None]
            return autograd.backward([p[0] for p in pairs], [p[1] for p in pairs], run.nodes, create_graph=True)

        return Subject(call, [*self.leaves, *leaves], f"the gradient of {self.label}", self.passed)
