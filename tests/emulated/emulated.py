"""Kernels on the CPU with real blocks of threads: slow, and made to prove that they are right where there is no GPU."""

import ctypes
import functools
import os
import re
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import numpy as np

from minigrad.backend.launch import Launched
from minigrad.backend.launch.source import source
from minigrad.backend.runners import toolchain
from minigrad.backend.runners.toolchain import address, find_compiler, modules
from minigrad.base.locks import loading

FLAGS = ("-std=c++17", "-O1", "-fno-exceptions", "-w")
# -fsanitize=thread has every access call a function, and checker.h has the functions: its own library must stay out.
CHECKED_FLAGS = (*FLAGS, "-g", "-DCHECKED", "-fsanitize=thread", "-nodefaultlibs")
CHECKED_LIBRARIES = ("-lc", "-lgcc")

ZONE = 4096  # bytes before and after an array; if they change, something was written outside of it
UNTOUCHED = 0xFF  # what these bytes hold, and those of a new array: as floats they are NaN, as an index out of bounds

HEADERS = "words.h", "context.h", "fibers.h", "checker.h", "emulated.h"


class EmulationError(RuntimeError):
    """A kernel did something that is not allowed. findings: a list of lines, each of which says what."""

    def __init__(self, kernel, findings):
        super().__init__(f"kernel {kernel}: " + "\n  ".join(findings))
        self.findings = findings


