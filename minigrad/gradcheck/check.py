"""gradcheck: a function's backward against differences with error bars, and against itself under other conditions."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .call import prepared, subject_of
from .compare import Comparison, check_directions, check_elements
from .culprit import excuse_kinks, find_culprit
from .probes import PROBES, SALT, UserCall, run_probes
from .report import GradcheckError, GradcheckReport, GradcheckWarning
from .verdicts import FAIL, WARN

WHOLE, NUMBER = (int, np.integer), (int, float, np.integer, np.floating)
FULL = 512  # most elements that get a full Jacobian in mode "auto"


def gradcheck(
    fn: Any, *inputs: Any, kwargs: Mapping[str, Any] | None = None, wrt: Any = None, mode: str = "auto",
    directions: int = 4, order: int = 1, rtol: float = 1e-7, atol: float = 0.0, eps: float | None = None,
    vjp: Callable[..., Any] | None = None, kinks: str = "report",
    probes: str | Iterable[str] | None = "auto", seed: int = 0, strict: bool = False,
    raise_on_fail: bool = True,
) -> GradcheckReport:  # fmt: skip
    """Check the gradient of fn(*inputs) against finite differences, in float64. Returns a GradcheckReport.

    fn          a function of Tensors that returns a Tensor, or a tuple, list, dict or dataclass of them: a loss, a
                Module (its parameters are checked too), or an Op class. It may draw from the default generator: each
                call sees the same numbers. Or a function of NumPy arrays, with vjp.
    inputs      Tensors, Modules (checked with respect to their parameters, in float64 for as long as it takes), and
                tuples, lists, dicts and dataclasses of those; all else is passed on. float32 is converted: its
                differences are too coarse. A single tuple holds all the inputs, as PyTorch has it: gradcheck(fn,
                (x, w)) is gradcheck(fn, x, w), and gradcheck(fn, ((h, c),)) checks fn((h, c)).
    kwargs      a dict of keyword arguments of fn. Tensors in it are inputs too.
    wrt         what to check: positions or names of inputs (1, "weight", "model.blocks.0"). Default: what requires a
                gradient; if no Tensor does, all of them; and the parameters of Modules.
    mode        "full": every element of the Jacobian. "directional": random directions, a wrong one bisected down to
                the element. "auto": full up to 512 input elements, then with `directions` random combinations of the
                outputs if there are more than 512 of those. "probes": no differences, only the probes, as for a
                gradient that is deliberately not the derivative.
    order       2 checks the gradient of the gradient, with respect to inputs and cotangents, and so on.
    rtol, atol  passes if |analytic - numeric| <= atol + rtol max(|analytic|, |numeric|) + 3 bar. An atol hides wrong
                gradients that are small.
    eps         the first step of the differences, of which the others are fractions. Default: 2^-9, less where many
                elements move at once, and others in doubt.
    vjp         (dy, *inputs) -> gradients: the gradient to check, for an fn of NumPy arrays; it may be what another
                framework computes. It returns a tuple with an entry for each input, of the input's structure; None
                means zeros. dy is a tuple if fn has several outputs. Only order 1 is checked.
    kinks       where the one-sided slopes differ and the gradient lies between them: "report" makes it a KINK,
                which passes; "error" fails.
    probes      "auto": all probes if an op or a hook of your own, a vjp or an Op class is checked; for a function of
                minigrad's own ops those that can find something there. "all", or names out of PROBES, or () for none.
    seed        the same seed gives the same directions, cotangents and probes.
    strict      probes try points of their own: other sizes, also 0, other numbers, other indices. If the backward
                raises there or gives NaN although the forward runs, or if an index is invalid there, that is a WARN: it
                passes, with a GradcheckWarning that shows the point. strict=True makes it a FAIL.

    Raises GradcheckError (an AssertionError, with .report) if the report is false, unless raise_on_fail=False. Raises
    ValueError for options that make no sense or an fn with nothing to differentiate, TypeError if fn returns no Tensor
    of floats, or takes NumPy arrays and nothing says what its gradient is.
    """
    __tracebackhide__ = True  # pytest shows the line that called this, and the message
    _check_options(
        mode=mode, kinks=kinks, directions=directions, order=order, seed=seed, rtol=rtol, atol=atol, eps=eps,
    )  # fmt: skip
    names = _probe_names(probes, mode)
    fn, inputs = prepared(fn, inputs, kwargs, vjp)
    rng = np.random.default_rng([SALT, seed])
    began = time.perf_counter()
    with subject_of(fn, inputs, wrt) as subject, np.errstate(all="ignore"):
        label = subject.label
        for _ in range(order - 1):
            subject = subject.derivative(rng)
        comparison = Comparison(subject, rng, rtol, atol, first_step=eps)
        chosen = mode if mode != "auto" else "full" if subject.size <= FULL else "directional"
        if chosen == "directional":
            check_directions(comparison, directions)
        elif chosen == "full":
            check_elements(comparison, directions if mode == "auto" and comparison.y.size > FULL else None)
        report = GradcheckReport(
            label=label, order=order, mode=chosen, seed=seed, rtol=rtol, kinks=kinks, strict=strict,
            findings=list(comparison.findings),
        )  # fmt: skip
        if not subject.size or not comparison.y.size:
            report.left_out["Jacobian"] = (
                f"every {'output' if subject.size else 'input'} is empty: nothing was compared"
            )
        if others := comparison.forward.unchecked():
            report.left_out["gradients that are not checked"] = f"{others}: pass it as an input"
        if infinite := int(np.isinf(comparison.y).sum()):
            report.left_out["outputs"] = f"{infinite} of {comparison.y.size} are infinite, where there is no derivative"
        comparison.rng = np.random.default_rng([SALT, seed, 1])  # whatever was drawn before, the probes draw the same
        run_probes(comparison, report, names, UserCall(fn, inputs, wrt, order, strict))
        if any(f.verdict == FAIL for f in comparison.findings):
            excuse_kinks(comparison)
        report.leaves = [(x.name, x.given.shape, str(x.given.dtype), x.given.strides) for x in subject.leaves]
        report.ops = comparison.forward.op_names()
        if report.verdict == FAIL and len(report.ops) > 1:
            report.culprit = find_culprit(subject)
        report.evaluations, report.seconds = subject.evaluations, time.perf_counter() - began
    if raise_on_fail and not report:
        raise GradcheckError(report)
    if raise_on_fail and report.verdict == WARN:
        warnings.warn(report.message(), GradcheckWarning, stacklevel=2)
    return report


def _check_options(**given):
    """Raise ValueError for an option that makes no sense."""
    wanted: dict[str, tuple[Any, str]] = {  # (True if it makes sense, what makes sense)
        "mode": (lambda x: x in ("auto", "full", "directional", "probes"), "auto, full, directional or probes"),
        "kinks": (lambda x: x in ("report", "error"), "report or error"),
        "directions": (lambda x: isinstance(x, WHOLE) and x > 0, "1, 2, …"),
        "order": (lambda x: isinstance(x, WHOLE) and x > 0, "1, 2, …"),
        "seed": (lambda x: isinstance(x, WHOLE) and x >= 0, "0, 1, 2, …"),
        "rtol": (lambda x: isinstance(x, NUMBER) and 0 <= x < 1, "a number from 0 to 1"),
        "atol": (lambda x: isinstance(x, NUMBER) and x >= 0, "0 or more"),
        "eps": (lambda x: x is None or (isinstance(x, NUMBER) and 0 < x < 1), "a number between 0 and 1"),
    }
    for name, value in given.items():
        is_right, description = wanted[name]
        if not is_right(value):
            raise ValueError(f"gradcheck: {name} must be {description}; got {value!r}")


def _probe_names(probes, mode):
    """The names of the probes to run as a tuple, or "auto". Raises ValueError for names that are none of PROBES."""
    if isinstance(probes, str) and probes in ("auto", "all"):
        return "auto" if probes == "auto" else tuple(PROBES)
    is_list = isinstance(probes, Iterable) and not isinstance(probes, str)
    names = tuple(probes) if is_list else ()  # a generator yields them once only
    if not (is_list or probes is None) or not {*names} <= {*PROBES} or (mode == "probes" and not names):
        raise ValueError(f"gradcheck: probes must be 'auto', 'all' or names out of {', '.join(PROBES)}; got {probes!r}")
    return names
