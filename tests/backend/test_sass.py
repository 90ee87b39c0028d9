"""The machine code of each kernel, counted on a machine that has no GPU: how many of its hottest loops' instructions
multiply and add, how many bytes a load has, where 64-bit numbers are divided. No count may get worse than the budget.

    python -m tests.backend.test_sass    rewrites that part of sass_budget.json. Read what it prints, and the diff.
"""

import importlib.util
import tempfile

import pytest

from minigrad.backend.runners.nvrtc import Nvrtc, text

from . import counts, sass
from .matmul_steps import SOURCE, TABLE
from .test_nvrtc import CONSTANTS, resources, version

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None or sass.nvdisasm() is None,
    reason="no GPU's compiler or disassembler: CuPy or nvdisasm is not installed",
)
DTYPE = "float32"
ARCHES = "sm_90", "sm_80"
FILES = [
    *(f"{file} {constants}" for file in counts.PRODUCTS for constants in CONSTANTS[file]),
    *("elementwise", "softmax", "cross_entropy", "index_add", "norm", "reduce", "optim"),
]
SOME = {"elementwise": {"add", "where", "exp", "gelu_tanh", "gelu_backward_tanh"}}  # of dozens that look alike


def counted(code, label, arch, products):
    """{entry point: its counts} of CUDA C++."""
    import cupy

    cubin, said = Nvrtc(cupy, arch).compiled(code, label, "--ptxas-options=-v")
    with tempfile.TemporaryDirectory() as folder:
        found = sass.kernels(sass.disassembled(cubin, folder))
    registers = {entry: numbers[0] for entry, numbers in resources(said).items()}
    return {entry: {**sass.counts(kernel, products), "registers": registers[entry]} for entry, kernel in found.items()}


def of_file(file, arch):
    rows = counted(text(file, DTYPE), f"{file} {DTYPE} {arch}", arch, file.split()[0] in counts.PRODUCTS)
    some = SOME.get(file)
    return {entry: row for entry, row in rows.items() if some is None or entry.removesuffix("_kernel") in some}


def check(file, arch):
    allowed = counts.budget()["sass"].get(file, {})
    slack = 0.01 if counts.budget()["nvrtc"] == version() else 0.1  # another version's code is a little different
    over = []
    for entry, row in of_file(file, arch).items():
        was = allowed.get(entry, {}).get(arch)
        over += [f"{entry} {arch}: {each}" for each in (counts.worse(file, was, row, slack) if was else ["is new"])]
    assert not over, "\n".join([*over, "if that is meant: python -m tests.backend.test_sass"])


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_no_count_is_worse_on_hopper(file):
    check(file, "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_no_count_is_worse_on_ampere(file):
    check(file, "sm_80")


def test_the_budget_is_of_these_files():
    assert set(counts.budget()["sass"]) == set(FILES)


# ------------------------------------------------------------------------------------------- that the tests can fail

STREAM = """
extern "C" __global__ void stream(float* __restrict__ y, const float* __restrict__ x, long long n, long long m) {
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) BODY;
}
"""
WHOLE = """{
  float4 v = reinterpret_cast<const float4*>(x)[i];
  v.x += 1, v.y += 1, v.z += 1, v.w += 1;
  reinterpret_cast<float4*>(y)[i] = v;
}"""
SINGLE = "y[i] = x[i] + 1"
PLANTED = {
    "a load of single numbers": (SINGLE, ["instructions for a byte loaded", "LDG of 4.0 bytes, of 16.0"]),
    "a division": (WHOLE.replace("y)[i]", "y)[i % m * 7]"), ["instructions for a byte loaded", "divisions, of 0"]),
    "more arithmetic": (WHOLE.replace("v.x += 1", "v.x = sinf(v.x)"), ["instructions for a byte loaded"]),
}


def of_body(body):
    return counted(STREAM.replace("BODY", body), "stream", "sm_90", False)["stream"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_worse_is_seen(name):
    body, expected = PLANTED[name]
    was = of_body(WHOLE)
    found = counts.worse("stream", was, of_body(body))
    assert all(any(part in each for each in found) for part in expected), found
    assert not counts.worse("stream", was, was) and not counts.worse("stream", of_body(SINGLE), was)


MATMUL = CONSTANTS["matmul"][0]
K = "UNROLL for (int k = 0; k < STEP; k++)"
STORE = "    from_a.store(as[now ^ 1]);"
WORSE_MATMUL = {  # edits of matmul.cu, and what they must be found by
    "a loop that is not unrolled": (K, K.replace("UNROLL", '_Pragma("unroll 1")'), "multiply and add"),
    "single numbers from global memory": ("WHOLE = READ < 2", "WHOLE = false", "LDG of 4.0 bytes, of 16.0"),
    "a second barrier": (STORE, f"    __syncthreads();\n{STORE}", "2 barriers, of 1"),
    "a division": ("left -= STEP;", "left -= STEP; from_a.x += k0 / (p.n + left) / p.m;", "divisions, of 0"),
    "more registers": (", RESIDENT)", ", 1)", "registers, of"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORSE_MATMUL)
def test_a_worse_matmul_is_seen(name):
    of, to, expected = WORSE_MATMUL[name]
    code = text(f"matmul {MATMUL}", DTYPE)
    assert of in code
    was = counts.budget()["sass"][f"matmul {MATMUL}"]["matmul"]["sm_90"]
    found = counts.worse("matmul", was, counted(code.replace(of, to), "worse", "sm_90", True)["matmul"])
    assert any(expected in each for each in found), found


@pytest.mark.slow
def test_the_readmes_shares():
    """The share of multiply-adds that kernels/README.md gives for each step from a naive product to matmul.cu."""
    found = counted(SOURCE, "steps", "sm_90", True)
    found["matmul.cu"] = counts.budget()["sass"][f"matmul {MATMUL}"]["matmul"]["sm_90"]
    assert {step: round(counts.share(found[step]), 2) for step in TABLE} == {
        step: row[2] for step, row in TABLE.items()
    }


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
    assert [each.name for each in inner.own] == [
        "LDS",
        "FFMA",
        "HFMA2",
        "BRA",
        "BRA",
        "BRA",
    ] and inner.own == inner.body
    assert [each.name for each in outer.own] == ["LDG", "CALL", "BRA"] and len(outer.body) == 9
    found = sass.counts(kernel, products=False)
    assert found["ldg"] == {"16": 1} and found["lds"] == {} and found["divisions"] == 1 and found["instructions"] == 3
    found = sass.counts(kernel, products=True)
    assert found["lds"] == {"8": 1} and found["fma"] == 1 and found["divisions"] == 0 and found["instructions"] == 6


def update():
    rows: dict = {}
    for file in FILES:
        for arch in ARCHES:
            for entry, row in of_file(file, arch).items():
                rows.setdefault(file, {}).setdefault(entry, {})[arch] = row
    counts.write("sass", rows, version())


if __name__ == "__main__":
    update()
