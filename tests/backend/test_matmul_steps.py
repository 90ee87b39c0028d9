"""The excerpts of kernels/README.md run on the rig, without races, and need their barriers."""

import re

import numpy as np
import pytest

from minigrad.backend.kernels import with_includes

from .. import ROOT
from ..gpu_rig.test_races import looking

pytestmark = [pytest.mark.rig, pytest.mark.gpu]
README = (ROOT / "kernels" / "README.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"^```cuda\n(.*?)^```$", README, re.M | re.S)
SOURCE = "\n".join(["typedef float T;\ntypedef float R;", with_includes("common.cuh"), *EXCERPTS])
SIDES = {"naive": 16, "tiled": 16, "blocked": 64, "wide": 128}  # of a block's tile of y; each block has 256 threads


def product(step, source=SOURCE, n=128, m=256, k=32):
    import cupy

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((n, k), (k, m)))
    y = cupy.empty((n, m), np.float32)
    kernel = cupy.RawModule(code=source, options=("-std=c++17", "-default-device")).get_function(step)
    with looking():
        kernel((n * m // SIDES[step] ** 2,), (256,), (y, cupy.array(a), cupy.array(b), np.int32(m), np.int32(k)))
    np.testing.assert_allclose(y.get(), a.astype(float) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", SIDES)
def test_an_excerpt_is_right(step):
    assert len(EXCERPTS) == len(SIDES)
    product(step)


@pytest.mark.parametrize("step", ["tiled", "blocked", "wide"])
@pytest.mark.parametrize("barrier", [0, 1])
def test_an_excerpt_needs_both_barriers(step, barrier):
    start = SOURCE.index(f"void {step}(")
    parts = SOURCE[start:].split("__syncthreads();")
    parts[barrier : barrier + 2] = [parts[barrier] + parts[barrier + 1]]
    with pytest.raises(Exception, match=r"race|nothing was written"):
        product(step, SOURCE[:start] + "__syncthreads();".join(parts))
