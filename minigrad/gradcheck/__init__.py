"""Check gradients against finite differences, and with probes for what differences at one point cannot show.

    from minigrad.gradcheck import gradcheck
    gradcheck(fn, *inputs)                  an op, a layer, a loss: returns a GradcheckReport, or raises GradcheckError
    gradcheck(np.sin, x, vjp=my_vjp)        a function of NumPy arrays, and what should be its gradient
    check_op(MyOp)                          an op on each case that it declares: returns a list of rows
    minigrad check                          the same for every declared op, from the command line

A report has Findings. Its verdict, and that of a row, is PASS, KINK, WARN, INCONCLUSIVE, NONFINITE or FAIL; README.md
has the rules. PROBES has the probes, {name: function}.
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


class _CallableModule(types.ModuleType):
    """This module, which can be called: mg.gradcheck(fn, *inputs) is what people type first."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _CallableModule
