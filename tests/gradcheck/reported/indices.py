"""Functions that are wrong for repeated, missing or short indices, or for broadcast inputs."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import Fixed

from .report import mistake


def refuse_negative(index):
    if (index < 0).any():
        raise IndexError("an index is negative")


def written(x, index, values):
    y = x.copy()
    refuse_negative(index)
    y[index] = values
    return y


def last_writers(index):
    """True where no later entry of the index says the same."""
    return np.array([i not in index[k + 1 :] for k, i in enumerate(index)], bool)


def copy_backward(dy, x, index, values, shadowed):
    dx = dy.copy()
    dx[index] = 0
    won = last_writers(index)[:, None] if shadowed else 1
    return dx, None, dy[index] * won


def unpooled(x, index, size=7):
    y = np.zeros((*x.shape[:-1], size))
    refuse_negative(index)
    for k, i in enumerate(index):
        y[..., i] = x[..., k]
    return y


def unbroadcast(g, shape):
    g = g.sum(tuple(range(g.ndim - len(shape))))
    return g.sum(tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1), keepdims=True).reshape(shape)


def unbroadcast_shifted(g, shape):
    """Sums the dims that were prepended, then looks for dims of size 1 at the old positions."""
    extra = g.ndim - len(shape)
    g = g.sum(tuple(range(extra)))
    dims = [i + extra for i, n in enumerate(shape) if n == 1 and i + extra < g.ndim and g.shape[i + extra] != 1]
    g = g.sum(tuple(dims), keepdims=True)
    return np.resize(g, shape)


def multiplied(dy, x, y, reduce):
    return reduce(dy * y, x.shape), reduce(dy * x, y.shape)


def static_pattern(g, shape):
    """Sums only leading dims, as if the graph had been made when no other dim was known to be broadcast."""
    extra = g.ndim - len(shape)
    g = g.sum(tuple(range(extra)))
    return g if g.shape == shape else g[tuple(slice(0, n) for n in shape)]


DISTINCT, TWICE = Fixed(np.array([2, 0, 3])), Fixed(np.array([2, 0, 2]))

REPORTS = [
    mistake("rows written twice", "pytorch/pytorch#473",
            "of two rows written to one place the first is lost, but gets its gradient all the same", written,
            lambda dy, x, i, v: copy_backward(dy, x, i, v, shadowed=False),
            lambda dy, x, i, v: copy_backward(dy, x, i, v, shadowed=True), case((4, 3), DISTINCT, (3, 3))),
    mistake("unpooling to one place twice", "pytorch/pytorch#80204",
            "both elements get the gradient, although the second overwrote the first", lambda x, i: unpooled(x, i),
            lambda dy, x, i: (dy[..., i], None), lambda dy, x, i: (dy[..., i] * last_writers(i), None),
            case((2, 4), Fixed(np.array([1, 2, 4, 6])))),
    mistake("broadcast over prepended and inner dims", "HomericIntelligence/Odyssey#2080",
            "after the prepended dims are summed, those of size 1 are looked for at their old positions", np.multiply,
            lambda dy, x, y: multiplied(dy, x, y, unbroadcast_shifted),
            lambda dy, x, y: multiplied(dy, x, y, unbroadcast), case((3, 4), (3, 4))),
    mistake("dims that turn out to be 1", "aesara-devs/aesara#1089",
            "whether a dim is broadcast is decided before its size is known: its gradient is not summed", np.multiply,
            lambda dy, x, y: multiplied(dy, x, y, static_pattern), lambda dy, x, y: multiplied(dy, x, y, unbroadcast),
            case((3, 4), (3, 4))),
]  # fmt: skip
