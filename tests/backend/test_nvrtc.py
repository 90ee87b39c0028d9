"""NVRTC compiles every kernel for every generation of GPU, on a machine that has none, and none spills registers."""

import importlib.util
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from minigrad.backend.kernels import find_kernels
from minigrad.backend.runners.nvrtc import Nvrtc, text
from minigrad.backend.runners.toolchain import CompilerError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="no GPU's compiler: CuPy is not installed"
)
ARCHES = "sm_75", "sm_80", "sm_90", "sm_100", "sm_120"
FLOATS = "float32", "float64", "float16"
BITS = "uint32", "uint8", "uint16", "uint64"  # what moves elements of that size, whatever they are
DTYPES = {  # of files that are not for FLOATS alone; the first of them is compiled for all ARCHES
    "captured": ("uint64",),
    "movement": BITS,
    "index": BITS,
    "index_add": (*FLOATS, "int64"),
    "elementwise": (*FLOATS, "int64", "bool"),
    "elementwise_cast": (*FLOATS, "int64", "bool"),
    "reduce": (*FLOATS, "int64", "bool"),
    "reduce_cumsum": (*FLOATS, "int64"),
    "reduce_argsort": (*FLOATS, "int64", "bool"),
}
ATTENTION = [
    f"ROWS={rows} COLUMNS={columns} DP={DP} TENSOR={tensor} DROPS={drops}"
    for drops in (0, 1)
    for rows, columns, DP, tensor in (
        (64, 64, 64, 0),
        (64, 32, 128, 0),
        (32, 32, 128, 0),
        (32, 32, 64, 0),
        (64, 64, 64, 1),
        (64, 32, 128, 1),
        (64, 64, 64, 2),
        (64, 32, 128, 2),
    )
]
CONSTANTS = {  # that a file is compiled with; of those for other head sizes and layouts, none takes more
    **{
        file: ["", *(f"HELD=32 HELD_THREADS={most}" for most in (128, 512))]
        for file in ("softmax", "norm", "cross_entropy", "attention_pattern")
    },
    "attention_forward": [*ATTENTION, "ROWS=64 COLUMNS=64 DP=128 TENSOR=0 DROPS=1"],
    "attention_backward": ATTENTION,
    "matmul": ["SIDE=128 READ_A=1 READ_B=0", "SIDE=128 READ_A=1 READ_B=1", "SIDE=64 READ_A=0 READ_B=0"],
    "matmul_tensor": [
        f"TENSOR={tensor} LINE_BYTES={line} SIDE=128 READ_A={a} READ_B={b}"
        for tensor in (1, 2)
        for line, a, b in ((64, 1, 0), (64, 1, 1), (64, 0, 0), (64, 3, 2), (128, 1, 0), (128, 1, 1))
    ],
}


def dtypes(file):
    return DTYPES.get(file.split()[0], FLOATS)


def arches(file, dtype):
    tensor = "TENSOR=1" in file or "TENSOR=2" in file
    return ARCHES[tensor:] if dtype == dtypes(file)[0] else ["sm_90"]


def units():
    """[(file with its constants, dtype)]: all that is compiled."""
    files = sorted(path.stem for path in find_kernels().glob("*.cu"))
    return [
        (f"{file} {constants}".strip(), dtype)
        for file in files
        for constants in CONSTANTS.get(file, [""])
        for dtype in dtypes(file)
        if not (dtype == "float64" and re.search("SIDE=128|ROWS=64|HELD|DP=128 .*DROPS=1", constants))  # not launched
        if not (dtype == "float16" and "TENSOR=2" in constants)
    ]


def compiled(file, dtype, arch):
    """What ptxas says of kernels/<file>.cu."""
    import cupy

    try:
        return Nvrtc(cupy, arch).compiled(text(file, dtype), f"{file} {dtype} {arch}", "--ptxas-options=-v")[1]
    except CompilerError as error:
        raise AssertionError(str(error)) from None


def spills(said):
    """{entry point: bytes that it spills} as ptxas tells it."""
    parts = [re.split("'", part, maxsplit=2)[1:] for part in said.split("Compiling entry function ")[1:]]
    return {name: sum(map(int, re.findall(r"(\d+) bytes spill", rest))) for name, rest in parts}


def check(file, dtype, targets):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda arch: spills(compiled(file, dtype, arch)), targets))
    assert all(found) and not [(arch, each) for arch, each in zip(targets, found) if any(each.values())]


@pytest.mark.slow
@pytest.mark.parametrize("file", dict.fromkeys(file for file, _ in units()))
def test_compiles_for_hopper(file):
    check(file, dtypes(file)[0], ["sm_90"])


@pytest.mark.long
@pytest.mark.parametrize("file, dtype", units())
def test_compiles_everywhere(file, dtype):
    done = {"sm_90"} if dtype == dtypes(file)[0] else set()  # by the test above
    check(file, dtype, [arch for arch in arches(file, dtype) if arch not in done])


def test_no_kernel_asks_at_run_time_whether_it_is_alone():
    """ONE_THREAD is a constant: with `blockDim.x == 1` a GPU's code would contain the CPU's, and use its registers."""
    for path in find_kernels().glob("*.cu*"):
        assert not re.search(r"blockDim\.x (==|>|!=) 1\b", path.read_text(encoding="utf-8")), path.name


def test_a_spill_is_seen():
    """160 numbers that are all needed at once, and a kernel that may have no more than 64 registers."""
    import cupy

    code = """extern "C" __global__ void __launch_bounds__(1024) full(float* x, int n) {
      float v[160];
      for (int i = 0; i < 160; i++) v[i] = x[i];
      for (int k = 0; k < n; k++)
        for (int i = 0; i < 160; i++) v[i] = v[i] * v[(i + 7) % 160] + x[k];
      for (int i = 0; i < 160; i++) x[i] = v[i];
    }"""
    said = Nvrtc(cupy, "sm_90").compiled(code, "full", "--ptxas-options=-v")[1]
    assert spills(said)["full"] > 0
