"""The steps of random programs: each draws operands and arguments, and gives the text of one expression, or None.

m and F stand for minigrad or torch and its nn.functional, so a step is written only in what both spell alike. Where
float32 might choose otherwise than float64, at a kink or between values that nearly tie, a step is not taken, unless
its operands are small whole numbers, which both hold exactly: ties and kinks are then met on purpose."""

import math

import numpy as np


class Steps:
    def __init__(self):
        self.functions, self.shares, self.whole, self.may_alias = {}, {}, set(), set()

    def __call__(self, share=1.0, whole=False, may_alias=False):
        """Declare a step. whole: it maps whole numbers to whole numbers. may_alias: its result may be its operand."""

        def declare(function):
            name = function.__name__
            self.functions[name], self.shares[name] = function, share
            if whole:
                self.whole.add(name)
            if may_alias:
                self.may_alias.add(name)
            return function

        return declare

    @property
    def names(self):
        return list(self.functions)

    @property
    def weights(self):
        shares = np.array(list(self.shares.values()))
        return shares / shares.sum()

    def keeps_whole(self, name):
        return name in self.whole


STEPS = Steps()
step = STEPS

# ---------------------------------------------------------------------------------------------------------- elementwise

SMOOTH = [  # (expression, the least and the largest x that it is for)
    ("m.exp({})", -9, 3), ("m.log({})", 0.05, 1e3), ("m.sqrt({})", 0.05, 1e3), ("m.rsqrt({})", 0.05, 1e3),
    ("m.sin({})", -20, 20), ("m.cos({})", -20, 20), ("m.tanh({})", -5, 5), ("m.sigmoid({})", -9, 9),
    ("F.silu({})", -20, 20), ("F.gelu({})", -5, 5), ("F.gelu({}, approximate='tanh')", -5, 5), ("m.erf({})", -3, 3),
    ("m.erfc({})", -3, 3), ("1 / {}", 0.05, 1e3), ("2.0 ** {}", -5, 5), ("{} ** -0.5", 0.1, 99), ("{} ** 2.5", 0.1, 9),
    ("m.log({0} * {0} + 1)", -99, 99), ("{0} / (1 + m.exp({0}))", -9, 9), ("1.5 / ({0} * {0} + 0.5)", -99, 99),
    ("{} ** -2", 0.2, 99), ("{} ** 0.5", 0.05, 99),
]  # fmt: skip
POLYNOMIAL = ["{} * {}", "-{}", "2 * {}", "{} - 3", "1 - {}", "{} ** 2", "{} ** 3", "{} ** 1", "{} + {}.detach()",
              "{}.clone()", "({} + True)"]  # fmt: skip
SCALED = ["{} * 0.5", "{} + 0.25", "0.5 - {}", "{} / 3", "{} * 1.7 - 0.3", "{}.div(2.0)"]
KINKED = [("m.relu({})", 0), ("m.abs({})", 0), ("{}.clamp(min=0)", 0), ("{}.clamp(max=1)", 1),
          ("m.maximum({}, {}.detach() * 0)", 0), ("m.where({0} > 0, {0}, {0} * 3)", 0)]  # fmt: skip


@step(5)
def smooth(d):
    expression, low, high = SMOOTH[d.rng.integers(len(SMOOTH))]
    x = d.one(where=lambda v: low <= v.min(initial=high) and v.max(initial=low) <= high)
    return x and expression.format(x, x)


@step(3, whole=True)
def polynomial(d):
    x = d.one()
    return d.of(*POLYNOMIAL).format(x, x)


@step(2)
def scaled(d):
    return d.of(*SCALED).format(d.one())


@step(2, whole=True)
def kinked(d):
    (expression, at), x = KINKED[d.rng.integers(len(KINKED))], d.one()
    return expression.format(x, x) if d.clear(d.exact[x] - at, x) else None


@step(1)
def clamped(d):
    x = d.one()
    return f"{x}.clamp(-0.75, 0.5)" if d.clear((d.exact[x] + 0.75) * (d.exact[x] - 0.5), x) else None


@step(1)
def rounded(d):
    """A step without a gradient; PyTorch's is zeros."""
    x = d.one()
    distance = np.abs(d.exact[x] - np.round(d.exact[x]))
    return f"m.{d.of('floor', 'sign')}({x}.detach())" if d.clear(distance, x) else None


