"""The share of multiply-adds in machine code that kernels/README.md gives, counted on a machine that has no GPU."""

import importlib.util
import tempfile

import pytest

from minigrad.backend.runners.nvrtc import Nvrtc, text

from . import sass
from .matmul_steps import SOURCE, TABLE
from .test_nvrtc import CONSTANTS

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None or sass.nvdisasm() is None,
    reason="no GPU's compiler or disassembler: CuPy or nvdisasm is not installed",
)


def shares(code, label):
    """{entry point: the share of multiply-adds in its hottest loops} of CUDA C++, for Hopper."""
    import cupy

    cubin, _ = Nvrtc(cupy, "sm_90").compiled(code, label)
    with tempfile.TemporaryDirectory() as folder:
        found = sass.kernels(sass.disassembled(cubin, folder))
    return {entry: sass.share(kernel) for entry, kernel in found.items()}


@pytest.mark.slow
def test_the_readmes_shares():
    """Those of each step from a naive product to matmul.cu."""
    found = shares(SOURCE, "steps")
    found["matmul.cu"] = shares(text(f"matmul {CONSTANTS['matmul'][0]}", "float32"), "matmul")["matmul"]
    assert {step: round(found[step], 2) for step in TABLE} == {step: row[2] for step, row in TABLE.items()}


SHAPES = r"""
//--------------------- .text.one --------------------------
        /*0000*/                   S2R R4, SR_TID.X ;
.L_x_0:
        /*0010*/                   LDG.E.128 R8, [R2.64] ;
.L_x_1:
        /*0020*/                   LDS.U.64 R6, [R5] ;
        /*0030*/                   FFMA R0, R1, R2, R0 ;
        /*0040*/                   HFMA2.MMA R5, -RZ, RZ, 0, 0 ;
        /*0050*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;
        /*0080*/               @P2 BRA `(.L_x_0) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4) ;
"""


def test_loops():
    """Two, one in the other; what is at the end belongs to the inner one, and what is never reached is no loop."""
    kernel = sass.kernels(SHAPES)["one"]
    inner, outer = sorted(kernel.loops, key=lambda loop: len(loop.body))
    assert [each.name for each in inner.own] == ["LDS", "FFMA", "HFMA2", *["BRA"] * 3] and inner.own == inner.body
    assert [each.name for each in outer.own] == ["LDG", "CALL", "BRA"] and len(outer.body) == 9
    assert sass.share(kernel) == 1 / 6
