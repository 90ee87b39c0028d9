"""The probes of memory layouts: the same numbers with other strides, read-only, or within a larger array."""

import numpy as np

from ..report import NotApplicable
from .base import Refused, attempts, refusal


def _strided(a):
    """Every second element of a larger array, with NaN in between."""
    wide = np.full(a.shape[:-1] + (2 * a.shape[-1],), np.nan if a.dtype.kind == "f" else 0, a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def _offset(a):
    """In the middle of a larger array, with NaN around it."""
    wide = np.full([n + 3 for n in a.shape], np.nan if a.dtype.kind == "f" else 0, a.dtype)
    inside = wide[tuple(slice(2, 2 + n) for n in a.shape)]
    inside[...] = a
    return inside


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def flipped(axis):
    """A layout whose memory runs backwards along one axis."""
    return lambda a: np.flip(np.flip(a, axis).copy(), axis) if -a.ndim <= axis < a.ndim else a.copy()


def exchanged(a):
    """Memory in which the first dim varies faster than the second, and the last ones are in order."""
    return a.swapaxes(0, 1).copy().swapaxes(0, 1) if a.ndim > 2 else a.copy(order="F")


LAYOUTS = {
    "fortran": lambda a: a.copy(order="F"),
    "strided": lambda a: _strided(a) if a.ndim else a.copy(),
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a.copy(),
}
MORE_LAYOUTS = {
    "reversed along dim 0": flipped(0),
    "reversed along dim -1": flipped(-1),
    "with dims 0 and 1 exchanged": exchanged,
    "in a part of something larger": lambda a: _offset(a) if a.ndim else a.copy(),
    "read-only": _read_only,
}
MOST_AXES = 4  # along which a cotangent is broadcast


def layouts(p):
    """The same numbers in other memory layouts, of the inputs and of the cotangents, give the same gradients."""
    tries: list = [lambda name=name: _inputs(p, name, (0, 1)) for name in (*LAYOUTS, *MORE_LAYOUTS)]
    if len(p.subject.leaves) > 1:
        tries += [lambda name=name, odd=odd: _inputs(p, name, (odd,)) for name in LAYOUTS for odd in (0, 1)]
    if any(not leaf.given.flags.c_contiguous for leaf in p.subject.leaves):
        tries.append(lambda: _as_given(p))
    axes = range(max((a.ndim for a in p.subject.arrays), default=0))
    tries += [lambda axis=axis: _broadcast_inputs(p, axis) for axis in dict.fromkeys((*axes[:MOST_AXES], -1))]
    yield from attempts(tries)


def _inputs(p, name, parity):
    layout = {**LAYOUTS, **MORE_LAYOUTS}[name]
    which = "inputs" if len(parity) > 1 else "some inputs"
    check = f"layout {name}" + ", mixed" * (len(parity) == 1)
    y, gradient = p.at([layout(a) if i % 2 in parity else a.copy() for i, a in enumerate(p.subject.arrays)])
    note = f"wrong where {which} are {name}"
    yield p.same_outputs(check, p.run.y, y, note)
    yield from p.same(check, p.gradient, gradient, note)


def _as_given(p):
    given = [leaf.given if leaf.given.dtype == np.float64 else leaf.array for leaf in p.subject.leaves]
    yield from p.same("layout as given", p.gradient, p.at(given)[1], "wrong in the layout that was passed")


def _broadcast_inputs(p, axis):
    equal = [_broadcast(a, axis) for a in p.subject.arrays]
    if not any(_is_broadcast(a) for a in equal):
        return
    apart = [a.copy() for a in equal]
    run = p.forward(apart, copy=False)
    try:
        contiguous = p.backward(run)
    except Exception as error:  # it is singular there, say, whatever the layout
        raise refusal(error) from None
    if not np.isfinite(run.y).all():
        raise Refused(f"not finite where dim {axis} is broadcast")
    broadcast = p.at(equal)[1]
    note = f"wrong where dim {axis} is broadcast"
    yield from p.same(f"layout broadcast {axis}", contiguous, broadcast, note, arrays=apart)


def _broadcast(a, axis):
    """a with its first slice along axis repeated, stride 0."""
    if not -a.ndim <= axis < a.ndim or not a.shape[axis]:
        return a
    return np.broadcast_to(np.take(a, [0], axis), a.shape)


def _is_broadcast(a):
    return a.size > 0 and any(stride == 0 and n > 1 for stride, n in zip(a.strides, a.shape))


def cotangents(p):
    """Cotangents with other strides: in another order, backwards, every second element, read-only, with stride 0 along
    any dim, as that of a sum() is."""
    if not any(dy.size for dy in p.dys):
        raise NotApplicable("no output has elements")
    run = p.subject.run()

    def gradient(dys):
        return p.backward(run, dys, retain_graph=True)

    for name, layout in {**LAYOUTS, **MORE_LAYOUTS}.items():
        found = gradient([layout(dy) for dy in p.dys])
        yield from p.same(f"cotangent {name}", p.gradient, found, f"wrong where the cotangent is {name}")
    equal = [[np.broadcast_to(dy[(slice(0, 1),) * dy.ndim], dy.shape) for dy in p.dys]]
    axes = range(max(dy.ndim for dy in p.dys))
    equal += [[_broadcast(dy, axis) for dy in p.dys] for axis in axes[:MOST_AXES]] if len(axes) > 1 else []
    for dys in equal:
        expected, found = gradient([dy.copy() for dy in dys]), gradient(dys)
        yield from p.same("cotangent broadcast", expected, found, "wrong where the cotangent is broadcast")