def pair(d, compatible=None):
    """Return two values that broadcast to a moderate shape; the second is drawn for the first."""
    x = d.one()
    shape = d.exact[x].shape

    def fits(v):
        return all(m == n or 1 in (m, n) for m, n in zip(v.shape[::-1], shape[::-1])) and abs(v.ndim - len(shape)) < 3

    return x, d.one(where=fits)


@step(5, whole=True)
def arithmetic(d):
    return d.of("{} + {}", "{} - {}", "{} * {}", "m.mul({}, {})").format(*pair(d))


@step(2)
def quotient(d):
    return d.of("{0} / ({1} * {1} + 0.5)", "{0} / m.exp({1} * 0.1)", "({0} - {1}) ** 2 / 2").format(*pair(d))


@step(2, whole=True)
def larger(d):
    x, y = pair(d)
    text = d.of("m.maximum({0}, {1})", "m.minimum({0}, {1})", "m.where({0} < {1}, {0}, {1} * 2)")
    return text.format(x, y) if d.clear(d.exact[x] - d.exact[y], x, y) else None


@step(2, whole=True)
def masked(d):
    x, y = pair(d)
    shape = np.broadcast_shapes(d.exact[x].shape, d.exact[y].shape)
    if d.rng.integers(2):
        return f"{x}.masked_fill({d.mask(d.exact[x].shape, 0.3)}, {d.of(0.0, 1.0, -2.0)})"
    return f"m.where({d.mask(shape)}, {x}, {y})"


@step(1)
def power(d):
    """A power of tensors. Left out are an exponent of 0 that needs a gradient, as PyTorch's d(da)/db is 0 there and not
    1/a, and a base that is 0 in float32, as PyTorch's d²/da² is NaN there."""
    x, y = pair(d)
    a, b = d.exact[x], d.exact[y]
    if np.abs(a).max(initial=0) > 5:
        return None
    if (
        a.min(initial=1) > 0.1
        and np.abs(b).max(initial=0) < 3
        and np.abs(b).min(initial=1) > 0.05
        and d.rng.integers(2)
    ):
        return f"{x} ** {y}"
    exponents = d.rng.integers(0 if a.all() and d.clear(a, x) else 1, 4, a.shape)
    return f"{x} ** {d.constant(exponents.astype(float))}"


# ----------------------------------------------------------------------------------------------------------- reductions


@step(3, whole=True)
def summed(d):
    x = d.one(1)
    return x and d.of(f"m.sum({x}, {d.dims(x)})", f"{x}.sum({d.dim(x)})", f"{x}.sum()", f"{x}.cumsum({d.dim(x)})")


@step(3)
def averaged(d):
    x = d.one(1, where=lambda v: v.size > 1)
    return x and d.of(f"m.mean({x}, {d.dims(x)})", f"m.logsumexp({x}, {d.dims(x)})", f"{x}.mean()")


@step(1)
def spread(d):
    x = d.one(1, where=lambda v: v.size)
    if x is None:
        return None
    dim, correction, keep = d.dim(x), int(d.rng.integers(2)), bool(d.rng.integers(2))
    if d.exact[x].shape[dim] <= correction + 1:
        return None
    what = "std" if d.exact[x].var(dim).min(initial=1) > 1e-2 and d.rng.integers(2) else "var"
    return f"m.{what}({x}, dim={dim}, correction={correction}, keepdim={keep})"


@step(2, whole=True)
def extreme(d):
    x = d.one(1)
    if x is None:
        return None
    v, dim, keep = d.exact[x], d.dim(x), bool(d.rng.integers(2))
    if d.rng.integers(2):
        every = np.sort(v.ravel())
        return f"m.{d.of('amax', 'amin')}({x}, {d.dims(x)})" if d.clear(np.diff(every), x) else None
    if not d.clear(np.diff(np.sort(v, dim), axis=dim), x):
        return None
    return f"m.{d.of('max', 'min')}({x}, {dim}, keepdim={keep})[0]"


@step(1, whole=True)
def ordered(d):
    x = d.one(1, where=lambda v: v.size)
    if x is None:
        return None
    dim = d.dim(x)
    gaps, n = np.diff(np.sort(d.exact[x], dim), axis=dim), d.exact[x].shape[dim]
    if not d.clear(gaps, x):
        return None
    if gaps.all():  # which of several equal ones topk takes is not said
        k = int(d.rng.integers(1, n + 1))
        return d.of(f"m.topk({x}, {k}, {dim}, {d.of(True, False)})[0]", f"{x}.sort({dim})[0]")
    if n > 16:  # torch.sort keeps the order of equal ones only in so few, unless asked to
        return None
    return f"m.sort({x}, {dim})[0]"


