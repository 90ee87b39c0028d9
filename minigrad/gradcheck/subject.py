"""Subject: a function of the float64 arrays that vary, with its outputs as one vector, and its gradient.

All of gradcheck uses these words:
    leaf        an input or parameter that varies
    point       `arrays`, one for each leaf: where the function is evaluated
    direction   one array for each leaf, None for a leaf that does not move
    cotangent   a vector of M weights, one for each element of the outputs
    dys         the same weights as arrays, one for each output
"""

import copy
import math
from dataclasses import fields, is_dataclass

import numpy as np

from .. import autograd
from ..autograd import Storage, reachable
from ..random import default_generator
from ..tensor import Tensor, from_backend

FLOAT64 = np.dtype("float64")
TRIALS = 3  # random moves in `spread`, of which the largest change counts
PRECISION = {np.dtype(name): float(np.finfo(name).eps) for name in ("float16", "float32", "float64")}


class Leaf:
    """One array that varies: a Tensor among the inputs, or a parameter of a Module among them."""

    def __init__(self, name, tensor, parameter=False):
        self.name, self.tensor, self.parameter = name, tensor, parameter
        self.backend = tensor.storage.backend
        self.given = host(tensor)  # the user's dtype and strides
        self.array = np.array(self.given, np.float64, order="C")


class Subject:
    """call(tensors) -> outputs, for one Tensor per leaf. Every call sees the same random numbers."""

    def __init__(self, call, leaves, label, constants=()):
        self.call, self.leaves, self.label = call, leaves, label
        self.constants = constants  # (name, array passed, copy of it before the call) of the latest call
        self.random_state = default_generator.state
        self.evaluations = 0
        self.needs_graph = False  # the function does not run under no_grad, since it takes a gradient inside

    @property
    def arrays(self):
        return [leaf.array for leaf in self.leaves]

    @property
    def size(self):
        return sum(leaf.array.size for leaf in self.leaves)

    def run(self, arrays=None, on=None, copy=True, needs=None, tie=None):
        """Forward at `arrays` (default: the point itself), recorded. Returns a Forward.

        on: another backend; needs: which leaves require a gradient (default: all); tie: leaf tie[1] is leaf tie[0]."""
        default_generator.state = self.random_state
        tensors = []
        for i, (leaf, array) in enumerate(zip(self.leaves, self.arrays if arrays is None else arrays)):
            x = leaf.tensor if leaf.parameter else object.__new__(Tensor)
            array = np.array(array) if copy else np.asarray(array)  # NumPy makes scalars of sums of 0-d arrays
            tensors.append(_set_array(x, array, on or leaf.backend, needs is None or needs[i]))
        if tie:
            tensors[tie[1]] = tensors[tie[0]]
        return Forward(tensors, self.call(tensors))

    def spread(self, dys, arrays=None, eps=None, ties=True):
        """Return the rounding errors that every backward has, as [of the outputs as one vector, of each leaf's
        gradient].

        The function runs at points whose inputs, parameters and cotangents differ from the given ones by a relative eps
        (default: float64's rounding); the result is the spread of its outputs and gradients, infinite where one is NaN.
        ties: equal numbers stay equal. All points lie on one side of the given point and exclude it, so that an error
        at exactly x = 1 is not taken for noise."""
        rng, eps = np.random.default_rng(0), eps or PRECISION[FLOAT64]
        arrays = self.arrays if arrays is None else arrays

        def off(xs):
            numbers, which = np.unique(to_vector(xs), return_inverse=True)
            off_by = rng.integers(1, 5, numbers.size)[which] if ties else rng.integers(1, 5, which.size)
            moved = to_vector(xs) * (1 + eps * off_by)
            return [part.astype(x.dtype) for part, x in zip(split(moved, [x.shape for x in xs]), xs)]

        def results():
            run = self.run(off(arrays))
            return [run.y, *run.gradient(off(dys))]

        here = results()
        changes = [[difference_of(a, b) for a, b in zip(results(), here)] for _ in range(TRIALS)]
        return [np.max(change, axis=0) for change in zip(*changes)]

    def restore_parameters(self):
        """Give parameters the numbers of the point, in float64: a run at another point leaves others in them."""
        for leaf in self.leaves:
            if leaf.parameter:
                _set_array(leaf.tensor, leaf.array.copy(), leaf.backend)

    def values(self, arrays):
        """The outputs at `arrays` as one vector. Nothing is recorded, unless the function needs a graph of its own."""
        self.evaluations += 1
        if not self.needs_graph:
            try:
                with autograd.no_grad():
                    return self.run(arrays).y
            except RuntimeError:  # a hook, say, needs something that requires a gradient
                y = self.run(arrays).y
                self.needs_graph = True
                return y
        return self.run(arrays).y

    def moved(self, arrays):
        """Return this Subject at another point, with a count of evaluations of its own."""
        other = copy.copy(self)
        other.evaluations = 0
        other.leaves = [copy.copy(leaf) for leaf in self.leaves]
        for leaf, array in zip(other.leaves, arrays):
            leaf.array = array
        return other

    def point_along(self, direction, t):
        """The point that lies t along `direction`."""
        return [a if u is None else a + t * u for a, u in zip(self.arrays, direction)]

    def derivative(self, rng):
        """Return the Subject whose outputs are this one's gradients. It is a function of the leaves and of the dys."""
        run = self.run()
        n = len(self.leaves)
        connected = [i for i, y in enumerate(run.outputs) if y.node is not None]
        drawn = [rng.standard_normal(run.outputs[i].shape) for i in connected]
        leaves = [Leaf(f"dy[{i}]", to_tensor(dy, run.outputs[i])) for i, dy in zip(connected, drawn)]

        def call(tensors):
            recorded = autograd.is_grad_enabled()  # if not, only the gradient's values are needed
            with autograd.enable_grad():
                run = Forward(tensors[:n], self.call(tensors[:n]))
            dys = {i: dy.to(run.outputs[i].dtype) for i, dy in zip(connected, tensors[n:])}
            return run.backward([dys.get(i) for i in range(len(run.outputs))], run.nodes, create_graph=recorded)

        return Subject(call, [*self.leaves, *leaves], f"the gradient of {self.label}", self.constants)


