"""Functions that are right, of the kinds that people write: whatever gradcheck has against one is gradcheck's fault.

generated.py composes ops at random; these have a plan. Each family is a file of makers. `right(seed)` is the same for
the same seed; verify.py shows in extended precision, without gradcheck, that what they make is right, and judge.py says
what gradcheck must answer. `python -m tests.gradcheck.right_functions` asks it."""

import numpy as np

from . import (
    custom_ops, geometry, ill_conditioned, kinks, layers, linear_algebra, losses, masks, mixed_precision, recurrences,
    shapes, stochastic,
)  # fmt: skip

FAMILIES = {
    "linear algebra": linear_algebra,
    "ill-conditioned": ill_conditioned,
    "kinks": kinks,
    "masks": masks,
    "mixed precision": mixed_precision,
    "recurrences": recurrences,
    "stochastic": stochastic,
    "layers": layers,
    "losses": losses,
    "geometry and signals": geometry,
    "indexing and shapes": shapes,
    "custom ops": custom_ops,
}


def right(seed, kind=None):
    """A Right with its kind and its maker's name. Kinds and makers take turns, so that no one is left out."""
    kind = kind or list(FAMILIES)[seed % len(FAMILIES)]
    rng = np.random.default_rng(seed)
    makers = FAMILIES[kind].MAKERS
    maker = makers[seed // len(FAMILIES) % len(makers)]
    made = maker(rng)
    made.kind, made.name = kind, maker.__name__
    return made