# ------------------------------------------------------------------------------------------------------------- movement


@step(6, whole=True)
def viewed(d):
    x = d.one()
    shape, n = d.exact[x].shape, d.exact[x].ndim
    factors = [int(f) for f in d.rng.permutation(prime_factors(d.exact[x].size))]
    other = [math.prod(part) for part in np.array_split(factors, d.rng.integers(1, 4))]
    choices = [f"{x}.reshape({tuple(int(f) for f in other)})", f"{x}.reshape(-1)", f"{x}.squeeze()", f"{x}[...]"]
    choices += [f"{x}.reshape({shape})", f"{x}.expand({shape})", f"{x}.unsqueeze({int(d.rng.integers(-n - 1, n + 1))})"]
    choices += [f"{x}.expand({(2, *shape)})", f"{x}.reshape({shape}).view({shape})", f"{x}[None]"]
    if n:
        dim, order = d.dim(x), tuple(int(i) for i in d.rng.permutation(n))
        at = int(d.rng.integers(max(shape[0], 1)))
        choices += [f"{x}.permute({order})", f"{x}.transpose({dim}, {d.dim(x)})", f"{x}.flip(({dim},))"] * 2
        choices += [f"{x}.squeeze({dim})", f"{x}[-1]", f"{x}[{at}]", f"{x}[..., ::2]"]
        choices += [f"{x}[{at}:]", f"{x}.repeat_interleave(2, {dim})"]
        choices += [f"{x}.repeat({tuple(int(i) for i in d.rng.integers(1, 3, n))})", f"{x}.unbind({dim})[0]"]
    if n > 1:
        choices += [
            f"{x}.mT",
            f"{x}.flatten(0, 1)",
            f"{x}.flatten({n - 2})",
            f"{x}.tril({d.of(-1, 0, 1)})",
            f"{x}.triu()",
        ]
    return d.of(*choices)


def prime_factors(n):
    found = [1]
    for p in (2, 3, 5, 7, 11, 13):
        while n and n % p == 0:
            n, found = n // p, [*found, p]
    return [*found, n]


@step(0.5, whole=True, may_alias=True)
def dense(d):
    """contiguous(): the value itself or a copy, depending on its layout."""
    return f"{d.one()}.contiguous()"


@step(2, whole=True)
def divided(d):
    x = d.one(1, where=lambda v: max(v.shape) > 1 and v.size)
    if x is None:
        return None
    dim = int(np.argmax(d.exact[x].shape))
    n = d.exact[x].shape[dim]
    first = int(d.rng.integers(1, n))
    cut = f"{x}.split([{first}, {n - first}], {dim})"
    return d.of(cut, f"{x}.chunk(2, {dim})", f"{x}.unbind({dim})", f"{x}.split({first}, {dim})")


@step(2, whole=True)
def joined(d):
    x = d.one(1)
    if x is None:
        return None
    shape, dim = d.exact[x].shape, d.dim(x)
    y = d.one(where=lambda v: v.shape == shape)
    return d.of(f"m.cat([{x}, {y}], {dim})", f"m.stack([{x}, {y}, {x}], {dim})", f"m.cat([{x}], {dim})",
                f"F.pad({x}, (1, 2), value={d.of(0.0, 1.0)})", f"m.cat([{y}, 2 * {x}, {x}], {dim})")  # fmt: skip


@step(4, whole=True)
def indexed(d):
    x = d.one(1, where=lambda v: v.size)
    if x is None:
        return None
    shape, dim = d.exact[x].shape, d.dim(x)
    n = shape[dim]
    kind = d.rng.integers(7)
    if kind == 0:
        return f"{x}[{d.constant(d.rng.integers(0, shape[0], d.of((3,), (2, 2))))}]"
    if kind == 1:
        mask = d.rng.random(shape if d.rng.integers(2) else shape[:1]) < 0.6
        mask.flat[0] = True
        return f"{x}[{d.constant(mask)}]"
    if kind == 2:
        along = list(shape)
        along[dim] = int(d.rng.integers(1, 4))
        return f"m.gather({x}, {dim}, {d.constant(d.rng.integers(0, n, along))})"
    if kind == 3:
        return f"{x}[{':, ' * (dim % len(shape))}{d.constant(d.rng.integers(0, n, 3))}]"
    if len(shape) == 1:
        return f"{x}[{d.constant(d.rng.integers(-n, n, (2, 2)))}]"
    if kind == 4:
        rows, columns = (d.constant(d.rng.integers(0, size, 3)) for size in shape[:2])
        return f"{x}[{rows}, {columns}]"
    if kind == 5:
        return f"{x}[:, {d.constant(d.rng.integers(0, shape[1], (2,)))}]"
    return f"F.embedding({d.constant(d.rng.integers(0, shape[0], (2, 3)))}, {x})" if len(shape) == 2 else f"{x}[0, 1:]"


