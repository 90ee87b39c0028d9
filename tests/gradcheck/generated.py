"""Functions that are right, made up at random: compositions of our ops on random shapes and awkward numbers.

`generated(seed)` is the same for the same seed. The ops are right, so whatever gradcheck says is about gradcheck."""

import math
from dataclasses import dataclass, field

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

NUMBERS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.uniform(0.3, 3, shape),
    "of all sizes": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * 10 ** rng.uniform(-6, 6, shape),
    "positive of all sizes": lambda rng, shape: 10 ** rng.uniform(-6, 6, shape),
    "tied": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),  # at kinks: zeros, and equal to each other
    "saturating": lambda rng, shape: rng.choice([-30.0, -10.0, 0.0, 10.0, 30.0], shape) + rng.standard_normal(shape),
    "far saturated": lambda rng, shape: rng.choice([-700.0, 700.0], shape) + rng.standard_normal(shape),
    "offset": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "nearly equal": lambda rng, shape: 1 + 1e-5 * rng.standard_normal(shape),
    "equal": lambda rng, shape: np.full(shape, rng.standard_normal()),
    "tiny": lambda rng, shape: 1e-8 * rng.standard_normal(shape),
    "zeros": lambda rng, shape: np.zeros(shape),
    "float32": lambda rng, shape: rng.standard_normal(shape).astype(np.float32),
}
KINDS = ["normal"] * 8 + list(NUMBERS)
MOST = 4000  # elements of any value on the way


@dataclass
class Program:
    """Steps on a list of Tensors: each step's function takes some of the values so far and its result is one more."""

    steps: list = field(default_factory=list)  # (name, function, numbers of its operands)
    outputs: int = 1  # how many of the last values are returned

    def __call__(self, *inputs):
        values = list(inputs)
        for _, function, operands in self.steps:
            values.append(function(*[values[i] for i in operands]))
        return values[-1] if self.outputs == 1 else tuple(values[-self.outputs :])

    def __str__(self):
        return "; ".join(f"{name}{operands}" for name, _, operands in self.steps)


def like(x, array):
    """A constant for x to work with."""
    return mg.tensor(np.asarray(array)).to(x.dtype)


# Each op is a function of (rng, one or two arrays) that returns the function of as many Tensors to apply there, or None
# where it has no business: outside an op's domain, or where a function of numbers this large would turn so often that
# no difference could follow it.


def elementwise(function, low=-50.0, high=50.0):
    return lambda rng, x: function if not x.size or (low < x.min() and x.max() < high) else None


def along_dim(function):
    def choose(rng, x):
        if not x.ndim or 0 in x.shape:
            return None
        dim = int(rng.integers(-x.ndim, x.ndim))
        return lambda x: function(x, dim)

    return choose


def over_dims(function, least=1):
    def choose(rng, x):
        dims = tuple(d for d in range(x.ndim) if rng.random() < 0.6) or tuple(range(x.ndim))
        if math.prod(x.shape[d] for d in dims) < least:
            return None
        keep = bool(rng.integers(2))
        return lambda x: function(x, dim=dims, keepdim=keep)

    return choose


def scaled(rng, x):
    a, b = (float(v) for v in rng.choice([-3.0, -0.5, 0.0, 1e-6, 0.1, 1.0, 2.0, 30.0, 1e6], 2))
    return lambda x: a * x + b


def weighted(rng, x):
    """Gradients of many sizes in one function."""
    weights = 10 ** rng.uniform(-6, 6, x.shape)
    return lambda x: x * like(x, weights[tuple(slice(0, n) for n in x.shape)])


def power(rng, x):
    exponent = float(rng.choice([-1.5, -1.0, 0.5, 1.5, 2.0, 3.0]))
    low = 1e-3 if exponent != round(exponent) or exponent < 0 else -1e3
    return elementwise(lambda x: x**exponent, low, 1e3)(rng, x)


def dense(rng, x):
    if not x.ndim:
        return None
    weight, bias = rng.standard_normal((3, x.shape[-1])), rng.standard_normal(3)
    return lambda x: F.linear(x, like(x, weight), like(x, bias))


def rearranged(rng, x):
    order, dims = [int(d) for d in rng.permutation(x.ndim)], [d for d in range(x.ndim) if rng.random() < 0.5]
    choices = [lambda x: x.permute(order), lambda x: x.reshape(-1) if x.numel() else x]
    choices += [lambda x: x.unsqueeze(0).expand(2, *x.shape), lambda x: x.flip(dims), lambda x: x.clone()]
    if x.ndim:
        dim = int(rng.integers(x.ndim))
        choices += [lambda x: F.pad(x, (1, 2), value=0.5), lambda x: x.repeat_interleave(2, dim)]
        choices += [lambda x: mg.cat([x, 2 * x, x], dim), lambda x: mg.stack([x, x * x], -1)]
    if x.ndim > 1:
        choices += [lambda x: x.tril(), lambda x: x.mT.triu(-1), lambda x: x.flatten(0, 1)]
    return choices[rng.integers(len(choices))]


