"""Which lines of the user's backward never ran, and so were not checked."""

import dis
import inspect
import sys
from contextlib import contextmanager

from ...autograd import reachable
from .constants import codes, user_ops


class Lines:
    """The lines of the backwards of the user's ops, and which of them have run."""

    def __init__(self, p):
        self.codes = set(codes(p, ("backward",))) - _forwards(p) if user_ops(p) else set()
        self.owner = {_code(type(op)): type(op).name for op, _ in user_ops(p)}
        self.ran: set = set()

    @contextmanager
    def watched(self):
        """Trace the calls of this thread, in these code objects only. If a debugger or coverage already traces, no
        lines are reported."""
        if not self.codes or sys.gettrace() is not None:
            self.codes = set()
            yield
            return

        def line(frame, event, argument):
            self.ran.add((frame.f_code, frame.f_lineno))
            return line

        sys.settrace(lambda frame, event, argument: line if frame.f_code in self.codes else None)
        try:
            yield
        finally:
            sys.settrace(None)

    def note(self):
        """'lines 12, 14 of the backward of my_op', or "" if all have run."""
        said = []
        for code in self.codes:
            first = code.co_firstlineno
            every = {n for _, n in dis.findlinestarts(code) if n is not None and n != first}
            missing = sorted(every - {n for ran, n in self.ran if ran is code})
            name = self.owner.get(code)
            if missing and (name or len(missing) < len(every)):
                where = f"the backward of {name}" if name else f"{code.co_name}()"
                said.append(f"line{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {where}")
        return "; ".join(sorted(said))


def _code(cls):
    return getattr(inspect.unwrap(cls.backward), "__code__", None)


def _forwards(p):
    return {code for op, _ in user_ops(p) if (code := getattr(type(op).forward, "__code__", None))}


def unchecked(p):
    """What requires a gradient, takes part, and is not among the inputs that are checked, as text; "" if nothing."""
    known = set(p.run.nodes)
    found: dict = {}
    for op in reachable(p.run.roots, 0):
        for parent in op.parents:
            if parent is not None and parent.op is None and parent not in known:
                found[parent] = f"a Tensor of shape {parent.shape} that {op.name} takes"
    return ", ".join(found.values())
