"""Wrong for repeated, missing or short indices, and for what is broadcast."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import Fixed, integers

from .report import mistake


def added(shape, index, dy):
    dx = np.zeros(shape)
    np.add.at(dx, index, dy)
    return dx


def assigned(shape, index, dy):
    dx = np.zeros(shape)
    dx[index] = dy
    return dx


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


def scattered(x, index, values):
    y = x.copy()
    refuse_negative(index)
    y[index] = values
    return y


def scatter_backward(dy, x, index, values, cleared):
    dx = dy.copy()
    if cleared:
        dx[index] = 0
    return dx, None, dy[index] * last_writers(index)[:, None]


def unpooled(x, index, size=7):
    y = np.zeros((*x.shape[:-1], size))
    refuse_negative(index)
    for k, i in enumerate(index):
        y[..., i] = x[..., k]
    return y


def scatter_max(x, index, src):
    y = x.copy()
    refuse_negative(index)
    np.maximum.at(y, index, src[: len(index)])
    return y


def scatter_max_backward(dy, x, index, src, short):
    y = scatter_max(x, index, src)
    n = len(index)
    if short and n < len(src):  # what has the index's shape is broadcast against what has that of src
        dsrc = np.resize(dy[index], src.shape) * (src == np.resize(y[index], src.shape))
    else:
        dsrc = np.zeros_like(src)
        dsrc[:n] = dy[index] * (src[:n].astype(y.dtype) == y[index])
    return dy * (x == y), None, dsrc


def nan_median(x):
    return np.sort(x, -1)[..., [(x.shape[-1] - 1) // 2, x.shape[-1] // 2]].mean(-1) if x.shape[-1] else x.sum(-1)


def median_backward(dy, x, by_value):
    n = x.shape[-1]
    if not n:
        return np.zeros_like(x)
    order = np.argsort(x, -1, kind="stable")
    middle = order[..., [(n - 1) // 2, n // 2]]
    if by_value:  # every element that equals one of the two gets what one of them should
        values = np.take_along_axis(x, middle, -1)
        return dy[..., None] * ((x == values[..., :1]) | (x == values[..., 1:])) * (0.5 if n % 2 == 0 else 1)
    dx = np.zeros_like(x)
    for k in range(2):
        np.put_along_axis(dx, middle[..., [k]], np.take_along_axis(dx, middle[..., [k]], -1) + 0.5 * dy[..., None], -1)
    return dx


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
    """Sums dims by what was known of them when the graph was made: only leading dims were seen to be broadcast."""
    extra = g.ndim - len(shape)
    g = g.sum(tuple(range(extra)))
    return g if g.shape == shape else g[tuple(slice(0, n) for n in shape)]


def contracted(dy, x, y, fit=lambda g, shape: np.resize(g[:1] if shape == (1,) else g, shape)):
    """Of einsum('i,i->'): dfdx = einsum(',i->i', dy, y), of the size that y has."""
    return fit(dy * y, x.shape), fit(dy * x, y.shape)


def fitted(g, shape):
    return unbroadcast(g, shape) if g.size > np.prod(shape) else np.broadcast_to(g, shape)


DISTINCT, TWICE = Fixed(np.array([2, 0, 3])), Fixed(np.array([2, 0, 2]))

REPORTS = [
    mistake(
        "gather of repeated rows",
        "PaddlePaddle/Paddle#17662",
        "the gradient of a row that was gathered twice is overwritten, not added",
        lambda x, i: x[i],
        lambda dy, x, i: (assigned(x.shape, i, dy), None),
        lambda dy, x, i: (added(x.shape, i, dy), None),
        case((5, 3), integers((4,), 5)),
        case((5, 3), TWICE),
    ),
    mistake(
        "rows written twice",
        "pytorch/pytorch#473",
        "of two rows written to one place the first is lost, but gets its gradient all the same",
        written,
        lambda dy, x, i, v: copy_backward(dy, x, i, v, shadowed=False),
        lambda dy, x, i, v: copy_backward(dy, x, i, v, shadowed=True),
        case((4, 3), DISTINCT, (3, 3)),
        case((4, 3), TWICE, (3, 3)),
    ),
    mistake(
        "scatter that keeps the gradient of what it overwrites",
        "PaddlePaddle/Paddle#30604",
        "dx is dy, also where x was overwritten",
        scattered,
        lambda dy, x, i, v: scatter_backward(dy, x, i, v, cleared=False),
        lambda dy, x, i, v: scatter_backward(dy, x, i, v, cleared=True),
        case((4, 3), DISTINCT, (3, 3)),
        case((4, 3), DISTINCT, (3, 3)),
    ),
    mistake(
        "unpooling to one place twice",
        "pytorch/pytorch#80204",
        "both elements get the gradient, although the second overwrote the first",
        lambda x, i: unpooled(x, i),
        lambda dy, x, i: (dy[..., i], None),
        lambda dy, x, i: (dy[..., i] * last_writers(i), None),
        case((2, 4), Fixed(np.array([1, 2, 4, 6]))),
        case((2, 4), Fixed(np.array([4, 2, 4, 6]))),
    ),
    mistake(
        "scatter of the maximum with a short index",
        "pytorch/pytorch#188843",
        "what has the shape of the index is broadcast against what has that of src",
        scatter_max,
        lambda dy, x, i, src: scatter_max_backward(dy, x, i, src, short=True),
        lambda dy, x, i, src: scatter_max_backward(dy, x, i, src, short=False),
        case((4,), DISTINCT, (3,)),
        case(Fixed([-9.0, -9.0, -9.0, -9.0]), DISTINCT, Fixed([1.0, 2.0, 3.0, 1.0, 5.0])),
    ),
    mistake(
        "median by value",
        "PaddlePaddle/Paddle#42385",
        "every element that equals the median gets its gradient",
        nan_median,
        lambda dy, x: median_backward(dy, x, by_value=True),
        lambda dy, x: median_backward(dy, x, by_value=False),
        case((3, 5)),
        case(Fixed([[2.0, 3.0, 2.0, 3.0]])),
        smooth=False,
    ),
    mistake(
        "broadcast over prepended and inner dims",
        "HomericIntelligence/Odyssey#2080",
        "after the prepended dims are summed, those of size 1 are looked for at their old positions",
        np.multiply,
        lambda dy, x, y: multiplied(dy, x, y, unbroadcast_shifted),
        lambda dy, x, y: multiplied(dy, x, y, unbroadcast),
        case((3, 4), (3, 4)),
        case((2, 3, 4), (3, 1)),
    ),
    mistake(
        "dims that turn out to be 1",
        "aesara-devs/aesara#1089",
        "whether a dim is broadcast is decided before its size is known: its gradient is not summed",
        np.multiply,
        lambda dy, x, y: multiplied(dy, x, y, static_pattern),
        lambda dy, x, y: multiplied(dy, x, y, unbroadcast),
        case((3, 4), (3, 4)),
        case((3, 4), (1, 4)),
    ),
    mistake(
        "einsum with a dim of 1",
        "HIPS/autograd#376",
        "the gradient is an einsum of the other operands, of their size",
        lambda x, y: np.asarray((x * y).sum()),
        contracted,
        lambda dy, x, y: contracted(dy, x, y, fitted),
        case((4,), (4,)),
        case((4,), (1,)),
    ),
]
