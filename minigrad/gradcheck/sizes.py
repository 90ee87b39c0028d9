"""The probe that changes shapes: dims of size 1 and 0, and inputs that broadcast against the others."""

import numpy as np

from ..autograd import FormulaOp
from ..nn import Module
from ..tensor import Tensor
from .compare import Comparison
from .directions import directions
from .inputs import op_of, subject_of
from .kinks import excuse
from .probed import NotApplicable
from .report import FAIL, PASS, Finding
from .subject import flat

MOST = 6  # sizes, and inputs, that are tried


def sizes(p):
    """The same function where every dim of n elements has 1, where it has none, and where it has 1 in one input only,
    which then broadcasts, if at all. What fn does not accept, or answers with NaN, is left out; so are sizes that a
    parameter bound with partial() mentions."""
    fn, inputs, wrt, order = p.source
    if any(isinstance(x, Module) for x in (fn, *inputs)):
        raise NotApplicable("the shapes of a Module are its own")
    changes = _changes(inputs, _bound(fn), alone=not _is_fused(fn))
    if not changes:
        raise NotApplicable("there is no dim to shrink")
    refused = []
    for name, shrunk in changes:
        with subject_of(fn, shrunk, wrt) as subject:
            try:
                run = subject.run()
                why = "its value is NaN" if np.isnan(run.y).any() else ""
            except Exception as error:  # whatever fn says to a shape that it is not made for
                why = type(error).__name__
            if why:
                refused.append(f"{name}: {why}")
            elif run.roots:
                try:
                    yield from _checked(p, name, subject, order)
                except Exception as error:
                    if name.endswith("alone"):  # a backward that says that it does not broadcast is right to say so
                        refused.append(f"{name}: {type(error).__name__}")
                    else:
                        yield Finding(name, FAIL, excess=np.inf, note=f"{type(error).__name__}: {error}")
    if len(refused) == len(changes):
        raise NotApplicable("; ".join(refused))


def _checked(p, name, subject, order):
    for _ in range(order - 1):
        subject = subject.derivative(p.rng)
    comparison = Comparison(subject, p.rng, p.comparison.rtol)
    directions(comparison, 1)
    excuse(comparison)
    p.subject.evaluations += subject.evaluations
    for f in comparison.findings:
        if f.verdict == FAIL:
            f.check = name
            yield f
        else:  # a kink, noise, the edge of the domain: nothing that shrinking brought about
            yield Finding(name, PASS, excess=min(f.excess, 1.0))


def _is_fused(fn):
    """Is it a fused backward? Those are called by our own ops only, which never broadcast."""
    op = op_of(fn)
    return op is not None and issubclass(op, FormulaOp)


def _bound(fn):
    """The numbers in the tuples that functools.partial has bound: shapes, which do not shrink with the inputs."""
    values = getattr(fn, "keywords", {}).values()
    return {n for value in values if isinstance(value, tuple) for n in value if isinstance(n, int)}


def _changes(inputs, bound, alone):
    """[(what is changed, the inputs after it)]"""
    tensors = list(dict.fromkeys(flat(inputs)))
    every = sorted({n for x in tensors for n in x.shape if n > 1} - bound)[:MOST]
    changes = [(f"size {n} -> {m}", _shrunk(inputs, n, m, tensors)) for n in every for m in (0, 1)]
    for i, x in enumerate(tensors[:MOST] if alone and len(tensors) > 1 else ()):
        for n in sorted(set(x.shape) & set(every)):
            changes.append((f"size {n} -> 1 in input {i} alone", _shrunk(inputs, n, 1, [x])))
    return changes


def _shrunk(tree, n, m, chosen):
    """tree with the first m of every dim of size n, in the Tensors that are chosen."""
    if isinstance(tree, Tensor):
        if n not in tree.shape or not any(tree is x for x in chosen):
            return tree
        x = tree.detach()[tuple(slice(0, m) if size == n else slice(None) for size in tree.shape)]
        return x.requires_grad_() if tree.requires_grad else x
    if isinstance(tree, dict):
        return {key: _shrunk(x, n, m, chosen) for key, x in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [_shrunk(x, n, m, chosen) for x in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree
