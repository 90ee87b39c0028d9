"""The steps from a naive matrix product to matmul.cu that kernels/README.md tells: its excerpts and its table."""

import re

from minigrad.backend.kernels import find_kernels, flattened

from .. import ROOT

README = (ROOT / "kernels" / "README.md").read_text(encoding="utf-8")
assert find_kernels() == ROOT / "kernels"
EXCERPTS = re.findall(r"^```cuda\n(.*?)^```$", README, re.M | re.S)
SOURCE = "\n".join(["typedef float T;\ntypedef float R;", flattened("common.cuh"), *EXCERPTS])
SOURCE = SOURCE.replace('extern "C"', '// args  y, a, b (…)\nextern "C"')
SIDES = {"naive": 16, "tiled": 16, "blocked": 64, "wide": 128}  # of a block's tile of y; each block has 256 threads

_ROW = re.compile(r"^\| `([\w.]+)` \| ([\d.]+) \| ([\d.–]+) \| ([\d.]+) \|$", re.M)


def number(cell):
    return 0.0 if cell == "–" else float(cell)


# {step: (bytes from global memory per FLOP, bytes from shared memory per FLOP, share of multiply-adds)}
TABLE = {step: tuple(map(number, cells)) for step, *cells in _ROW.findall(README)}


def blocks(step, n, m):
    return n * m // SIDES[step] ** 2
