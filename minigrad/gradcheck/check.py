"""gradcheck: compare a function's backward with differences, and run the probes."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .call import prepare, subject_of
from .compare import Comparison, check_directions, check_elements, check_ties
from .culprit import excuse_kinks, find_culprit
from .probes import PROBES, SALT, run_probes
from .probes.conditions import UserCall
from .report import GradcheckError, GradcheckReport, GradcheckWarning
from .verdicts import FAIL, WARN

WHOLE = (int, np.integer)
NUMBER = (int, float, np.integer, np.floating)
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
    inputs      Tensors, Modules, and tuples, lists, dicts and dataclasses of them; all else is passed on. float32 is
                converted: its differences are too coarse. The gradient of a Module is checked with respect to its
                parameters, which are float64 until gradcheck returns. A single tuple holds all the inputs, as in
                PyTorch: gradcheck(fn, (x, w)) is gradcheck(fn, x, w), and gradcheck(fn, ((h, c),)) checks fn((h, c)).
    kwargs      a dict of keyword arguments of fn. Tensors in it are inputs too.
    wrt         what to check: positions or names of inputs (1, "weight", "model.blocks.0"). Default: the inputs that
                require a gradient, or all float Tensors if none does; and the parameters of Modules.
    mode        "full": every element of the Jacobian. "directional": random directions; a wrong one is bisected to
                find the element. "auto": "full" for up to 512 input elements, with `directions` random combinations
                of the outputs if those have more than 512; otherwise "directional". "probes": only the probes, as for
                a gradient that is deliberately not the derivative.
    order       2 checks the gradient of the gradient, with respect to inputs and cotangents, and so on.
    rtol, atol  the gradient agrees if |analytic - numeric| <= atol + rtol max(|analytic|, |numeric|) + 3 bars. An atol
                hides wrong gradients that are small.
    eps         the first step of the differences; it is halved from there. Default: 2^-9; less where many elements
                move at once, more where |x| is above 1e8. Where a result is in doubt, other steps are taken too.
    vjp         (dy, *inputs) -> gradients: the gradient to check, for an fn of NumPy arrays; another framework may
                compute it. It returns a tuple with an entry for each input, of the input's structure; None means
                zeros. dy is a tuple if fn has several outputs. Only order 1 is checked.
    kinks       "report": a gradient between two one-sided slopes that differ is a KINK, which passes. "error": a KINK
                fails.
    probes      "auto": all probes if an op or a hook of your own, a vjp or an Op class is checked; for a function of
                minigrad's own ops those that can find something there. "all", or names out of PROBES, or () for none.
    seed        the same seed gives the same directions, cotangents and probes.
    strict      a WARN is a FAIL. Probes try points of their own: other numbers, sizes, indices, options. A failure
                there is a WARN if fn may not be meant for the point, or if the backward raises or gives NaN where the
                forward runs. A WARN passes, with a GradcheckWarning that shows the call.

    Raises GradcheckError (an AssertionError, with .report) if the verdict is FAIL, NONFINITE or INCONCLUSIVE, unless
    raise_on_fail=False. Raises ValueError for options that make no sense, or if fn has nothing to differentiate.
    Raises TypeError if fn returns no Tensor of floats, or if it takes NumPy arrays and there is no vjp.
    """
    __tracebackhide__ = True  # pytest shows the line that called this, and the message
    _check_options(
        mode=mode, kinks=kinks, directions=directions, order=order, seed=seed, rtol=rtol, atol=atol, eps=eps,
    )  # fmt: skip
    names = _probe_names(probes, mode)
    fn, inputs = prepare(fn, inputs, kwargs, vjp)
    rng = np.random.default_rng([SALT, seed])
    began = time.perf_counter()
    with subject_of(fn, inputs, wrt) as subject, np.errstate(all="ignore"):
        label = subject.label
        for _ in range(order - 1):
            subject = subject.derivative(rng)
        comparison = Comparison(subject, rng, rtol, atol, first_step=eps)
        mode_that_ran = _compare(comparison, mode, directions)
        report = GradcheckReport(
            label=label, order=order, mode=mode_that_ran, seed=seed, rtol=rtol, kinks=kinks, strict=strict,
            findings=list(comparison.findings), left_out=_left_out(comparison),
        )  # fmt: skip
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


def _compare(comparison, mode, directions):
    """Compare the gradient with differences; the Comparison collects the findings. Returns the mode that ran."""
    if mode == "auto":
        mode = "full" if comparison.subject.size <= FULL else "directional"
        combinations = directions if comparison.y.size > FULL else None
    else:
        combinations = None
    if mode == "directional":
        check_directions(comparison, directions)
    elif mode == "full":
        check_elements(comparison, combinations)
    check_ties(comparison)
    return mode


def _left_out(comparison):
    """{name of a comparison that is left out: the reason}"""
    reasons, y = {}, comparison.y
    if not comparison.subject.size or not y.size:
        what = "output" if comparison.subject.size else "input"
        reasons["Jacobian"] = f"every {what} is empty: nothing was compared"
    others = comparison.forward.unchecked()
    if others:
        reasons["gradients that are not checked"] = f"{others}: pass it as an input"
    infinite = int(np.isinf(y).sum())
    if infinite:
        reasons["outputs"] = f"{infinite} of {y.size} are infinite, where there is no derivative"
    return reasons


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