class Forward:
    """One forward and the graph that it left. y: the float outputs joined into one float64 vector of M elements."""

    def __init__(self, leaves, outputs):
        self.leaves = leaves  # Tensors
        self.nodes = [x.node for x in leaves]  # kept here, since the next run gives a parameter another node
        self.outputs = [y for y in tensors_in(outputs) if y.dtype.kind == "f"]
        self.y = to_vector([host(y) for y in self.outputs])

    @property
    def roots(self):
        return [y.node for y in self.outputs if y.node is not None]

    def results(self):
        """(op, node) of every result on the way from the leaves to the outputs."""
        return [(op, node) for op, nodes in reachable(self.roots, 0).items() for node in nodes.values()]

    @property
    def has_hidden_ops(self):
        """True if an op on that way runs others inside, as a fused one does, or anything at all, as a user's may."""
        return any(op.rounds_inside or not op.primitive for op, _ in self.results())

    def uses_a_value_twice(self):
        """True if a value on that way is used twice, so that its gradient is a sum."""
        parents = [parent for op in reachable(self.roots, 0) for parent in op.parents if parent is not None]
        return len(parents) > len(set(parents))

    def unchecked(self):
        """The values that require a gradient, take part, and are none of the leaves, as text; "" if there are none."""
        names = {}
        for op in reachable(self.roots, 0):
            for parent in op.parents:
                if parent is not None and parent.op is None and parent not in self.nodes:
                    names[parent] = f"a Tensor of shape {parent.shape} that {op.name} takes"
        return ", ".join(names.values())

    def op_names(self):
        """The names of the ops on that way, each once, in the order in which they ran."""
        ops = sorted(reachable(self.roots, 0), key=lambda op: op.serial)
        return list(dict.fromkeys(op.name for op in ops))

    def output_name(self, m):
        """'[2, 3]' for element m of the outputs, '1[2, 3]' if there are several outputs, '' for the only number."""
        for i, y in enumerate(self.outputs):
            if m < y.numel():
                index = ", ".join(str(int(n)) for n in np.unravel_index(m, y.shape))
                return (str(i) if len(self.outputs) > 1 else "") + (f"[{index}]" if y.ndim else "")
            m -= y.numel()

    def dys(self, cotangent):
        """A cotangent as one array for each output, of its dtype."""
        parts = split(cotangent, [y.shape for y in self.outputs])
        return [part.astype(y.dtype) for part, y in zip(parts, self.outputs)]

    def backward(self, dys, nodes=None, **options):
        """autograd.backward from all outputs that have a graph. dys: a Tensor for each output; None leaves one out."""
        pairs = [(y.node, dy) for y, dy in zip(self.outputs, dys) if dy is not None and y.node is not None]
        return autograd.backward([node for node, _ in pairs], [dy for _, dy in pairs], nodes, **options)

    def gradient(self, dys, chosen=None, **options):
        """The gradients of the leaves as host arrays, zeros where none arrives. dys: an array for each output, cast to
        its dtype; None leaves it out. chosen: the numbers of the requested leaves. options go to autograd.backward."""
        chosen = range(len(self.leaves)) if chosen is None else chosen
        cast = [dy if dy is None else to_tensor(dy.astype(y.dtype, copy=False), y) for dy, y in zip(dys, self.outputs)]
        gradients = self.backward(cast, [self.nodes[i] for i in chosen], **options)
        return [np.zeros(self.leaves[i].shape) if g is None else host(g) for i, g in zip(chosen, gradients)]


