"""The excerpts of kernels/README.md run: emulated, every access checked, against NumPy. What its table says is counted
in test_sass.py and test_accesses.py."""

import numpy as np
import pytest

from tests.emulated import Emulated, EmulationError

from .matmul_steps import EXCERPTS, SIDES, SOURCE, TABLE, blocks

F32 = np.dtype("float32")


def test_the_table_has_every_excerpt():
    assert [*TABLE] == [*SIDES, "matmul.cu"] and len(EXCERPTS) == len(SIDES)


def product(step, source, check=True, schedule=0, n=128, m=256, k=32):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(F32) for shape in ((n, k), (k, m)))
    emulated = Emulated(schedule, check, lambda file, dtype: source)
    arrays = [emulated.empty(x.shape, F32) for x in (a, b)]  # apart from each other, where a bound off by one shows
    for to, x in zip(arrays, (a, b)):
        to[...] = x
    y = emulated.empty((n, m), F32)
    emulated.launch("steps", step, F32, blocks(step, n, m), 256, y, *arrays, m, k)
    np.testing.assert_allclose(y, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("g++")
@pytest.mark.parametrize("step", SIDES)
def test_an_excerpt_is_right(step):
    product(step, SOURCE)
    for schedule in range(1, 4):
        product(step, SOURCE, check=False, schedule=schedule)


@pytest.mark.needs("g++")
@pytest.mark.parametrize("step", ["tiled", "blocked", "wide"])
@pytest.mark.parametrize("barrier", [0, 1])
def test_an_excerpt_needs_both_barriers(step, barrier):
    start = SOURCE.index(f"void {step}(")
    parts = SOURCE[start:].split("__syncthreads();")
    parts[barrier : barrier + 2] = [parts[barrier] + parts[barrier + 1]]
    with pytest.raises(EmulationError, match=r"race"):
        product(step, SOURCE[:start] + "__syncthreads();".join(parts))
