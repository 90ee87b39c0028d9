"""A check's time limit, and what was left out when time was up.

Every forward calls `check_time`, so that any work stops there in time."""

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar

NO_TIME = "no time was left for it"


class OutOfTime(BaseException):
    """The time is up. Not an Exception, which a probe or the user's function might catch."""


class Budget:
    """`seconds` for one check."""

    def __init__(self, seconds=math.inf):
        self.seconds, self.began = seconds, time.perf_counter()
        self.limit = math.inf  # seconds for the current attempt; the work before the first is never cut short
        self.share = 1.0  # part of the seconds that attempts may spend
        self.tried = self.busy = False  # has anything been attempted; is something being attempted?
        self.left_out: list = []

    def run(self, limit, what, work, args):
        before = self.limit, self.busy
        self.limit, self.busy, self.tried = limit, True, True
        try:
            self.check()
            return work(*args)
        except OutOfTime:
            self.left_out.append(what)
            return None
        finally:
            self.limit, self.busy = before

    def check(self):
        if time.perf_counter() > self.limit:
            raise OutOfTime


_current: ContextVar = ContextVar("budget")


@contextmanager
def limited(seconds):
    """A Budget for all that runs inside the with."""
    token = _current.set(Budget(seconds))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def _running():
    """The Budget of the check that is running; one without a limit if none is."""
    return _current.get(None) or Budget()


def check_time():
    """Raise OutOfTime if the time of the check that is running is up."""
    _running().check()


def attempt(what, work, *args):
    """work(*args); None if the time is up first, and `what` is then left out. The first attempt has no limit, since a
    check that has compared nothing is worthless. An attempt within another is a part of it."""
    budget = _running()
    if budget.busy:
        return work(*args)
    limit = budget.began + budget.share * budget.seconds if budget.tried else math.inf
    return budget.run(limit, what, work, args)


def follow(what, work, *args):
    """Like attempt, but with the whole check's time once more, also within an attempt: to follow a difference that was
    found."""
    budget = _running()
    return budget.run(time.perf_counter() + budget.seconds, what, work, args)
