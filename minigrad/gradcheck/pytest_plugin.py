"""What the pytest plugin does once a test asks for it. (plugin/pytest_minigrad.py has the hooks.)

    @pytest.mark.gradcheck(op=Square)                    # an Op, on the cases that it declares
    def test_square(): ...

    @pytest.mark.gradcheck(case((3, 4), (4, 2)), case((1, 4), (4, 1)))
    def test_affine(x, w):                            # the function itself, on inputs that are drawn for it
        return (x @ w).tanh()

    @pytest.mark.gradcheck(case((3, 4)), order=(1, 2), probes=["linearity", "layouts"], rtol=1e-6)
    def test_layer(gradcheck, layer):                 # a function that needs fixtures, or work before and after
        report = gradcheck(lambda x: layer(x))
        assert report.mode == "full"

    def test_loss(gradcheck):                         # one check in one test, with the seed and the budget of the run
        gradcheck(loss, model, tokens)

A marked test becomes one item for each case, order and part: `test_square[case0-jacobian]`, `[case0-linearity]`,
`[case0-order2-jacobian]`, …. The parts are the comparison with differences and each probe. Ops are checked at both
orders, functions at the first. A probe that says nothing about a case is a skip."""

import inspect
import time
from dataclasses import dataclass
from functools import partial

import pytest

from ..autograd import declared
from ..autograd.cases import Case
from ..random import default_generator, manual_seed
from .call import label_of
from .check import gradcheck
from .probes import PROBES
from .report import GradcheckError
from .sweep import inputs_of
from .where import raised

JACOBIAN = "jacobian"
OURS = ("seed", "raise_on_fail", "progress", "mode")  # options of gradcheck that the plugin sets
OPTIONS = [name for name, p in inspect.signature(gradcheck).parameters.items() if p.kind is p.KEYWORD_ONLY]
SPENT = pytest.StashKey[float]()  # seconds that the checks of this process have taken


@dataclass(frozen=True)
class Item:
    """One test: what to check (a Declaration; None if the test brings a function), where, and which part of it."""

    op: object
    case: Case
    order: int
    part: str  # "jacobian" or a probe
    options: dict


def parametrize(metafunc):
    """One test for each case, order and part that the mark asks for."""
    try:
        items, ids = _items(metafunc.definition.get_closest_marker("gradcheck"))
    except ValueError as why:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {why}") from None
    if inspect.iscoroutinefunction(metafunc.function):
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: an async function has no gradient to check")
    names = _inputs(metafunc.function, items[0])
    for name in names:
        if name not in metafunc.fixturenames:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid}: the case has {len(items[0].case.inputs)} inputs, which the function's "
                "arguments do not match"
            )
        kind = inspect.signature(metafunc.function).parameters[name].kind
        if kind is inspect.Parameter.KEYWORD_ONLY and name not in items[0].case.params:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid}: inputs are given by position, and {name!r} is taken by keyword only"
            )
    if "gradcheck" not in metafunc.fixturenames:
        metafunc.fixturenames.append("gradcheck")
    values = [(item, *[None] * len(names)) for item in items]  # the inputs are drawn when the test runs
    metafunc.parametrize(["gradcheck", *names], values, indirect=["gradcheck"], ids=ids)


def _items(mark):
    """(Items, their ids) of a mark. Raises ValueError."""
    options = dict(mark.kwargs)
    op = declared(options.pop("op")) if "op" in options else None  # by keyword: pytest would mark a class given alone
    cases = [case for x in mark.args for case in (x if isinstance(x, list) else [x])] or (op.cases if op else [])
    if not cases:
        what = f"op {op.name} declares no cases, and the mark gives none" if op else "the mark gives no op and no cases"
        raise ValueError(f"{what}: nothing would be checked")
    order, probes = options.pop("order", (1, 2) if op else 1), options.pop("probes", "all")
    orders = list(order) if isinstance(order, (list, tuple, set)) else [order]
    if not isinstance(probes, (str, list, tuple, set)):
        raise ValueError(f"probes must be 'all' or a sequence of names; got {probes!r}")
    parts = [JACOBIAN, *(PROBES if probes == "all" else [probes] if isinstance(probes, str) else probes)]
    for name in parts[1:]:
        if name not in PROBES:
            raise ValueError(f"no probe is called {name!r}; there are {', '.join(PROBES)}")
    for name in options:
        if name not in OPTIONS or name in OURS:
            raise ValueError(f"gradcheck has no option {name!r} that a mark can give")
    if not orders or any(not isinstance(n, int) or n < 1 for n in orders):
        raise ValueError(f"order must be 1, 2, or several of those; got {order!r}")
    found, ids = [], []
    for i, case in enumerate(cases):
        if not isinstance(case, Case):
            raise ValueError(f"cases are made by minigrad.case(…), and an op is given as op=; got {case!r}")
        for n in orders:
            for part in parts:
                found.append(Item(op, case, n, part, options))
                ids.append(f"case{i}-" + (f"order{n}-" if n > 1 else "") + part)
    return found, ids


