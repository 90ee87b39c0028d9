"""Indexing, contractions, and a zoo of reshapes and views."""

import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, constant, normal, pick, size, tensor

MOVES = {
    "reversed dims": lambda x: x.permute(*range(x.ndim)[::-1]),
    "flat": lambda x: x.reshape(-1),
    "flipped": lambda x: x.flip(0),
    "every second": lambda x: x[..., ::2],
    "twice": lambda x: mg.cat([x, x], -1),
    "stacked with its square": lambda x: mg.stack([x, x * x]),
    "a row more": lambda x: F.pad(x, (1, 0), value=2.0),
    "expanded": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "first rows": lambda x: x[:1],
    "copied": lambda x: x.clone(),
    "two dims": lambda x: x.reshape(x.shape[0], -1),
    "added to its flip": lambda x: x + x.flip(-1),
    "sum over the first": lambda x: x.sum(0, keepdim=True),
    "running sum": lambda x: x.cumsum(-1),
    "lower triangle": lambda x: x.reshape(x.shape[0], -1).tril(),
    "halves exchanged": lambda x: mg.cat(x.chunk(2, -1)[::-1], -1),
    "repeated": lambda x: x.repeat_interleave(2, 0),
    "sine": mg.sin,
    "times itself": lambda x: x * x,
    "squeezed": lambda x: x.squeeze() if x.numel() > 1 and x.squeeze().ndim else x,
}


def zoo(rng):
    """Several moves, one after another, as long as there are few numbers."""
    moves = [pick(rng, list(MOVES.values())) for _ in range(rng.integers(2, 7))]

    def moved(x):
        for move in moves:
            if x.numel() <= 100 and x.ndim <= 4:
                x = move(x)
        return x

    shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(1, 4)))
    return Right(moved, normal(rng, *shape))


CONTRACTIONS = [
    ("ij,jk->ik", (2, 3), (3, 2)), ("ij,ij->i", (2, 3), (2, 3)), ("i,j->ij", (3,), (2,)), ("i,i->", (4,), (4,)),
    ("bij,bjk->bik", (2, 2, 2), (2, 2, 2)), ("bhid,bhjd->bhij", (1, 2, 2, 2), (1, 2, 3, 2)),
    ("ij,kj->ik", (2, 3), (2, 3)), ("ij,k->kji", (2, 2), (2,)), ("...i,ij->...j", (2, 2, 3), (3, 2)),
    ("ab,cd->abcd", (2, 1), (1, 2)),
]  # fmt: skip


def contraction(rng):
    formula, a, b = pick(rng, CONTRACTIONS)
    return Right(lambda a, b: mg.einsum(formula, a, b), normal(rng, *a), normal(rng, *b))


def three_factors(rng):
    return Right(
        lambda a, b, c: mg.einsum("ij,jk,kl->il", a, b, c), normal(rng, 2, 2), normal(rng, 2, 3), normal(rng, 3, 2)
    )


def same_matrix_twice(rng):
    return Right(
        pick(rng, [lambda a: a @ a, lambda a: a @ a.mT, lambda a: mg.einsum("ij,ji->", a, a), lambda a: a @ a @ a]),
        normal(rng, 3, 3),
    )


def tucker(rng):
    return Right(
        lambda core, u, v: mg.einsum("abc,ia,jb->ijc", core, u, v),
        normal(rng, 2, 2, 2),
        normal(rng, 3, 2),
        normal(rng, 2, 2),
    )


def trace(rng):
    n = size(rng)
    diagonal = constant(np.arange(n))
    return Right(lambda a: a[diagonal, diagonal].sum() * a[0, 0], normal(rng, n, n))


def gathered(rng):
    index, dim = constant(rng.integers(0, 2, (2, 3))), int(rng.integers(2))
    return Right(lambda x: x.gather(dim, index) * x.gather(dim, index), normal(rng, 2, 3))


def rows_with_duplicates(rng):
    index = constant(rng.integers(0, 3, 5))
    return Right(lambda x: x[index].exp(), normal(rng, 3, 2))


def negative_indices(rng):
    index = constant(rng.integers(-3, 3, 4))
    return Right(lambda x: x[index] * x[-1], normal(rng, 3, 2))


def advanced_pairs(rng):
    i, j = constant(rng.integers(0, 3, 4)), constant(rng.integers(0, 2, 4))
    return Right(lambda x: x[i, j] ** 2, normal(rng, 3, 2))


def advanced_and_basic(rng):
    i = constant(rng.integers(0, 2, 3))
    f = pick(
        rng,
        [lambda x: x[:, i], lambda x: x[i, :, 0], lambda x: x[..., i], lambda x: x[1, i], lambda x: x[None, i, ::2]],
    )
    return Right(lambda x: f(x) * 3, normal(rng, 2, 2, 2))


def boolean_mask(rng):
    keep = rng.random((3, 3)) < pick(rng, [0.0, 0.5, 1.0])
    return Right(lambda x: x[constant(keep)].sin(), normal(rng, 3, 3))


def strided_slices(rng):
    f = pick(
        rng, [lambda x: x[::2, 1:], lambda x: x[1::3], lambda x: x[:, -1:], lambda x: x[1:1], lambda x: x[-2:, ::3]]
    )
    return Right(lambda x: f(x) * f(x), normal(rng, 4, 4))


