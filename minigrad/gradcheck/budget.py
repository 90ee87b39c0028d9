"""A check's time limit, what was left out when time was up, and a line of progress.

Every forward calls `check_time`, so that any work stops there in time."""

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar

from ..base.cli import busy

NO_TIME = "no time was left for it"
QUIET = 2.0  # seconds before a terminal shows progress


class OutOfTime(BaseException):
    """The time is up. Not an Exception, which a probe or the user's function might catch."""


class Budget:
    """`seconds` for one check; None for as long as it takes.

    progress: called with what is being done, such as "direction 2", or None."""

    def __init__(self, seconds=None, progress=None):
        self.seconds, self.began = seconds, time.perf_counter()
        self.end = math.inf if seconds is None else self.began + seconds
        self.limit = math.inf  # everything needs the work before the first attempt
        self.tried = self.busy = False  # has anything been attempted; is something being attempted?
        self.left_out: dict = {}  # what -> its kind, such as "probe"
        self.progress = progress

    @property
    def spent(self):
        return time.perf_counter() - self.began

    def attempt(self, kind, what, work, *args):
        """work(*args); None if the time is up first, and `what` is then left out. The first attempt has no limit, since
        a check that has compared nothing is worthless. An attempt within another is a part of it."""
        return work(*args) if self.busy else self._try(self.limit if self.tried else math.inf, kind, what, work, args)

    def follow(self, kind, what, work, *args):
        """As attempt, with the whole check's time once more, also within an attempt: to follow a difference that was
        found."""
        more = math.inf if self.seconds is None else self.seconds
        return self._try(time.perf_counter() + more, kind, what, work, args)

    def _try(self, limit, kind, what, work, args):
        before = self.limit, self.busy
        self.limit, self.busy, self.tried = limit, True, True
        if self.progress:
            self.progress(what)
        try:
            self.check()
            return work(*args)
        except OutOfTime:
            self.left_out[what] = kind
            return None
        finally:
            self.limit, self.busy = before

    @contextmanager
    def share(self, part):
        """Inside the with, this share of the remaining time is the limit."""
        self.limit = self.end if self.seconds is None else self.began + part * self.seconds
        yield
        self.limit = self.end

    def check(self):
        if time.perf_counter() > self.limit:
            raise OutOfTime


_current: ContextVar = ContextVar("budget")


@contextmanager
def limited(seconds, progress):
    """A Budget for all that runs inside the with."""
    with busy() as say:

        def show(what):
            if budget.spent > QUIET:
                of = "" if seconds is None else f" of {seconds:g}"
                say(f"gradcheck: {what[:50]}, {budget.spent:.0f}{of} s")

        budget = Budget(seconds, show if progress is None else progress or None)
        token = _current.set(budget)
        try:
            yield budget
        finally:
            _current.reset(token)


def _running():
    """The Budget of the check that is running; one without a limit if none is."""
    return _current.get(None) or Budget()


def check_time():
    """Raise OutOfTime if the time of the check that is running is up."""
    _running().check()


def attempt(kind, what, work, *args):
    """See Budget.attempt, of the check that is running."""
    return _running().attempt(kind, what, work, *args)


def follow(kind, what, work, *args):
    """See Budget.follow, of the check that is running."""
    return _running().follow(kind, what, work, *args)
