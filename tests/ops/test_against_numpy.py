"""Values against NumPy in float64, on random shapes, memory layouts, empty tensors, NaN and infinity."""

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import backend
from minigrad.autograd import registry
from minigrad.gradcheck.probes.conditions import LAYOUTS, in_layout
from minigrad.nn import functional as F
from minigrad.tensor import from_backend

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def close(x, expected):
    expected = np.asarray(expected)
    assert x.shape == expected.shape, (x.shape, expected.shape)
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-11, atol=1e-12)


def gradient(f, *arrays):
    """Return f of leaves, and the gradients of Σ f · fixed weights."""
    xs = [mg.tensor(a, requires_grad=True) for a in arrays]
    y = f(*xs)
    weights = normal(y.shape, 0)
    (y * mg.tensor(weights)).sum().backward()
    return y, weights, [x.grad.numpy() for x in xs]


@st.composite
def broadcastable(draw):
    full = draw(shapes)
    parts = []
    for _ in range(2):
        kept = full[draw(st.integers(0, len(full))) :]
        parts.append(tuple(n if draw(st.booleans()) else 1 for n in kept))
    return parts


@quick
@given(broadcastable(), seeds)
def test_broadcasting(pair, seed):
    a, b = normal(pair[0], seed), normal(pair[1], seed + 1)
    y, weights, (da, db) = gradient(lambda a, b: a * b - b, a, b)
    close(y, a * b - b)
    for g, factor, array in ((da, b, a), (db, a - 1, b)):
        full = np.broadcast_to(weights * factor, y.shape)
        extra = full.ndim - array.ndim
        axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(array.shape) if n == 1)
        np.testing.assert_allclose(g, full.sum(axes).reshape(array.shape), rtol=1e-11, atol=1e-12)


@st.composite
def reduction(draw):
    shape = draw(shapes)
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)) if shape else set()
    signed = tuple(d - len(shape) if draw(st.booleans()) else d for d in axes)
    return shape, signed or None, draw(st.booleans())


@quick
@given(reduction(), seeds)
def test_reductions(how, seed):
    shape, axis, keep = how
    a = normal(shape, seed)
    x = mg.tensor(a)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # NumPy's, on means of nothing
        for name, options in (("sum", {}), ("mean", {}), ("var", {"correction": 0}), ("std", {"correction": 0})):
            expected = getattr(np, name)(a, axis=axis, keepdims=keep)
            close(getattr(x, name)(axis, keepdim=keep, **options), expected)
            close(getattr(x, name)(axis=axis, keepdims=keep, **options), expected)
    close(mg.any(x > 0.5, axis, keep), (a > 0.5).any(axis=axis, keepdims=keep))
    close(mg.all(x > 0.5, axis, keep), (a > 0.5).all(axis=axis, keepdims=keep))
    if a.size:
        close(x.amax(axis, keep), a.max(axis=axis, keepdims=keep))
        close(x.amin(axis, keep), a.min(axis=axis, keepdims=keep))
    if axis is not None:
        with np.errstate(divide="ignore"):
            close(x.logsumexp(axis, keep), np.log(np.exp(a).sum(axis=axis, keepdims=keep)))


@quick
@given(shapes.filter(len), st.data(), seeds)
def test_along_one_dim(shape, data, seed):
    a, dim = normal(shape, seed), data.draw(st.integers(-len(shape), len(shape) - 1))
    x = mg.tensor(a)
    close(x.cumsum(dim), a.cumsum(dim))
    close(x.sort(dim).values, np.sort(a, dim))
    close(x.sort(dim, descending=True).values, -np.sort(-a, dim))
    close(x.flip(dim), np.flip(a, dim))
    close(x.repeat_interleave(2, dim), np.repeat(a, 2, dim))
    close(mg.cat([x, x], dim), np.concatenate([a, a], dim))
    close(mg.stack([x, x], dim), np.stack([a, a], dim))
    e = np.exp(a)
    close(x.softmax(dim), e / e.sum(dim, keepdims=True))
    with np.errstate(divide="ignore"):
        close(x.log_softmax(dim), a - np.log(e.sum(dim, keepdims=True)))
    for part, expected in zip(x.chunk(2, dim), np.array_split(a, 2, dim) if shape[dim] % 2 == 0 else [a] * 0):
        close(part, expected)
    if shape[dim]:
        close(x.argmax(dim), a.argmax(dim))
        close(x.max(dim, keepdim=True).values, a.max(dim, keepdims=True))
        k = data.draw(st.integers(0, shape[dim]))
        close(x.topk(k, dim).values, np.flip(np.sort(a, dim), dim).take(range(k), dim))
        close(x.gather(dim, x.argsort(dim)), np.sort(a, dim))