def indexed(rng, x):
    if not x.ndim or 0 in x.shape:
        return None
    n, dim = x.shape[0], int(rng.integers(x.ndim))
    index = mg.tensor(rng.integers(0, n, 3))
    along = mg.tensor(rng.integers(0, x.shape[dim], x.shape))
    keep = rng.random(n) < 0.5
    choices = [lambda x: x[index], lambda x: x[-1], lambda x: x[::2], lambda x: x.split([1, n - 1])[int(n > 1)]]
    choices += [lambda x: x.gather(dim, along), lambda x: x[keep], lambda x: mg.cat(x.chunk(2)[::-1])]
    return choices[rng.integers(len(choices))]


def masked(rng, x):
    mask = mg.tensor(rng.random(x.shape) < 0.6)
    if x.ndim and 0 not in x.shape and rng.integers(2):
        return lambda x: x.masked_fill(~mask, -math.inf).softmax(-1)  # also where nothing is left of a row
    return lambda x: mg.where(mask, x, 1.5)


def clamped(rng, x):
    low, high = [(-1.0, 1.0), (None, 0.0), (0.5, None), (-1e3, 1e3)][rng.integers(4)]
    return lambda x: x.clamp(low, high)


def cross_entropy(rng, x):
    if x.ndim not in (2, 3) or 0 in x.shape:
        return None
    target = rng.integers(0, x.shape[1], x.shape[:1] + x.shape[2:])
    target.flat[0], ignored = (0, -100) if rng.integers(2) else (x.shape[1] - 1, 0)
    target, smoothing = mg.tensor(target), float(rng.choice([0.0, 0.1]))
    reduction = str(rng.choice(["mean", "sum", "none"]))
    options = dict(ignore_index=ignored, label_smoothing=smoothing, reduction=reduction)
    return lambda x: F.cross_entropy(x, target, **options)


def norm(rng, x):
    """eps is given, as rms_norm's own depends on the dtype: in float32 it would be another function."""
    if not x.ndim or 0 in x.shape or x.shape[-1] < 2:
        return None
    weight, bias, eps = rng.standard_normal(x.shape[-1]), rng.standard_normal(x.shape[-1]), 10 ** rng.uniform(-6, -3)
    if rng.integers(2):
        return lambda x: F.layer_norm(x, x.shape[-1:], like(x, weight), like(x, bias), eps)
    return lambda x: F.rms_norm(x, x.shape[-1:], like(x, weight), eps)


UNARY = {
    "exp": elementwise(mg.exp, high=20), "tanh": elementwise(mg.tanh, -1e3, 1e3), "cos": elementwise(mg.cos, -1e7, 1e7),
    "sigmoid": elementwise(mg.sigmoid, -1e3, 1e3), "sin": elementwise(mg.sin, -1e7, 1e7),
    "sin 1e6 x": elementwise(lambda x: (1e6 * x).sin(), -10, 10), "erf": elementwise(mg.erf, -5, 5),
    "erfc": elementwise(mg.erfc, -5, 9), "gelu": elementwise(F.gelu), "silu": elementwise(F.silu, -1e3, 1e3),
    "tanh's gelu": elementwise(lambda x: F.gelu(x, "tanh")), "relu": elementwise(mg.relu, -1e9, 1e9),
    "abs": elementwise(mg.abs, -1e9, 1e9), "log 1 + x²": lambda rng, x: lambda x: (1 + x * x).log(),
    "square": elementwise(lambda x: x * x, -1e6, 1e6), "power": power, "floor": elementwise(mg.floor),
    "log": elementwise(mg.log, 1e-7, 1e9), "sqrt": elementwise(mg.sqrt, 1e-7, 1e9), "scaled": scaled,
    "rsqrt": elementwise(mg.rsqrt, 1e-3, 1e6), "1 / x": elementwise(lambda x: 1 / x, 1e-3, 1e9), "linear": dense,
    "cancelled": elementwise(lambda x: (x + 1e6) - 1e6, -1e6, 1e6), "weighted": weighted, "rearranged": rearranged,
    "indexed": indexed, "masked": masked, "clamp": clamped, "cross_entropy": cross_entropy, "norm": norm,
    "softmax": along_dim(mg.softmax), "log_softmax": along_dim(mg.log_softmax), "cumsum": along_dim(mg.cumsum),
    "logsumexp": over_dims(mg.logsumexp), "sort": along_dim(lambda x, d: x.sort(d)[0]), "sum": over_dims(mg.sum),
    "max": along_dim(lambda x, d: x.max(d)[0]), "topk": along_dim(lambda x, d: x.topk(1, d)[0]),
    "mean": over_dims(mg.mean), "amax": over_dims(mg.amax), "amin": over_dims(mg.amin),
    "var": over_dims(mg.var, least=2), "std": over_dims(mg.std, least=2),
    "dropout": lambda rng, x: lambda x: F.dropout(x, 0.4), "x - x": lambda rng, x: lambda x: x - x,
}  # fmt: skip


def broadcast(function):
    return lambda rng, a, b: function if compatible(a.shape, b.shape) else None


