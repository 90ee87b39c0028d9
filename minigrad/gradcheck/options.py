"""Validating the options of gradcheck, and translating those of PyTorch's gradcheck."""

from collections.abc import Iterable
from numbers import Integral

import numpy as np

from .probes import PROBES

NUMBERS = (int, float, np.integer, np.floating)
ANSWERED = {  # PyTorch's option -> (the values that change nothing here, what to do instead of the others)
    "nondet_tol": ((0, None), "two calls must give the same bits; to let them differ, leave out that probe: probes="),
    "check_undefined_grad": ((True, False), ""),  # the probe "alone"
    "check_grad_dtypes": ((True, False), ""),  # the engine always does
    "gen_non_contig_grad_outputs": ((True, False), ""),  # the probe "layouts"
    "check_backward_ad": ((True,), "the backward is all that is checked"),
    "check_rev_over_rev": ((True,), "the backward is all that is checked"),
    "check_forward_ad": ((False,), "only the backward is checked, not forward mode"),
    "check_fwd_over_rev": ((False,), "order=2 checks the backward of the backward, not forward mode"),
    "check_batched_grad": ((False,), "vmap is not checked; pass the vmapped function as fn"),
    "check_batched_forward_grad": ((False,), "only the backward is checked, not forward mode"),
    "masked": ((None, False), "sparse tensors are not checked; pass a function of the values of one"),
    "grad_outputs": ((None,), "cotangents are drawn at random, and with order=2 they are checked as inputs"),
}


def answered(others, raise_on_fail, mode):
    """(raise_on_fail, mode) from PyTorch's names for them. Raises TypeError for an option without a counterpart."""
    others = dict(others)
    raise_on_fail = others.pop("raise_exception", raise_on_fail)
    if (fast := others.pop("fast_mode", None)) is not None:
        mode = "directional" if fast else "full"
    for name, value in others.items():
        if name not in ANSWERED:
            raise TypeError(f"gradcheck() got an unexpected keyword argument {name!r}")
        harmless, instead = ANSWERED[name]
        if not any(value is x or (isinstance(value, (int, float)) and value == x) for x in harmless):
            raise TypeError(f"gradcheck: {name}={value!r} of torch.autograd.gradcheck is not supported: {instead}")
    return raise_on_fail, mode


def check_options(mode, directions, order, rtol, atol, eps, kinks, probes, seed, budget):
    """The names of the probes, as a tuple. Raises ValueError for an option that makes no sense."""
    for name, value, known in [
        ("mode", mode, ("auto", "full", "directional", "probes")),
        ("kinks", kinks, ("report", "error")),
    ]:
        if value not in known:
            raise ValueError(f"gradcheck: {name} must be one of {', '.join(known)}; got {value!r}")
    if not isinstance(directions, Integral) or directions < 1:  # without one, nothing would be compared
        raise ValueError(f"gradcheck: directions must be 1, 2, …; got {directions!r}")
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"gradcheck: order must be 1, 2, …; got {order!r}")
    if not (isinstance(rtol, NUMBERS) and 0 <= rtol < 1):
        raise ValueError(f"gradcheck: rtol must lie between 0 and 1; got {rtol!r}")
    if not (isinstance(atol, NUMBERS) and atol >= 0):
        raise ValueError(f"gradcheck: atol must be 0 or more; got {atol!r}")
    if eps is not None and not (isinstance(eps, NUMBERS) and 0 < eps < 1):
        raise ValueError(f"gradcheck: eps must lie between 0 and 1; got {eps!r}")
    if not (budget is None or (isinstance(budget, NUMBERS) and budget > 0)):
        raise ValueError(f"gradcheck: budget must be a number of seconds above 0, or None; got {budget!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"gradcheck: seed must be 0, 1, 2, …; got {seed!r}")
    if isinstance(probes, str) and probes == "all":
        return tuple(PROBES)
    if isinstance(probes, str) or not isinstance(probes, Iterable):
        raise ValueError(f"gradcheck: probes must be 'all' or a sequence of names; got {probes!r}")
    names = tuple(probes)  # a generator yields them once only
    for name in names:
        if name not in PROBES:
            raise ValueError(f"gradcheck: no probe is called {name!r}; there are {', '.join(PROBES)}")
    if mode == "probes" and not names:
        raise ValueError("gradcheck: mode='probes' without a probe checks nothing")
    return names
