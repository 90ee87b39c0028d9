"""Random programs under minigrad and under PyTorch: values, gradients and second derivatives, float64 and float32.

RANDOM_PROGRAMS=10000 in the environment runs so many instead of 600; RANDOM_PROGRAMS_FIRST is the first seed. A
difference prints its seed and the smallest program that still shows it, as text that runs. What may differ:

- rounding: values, gradients and second derivatives by 64 ulp of the largest of their kind in the program, and by 64
  times as much as PyTorch's own results move when the leaves move by an ulp; in float32, also by 16 times PyTorch's own
  distance from its float64. So it is the numbers that say how much, not a tolerance chosen by hand;
- infinities and NaN: they stand at the same places, but may be of another kind."""

import os
from collections import Counter

import numpy as np
import pytest
from random_programs import drawn, reduced

import minigrad as mg

pytestmark = pytest.mark.oracle

COUNT, FIRST = (int(os.environ.get(n, d)) for n, d in (("RANDOM_PROGRAMS", 600), ("RANDOM_PROGRAMS_FIRST", 0)))
PARTS = 12
LARGEST = 1e30  # beyond, float32 has no room for what is computed on the way


def spread(torch, program, dtype, want):
    """{what: how far it moves} under PyTorch when every number of the leaves moves by up to an ulp."""
    moves = dict.fromkeys(want, 0.0)
    for i in range(8):
        rng = np.random.default_rng([program.seed, i])
        eps = np.finfo(dtype).eps

        def shake(x, rng=rng, eps=eps):
            whole = not (x % 1).any()  # numbers that tie go on to tie
            return x if whole else (x * (1 + eps * rng.uniform(-1, 1, x.shape))).astype(x.dtype)

        for what, y in program.run(torch, dtype, shake).items():
            moves[what] = max(moves[what], distance(y, want[what]))
    return moves


def kind(what):
    return "value" if what.startswith("value") else "second derivative" if what.startswith("d²") else "gradient"


def distance(a, b):
    """The largest difference of finite elements."""
    a, b = a.astype(float), b.astype(float)
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[both] - b[both]).max(initial=0))


def differences(torch, program):
    """[(what, how)] of what no rule explains."""
    exact, sizes = program.run(torch, "float64"), program.sizes(torch)
    found = []
    for dtype in ("float64", "float32"):
        ours, theirs = program.run(mg, dtype), exact if dtype == "float64" else program.run(torch, dtype)
        suspects, eps = [], np.finfo(dtype).eps
        for what in ours.keys() | theirs.keys():
            a, b = ours.get(what), theirs.get(what)
            if a is None or b is None:  # one says that nothing depends, the other that it depends by zeros
                given = b if a is None else a
                if given.any() or what.startswith("value"):
                    found.append((what, f"{dtype}: only {'PyTorch' if a is None else 'minigrad'} has it, {given}"))
                continue
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                found.append((what, f"{a.shape} {a.dtype}, not {b.shape} {b.dtype}"))
                continue
            true = exact[what].astype(float)
            small = np.abs(true) < LARGEST if dtype == "float32" else np.full(true.shape, True)
            if not np.array_equal(np.isfinite(a)[small], np.isfinite(b)[small]):
                found.append((what, f"{dtype}: not finite in one alone:\n{a}\n{b}"))
                continue
            error = distance(a[small], true[small])
            allowed = 64 * eps * sizes[kind(what)] + (16 * distance(b[small], true[small]) if dtype == "float32" else 0)
            if error > allowed:
                suspects.append((what, error, allowed, f"{dtype}:\n{a}\nnot\n{true}"))
        moves = spread(torch, program, dtype, theirs) if suspects else {}
        for what, error, allowed, how in suspects:
            if error > allowed + 64 * moves[what]:
                found.append((what, f"off by {error:.2g}, allowed {allowed + 64 * moves[what]:.2g}; {how}"))
    return found


def report(torch, program):
    """None, or the smallest program that shows a difference, and what differs."""
    with np.errstate(all="ignore"):
        if not differences(torch, program):
            return None
        small = reduced(program, lambda p: bool(differences(torch, p)))
        lines = [f"{what} {how}" for what, how in differences(torch, small)]
    return f"seed {program.seed}, reduced from {len(program.steps)} steps\n\n{small}\n\n" + "\n".join(lines)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs(torch, part):
    bounds = [FIRST + COUNT * p // PARTS for p in (part, part + 1)]
    failures = [text for seed in range(*bounds) if (text := report(torch, drawn(seed)))]
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
    assert np.mean([any(w.startswith("d² ") for w in r) for r in results]) > 0.9


@pytest.mark.parametrize("wrong", ["value", "gradient", "second derivative"])
def test_it_sees_a_wrong_op(torch, monkeypatch, wrong):
    """A factor of 1 + 1e-9 in one op is seen, and the program made small says which."""
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
    texts = [text for p, _ in zip(programs, range(6)) if (text := report(torch, p))]
    assert texts and all("m.tanh(" in text for text in texts)
    assert min(sum(" = m.tanh(" in line or line.startswith("t") for line in t.splitlines()) for t in texts) <= 2
