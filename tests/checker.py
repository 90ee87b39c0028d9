"""A small sound gradient check: backward against differences with error bars, along random directions.

Random normal cotangents (a sum of softmax has gradient 0: ones would be blind to a backward that returns zeros),
Ridders' extrapolation with an error bar, and no absolute tolerance beyond the bar. Everything in float64.
"""

import numpy as np

import minigrad as mg

EPS = np.finfo(float).eps


def derivative(phi, scale=1.0, levels=8):
    """d phi/dt at 0 by central differences, h halved and extrapolated (Ridders 1982). Returns (value, bar).

    The bar of a tableau entry is its change against its two neighbours plus the rounding of the difference."""
    h, previous, best, bar = 4 * scale * EPS**0.2, [], 0.0, np.inf
    for level in range(levels):
        up, down = float(phi(h)), float(phi(-h))
        row = [(up - down) / (2 * h)]
        for order in range(1, min(level, 3) + 1):
            row.append(row[-1] + (row[-1] - previous[order - 1]) / (4**order - 1))
        if level:
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - previous[-1])) + 2 * EPS * (abs(up) + abs(down)) / h
            if error < bar:
                best, bar = row[-1], error
        previous, h = row, h / 2
    return best, bar


def layouts(array, layout):
    """The same values in another memory layout."""
    if layout == "contiguous" or array.ndim == 0:
        return array.copy()
    if layout == "fortran":
        return array.copy(order="F")
    if layout == "strided":  # every second element along the last dim of something larger
        wide = np.zeros(array.shape[:-1] + (2 * array.shape[-1],), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return np.flip(np.flip(array).copy())  # reversed: negative strides


def flat_floats(outputs):
    """The float Tensors of a result: a Tensor, a tuple, a named tuple with indices, None for what was not wanted."""
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [y for y in outputs if isinstance(y, mg.Tensor) and y.dtype.kind == "f"]


def check(fn, arrays, rng, *, order=1, layout="contiguous", directions=2, rtol=1e-7):
    """Check fn(*inputs) at arrays (NumPy arrays, lists of them, constants): every float array gets a gradient."""
    places, values = [], []

    def collect(x):
        if isinstance(x, list):
            return [collect(item) for item in x]
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            places.append(None)
            values.append(layouts(x, layout))
            return ("float", len(values) - 1)
        return x

    template = [collect(x) for x in arrays]

    def fill(x, tensors):
        if isinstance(x, list):
            return [fill(item, tensors) for item in x]
        if isinstance(x, tuple) and len(x) == 2 and x[0] == "float":
            return tensors[x[1]]
        return mg.tensor(x) if isinstance(x, np.ndarray) else x

    state = mg.default_generator.state

    def run(tensors):
        mg.default_generator.state = state  # the same dropout in every call
        return flat_floats(fn(*[fill(x, tensors) for x in template]))

    tensors = [mg.from_numpy(v).requires_grad_() for v in values]
    cotangents = [rng.standard_normal(y.shape) for y in run(tensors)]

    def scalar(tensors):
        return sum((y * mg.tensor(c)).sum() for y, c in zip(run(tensors), cotangents))

    def gradient(tensors, create_graph=False):
        y = scalar(tensors)
        if not isinstance(y, mg.Tensor) or not y.requires_grad:
            return [None] * len(tensors)  # it claims to be constant
        return mg.grad(y, tensors, create_graph=create_graph, allow_unused=True)

    if order == 1:
        claimed = gradient(tensors)
        function = scalar
    else:  # the same again, of a random projection of the gradient
        second = [rng.standard_normal(v.shape) for v in values]

        def function(tensors):
            tensors = [t if t.requires_grad else t.requires_grad_() for t in tensors]
            gs = gradient(tensors, create_graph=True)
            return sum((g * mg.tensor(s)).sum() for g, s in zip(gs, second) if g is not None)

        projected = function(tensors)
        if not isinstance(projected, mg.Tensor) or not projected.requires_grad:
            claimed = [None] * len(tensors)
        else:
            claimed = mg.grad(projected, tensors, allow_unused=True)

    def at(point):
        y = function([mg.from_numpy(np.array(v)) for v in point])
        return y.item() if isinstance(y, mg.Tensor) else float(y)

    worst = 0.0
    for i, (value, g) in enumerate(zip(values, claimed)):
        for _ in range(directions):
            u = rng.standard_normal(value.shape)
            u /= max(np.linalg.norm(u), 1e-300) if u.size else 1.0

            def along(t, i=i, u=u):
                return at([v + t * u if j == i else v for j, v in enumerate(values)])

            numeric, bar = derivative(along)
            analytic = 0.0 if g is None else float((g.detach().numpy() * u).sum())
            allowed = rtol * max(abs(analytic), abs(numeric)) + 3 * bar
            assert np.isfinite(analytic) and abs(analytic - numeric) <= allowed, (
                f"order {order}, input {i} of shape {value.shape} ({layout}): analytic {analytic!r}, "
                f"numeric {numeric!r} ± {bar:.1e}"
            )
            worst = max(worst, abs(analytic - numeric))
    return worst
