"""gradcheck: a function's backward against differences with error bars, and against itself in other circumstances."""

import time

import numpy as np

from .call import snippet, subject_of
from .compare import Comparison, difference_of
from .failures import culprit, excuse
from .jacobian import check_directions, check_elements
from .probes import PROBES, run_probes
from .report import FAIL, PASS, Finding, GradcheckError, GradcheckReport, failure
from .subject import host, joined, mapped

FULL = 512  # as many elements get a full Jacobian in mode "auto"


def gradcheck(
    fn, *inputs, wrt=None, mode="auto", directions=4, order=1, rtol=1e-7, numeric="ridders", reference=None,
    kinks="report", probes="all", seed=0, raise_on_fail=True,
):  # fmt: skip
    """Check the gradient of fn(*inputs) against finite differences, in float64. Returns a GradcheckReport.

    fn          a function of Tensors that returns a Tensor, or a tuple, list or dict of them: a loss, a Module (its
                parameters are checked too), or an Op class. It may draw from the default generator: each call sees
                the same numbers.
    inputs      Tensors, Modules (checked with respect to their parameters, in float64 for as long as it takes), and
                tuples, lists and dicts of those; all else is passed on. float32 is converted: its differences are too
                coarse.
    wrt         what to check: positions or names of inputs (1, "weight", "model.blocks.0"). Default: what requires a
                gradient; if no Tensor does, all of them; and the parameters of Modules.
    mode        "full": every element of the Jacobian. "directional": random directions, a wrong one bisected down to
                the element. "auto": full up to 512 input elements, then with `directions` random combinations of the
                outputs if there are more than 512 of those.
    order       2 checks the gradient of the gradient, with respect to inputs and cotangents, and so on.
    rtol        passes if |analytic - numeric| <= rtol max(|analytic|, |numeric|) + 3 bar: no absolute tolerance.
    numeric     "ridders": extrapolated central differences with an error bar. "complex": Im f(x + ih) / h, exact but
                for rounding, for functions of ops that are declared `analytic`, on the cpu.
    reference   a function of NumPy arrays with the values that fn should have.
    kinks       where the one-sided slopes differ and the gradient lies between them: "report" makes it a KINK,
                which passes; "error" fails; "skip" does not mention it.
    probes      "all", or names out of PROBES, or () for none.
    seed        the same seed gives the same directions, cotangents and probes.

    Raises GradcheckError (an AssertionError, with .report) if the report is false, unless raise_on_fail=False. Raises
    ValueError for options that make no sense or an fn with nothing to differentiate, TypeError if fn returns no Tensor.
    """
    _check_options(mode, order, rtol, numeric, kinks, probes)
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    with subject_of(fn, inputs, wrt) as subject, np.errstate(all="ignore"):
        label = subject.label
        for _ in range(order - 1):
            subject = subject.derivative(rng)
        comparison = Comparison(subject, rng, rtol, numeric, kinks)
        chosen = ("full" if subject.size <= FULL else "directional") if mode == "auto" else mode
        if chosen == "directional":
            check_directions(comparison, directions)
        else:
            check_elements(comparison, directions if mode == "auto" and comparison.y.size > FULL else None)
        report = GradcheckReport(label, order, chosen, seed, rtol, kinks, list(comparison.findings))
        if reference is not None:
            report.findings.append(_against_reference(comparison, reference, inputs))
        if infinite := int(np.isinf(comparison.y).sum()):
            report.left_out["outputs"] = f"{infinite} of {comparison.y.size} are infinite, where there is no derivative"
        run_probes(comparison, report, PROBES if probes == "all" else probes, (fn, inputs, wrt, order))
        excuse(comparison)
        report.leaves = [(x.name, x.given.shape, str(x.given.dtype), x.given.strides) for x in subject.leaves]
        report.ops = comparison.forward.op_names()
        if report.verdict == FAIL and len(report.ops) > 1:
            report.culprit = culprit(subject)
        report.evaluations = subject.evaluations
        report.seconds = time.perf_counter() - began
    if not report:
        options = {"wrt": wrt, "mode": chosen, "order": order, "rtol": rtol, "kinks": kinks, "seed": seed}
        report.snippet = snippet(fn, inputs, options)
        if raise_on_fail:
            raise GradcheckError(report)
    return report


def gradgradcheck(fn, *inputs, **options):
    """gradcheck of second order: the gradient of the gradient, with respect to the inputs and the cotangents."""
    return gradcheck(fn, *inputs, **options, order=2)


def _check_options(mode, order, rtol, numeric, kinks, probes):
    for name, value, known in [
        ("mode", mode, ("auto", "full", "directional")),
        ("numeric", numeric, ("ridders", "complex")),
        ("kinks", kinks, ("report", "error", "skip")),
    ]:
        if value not in known:
            raise ValueError(f"gradcheck: {name} must be one of {', '.join(known)}; got {value!r}")
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"gradcheck: order must be 1, 2, …; got {order!r}")
    if order > 1 and numeric == "complex":
        raise ValueError("gradcheck: numeric='complex' differentiates the forward; for order > 1 use 'ridders'")
    if not 0 < rtol < 1:
        raise ValueError(f"gradcheck: rtol must lie between 0 and 1; got {rtol!r}")
    if isinstance(probes, str) and probes != "all":
        raise ValueError(f"gradcheck: probes must be 'all' or a sequence of names; got {probes!r}")
    for name in () if probes == "all" else probes:
        if name not in PROBES:
            raise ValueError(f"gradcheck: no probe is called {name!r}; there are {', '.join(PROBES)}")


def _against_reference(comparison, reference, inputs):
    """The outputs against those of a function of NumPy arrays: to 1e-9 of each element and 1e-13 of the largest."""

    def array(x):
        return host(x).astype(np.float64 if x.is_floating_point() else x.dtype)

    expected = reference(*[mapped(x, array) for x in inputs])
    expected = [np.asarray(y) for y in (expected if isinstance(expected, (tuple, list)) else [expected])]
    expected = [y for y in expected if y.dtype.kind == "f"]
    shapes, wanted = [y.shape for y in comparison.forward.outputs], [y.shape for y in expected]
    if shapes != wanted:
        return failure("reference", f"outputs of shapes {shapes}, those of the reference {wanted}")
    y, r = comparison.y, joined(expected)
    allowed = 1e-9 * np.maximum(np.abs(y), np.abs(r)) + 1e-13 * np.abs(r[np.isfinite(r)]).max(initial=0)
    excess = difference_of(y, r) / np.where(allowed > 0, allowed, 1e-300)
    excess = np.where(np.isnan(excess), np.inf, excess)
    f = Finding("reference", PASS)
    if excess.size:
        m = int(excess.argmax())
        f.output = comparison.forward.output_name(m)
        f.analytic, f.numeric, f.excess = float(y[m]), float(r[m]), float(excess[m])
        if f.excess > 1:
            f.verdict, f.note = FAIL, "the value of the output differs from the reference's ('numeric')"
    return f
