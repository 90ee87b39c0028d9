"""NVRTC compiles every kernel for every generation of GPU, on a machine that has none, and none spills registers.
What it makes has denormals, and is kept."""

import importlib.util
import io
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from minigrad.backend.kernels import find_kernels
from minigrad.backend.runners import nvrtc
from minigrad.backend.runners.compiler import CompilerError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="no GPU's compiler: CuPy is not installed"
)
ARCHES = "75", "80", "90", "100", "120"
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
    return ARCHES[tensor:] if dtype == dtypes(file)[0] else ["90"]


def units():
    """Everything that is compiled: (file with its constants, dtype) pairs."""
    files = sorted(path.stem for path in find_kernels().glob("*.cu"))
    return [
        (f"{file} {constants}".strip(), dtype)
        for file in files
        for constants in CONSTANTS.get(file, [""])
        for dtype in dtypes(file)
        if not (dtype == "float64" and re.search("SIDE=128|ROWS=64|HELD|DP=128 .*DROPS=1", constants))  # not launched
        if not (dtype == "float16" and "TENSOR=2" in constants)
    ]


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """CuPy asks the GPU of which device it is to remember this."""
    options = {"90-ptx": ("-arch=compute_90", "ptx")}
    monkeypatch.setattr(
        "cupy.cuda.compiler._get_arch_for_options_for_nvrtc",
        lambda arch: options.get(arch, (f"-arch=sm_{arch}", "cubin")),
    )


def compiled(code, arch):
    """The output of ptxas for a source."""
    said = io.StringIO()
    nvrtc.compile_source(code, f"kernel-{arch}", arch, ("--ptxas-options=-v",), said)
    return said.getvalue()


def spills(said):
    """{entry point: bytes that it spills}, from the output of ptxas."""
    parts = [re.split("'", part, maxsplit=2)[1:] for part in said.split("Compiling entry function ")[1:]]
    return {name: sum(map(int, re.findall(r"(\d+) bytes spill", rest))) for name, rest in parts}


def check(file, dtype, targets):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda arch: spills(compiled(nvrtc.text(file, dtype), arch)), targets))
    assert all(found) and not [(arch, each) for arch, each in zip(targets, found) if any(each.values())]


@pytest.mark.slow
@pytest.mark.parametrize("file", dict.fromkeys(file for file, _ in units()))
def test_compiles_for_hopper(file):
    check(file, dtypes(file)[0], ["90"])


@pytest.mark.long
@pytest.mark.parametrize("file, dtype", units())
def test_compiles_everywhere(file, dtype):
    done = {"90"} if dtype == dtypes(file)[0] else set()  # by the test above
    check(file, dtype, [arch for arch in arches(file, dtype) if arch not in done])


def test_no_kernel_asks_at_run_time_whether_it_is_alone():
    """ONE_THREAD is a constant: with `blockDim.x == 1` a GPU's code would contain the CPU's, and use its registers."""
    for path in find_kernels().glob("*.cu*"):
        assert not re.search(r"blockDim\.x (==|>|!=) 1\b", path.read_text(encoding="utf-8")), path.name


def test_a_spill_is_seen():
    """160 numbers that are all needed at once, and a kernel that may have no more than 64 registers."""
    code = """extern "C" __global__ void __launch_bounds__(1024) full(float* x, int n) {
      float v[160];
      for (int i = 0; i < 160; i++) v[i] = x[i];
      for (int k = 0; k < n; k++)
        for (int i = 0; i < 160; i++) v[i] = v[i] * v[(i + 7) % 160] + x[k];
      for (int i = 0; i < 160; i++) x[i] = v[i];
    }"""
    assert spills(compiled(code, "90"))["full"] > 0


SOURCE = 'extern "C" __global__ void k(float* x) { x[0] = -x[0] * 2.5f + x[1] / x[2]; }'


def test_denormals_are_not_flushed_to_zero():
    made = nvrtc.compile_source(SOURCE, "denormals", "90-ptx")
    assert b"fma.rn.f32" in made and b"ftz" not in made
    assert nvrtc.compile_source(SOURCE, "denormals", "90")[:4] == b"\x7fELF"


def test_a_compiler_error_has_nvrtcs_message():
    with pytest.raises(CompilerError, match=r"(?s)NVRTC cannot compile bad:\n.*identifier .y. is undefined"):
        nvrtc.compile_source("int x = y;", "bad", "90")


@pytest.fixture
def counted(monkeypatch):
    """The texts that have been compiled, each to itself. kernels/any.cu is `text`, which can be changed."""
    done = []
    monkeypatch.setattr(nvrtc, "compile_source", lambda code, *of: done.append(code) or code.encode())
    monkeypatch.setattr(nvrtc, "text", lambda *of: "one")
    nvrtc._warn_once.cache_clear()
    return done


def test_compiles_once(cache, counted, monkeypatch):
    assert [nvrtc.binary("any", "float32", None, "90") for _ in range(2)] == [b"one"] * 2 and len(counted) == 1
    (path,) = cache.iterdir()
    assert path.name.startswith("any-float32-90-") and path.stat().st_mode & 0o777 == 0o600
    nvrtc.binary("any", "float32", None, "80")
    monkeypatch.setattr(nvrtc, "text", lambda *of: "two")
    assert nvrtc.binary("any", "float32", None, "90") == b"two"
    monkeypatch.setattr("cupy.cuda.nvrtc.getVersion", lambda: (99, 9))
    nvrtc.binary("any", "float32", None, "90")
    assert len(counted) == len(list(cache.iterdir())) == 4


def test_without_room_or_right_nothing_is_kept(cache, counted, monkeypatch, caplog):
    def fails(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nvrtc, "keep", fails)
    assert [nvrtc.binary("any", "float32", None, "90") for _ in range(2)] == [b"one"] * 2 and len(counted) == 2
    assert caplog.text.count("compiled GPU kernels cannot be kept: ") == 1
    cache.chmod(0o777)
    assert nvrtc.binary("any", "float32", None, "90") == b"one"
    assert "cannot be kept: the cache folder" in caplog.text and not list(cache.iterdir())