@quick
@given(shapes, st.data(), seeds)
def test_movement_and_its_gradient(shape, data, seed):
    a = normal(shape, seed)
    order = data.draw(st.permutations(range(len(shape))))
    pads = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=len(shape), max_size=len(shape))
    )

    def ours(x):
        y = x.permute(*order).reshape(-1) if a.size else x.permute(*order).reshape(0)
        y = y.reshape(tuple(shape[d] for d in order)).pad([n for pair in reversed(pads) for n in pair], value=2.0)
        return y.unsqueeze(0).expand(3, *y.shape)

    y, weights, (g,) = gradient(ours, a)
    padded = np.pad(a.transpose(order), pads, constant_values=2.0) if shape else a
    close(y, np.broadcast_to(padded, (3, *padded.shape)))
    inner = weights.sum(0)[tuple(slice(b, b + shape[d]) for (b, _), d in zip(pads, order))]
    np.testing.assert_allclose(g, inner.transpose(np.argsort(order)) if shape else inner, atol=1e-13)


@st.composite
def products(draw):
    n, k, m = draw(sizes), draw(sizes), draw(sizes)
    batch = draw(broadcastable())
    a, b = (*batch[0][-2:], n, k), (*batch[1][-2:], k, m)
    kind = draw(st.sampled_from(["both", "row", "column", "dot"]))
    return (a[-1:] if kind in ("row", "dot") else a), (b[-2:-1] if kind in ("column", "dot") else b)


@quick
@given(products(), seeds)
def test_matmul(pair, seed):
    a, b = normal(pair[0], seed), normal(pair[1], seed + 1)
    y, weights, (da, db) = gradient(mg.matmul, a, b)
    close(y, np.matmul(a, b))
    for g, array, i in ((da, a, 0), (db, b, 1)):  # linear in each: compare along a random direction
        u = normal(array.shape, 5)
        moved = np.matmul(u, b) if i == 0 else np.matmul(a, u)
        np.testing.assert_allclose((g * u).sum(), (weights * moved).sum(), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk,kl,jm->im", [(2, 3), (3, 4), (4, 5), (3, 2)]),  # j is wanted once more, by the last
        ("ij,jk,kl,lm,jm->i", [(2, 3), (3, 4), (4, 5), (5, 2), (3, 2)]),
        ("a,ab,abc->c", [(2,), (2, 3), (2, 3, 4)]),
        ("...ij,jk,...k->...i", [(2, 1, 3, 4), (4, 5), (1, 3, 5)]),
        ("ab,b...->a...", [(2, 3), (3, 4, 5)]),
        ("iij,j->ij", [(3, 3, 2), (2,)]),
        ("...i,i->...i", [(2, 3), (3,)]),
        ("...i,i", [(2, 3), (3,)]),
        ("ba", [(2, 3)]),
        ("i,i", [(3,), (3,)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 0), (0, 3)]),
    ],
    ids=str,
)
def test_einsum_of_many(equation, shapes):
    arrays = [normal(shape, i) for i, shape in enumerate(shapes)]
    y, weights, gradients = gradient(lambda *xs: mg.einsum(equation, *xs), *arrays)
    close(y, np.einsum(equation, *arrays))
    for i, g in enumerate(gradients):
        u = normal(arrays[i].shape, 5)
        moved = np.einsum(equation, *[u if j == i else x for j, x in enumerate(arrays)])
        np.testing.assert_allclose((g * u).sum(), (weights * moved).sum(), rtol=1e-10, atol=1e-11)


@st.composite
def einsums(draw):
    extent = {c: draw(st.integers(1, 3)) for c in "abcd"}
    terms = ["".join(draw(st.lists(st.sampled_from("abcd"), max_size=3))) for _ in range(draw(st.integers(1, 3)))]
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])
    equation = ",".join(terms) + (f"->{output}" if draw(st.booleans()) else "")
    return equation, [tuple(extent[c] for c in term) for term in terms]


@quick
@given(einsums(), seeds)
def test_einsum(how, seed):
    equation, operands = how
    arrays = [normal(shape, seed + i) for i, shape in enumerate(operands)]
    y, weights, gradients = gradient(lambda *xs: mg.einsum(equation, *xs), *arrays)
    close(y, np.einsum(equation, *arrays))
    for i, g in enumerate(gradients):
        u = normal(arrays[i].shape, 5)
        moved = np.einsum(equation, *arrays[:i], u, *arrays[i + 1 :])
        np.testing.assert_allclose((g * u).sum(), (weights * moved).sum(), rtol=1e-9, atol=1e-10)


