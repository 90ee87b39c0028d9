"""NVRTC compiles every kernel for every generation of GPU, on a machine that has none: no spills, registers in budget.

    python tests/backend/test_nvrtc.py    rewrites kernel_budget.json: what NVRTC gives every kernel now. Read the diff.

A block's registers come in eights for each thread, so a few more within the same eight cost nothing and pass.
"""

import functools
import importlib.metadata
import importlib.util
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minigrad.backend.kernels import find_kernels
from minigrad.backend.runners.nvrtc import Nvrtc, text
from minigrad.backend.runners.toolchain import CompilerError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="no GPU's compiler: CuPy is not installed"
)
BUDGET = Path(__file__).with_name("kernel_budget.json")
ARCHES = "sm_75", "sm_80", "sm_90", "sm_100"
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
CONSTANTS = {  # that a file is compiled with; of those for other head sizes and layouts, none takes more
    "attention_forward": ["ROWS=64 COLUMNS=64 DP=64", "ROWS=64 COLUMNS=64 DP=128", "ROWS=32 COLUMNS=32 DP=128"],
    "attention_backward": ["ROWS=64 COLUMNS=64 DP=64", "ROWS=64 COLUMNS=32 DP=128", "ROWS=32 COLUMNS=32 DP=128"],
    "matmul": ["SIDE=128 READ_A=1 READ_B=0", "SIDE=128 READ_A=1 READ_B=1", "SIDE=64 READ_A=0 READ_B=0"],
}


def dtypes(file):
    return DTYPES.get(file.split()[0], FLOATS)


def arches(file, dtype):
    return ARCHES if dtype == dtypes(file)[0] else ["sm_90"]


def units():
    """[(file with its constants, dtype)]: all that is compiled."""
    files = sorted(path.stem for path in find_kernels().glob("*.cu"))
    return [
        (f"{file} {constants}".strip(), dtype)
        for file in files
        for constants in CONSTANTS.get(file, [""])
        for dtype in dtypes(file)
        if not (dtype == "float64" and re.search("SIDE=128|ROWS=64", constants))  # launch/ takes smaller ones
    ]


def compiled(file, dtype, arch):
    """resources() of kernels/<file>.cu."""
    import cupy

    try:
        _, said = Nvrtc(cupy, arch).compiled(text(file, dtype), f"{file} {dtype} {arch}", "--ptxas-options=-v")
    except CompilerError as error:
        raise AssertionError(str(error)) from None
    return resources(said)


def resources(said):
    """{entry point: (registers, static shared memory, stack, spills in bytes)} as ptxas tells it."""
    found = {}
    for part in said.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part)[1]
        stack, stores, loads = (int(re.search(rf"(\d+) bytes {what}", part)[1]) for what in _MEMORY)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = int(re.search(r"Used (\d+) registers", part)[1])
        found[name] = registers, int(shared[1]) if shared else 0, stack, stores + loads
    return found


_MEMORY = "stack frame", "spill stores", "spill loads"


def version():
    return importlib.metadata.version("nvidia-cuda-nvrtc")


@functools.cache
def budget():
    return json.loads(BUDGET.read_text(encoding="utf-8"))


def check(file, dtype, targets):
    allowed = budget()["kernels"].get(f"{file} {dtype}", {})
    slack = 0 if budget()["nvrtc"] == version() else 8  # another version counts a little otherwise
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda arch: compiled(file, dtype, arch), targets))
    over = []
    for arch, report in zip(targets, reports):
        for entry, (registers, shared, stack, spills) in report.items():
            most, most_shared, most_stack = allowed.get(entry, {}).get(arch, (0, 0, 0))
            if registers > -(-most // 8) * 8 + slack or shared > most_shared or stack > most_stack or spills:
                over.append(
                    f"{entry} {dtype} {arch}: {registers} registers of {most}, {shared} bytes of shared memory "
                    f"of {most_shared}, stack {stack} of {most_stack}, {spills} spilled"
                )
    assert not over, "\n".join([*over, "if that is meant: python tests/backend/test_nvrtc.py"])


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


def test_the_budget_is_of_these_kernels():
    assert set(budget()["kernels"]) == {f"{file} {dtype}" for file, dtype in units()}


def attempt(unit):
    try:
        return compiled(*unit)
    except AssertionError as error:
        print(error)
        return {}


def update():
    todo = [(file, dtype, arch) for file, dtype in units() for arch in arches(file, dtype)]
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(attempt, todo))
    kernels, bad = {}, sum(not report for report in reports)
    for (file, dtype, arch), report in zip(todo, reports):
        for entry, (*numbers, spills) in report.items():
            kernels.setdefault(f"{file} {dtype}", {}).setdefault(entry, {})[arch] = numbers
            if spills or numbers[2]:
                bad += bool(spills)
                print(f"{file} {dtype} {arch} {entry}: {spills} bytes spilled, a stack of {numbers[2]}")
    blocks = []
    for unit, entries in kernels.items():
        lines = ",\n".join(f"   {json.dumps(entry)}: {json.dumps(found)}" for entry, found in entries.items())
        blocks.append(f"  {json.dumps(unit)}: {{\n{lines}}}")
    about = "each entry point's registers, static shared memory and stack in bytes, by architecture"
    body = ",\n".join(blocks)
    BUDGET.write_text(
        f'{{"about": "{about}",\n "nvrtc": "{version()}",\n "kernels": {{\n{body}}}}}\n', encoding="utf-8"
    )
    print(f"{len(todo)} compilations, {sum(map(len, kernels.values()))} kernels, {bad} bad")
    return bad > 0


if __name__ == "__main__":
    sys.exit(update())