def _arguments(function):
    return [
        name for name, p in inspect.signature(function).parameters.items() if p.default is p.empty and name != "self"
    ]


def _inputs(function, item):
    """The names of the arguments that a marked function takes from the case; the others are fixtures."""
    names = _arguments(function)
    if item.op or "gradcheck" in names:
        return []
    wanted = names[: len(item.case.inputs)]
    missing = [f"<input {i}>" for i in range(len(wanted), len(item.case.inputs))]
    return wanted + missing + [name for name in item.case.params if name in names and name not in wanted]


def run(pyfuncitem):
    """Run a marked test: what it marks, or its body, which then has to call the fixture."""
    __tracebackhide__ = True
    function, item = pyfuncitem.obj, pyfuncitem.callspec.params["gradcheck"]
    check = pyfuncitem.funcargs.get("gradcheck") or Gradcheck(pyfuncitem, item)
    names = _arguments(function)
    given = {name: pyfuncitem.funcargs[name] for name in names if name not in _inputs(function, item)}
    if "gradcheck" in names:
        function(**given)
        if not check.called:
            pytest.fail(f"{pyfuncitem.name} never called gradcheck(…): nothing was checked", pytrace=False)
        return True
    _checked(check, None if item.op else partial(function, **given) if given else function)
    if item.op:
        function(**given)
    return True


def _checked(check, fn):
    """A check whose test has no line of its own to show: the message stands alone."""
    __tracebackhide__ = True
    try:
        check(fn)
    except AssertionError as error:  # a GradcheckError, or the user's own
        message = str(error) if hasattr(error, "report") else raised(error)
    except Exception as error:
        message = raised(error)
    else:
        return
    repeat = f"pytest {check.node.nodeid!r} --gradcheck-seed {check.seed}"
    pytest.fail(f"{message}\n\nTo repeat it: {repeat}", pytrace=False)


class Gradcheck:
    """What the fixture `gradcheck` is. item: None in a test that is not marked."""

    def __init__(self, node, item):
        self.node, self.item, self.called = node, item, False
        self.seed, self.budget = (node.config.getoption(f"gradcheck_{name}") for name in ("seed", "budget"))

    def __call__(self, fn=None, *inputs, **options):
        """gradcheck of what the item is about, or of fn(*inputs). Returns its report; raises GradcheckError."""
        __tracebackhide__ = True
        self.called = True
        item, state = self.item, default_generator.state
        manual_seed(self.seed)
        options = {"seed": self.seed, "progress": False} | options
        if item is None:
            if fn is None:
                raise TypeError("gradcheck(fn, *inputs): a test that is not marked `gradcheck` names a function")
        else:
            if fn is None and item.op is None:
                raise TypeError("gradcheck(fn): the mark names no op, so the test gives the function")
            name = item.op.name if fn is None else label_of(fn)
            fn = partial(item.op.call if fn is None else fn, **item.case.params)
            inputs = inputs or inputs_of(name, item.case, self.seed)
            options = {"order": item.order} | item.options | options
            options |= {"probes": ()} if item.part == JACOBIAN else {"probes": (item.part,), "mode": "probes"}
        try:
            return self._within_budget(fn, inputs, options)
        finally:
            default_generator.state = state

    def _within_budget(self, fn, inputs, options):
        __tracebackhide__ = True
        spent = self.node.config.stash.get(SPENT, 0.0)
        if self.budget is not None:
            if spent >= self.budget:
                self._note("left out", [self.item.part if self.item else "all of it"])
                pytest.skip(f"no time left within --gradcheck-budget {self.budget:g}")
            options["budget"] = min(self.budget - spent, options.get("budget") or self.budget)
        began = time.perf_counter()
        self._note("", [])
        try:
            report = gradcheck(fn, *inputs, **options)
        except GradcheckError as error:
            report = error.report
            if report.findings:
                raise
        finally:
            self.node.config.stash[SPENT] = spent + time.perf_counter() - began
        self._note("", list(report.unfinished))
        if self.item and not report.findings:  # the probe has nothing to say, or there was no time for it
            ((probe, why),) = report.left_out.items()
            self._note("left out" if report.unfinished else "not applicable", list(report.unfinished))
            pytest.skip(f"{probe}: {why}")
        return report

    def _note(self, outcome, left_out):
        """For the summary of the run: an outcome that is neither passed nor failed, and what there was no time for."""
        properties = self.node.user_properties
        properties[:] = [p for p in properties if p[0] != "gradcheck"] + [("gradcheck", [outcome, left_out])]