def chosen(rng, a, b):
    if not compatible(a.shape, b.shape):
        return None
    condition = mg.tensor(rng.random(np.broadcast_shapes(a.shape, b.shape)) < 0.5)
    return lambda a, b: mg.where(condition, a, b)


def product(rng, a, b):
    """Of matrices whose rows are as long."""
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-1] or not compatible(a.shape[:-2], b.shape[:-2]):
        return None
    choices = [lambda a, b: mg.einsum("...i,...i", a, b)] if compatible(a.shape, b.shape) else []
    choices += [lambda a, b: a @ b.mT] if b.ndim > 1 else [lambda a, b: a @ b]
    choices += [lambda a, b: F.linear(a, b), lambda a, b: mg.einsum("...i,ji->j...", a, b)] if b.ndim == 2 else []
    return choices[rng.integers(len(choices))]


def attention(rng, a, b):
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-1] or not compatible(a.shape[:-2], b.shape[:-2]):
        return None
    options, allowed = dict(is_causal=bool(rng.integers(2))), rng.random((a.shape[-2], b.shape[-2])) < 0.7
    kind, added = rng.integers(4), np.where(allowed, rng.standard_normal(allowed.shape), -np.inf)
    if kind == 0:
        options["attn_mask"] = mg.tensor(allowed)
    elif kind == 1:
        options["dropout_p"] = 0.3
    elif kind == 2:
        return lambda a, b: F.scaled_dot_product_attention(a, b, b, attn_mask=like(a, added))
    return lambda a, b: F.scaled_dot_product_attention(a, b, b * 2, **options)


def looked_up(rng, a, b):
    if b.ndim != 2 or 0 in b.shape:
        return None
    index = mg.tensor(rng.integers(0, b.shape[0], (2, 3)))
    return lambda a, b: F.embedding(index, b)


def joined(rng, a, b):
    if not a.ndim or a.shape != b.shape:
        return None
    dim = int(rng.integers(a.ndim))
    return [lambda a, b: mg.cat([a, b], dim), lambda a, b: mg.stack([b, a], dim)][rng.integers(2)]


BINARY = {
    "add": broadcast(mg.add), "sub": broadcast(mg.sub), "mul": broadcast(mg.mul), "maximum": broadcast(mg.maximum),
    "minimum": broadcast(mg.minimum), "div": broadcast(lambda a, b: a / (b * b + 0.1)), "where": chosen,
    "squared error": broadcast(lambda a, b: ((a - b) ** 2).sum()), "product": product, "attention": attention,
    "embedding": looked_up, "joined": joined,
}  # fmt: skip


def generated(seed):
    """(what it is, the function, its inputs), finite at its point."""
    rng = np.random.default_rng(seed)
    large = rng.random() < 0.02  # for the directional mode
    sizes = [0, 1, 1, 2, 3, 3, 4, 5] if rng.random() < 0.1 else [1, 2, 3, 3, 4, 5]
    shape = tuple(int(n) for n in rng.choice(sizes, rng.integers(0, 4)))
    shape = (int(rng.integers(10, 100)), 32) if large else shape
    kinds = [str(rng.choice(KINDS)) for _ in range(rng.integers(1, 4))]
    inputs = []
    for kind in kinds:  # any of them may broadcast against the first
        part = tuple(n if rng.random() < 0.8 else 1 for n in shape[rng.integers(0, len(shape) + 1) if inputs else 0 :])
        array = np.asarray(NUMBERS[kind](rng, part))
        backwards = tuple(range(array.ndim))[::-1]
        inputs.append(mg.tensor(array) if rng.random() < 0.9 else mg.tensor(array.T.copy()).permute(backwards))
    if rng.random() < 0.05:
        inputs.append(inputs[0])  # one Tensor passed twice
    program, values = Program(), [x.double() for x in inputs]
    for _ in range(rng.integers(1, 7)):
        extend(program, values, rng)
    program.outputs = 2 if len(program.steps) > 1 and rng.random() < 0.1 else 1
    drawn = " × ".join(f"{kind} {x.shape}" for kind, x in zip([*kinds, "again"], inputs))
    return f"{drawn}: {program}", program, inputs


def extend(program, values, rng):
    """Add a step that can be taken; values holds what the program computes."""
    state = mg.default_generator.state
    for _ in range(20):
        ops = BINARY if rng.random() < 0.3 else UNARY
        name = str(rng.choice(list(ops)))
        operands = [len(values) - 1 if rng.random() < 0.8 else int(rng.integers(len(values)))]
        operands += [int(rng.integers(len(values)))] if ops is BINARY else []
        function = ops[name](rng, *[values[i].numpy() for i in operands])
        if function is None:
            continue
        y = function(*[values[i] for i in operands])
        if y.numel() <= MOST and np.isfinite(y.numpy()).all() and np.abs(y.numpy()).max(initial=0) < 1e9:
            program.steps.append((name, function, tuple(operands)))
            values.append(y)
            break
    mg.default_generator.state = state


def compatible(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))
