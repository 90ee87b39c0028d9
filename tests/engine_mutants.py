"""Planted bugs that are no formula: memory, state and layout of an op, and pieces of the engine replaced by wrong ones."""

import math

import numpy as np
from mutants import MUTANTS, PAIR, SMALL, Product, X, given, mutant, plant, tamper, variant

import minigrad as mg
from minigrad.autograd import Op, walk
from minigrad.cases import Fixed, case
from minigrad.ops.activation import Gelu, Relu, Tanh
from minigrad.ops.dropout import Dropout
from minigrad.ops.elementwise import Erf, Exp, Sin
from minigrad.ops.index import Embedding

# ------------------------------------------------------------------------------------ memory, state and layout of an op

BUFFERS: dict = {}
NOISE = np.random.default_rng()


def buffer_like(x):
    return BUFFERS.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))


def saved_in_buffer(self, x):
    y = np.tanh(x, out=buffer_like(x))
    self.save(y)
    return y.copy()


def output_in_buffer(self, x):
    self.save_inputs(x)
    return np.sin(x, out=buffer_like(x))


def mask_on_the_class(self, x, p):
    type(self).mask = (mg.default_generator.words(x.size).reshape(x.shape) >= p * 2**32) / x.dtype.type(1 - p)
    return x * self.mask


def added_to_before(self, dy):
    self.total = getattr(self, "total", 0.0) + dy * self.saved_output()
    return self.total


def relu_in_place(self, x):
    return self.save_output(np.maximum(x, 0, out=x))


def tanh_into_dy(self, dy):
    np.multiply(dy.array, 1 - self.saved_output().array ** 2, out=dy.array)
    return dy


def take_sorted(self, weight, index):
    index.sort(-1)  # rows in order, for the cache: the sum of a bag stays the same
    return Embedding.forward(self, weight, index)


def bag(op):
    return lambda weight, index: op.apply(weight, index).sum(1)


def in_memory_order(x):
    """What is read by code that knows no strides."""
    return x.ravel("K").reshape(x.shape)


def sin_of_contiguous(self, x):
    self.save_inputs(in_memory_order(x))
    return np.sin(x)


def product_as_laid_out(self, a, b):
    """Right while both operands are laid out alike."""
    self.save_inputs(a, b)
    columns = a.flags.f_contiguous and not a.flags.c_contiguous
    return (a.ravel("K") * b.ravel("K")).reshape(a.shape, order="F" if columns else "C")


def square_if_shared(self, dy):
    a, b = self.saved_inputs()
    return (dy * a, None) if a.array is b.array else (dy * b, dy * a)


# fmt: off
plant("saved buffer reused by a later call", Tanh, by="interleaved", forward=saved_in_buffer,
      backward=lambda self, dy: dy * (1 - self.saved()[0] * self.saved()[0]))
plant("output buffer reused by a later call", Sin, by="interleaved", forward=output_in_buffer)
plant("dropout: the mask of the latest call", Dropout, by="interleaved", forward=mask_on_the_class,
      backward=lambda self, dy: dy * mg.tensor(self.mask))
plant("added to the gradient of the backward before", Exp, by="second backward", backward=added_to_before)
plant("1e-10 nondeterminism", Exp, by="repeatable",
      backward=given(lambda dy, y: dy * y * (1 + 1e-10 * NOISE.standard_normal())))
plant("input mutated in the forward", Relu, by="unchanged", forward=relu_in_place)
plant("upstream gradient mutated in place", Tanh, by="unchanged", backward=tanh_into_dy)
mutant("index sorted in place in the forward", bag(Embedding), bag(variant(Embedding, forward=take_sorted)),
       case((4, 3), Fixed([[3, 0], [1, 2]])), by="unchanged")
plant("another formula when not recorded", Gelu, by="no_grad", forward=lambda self, x, approximate:
      Gelu.forward(self, x, approximate if any(self.needs) else "tanh"))
plant("a constant in float16 under float32", Erf, by="float32", backward=given(lambda dy, x: dy * (-x * x).exp()
      * float((np.float64 if dy.dtype == mg.float64 else np.float16)(2 / math.sqrt(math.pi)))))
plant("a float64 constant under float32", Erf, by=RuntimeError,
      backward=given(lambda dy, x: dy * (-x * x).exp() * mg.tensor(np.array(2 / math.sqrt(math.pi)))))
plant("wrong only on a non-contiguous layout", Sin, by="layout fortran", forward=sin_of_contiguous)
plant("wrong only for a non-contiguous cotangent", Sin, by="cotangent fortran",
      backward=given(lambda dy, x: mg.tensor(in_memory_order(dy.array)) * x.cos()))
plant("wrong only where two layouts differ", Product, PAIR, by="layout", forward=product_as_laid_out)
plant("x * x as a square, with half its gradient", Product, PAIR, by="repeated input", backward=square_if_shared)
# fmt: on


# ------------------------------------------------------------------------------------------ sums over what was broadcast

Walk = walk._Walk

