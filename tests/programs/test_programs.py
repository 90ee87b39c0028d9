"""Random programs on the native kernels, compared with the NumPy backend and with finite differences.

The same programs run beside PyTorch behind the oracle marker: tests/oracle/test_random_programs_against_torch.py."""

import functools

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference

from ..devices import backend_of
from .differences import differences, report
from .program import changed, on_backend
from .program import drawn as _drawn

drawn = functools.cache(_drawn)  # the tests share programs


def test_kernels_and_numpy_agree(thorough):
    on = backend_of("native")

    def compare(program):
        def ours(dtype):
            with on_backend(on):
                return program.run(mg, dtype)

        with on_backend(reference):
            return differences(program, ours, mg, dtypes=["float64"])

    for seed in range(0, 70, 1 if thorough else 3):
        text = report(drawn(seed=seed), compare)
        assert text is None, text


def loss_along(program, directions):
    """Return the loss of a program as a function of the distance that its leaves move along the directions."""

    def loss(t):
        moved = changed(program, leaves={n: x + t * directions[n] for n, x in program.leaves.items()})
        values = moved.run(mg, second=False)
        return sum((values[f"value {n}"] * program.weight(n, program.shapes[n])).sum() for n in program.outputs)

    return loss


@pytest.mark.slow
def test_gradients_and_differences_agree():
    """The derivative along a random direction, in which values at a kink stay where they are and others do not reach
    one if the step is small enough."""
    compared = 0
    for seed in range(50):
        program = changed(drawn(seed), hooks={}, without=set())
        if "detach" in program.source():  # there the gradient is not the derivative
            continue
        rng = np.random.default_rng(seed)
        directions = {n: rng.standard_normal(x.shape) * bool((x % 1).any()) for n, x in program.leaves.items()}
        with on_backend(reference), np.errstate(all="ignore"):
            results, loss = program.run(mg, second=False), loss_along(program, directions)
            slopes = [(results[f"d loss/d {n}"] * v).sum() for n, v in directions.items() if f"d loss/d {n}" in results]
            numeric = [(loss(h) - loss(-h)) / (2 * h) for h in (1e-4, 1e-5, 1e-6, 1e-7)]
        size = max(np.abs(v).max(initial=0) for v in results.values())
        error = min(abs(n - sum(slopes)) for n in numeric)
        assert error < 1e-6 * size, f"seed {seed}: {sum(slopes)}, differences {numeric}\n\n{program}"
        compared += bool(sum(slopes))
    assert compared > 15
