"""Gradient checking that can be trusted: differences with error bars, the wrong element named, and probes for what
differences cannot see.

    from minigrad.gradcheck import gradcheck
    gradcheck(fn, *inputs)                  an op, a layer, a loss: raises GradcheckError, which says what is wrong
    gradcheck(np.sin, x, vjp=my_vjp)        a function of NumPy arrays, and what should be its gradient
    check_op(MyOp)                          an op on the cases that it declares: a list of rows
    minigrad check                          every declared op on every case of it

They return a GradcheckReport of Findings, or rows, whose verdict is PASS, KINK, WARN, INCONCLUSIVE, NONFINITE or FAIL.
PROBES are what is tried beside differences, {name: function}.
"""

import sys
import types

from .check import gradcheck
from .probes import PROBES
from .report import Finding, GradcheckError, GradcheckReport, GradcheckWarning
from .sweep import check_op
from .verdicts import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, WARN

__all__ = [
    "gradcheck", "PROBES", "FAIL", "INCONCLUSIVE", "KINK", "NONFINITE", "PASS", "WARN", "Finding",
    "GradcheckError", "GradcheckReport", "GradcheckWarning", "check_op",
]  # fmt: skip


class _Called(types.ModuleType):
    """mg.gradcheck(fn, *inputs) is what people type first."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _Called
