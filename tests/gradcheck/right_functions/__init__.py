"""Functions that are right, of the kinds that people write: whatever gradcheck has against one is gradcheck's fault.

generated.py composes ops at random; these have a plan. Each family is a file of makers. `right(seed)` is the same for
the same seed; judge.py says what gradcheck must answer. `python -m tests.gradcheck.right_functions` asks it."""

import numpy as np

from . import custom_ops, ill_conditioned, kinks, masks, mixed_precision, smooth, stochastic

FAMILIES = {
    "smooth": smooth,
    "ill-conditioned": ill_conditioned,
    "kinks": kinks,
    "masks": masks,
    "mixed precision": mixed_precision,
    "stochastic": stochastic,
    "custom ops": custom_ops,
}


def right(seed, kind=None):
    """A Right with its kind and its maker's name. Kinds and makers take turns, so that no one is left out."""
    kind = kind or list(FAMILIES)[seed % len(FAMILIES)]
    makers = FAMILIES[kind].MAKERS
    return made_by(makers[seed // len(FAMILIES) % len(makers)], kind, seed)


def made_by(maker, kind, seed):
    """What one maker makes of a seed."""
    made = maker(np.random.default_rng(seed))
    made.kind, made.name = kind, maker.__name__
    return made
