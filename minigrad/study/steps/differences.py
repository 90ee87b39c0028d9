"""A single step of backward, checked against finite differences of its op alone."""

import numpy as np

from ...autograd import no_grad, registry
from ...dtypes import float64
from ...gradcheck import differences
from ...tensor import Tensor, tensor

RTOL = {8: 1e-7, 4: 1e-4, 2: 2e-2}  # itemsize of a gradient -> the error allowed, relative to Σ |dx ⊙ u|
WIDE = 1e-3  # an error bar wider than this, relative to Σ |dx ⊙ u|, decides nothing
SMALL = 1e-9  # relative to Σ |dy ⊙ y|, or to the largest slope that was seen, this counts as no gradient at all


class Run:
    """What is needed to run an op again: its inputs, and which versions of them it was given."""

    def __init__(self, inputs):
        self.inputs = inputs
        self._versions = [x.storage.version for x in inputs if isinstance(x, Tensor)]

    @property
    def changed(self):
        """True if an input was changed in place since."""
        return self._versions != [x.storage.version for x in self.inputs if isinstance(x, Tensor)]


def check_input(op, run, dys, i, dx, part=...):
    """What finite differences say about dx, the gradient that `op` gives input i for the gradients dys of its outputs.

    Compares ⟨dx, u⟩ with the slope of ⟨dys, op(inputs)⟩ along u, in float64. u is random within `part` of the input and
    0 elsewhere, but has the signs of dx, so that nothing cancels and a wrong scale shows. run: the op's Run, or None if
    its forward was not recorded. Returns a text that begins with "agrees", "at a kink", "DIFFERS", "undecided" or
    "not checked"."""
    if run is None or all(d.source is not type(op) for d in registry.values()):
        return "not checked: it cannot be run again alone"  # such as the engine's own ops
    if run.changed:
        return "not checked: an input was changed in place since"
    xs = [x.detach().to(float64) if isinstance(x, Tensor) and x.dtype.kind == "f" else x for x in run.inputs]
    params = {name: float64 if _is_float(value) else value for name, value in op.params.items()}  # of a cast
    weights = [None if dy is None else dy.detach().to(float64).cpu().numpy() for dy in dys]
    x, dx64 = xs[i], dx.detach().to(float64).cpu().numpy()
    generator, u = np.random.default_rng(0), np.zeros(x.shape)
    signs = np.where(dx64[part] == 0, generator.choice([-1.0, 1.0], dx64[part].shape), np.sign(dx64[part]))
    u[part] = np.abs(generator.standard_normal(u[part].shape)) * signs

    def outputs(t):
        moved = x + tensor(t * u, dtype=float64, device=x.device)
        with no_grad():
            ys = type(op).apply(*xs[:i], moved, *xs[i + 1 :], **params)
        return [None if y is None else y.cpu().numpy() for y in (ys if isinstance(ys, tuple) else (ys,))]

    here = outputs(0.0)
    pairs = [(k, w) for k, (w, y) in enumerate(zip(weights, here)) if w is not None and y is not None]

    def phi(t):
        there = outputs(t)
        return np.array([sum((w * (there[k] - here[k])).sum() for k, w in pairs)])

    flow = sum(np.abs(w * here[k]).sum() for k, w in pairs)  # the size of the terms, which may cancel
    found = differences.derivative(phi, differences.EPS * flow, differences.STEP)
    slope, left, right, bar = (float(x[0]) for x in (found.value, found.left, found.right, 3 * found.bar))
    given = size = float((dx64 * u).sum())
    error, little = abs(given - slope), SMALL * max(flow, float(found.swing[0]))
    if found.kink[0] and abs(given) <= abs(left) + abs(right) + bar:  # their sum: several kinks may bend opposite ways
        return f"at a kink: {given:.6g}, slopes {left:.6g} and {right:.6g} from its sides"
    if error <= RTOL[dx.dtype.itemsize] * size + little:
        return f"agrees, error {error / max(size, little) if error else 0:.0e}"
    if not np.isfinite(error + bar) or (error <= bar and bar > WIDE * size):
        return f"undecided: {given:.6g}, differences {slope:.6g} ± {bar:.1g}"
    if error <= bar:
        return f"agrees, error {error / size:.0e}"
    return f"DIFFERS: {given:.6g}, should be {slope:.6g} ± {bar:.1g}"


def _is_float(value):
    return isinstance(value, np.dtype) and value.kind == "f"