class Emulated(Launched):
    """Primitives run thread by thread. Raises EmulationError at a launch that a GPU would not survive: a deadlock,
    lanes of a warp that disagree about a collective, an impossible block or grid, and a write just outside of an array:
    a launch works on copies that lie apart, so that it spoils nothing else. CompilerError: no compiler.

    schedule: who runs first, 0 in order, 1 reversed, others shuffled; with odd ones a warp runs ahead of the others.
        Results must not depend on it.
    check: look at every memory access too, for bounds, races and unwritten shared memory; some ten times slower.
    text_of: (file, dtype name) -> another source than kernels/<file>.cu, to prove that a bug would be found.
    asked: bytes of dynamic shared memory that every kernel has asked for; None: what it needs, as runners/cuda.py asks.
        A block that has not asked gets 48 KiB, its static shared memory included."""

    captures = False

    def __init__(self, schedule=0, check=False, text_of=source, asked=None):
        self.schedule, self.check, self.text_of, self.asked = schedule, check, text_of, asked
        self._kernels: dict = {}
        self._pointed = _Pointed()
        find_compiler()

    def empty(self, shape, dtype):
        """Full of NaN bytes, so that what a kernel leaves out is seen."""
        dtype = np.dtype(dtype)
        raw = np.full(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, UNTOUCHED, np.uint8)
        return raw.view(dtype).reshape(shape)

    def pointer(self, x):
        alone = Alone(x)
        self._pointed.copies.append(alone)
        return address(alone.array)

    def spread(self, n):
        return min(3, -(-n // 64)), 64  # several blocks and warps, however small the test

    def row_threads(self, n, each=4):
        return max(64, super().row_threads(n, each))

    def _run(self, file, entry, dtype, grid, block, shared, args):
        key = file, entry, dtype
        module, kernel = self._kernels.get(key) or self._load(*key)
        ones = (1, 1, 1)
        asked = shared if self.asked is None else self.asked
        shape = struct.pack("8I", *(*grid, *ones)[:3], *(*block, *ones)[:3], self.schedule, asked)
        kernel.contract.check(grid, args, self.overlap)
        args = self.with_tables(args)
        values = list(args)
        copies = [(-1, alone) for alone in self._pointed.copies]
        self._pointed.copies.clear()
        for i in kernel.pointers:
            if i < len(args) and args[i] is not None:
                same = next((alone for _, alone in copies if alone.given is args[i]), None)
                copies.append((i, same or Alone(args[i])))
                values[i] = copies[-1][1].array
        with loading:  # one at a time: a module keeps its state in globals
            if self.check:
                _tell_arrays(module.library, [(i, alone.array) for i, alone in copies])
            failed = kernel.function(shape, shared, kernel.pack(values))
            findings = module.library.emulator_message().decode().splitlines() if failed else []
        if not failed:
            findings = [finding for i, alone in copies for finding in alone.touched(i)]
        if findings:
            findings = _named(findings, module.text, entry)
            raise EmulationError(entry, _located(findings, module.library._name) if self.check else findings)
        for _, alone in copies:
            alone.give_back()

    def kernel(self, *key):
        """The Kernel of a file, entry and dtype."""
        return (self._kernels.get(key) or self._load(*key))[1]

    def static_shared(self, file, entry, dtype):
        """Bytes of static shared memory of an entry point: here, of all those of its file together."""
        module, _ = self._kernels.get((file, entry, dtype)) or self._load(file, entry, dtype)
        return module.library.emulator_static_shared()

    def _load(self, file, entry, dtype):
        with loading:
            module = _module(file, dtype.name, self.check, self.text_of(file, dtype.name))
        for name, kernel in module.kernels.items():
            self._kernels[file, name, dtype] = module, kernel
        return self._kernels[file, entry, dtype]


class _Pointed(threading.local):
    """`copies` that the thread's next launch reaches by addresses in a table, not by an argument."""

    def __init__(self):
        self.copies: list[Alone] = []


class Alone:
    """A copy of an array, aligned and strided as it is, between two zones that nobody may touch.

    It stands for the array during a launch, so that a stray write changes no other array and not the heap: a process
    that dies of that does so later, in whatever test then runs."""

    def __init__(self, x):
        start, end = np.lib.array_utils.byte_bounds(x) if x.size else (x.ctypes.data,) * 2
        self.given, self.size = x, end - start
        self.raw = np.full(self.size + 2 * ZONE + 64, UNTOUCHED, np.uint8)
        memory = self.raw.ctypes.data
        self.first = ZONE + (start - memory - ZONE) % 64
        ctypes.memmove(memory + self.first, start, self.size)
        self.before = self.memory()
        place = self.first + x.ctypes.data - start
        self.array = np.ndarray(x.shape, x.dtype, self.raw.data, place, x.strides)

    def memory(self):
        return self.raw[self.first : self.first + self.size].tobytes()

    def touched(self, argument):
        """Yields a line, in the words of the checker, for each zone that was written to."""
        for first, zone in ((0, self.raw[: self.first]), (self.first + self.size, self.raw[self.first + self.size :])):
            changed = np.flatnonzero(zone != UNTOUCHED)
            if changed.size:
                nearest = first + int(changed[0] if first else changed[-1]) - self.first
                place = f"argument {argument}" if argument >= 0 else "an array"
                yield f"write out of bounds: {place}, element {nearest // self.given.itemsize}"

    def give_back(self):
        if self.memory() != self.before:  # what was only read may overlap with what was written
            self.given[...] = self.array


@functools.cache
def _header(check):
    names = HEADERS if check else [name for name in HEADERS if name != "checker.h"]
    here, words = Path(__file__).parent, Path(toolchain.__file__).parent
    texts = [(words if name == "words.h" else here, name) for name in names]
    return "\n".join(f'#line 1 "{name}"\n{(folder / name).read_text(encoding="utf-8")}' for folder, name in texts)


@functools.cache
def _module(file, dtype, check, text):
    text = _bounded(text) if check else text
    flags, kind, libraries = (CHECKED_FLAGS, "checked", CHECKED_LIBRARIES) if check else (FLAGS, "emulated", ())
    (module,) = modules([(file, dtype)], _header(check), flags, kind, libraries, text_of=lambda *_: text)
    module.library.emulator_message.restype = ctypes.c_char_p
    module.library.emulator_static_shared.restype = ctypes.c_ulong
    return module


def _tell_arrays(library, arrays):
    """Tell the checker what a launch may touch: (argument, array), each array from its first byte to its last."""
    library.emulator_forget_arrays()
    for argument, x in arrays:
        if x.size:
            start, end = np.lib.array_utils.byte_bounds(x)
            sizes = ctypes.c_ulong(end - start), ctypes.c_ulong(x.itemsize)
            library.emulator_add_array(ctypes.c_void_p(start), *sizes, argument)


def _bounded(text):
    """The text with a word to the checker after the declaration of each shared array."""

    def tell(found):
        names = re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*[,;]", found[0])
        return found[0] + "".join(f" SHARED({name});" for name in names)

    return re.sub(r"(?<!extern )__shared__ (?:__align__\(\d+\) )?[^;=()]*;", tell, text)


def _named(findings, text, entry):
    """Findings with the names of parameters in place of their numbers."""
    parameters = re.findall(rf"__global__ void[^;{{]*?\b{entry}\(([^)]*)\)", text)[0].split(",")
    names = [parameter.replace("*", " ").split()[-1] for parameter in parameters]
    return [re.sub(r"argument (\d+)", lambda found: names[int(found[1])], line) for line in findings]


def _located(findings, library):
    """Findings with lines of the source in place of addresses of code: the innermost first, then who called it."""
    located = []
    for line in findings:
        address = re.search(r"<(\w+)>", line)
        if address and (tool := shutil.which("addr2line")):
            run = subprocess.run([tool, "-i", "-e", library, address[1]], capture_output=True, text=True, check=False)
            places = [os.path.basename(place.split(" (")[0]) for place in run.stdout.splitlines()]
            kernels = [place for place in dict.fromkeys(places) if not place.startswith(HEADERS)]
            line = line.replace(address[0], ", in ".join(kernels))
        located.append(line)
    return located