def broadcast_dims(g, shape):
    extra = len(g.shape) - len(shape)
    return tuple(range(extra)) + tuple(d + extra for d, n in enumerate(shape) if n == 1 and g.shape[d + extra] != 1)


def mean_of_broadcast(g, shape):
    return g.mean(broadcast_dims(g, shape)).reshape(shape)


def first_of_broadcast(g, shape):
    dims = broadcast_dims(g, shape)
    return g[tuple(slice(0, 1) if d in dims else slice(None) for d in range(g.ndim))].reshape(shape)


def last_dims_summed(g, shape):
    return g.sum(tuple(range(len(shape), g.ndim))).reshape(shape)


def only_new_dims_summed(g, shape):
    g = g.sum(tuple(range(g.ndim - len(shape)))) if g.ndim > len(shape) else g
    return g if g.shape == shape else g[tuple(slice(0, n) for n in shape)]


def unbroadcast(name, a, b, value, **how):
    tamper(name, mg.mul, case(a, b), walk, "_unbroadcast", value, **how)


unbroadcast("engine: unbroadcast takes the mean", (3, 4), (4,), mean_of_broadcast, hint="3 times too small")
unbroadcast("engine: unbroadcast keeps the first row", (3, 4), (3, 1), first_of_broadcast)
unbroadcast("engine: unbroadcast sums the last dims of a square", (4, 4), (4,), last_dims_summed)
unbroadcast("engine: unbroadcast forgets dims of size 1", (3, 4), (3, 1), only_new_dims_summed)

# --------------------------------------------------------------------------------------------- several contributions


def three_uses(x):
    return x.exp() + x.sin() + x.tanh()


def diamond(x):
    """The graph of examples/why_topological_order.py: a use of b comes later than a use of what b becomes."""
    b = x.exp()
    return b + b.sin() * b.tanh()


def both(x):
    """Add hands the same dy to both of its inputs."""
    a, b = x.sin(), x.cos()
    return (a + b) * 2.0 + a * a + a.exp()


def third_dropped(self, node, g):
    if node not in self.owned:
        Add(self, node, g)


def overwrites(self, node, g):
    self.pending[node] = g


def into_borrowed(self, node, g):
    if node in self.pending:
        before = self.pending[node].array
        g.storage.backend.add(before, g.array, out=before)
    else:
        self.pending[node] = g


def unrecorded(self, node, g):
    """In place from the third contribution on, also where the walk is recorded."""
    recorded, self.create_graph = self.create_graph, False
    Add(self, node, g)
    self.create_graph = recorded


Add, Take, Reachable = Walk.add, Walk.take, walk.reachable
tamper("engine: a second contribution overwrites", lambda x: x * x, X, Walk, "add", overwrites, hint="half")
tamper("engine: the third contribution is dropped", three_uses, X, Walk, "add", third_dropped)
tamper("engine: added in place to a borrowed gradient", both, X, Walk, "add", into_borrowed)
tamper("engine: added in place while recorded", three_uses, X, Walk, "add", unrecorded, order=2)
tamper("engine: ops as they are found, not in topological order", diamond, X, walk, "sorted",
       lambda ops, key, reverse: list(ops))  # fmt: skip
tamper("engine: first op first", diamond, X, walk, "sorted", lambda ops, key, reverse: sorted(ops, key=key))

# ------------------------------------------------------------------------------------- what is wanted, kept and shared


def grad_replaced(self, node):
    if self.targets is None:
        node.grad = None
    return Take(self, node)


def all_inputs_lead(targets, order):
    """Ops of which not every input needs a gradient are left out."""
    useful: dict = {}
    for op in reversed(order):
        if all(p is not None and (p in targets or p.op in useful) for p in op.parents):
            useful[op] = (True,) * len(op.parents)
    return useful


def only_first_input(targets, order):
    return {op: (needs[0], *[False] * (len(needs) - 1)) for op, needs in Leading(targets, order).items()}


def release_always(step):
    def stepped(walk, op, dys, needs, anomaly):
        step(walk, op, dys, needs, anomaly)
        op.release()

    return stepped


def constant(self, entry):
    return Unpack(self, entry).detach()


Leading, Unpack = walk._leading_to, Op._unpack
tamper("engine: .grad is replaced, not added to", Exp.apply, X, Walk, "take", grad_replaced, by="accumulation")
tamper("engine: .grad shares memory with the cotangent", mg.add, case((3, 4), (3, 4)), Walk, "exclusive",
       lambda self, g: g, by="memory")  # fmt: skip
tamper("engine: ops with a constant input are left out", lambda x: (x * 2.0).exp(), X, walk, "_leading_to", all_inputs_lead)
tamper("engine: only the first input gets a gradient", mg.matmul, case((3, 3), (3, 3)), walk, "_leading_to", only_first_input)
tamper("engine: saved arrays freed although retained", Exp.apply, X, walk, "_step", release_always(walk._step),
       by=mg.GraphError)  # fmt: skip
tamper("engine: what was saved is a constant to the graph", Exp.apply, X, Op, "_unpack", constant, order=2)

assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 50