# -- between Tensors, arrays and vectors


def _set_array(x, array, backend, needs_grad=True):
    """Make x a leaf that holds this host array on this backend. Returns x."""
    x.array, x.storage, x.node = backend.from_numpy(array), Storage(backend), None
    if needs_grad:
        x.node = autograd.Node(None, 0, x.array.shape, x.array.dtype, backend.device)
    return x


def to_tensor(array, like):
    """Return a host array as a Tensor on the device of `like`."""
    backend = like.storage.backend
    return from_backend(backend.from_numpy(np.asarray(array)), backend)  # arithmetic on 0-d arrays gives scalars


def host(x):
    """Return the Tensor's numbers as a NumPy array."""
    return x.storage.backend.to_numpy(x.array)


def to_vector(arrays):
    """Return all elements of the arrays as one vector."""
    if len(arrays) == 1 and arrays[0].dtype == FLOAT64:
        return arrays[0].flatten()
    return np.concatenate([np.zeros(0), *[np.ravel(a) for a in arrays]])


def split(vector, shapes):
    """Return the vector cut into arrays of these shapes: the opposite of joined."""
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=int)
    return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), shapes)]


def branches(tree):
    """Return [(path, branch)] of a tuple, list, dict or dataclass; [] of anything else."""
    if isinstance(tree, dict):
        return [(f"[{key!r}]", branch) for key, branch in tree.items()]
    if isinstance(tree, (tuple, list)):
        return [(f"[{i}]", branch) for i, branch in enumerate(tree)]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f".{f.name}", getattr(tree, f.name)) for f in fields(tree) if hasattr(tree, f.name)]
    return []


def tensors_in(tree, of=Tensor):
    """Return a list of the Tensors in a tree of tuples, lists, dicts and dataclasses, or in a list the tree itself if
    it is a Tensor. of: another type, or several, to look for."""
    if isinstance(tree, of):
        return [tree]
    return [x for _, branch in branches(tree) for x in tensors_in(branch, of)]


def map_tensors(tree, f, of=Tensor):
    """Return the same tree with f(x) in place of each Tensor x, or of each instance of `of`. Branches without any are
    not copied."""
    if isinstance(tree, of):
        return f(tree)
    old = tree if isinstance(tree, (tuple, list)) else [branch for _, branch in branches(tree)]
    new = [map_tensors(branch, f, of) for branch in old]
    if all(a is b for a, b in zip(old, new)):
        return tree
    if isinstance(tree, (tuple, list)):
        return type(tree)(*new) if hasattr(tree, "_fields") else type(tree)(new)
    other = copy.copy(tree)
    if isinstance(tree, dict):
        other.update(zip(tree, new))
    else:
        for (path, _), branch in zip(branches(tree), new):
            object.__setattr__(other, path[1:], branch)  # it may be frozen
    return other


def no_floats_message(y, what="Tensor"):
    """Return the error message for a function that returned y, which has no floats, instead of a `what`."""
    kind = f"{type(y).__name__} of {y.dtype}" if hasattr(y, "dtype") else type(y).__name__
    return (
        f"gradcheck: the function returned no {what} of floats, but {kind}. Nothing of it can be compared: return a "
        f"{what}, or a tuple, list, dict or dataclass of them"
    )


def gradients_of(returned, inputs):
    """Return {id(x): gradient} for the arrays x in `inputs`, (args, keywords). returned: the return value of a vjp.

    That is a tuple with an entry for each of args, and maybe one for the keywords, of the same structure; None means
    zeros. Raises TypeError for another structure."""
    args, keywords = inputs
    entries = returned if isinstance(returned, tuple) else (returned,)
    if len(entries) not in (len(args), len(args) + bool(keywords)):
        raise TypeError(f"gradcheck: vjp returned {len(entries)} gradients for {len(args)} inputs; None means zeros")
    gradients: dict = {}

    def pair(x, g):
        parts, given = dict(branches(x)), dict(branches(g))
        if g is None or not tensors_in(x, of=np.ndarray):
            return
        if not parts:
            gradients[id(x)] = gradients[id(x)] + g if id(x) in gradients else g
        elif not given or given.keys() - parts.keys():
            has, needs = (", ".join(each) or "no parts" for each in (given, parts))
            raise TypeError(f"gradcheck: the vjp returned a gradient with {has}; its input has {needs}")
        for path, branch in parts.items():
            pair(branch, given.get(path))

    pair((*args, keywords), entries)
    return gradients


def difference_of(a, b):
    """Return |a - b|: 0 where both are NaN or the same infinity, and infinite where only one is."""
    equal = (a == b) | ((a != a) & (b != b))
    return np.where(equal, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
