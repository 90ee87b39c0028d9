"""Random programs under minigrad and under PyTorch: values, gradients and second derivatives, float64 and float32.

RANDOM_PROGRAMS=10000 in the environment runs that many instead of 600; RANDOM_PROGRAMS_FIRST is the first seed. A
difference prints its seed and the program, as text that runs; what may differ, and by how
much, is said in tests/programs/differences.py."""

import os
from collections import Counter

import numpy as np
import pytest

import minigrad as mg

from ..programs.differences import differences, report
from ..programs.program import drawn

pytestmark = pytest.mark.oracle

COUNT, FIRST = (int(os.environ.get(n, d)) for n, d in (("RANDOM_PROGRAMS", 600), ("RANDOM_PROGRAMS_FIRST", 0)))
PARTS = 12


def beside(torch):
    """The differences of a program between minigrad and PyTorch."""
    return lambda program: differences(program, lambda dtype: program.run(mg, dtype), torch)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs(torch, part):
    bounds = [FIRST + COUNT * p // PARTS for p in (part, part + 1)]
    failures = [text for seed in range(*bounds) if (text := report(drawn(seed), beside(torch)))]
    assert not failures, f"{len(failures)} of {bounds[1] - bounds[0]}\n\n" + "\n\n".join(failures[:5])


def test_programs_are_what_they_say(torch):
    """They have 5 to 40 steps, and of many kinds; most values get a gradient, and a second derivative."""
    programs = [drawn(seed) for seed in range(60)]
    sizes = [len(p.steps) for p in programs]
    assert min(sizes) >= 5 and max(sizes) <= 40 and np.mean(sizes) > 15
    used = Counter(word for p in programs for word in p.source().replace("(", " ").replace(".", " ").split())
    for name in ("softmax", "reshape", "gather", "linear", "permute", "where", "maximum", "cat", "no_grad", "detach"):
        assert used[name], name
    results = [p.run(torch) for p in programs]
    assert np.mean([any(w.startswith("grad ") for w in r) for r in results]) > 0.95
    assert np.mean([any(w.startswith("d² ") for w in r) for r in results]) > 0.7  # those with hooks ask for none


@pytest.mark.parametrize("wrong", ["value", "gradient", "second derivative"])
def test_it_sees_a_wrong_op(torch, monkeypatch, wrong):
    """A factor of 1 + 1e-9 in one op is seen."""
    from minigrad.ops.activation import Tanh

    forward, backward = Tanh.forward, Tanh.backward
    if wrong == "value":
        monkeypatch.setattr(Tanh, "forward", lambda op, x: forward(op, x) * x.dtype.type(1 + 1e-9))
    elif wrong == "gradient":
        monkeypatch.setattr(Tanh, "backward", lambda op, dy: backward(op, dy) * (1 + 1e-9))
    else:
        monkeypatch.setattr(
            Tanh, "backward", lambda op, dy: dy * (1.0 - op.saved_output() * op.saved_output().detach())
        )
    programs = (p for p in map(drawn, range(200)) if "tanh(" in p.source() and "approximate" not in p.source())
    texts = [text for p, _ in zip(programs, range(6)) if (text := report(p, beside(torch)))]
    assert texts and all("m.tanh(" in text for text in texts)
