"""Gradient checks in a test suite, as a pytest plugin: minigrad/gradcheck/README.md shows how.

pytest imports this file in every run, also where nothing is checked. So it imports nothing but pytest, and is installed
beside the package (see pyproject.toml): minigrad itself, with NumPy, is imported when a test asks for it."""

import inspect
from functools import partial

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("gradcheck", "gradient checks of minigrad")
    group.addoption("--gradcheck-seed", type=int, default=0, metavar="N", help="of inputs, directions and probes")
    group.addoption("--gradcheck-budget", type=float, metavar="SECONDS", help="for each check")


def pytest_configure(config):
    about = "check the gradient of an op, or of the marked function of Tensors; one test for each case and order"
    config.addinivalue_line("markers", f"gradcheck(cases…, op=, order=, **options): {about}")


def pytest_generate_tests(metafunc):
    """One test for each case and order that the mark asks for."""
    mark = metafunc.definition.get_closest_marker("gradcheck")
    if mark is None:
        return
    op, cases, wrong = _asked(mark)
    if wrong:  # the test fails when it is set up, and the others are collected
        return
    options = {name: value for name, value in mark.kwargs.items() if name != "op"}
    order = options.pop("order", (1, 2) if op else 1)
    wanted = [(i, case, n) for i, case in enumerate(cases) for n in (order if isinstance(order, tuple) else [order])]
    items = {f"case{i}" + f"-order{n}" * (n > 1): (op, case, {"order": n} | options) for i, case, n in wanted}
    if "gradcheck" not in metafunc.fixturenames:
        metafunc.fixturenames.append("gradcheck")
    names = _inputs(metafunc.function, op, cases[0])  # inputs are drawn when the test runs
    values = [(item, *[None] * len(names)) for item in items.values()]
    metafunc.parametrize(["gradcheck", *names], values, indirect=["gradcheck"], ids=items)


def _asked(mark):
    """(op, cases, "") of a mark, or (None, (), what is wrong with it)."""
    from minigrad.autograd import declared
    from minigrad.autograd.cases import Case

    try:  # a keyword is needed: pytest would mark a class given alone
        op = declared(mark.kwargs["op"]) if "op" in mark.kwargs else None
    except ValueError as error:
        return None, (), f"the mark gradcheck: {error}"
    cases = mark.args or (op.cases if op else ())
    if not cases or not all(isinstance(case, Case) for case in cases):
        wrong = "the mark gradcheck needs an op= that declares cases, or minigrad.case(…)s: nothing would be checked"
        return None, (), wrong
    return op, cases, ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """What would pass without a check fails: a bad mark, and a method of a unittest.TestCase, which runs itself."""
    mark = item.get_closest_marker("gradcheck") if isinstance(item, pytest.Function) else None
    if mark and "gradcheck" not in getattr(getattr(item, "callspec", None), "params", ()):
        wrong = _asked(mark)[2] or "the mark gradcheck does nothing in a unittest.TestCase: mark a function"
        pytest.fail(wrong, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not pyfuncitem.get_closest_marker("gradcheck"):
        return None
    from minigrad.gradcheck import GradcheckError

    function, item = pyfuncitem.obj, pyfuncitem.callspec.params["gradcheck"]
    check = pyfuncitem.funcargs.get("gradcheck") or Gradcheck(pyfuncitem.config, item)
    op, case, _ = item
    drawn = _inputs(function, op, case)
    given = {name: pyfuncitem.funcargs[name] for name in _arguments(function) if name not in drawn}
    if "gradcheck" in given:
        function(**given)
        if not check.called:
            pytest.fail(f"{pyfuncitem.name} never called gradcheck(…): nothing was checked", pytrace=False)
        return True
    try:
        check(None if op else partial(function, **given))
    except GradcheckError as error:
        repeat = f"pytest {pyfuncitem.nodeid!r} --gradcheck-seed {check.seed}"
        pytest.fail(f"{error}\n\nTo repeat it: {repeat}", pytrace=False)
    if op:
        function(**given)
    return True


@pytest.fixture
def gradcheck(request):
    """gradcheck(fn, *inputs, **options) of minigrad, with this run's seed and budget. In a marked test, gradcheck()
    checks the op, and gradcheck(fn) a function, on the case of the mark."""
    return Gradcheck(request.config, getattr(request, "param", None))


class Gradcheck:
    """What the fixture is. item: (op or None, case, options) of a marked test, None of others."""

    def __init__(self, config, item):
        self.item, self.called = item, False
        self.seed, self.budget = (config.getoption(f"gradcheck_{name}") for name in ("seed", "budget"))

    def __call__(self, fn=None, *inputs, **options):
        __tracebackhide__ = True
        from minigrad.gradcheck import gradcheck
        from minigrad.gradcheck.sweep import inputs_of
        from minigrad.random import default_generator, manual_seed

        self.called = True
        options = {"seed": self.seed, "budget": self.budget} | options
        if self.item:
            op, case, asked = self.item
            inputs = inputs or inputs_of(op.name if op else "", case, self.seed)
            fn, options = partial(op.call if fn is None else fn, **case.params), asked | options
        state = default_generator.state  # checks do not change the suite's random numbers
        manual_seed(self.seed)
        try:
            return gradcheck(fn, *inputs, **options)
        finally:
            default_generator.state = state


def _arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.name != "self"]


def _inputs(function, op, case):
    """The names of the arguments that a marked function takes from the case; the others are fixtures."""
    names = _arguments(function)
    if op or "gradcheck" in names:
        return []
    return names[: len(case.inputs)] + [name for name in names[len(case.inputs) :] if name in case.params]
