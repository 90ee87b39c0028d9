"""How bugs are planted: copies of our own ops with one thing wrong, each that somebody has made, or easily could.

formula_mutants.py plants wrong formulas; engine_mutants.py wrong memory, state and layout."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from unittest import mock

import numpy as np

import minigrad as mg
from minigrad.autograd.cases import Case


@dataclass(frozen=True)
class Mutant:
    """right(*inputs) passes a gradient check, wrong(*inputs) must not."""

    name: str
    right: Callable
    wrong: Callable
    case: Case
    by: str | type = "Jacobian"  # the beginning of the name of the check that sees it, or what the engine itself raises
    order: int = 1
    patch: Callable = nullcontext  # `wrong` is right but within this: a bug of the engine, or deep inside an op
    hint: str = ""  # what the message must say of the cause

    def inputs(self, seed=0):
        drawn = self.case.draw(np.random.default_rng(seed))
        return [mg.tensor(x) if isinstance(x, np.ndarray) else x for x in drawn]


MUTANTS: list[Mutant] = []


@cache  # so that a right function that many mutants share is one
def bound(function, case):
    return partial(function, **case.params) if case.params else function


def mutant(name, right, wrong, case, **how):
    MUTANTS.append(Mutant(name, bound(right, case), bound(wrong, case), case, **how))


def variant(op, **parts):
    """A copy of an Op class with some of its methods replaced; not one of the declared ops."""
    return type(op.__name__, (op,), parts, abstract=True)


def plant(name, op, case=None, by="Jacobian", order=1, hint="", **parts):
    """A bug in a copy of `op`, checked on its first case unless another is given."""
    mutant(name, op.apply, variant(op, **parts).apply, case or op.cases[0], by=by, order=order, hint=hint)


def tamper(name, function, case, target, attribute, value, **how):
    """A bug in a piece that `function` leads to: target.attribute is replaced."""
    patch = partial(mock.patch.object, target, attribute, value, create=True)
    mutant(name, function, function, case, patch=patch, **how)


def given(formula):
    """A backward from a formula of dy and the saved inputs, or the saved output of an op that keeps that."""
    return lambda self, dy: formula(dy, *(self.saved_inputs() if self._saved_inputs else [self.saved_output()]))