def put(rng):
    """Rows written into a base, by where: out of place."""
    rows = constant((np.arange(3) == rng.integers(3))[:, None])
    return Right(lambda base, row: mg.where(rows, row, base) * base, normal(rng, 3, 2), normal(rng, 2))


def index_add(rng):
    """As a product with a matrix of ones and zeros."""
    into = constant(np.eye(3)[rng.integers(0, 3, 5)].T)
    return Right(lambda base, rows: base + into @ rows, normal(rng, 3, 2), normal(rng, 5, 2))


def segment_mean(rng):
    segment = rng.integers(0, 2, 5)
    segment[:2] = [0, 1]
    weights = np.eye(2)[segment].T
    return Right(lambda x: constant(weights / weights.sum(1, keepdims=True)) @ x, normal(rng, 5, 2))


def segment_softmax(rng):
    """Attention over a graph's edges: a softmax among those that lead to the same node."""
    to = rng.integers(0, 3, 5)
    one_hot = constant(np.eye(3)[to].T)

    def softmax(scores):
        e = scores.exp()
        return e / (one_hot @ e)[constant(to)]

    return Right(softmax, normal(rng, 5))


def embedding_bag(rng):
    index = constant(rng.integers(0, 4, (2, 3)))
    return Right(lambda table: F.embedding(index, table).mean(1).tanh(), normal(rng, 4, 2))


def rolled(rng):
    k = size(rng, 1, 3)
    return Right(lambda x: mg.cat([x[k:], x[:k]]) * x, normal(rng, 5))


def windows(rng):
    return Right(lambda x: mg.stack([x[i : i + 3] for i in range(3)]) @ x[:3], normal(rng, 5))


def split_and_joined(rng):
    def joined(x):
        a, b, c = x.split([1, 2, 1], 1)
        return mg.cat([c * a, b, a], 1)

    return Right(joined, normal(rng, 2, 4))


def unused_parts(rng):
    def some(x):
        a, _, c = x.unbind(0)
        return a * c

    return Right(some, normal(rng, 3, 2))


def empty(rng):
    shape = pick(rng, [(0,), (0, 3), (2, 0)])
    f = pick(rng, [mg.exp, lambda x: x.sum(), lambda x: x.reshape(-1), lambda x: mg.cat([x, x]), lambda x: x * 2])
    return Right(f, tensor(np.zeros(shape)))


def single_number(rng):
    f = pick(rng, [mg.sin, lambda x: x * x, lambda x: x.reshape(1, 1), lambda x: x.expand(2, 2), lambda x: (x, x * 2)])
    return Right(f, tensor(rng.standard_normal()))


def one_tensor_twice(rng):
    x = normal(rng, 3)
    return Right(lambda a, b: a * b.exp(), x, x)


def dict_and_tuple(rng):
    def nested(pair, options):
        return {"sum": pair[0] + pair[1], "both": [pair[0] * options["w"], (pair[1].sin(),)]}

    return Right(nested, (normal(rng, 2), normal(rng, 2)), {"w": normal(rng, 2), "name": "w"})


def constants_among_inputs(rng):
    return Right(lambda x, n, index, flag: x[index] * n if flag else x, normal(rng, 3), 2.5, constant([2, 0]), True)


def broadcast_all_ways(rng):
    shapes = pick(rng, [((2, 1), (3,)), ((1,), (2, 2)), ((), (3,)), ((2, 1, 2), (3, 1)), ((1, 1), (1,))])
    f = pick(
        rng,
        [
            lambda a, b: a * b,
            lambda a, b: a - b.exp(),
            lambda a, b: mg.where(constant(True), a * b, b),
            lambda a, b: a / (2 + b * b),
        ],
    )
    return Right(f, normal(rng, *shapes[0]), normal(rng, *shapes[1]))


def space_to_depth(rng):
    return Right(lambda x: x.reshape(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, 4) @ x.reshape(4, 4), normal(rng, 4, 4))


def outputs_that_are_views(rng):
    return Right(
        pick(rng, [lambda x: x, lambda x: (x, x), lambda x: x.T, lambda x: (x[0], x[1:]), lambda x: x.expand(2, 2, 3)]),
        normal(rng, 2, 3),
    )


def many_outputs(rng):
    frequencies = constant(rng.standard_normal((300, 1)))
    return Right(lambda x: (x * frequencies).sin(), normal(rng, 3))


def triangles(rng):
    k = int(rng.integers(-1, 2))
    return Right(lambda a: a.tril(k) @ a.triu(-k) + math.pi, normal(rng, 3, 3))


MAKERS = [
    zoo, zoo, zoo, contraction, three_factors, same_matrix_twice, tucker, trace, gathered, rows_with_duplicates,
    negative_indices, advanced_pairs, advanced_and_basic, boolean_mask, strided_slices, put, index_add, segment_mean,
    segment_softmax, embedding_bag, rolled, windows, split_and_joined, unused_parts, empty, single_number,
    one_tensor_twice, dict_and_tuple, constants_among_inputs, broadcast_all_ways, space_to_depth,
    outputs_that_are_views, many_outputs, triangles,
]  # fmt: skip