# ----------------------------------------------------------------------------------------------------- products, layers


@step(4, whole=True)
def product(d):
    x = d.one(1, 4)
    if x is None:
        return None
    shape = d.exact[x].shape
    y = d.one(1, 4, lambda v: v.shape[-1] == shape[-1])
    a, b = len(shape), d.exact[y].ndim
    choices = [f"{x} @ {y}.mT" if b > 1 else f"{x} @ {y}"]
    if b == 2:
        choices += [f"F.linear({x}, {y})", f"F.linear({x}, {y}, {y}[:, 0])", f"m.einsum('...i,ji->j...', {x}, {y})"]
        if a == 2:
            choices += [f"m.einsum('ij,kj->ki', {x}, {y})", f"m.einsum('ij,kj->', {x}, {y})"]
    if a == b == 1:
        choices += [f"m.einsum('i,j->ji', {x}, {y})"]
    if a == 2 and shape[0] == shape[1]:
        choices += [f"m.einsum('ii->i', {x})"]
    lead = zip(shape[-3::-1], d.exact[y].shape[-3::-1])
    return d.of(*choices) if all(m == n or 1 in (m, n) for m, n in lead) else None


@step(3)
def softened(d):
    x = d.one(1, where=lambda v: np.abs(v).max(initial=0) < 30)
    if x is None:
        return None
    dim = d.dim(x)
    if d.rng.integers(3) == 0 and d.exact[x].ndim > 1:
        mask = d.rng.random(d.exact[x].shape) < 0.3
        mask[..., :1] = False  # where nothing is left of a row, PyTorch has NaN and we have zeros
        return f"F.softmax({x}.masked_fill({d.constant(mask)}, float('-inf')), -1)"
    return d.of(f"F.softmax({x}, {dim})", f"F.log_softmax({x}, {dim})")


@step(2)
def normalized(d):
    x = d.one(1, where=lambda v: v.shape[-1] > 1 and v.std(-1).min(initial=1) > 1e-2)
    if x is None:
        return None
    n, eps = d.exact[x].shape[-1], d.of(1e-5, 1e-2)
    w = d.one(1, 1, lambda v: v.shape == (n,))
    w = w if w and d.rng.integers(2) else d.constant(d.rng.standard_normal(n))
    layer = f"F.layer_norm({x}, ({n},)"
    return d.of(f"{layer}, {w}, {w} * 0.5, {eps})", f"F.rms_norm({x}, ({n},), {w}, {eps})", f"{layer}, eps={eps})")


@step(1.5)
def cross_entropy(d):
    x = d.one(2, 3, lambda v: v.size)
    if x is None:
        return None
    shape = d.exact[x].shape
    target = d.rng.integers(0, shape[1], shape[:1] + shape[2:])
    if target.size > 1 and d.rng.integers(2):
        target.flat[1] = -100
    smoothing, reduction = d.of(0.0, 0.1), d.of("mean", "sum", "none")
    target = d.constant(target)
    return f"F.cross_entropy({x}, {target}, label_smoothing={smoothing}, reduction='{reduction}')"


@step(2.5)
def attention(d):
    x = d.one(2, 4, lambda v: np.abs(v).max(initial=0) < 20)
    if x is None:
        return None
    shape = d.exact[x].shape
    y = d.one(2, 4, lambda v: v.shape == shape)
    T = shape[-2]
    if len(shape) == 4 and shape[1] % 2 == 0 and d.rng.integers(2):
        half = f"{y}[:, : {shape[1] // 2}]"
        return f"F.scaled_dot_product_attention({x}, {half}, {half} * 2, is_causal=True, enable_gqa=True)"
    allowed = (d.rng.random((T, T)) < 0.6) | np.eye(T, dtype=bool)
    kind = d.rng.integers(4)
    if kind == 0:
        options = f"attn_mask={d.constant(allowed)}"
    elif kind == 1:
        options = f"attn_mask={d.constant(d.rng.standard_normal((T, T)))}, scale=0.3"
    else:
        options = ("is_causal=True", "scale=0.7")[kind - 2]
    return f"F.scaled_dot_product_attention({x}, {y}, {y} + 0.5, {options})"