@quick
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), st.data(), seeds)
def test_indexing(shape, data, seed):
    a = normal(shape, seed)
    index = []
    for n in shape[: data.draw(st.integers(0, len(shape)))]:
        kinds = [
            st.integers(-n, n - 1),
            st.slices(n),
            st.lists(st.integers(-n, n - 1), min_size=2, max_size=2),
            st.none(),
        ]
        index.append(data.draw(st.one_of(*kinds)))
    index = tuple(index)
    y, weights, (g,) = gradient(lambda x: x[index], a)
    close(y, a[index])
    expected = np.zeros(shape)
    np.add.at(expected, index, weights)
    np.testing.assert_allclose(g, expected, atol=1e-13)
    x = mg.tensor(a)
    x[index] = 7.0
    a[index] = 7.0
    close(x, a)


_CASES = [
    pytest.param(d, case, id=f"{d.name}-{i}") for d in registry.values() if d.builtin for i, case in enumerate(d.cases)
]


@pytest.mark.parametrize("declaration, case", _CASES)
def test_the_memory_layout_changes_no_value(declaration, case):
    drawn, on = case.draw(np.random.default_rng(1)), backend.get("cpu")

    def run(layout):
        mg.manual_seed(0)

        def tensor(x):
            if isinstance(x, list):
                return [tensor(item) for item in x]
            return from_backend(layout(x), on) if isinstance(x, np.ndarray) else x

        ys = declaration.call(*map(tensor, drawn), **case.params)
        return [y.numpy() for y in (ys if isinstance(ys, tuple) else (ys,)) if y is not None]

    expected = run(np.copy)
    for layout in LAYOUTS:
        for y, e in zip(run(partial(in_layout, layout)), expected, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-13, atol=1e-14)


# ------------------------------------------------------------------------------------------------------ nothing, NaN, ∞


UNARY = "abs exp sin cos tanh sigmoid erf relu sign floor sqrt log rsqrt"
REDUCING = "sum mean var max min amax amin"
ALONG_DIM = ("softmax", "log_softmax", "logsumexp", "cumsum", "amax", "flip")
ALONG = {
    **{name: lambda x, name=name: getattr(x, name)(-1) for name in ALONG_DIM},
    "sort": lambda x: x.sort(-1).values,
    "clamp": lambda x: x.clamp(-1, 1),
    "maximum": lambda x: mg.maximum(x, 0.0),
    "minimum": lambda x: mg.minimum(0.0, x),
    "where": lambda x: mg.where(x > 0, 0.0, x),
    "pow": lambda x: x**2,
    "cat": lambda x: mg.cat([x, x]),
    "T": lambda x: x.T,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, "tanh"),
    "silu": F.silu,
}


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_tensors_have_values_and_gradients(shape):
    more = [lambda x: x.reshape(-1), lambda x: x[..., :0], lambda x: x @ mg.zeros(shape[-1], 2, dtype=mg.float64)]
    more += [lambda x: F.dropout(x, 0.5), lambda x: x.masked_fill(x > 0, 1.0), lambda x: x.sum(0)]
    for name, f in [*ALONG.items(), *enumerate(more)]:
        if name != "amax" or shape[-1]:
            x = mg.zeros(*shape, dtype=mg.float64, requires_grad=True)
            f(x).sum().backward()
            assert x.grad.shape == shape


NAN_KEEPERS = {
    **{name: lambda x, name=name: getattr(x, name)() for name in (UNARY + " " + REDUCING).split()},
    **ALONG,
    "max along": lambda x: x.max(-1).values,
    "topk": lambda x: x.topk(1).values,
    "layer_norm": lambda x: F.layer_norm(x, 3),
    "rms_norm": lambda x: F.rms_norm(x, 3),
    "cross_entropy": lambda x: F.cross_entropy(x, mg.tensor(0)),
    "attention": lambda x: F.attention_pattern(x.reshape(1, 3)),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, mg.ones(2, 3, dtype=x.dtype)),
    "half": lambda x: x.half(),
}


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64], ids=str)
@pytest.mark.parametrize("f", NAN_KEEPERS.values(), ids=NAN_KEEPERS)
def test_a_nan_is_not_lost(f, dtype):
    for place in range(3):
        values = [0.5, 0.25, 2.0]
        values[place] = np.nan
        assert f(mg.tensor(values, dtype=dtype)).isnan().any()
