"""Reads SASS, a GPU's machine code: the instructions of each kernel, its loops, and what is in the loops that count.

NVRTC makes the machine code, and nvdisasm, of the wheel nvidia-cuda-nvdisasm, its text. Neither needs a GPU.
"""

import functools
import importlib.metadata
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Instruction:
    opcode: str  # LDG.E.128, say
    operands: str
    guarded: bool  # done only if a predicate is true

    @property
    def name(self):
        return self.opcode.split(".")[0]

    @property
    def multiplies_and_adds(self):
        constant = self.name == "HFMA2" and re.search(r"-RZ, RZ", self.operands)  # a way to load a constant
        return self.name in ("FFMA", "DFMA", "HFMA2") and not constant


@functools.cache
def nvdisasm():
    """The path of NVIDIA's disassembler: of the wheel, or of a toolkit. None: there is none."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = next((Path(file.locate()) for file in files if file.name == "nvdisasm"), None)
    return str(found) if found and found.exists() else shutil.which("nvdisasm")


def disassembled(cubin, folder):
    """The text of machine code, by way of a file in `folder`."""
    path = Path(folder, "kernels.cubin")
    path.write_bytes(cubin + b"\0")  # NVRTC's getCUBIN leaves out the last byte
    return subprocess.run([nvdisasm(), "-c", path], capture_output=True, text=True, check=True).stdout


_LINE = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")


def kernels(text):
    """{entry point: Kernel} of what nvdisasm wrote."""
    return {part.split(None, 1)[0]: Kernel(part) for part in text.split("//--------------------- .text.")[1:]}


class Kernel:
    """The instructions of one entry point, without the routines that it calls, and its loops."""

    def __init__(self, text):
        self.instructions: list[Instruction] = []
        self.labels = {}  # {label: which instruction it stands before}
        for line in text.splitlines():
            if label := re.match(r"(\.L_\w+):", line):
                self.labels[label[1]] = len(self.instructions)
            elif found := _LINE.match(line):
                self.instructions.append(Instruction(found[2], found[3], bool(found[1])))
        self.blocks = self._blocks()
        self.loops = self._loops()
        self.whole = Loop(self.code(self.blocks), self.code(self.blocks))

    def _next(self, i):
        """The instructions that may follow instruction i."""
        at = self.instructions[i]
        after = [i + 1] if i + 1 < len(self.instructions) else []
        if at.name in ("EXIT", "RET"):
            return after if at.guarded else []
        # BRA.DIV leads to what is done for a warp whose threads have parted, which none of ours do where they meet.
        if at.name == "BRA" and ".DIV" not in at.opcode:
            *condition, label = at.operands.rsplit("`(", 1)
            target = [self.labels[label.rstrip(")")]]
            return target + after if at.guarded or condition[0].strip() else target
        return after

    def _blocks(self):
        """{first instruction of a basic block: (the instruction after its last, the blocks that may follow)}, of those
        that can be reached: not the routines that are called."""
        following, todo, leaders = {}, [0], {0}
        while todo:
            i = todo.pop()
            if i in following:
                continue
            following[i] = self._next(i)
            todo += following[i]
            if following[i] != [i + 1]:
                leaders.update(following[i])
                leaders.add(i + 1)
        blocks = {}
        for first in sorted(leaders & set(following)):
            end = first + 1
            while end not in leaders and end in following:
                end += 1
            blocks[first] = end, following[end - 1]
        return blocks

    def code(self, blocks):
        """The instructions of some blocks."""
        return [each for first in sorted(blocks) for each in self.instructions[first : self.blocks[first][0]]]

    def _loops(self):
        """[Loop]: of every branch back to a block that all ways to it lead through, what lies between."""
        blocks = self.blocks
        before = {block: [] for block in blocks}
        for block, (_, after) in blocks.items():
            for each in after:
                before[each].append(block)
        everything = set(blocks)
        dominators = dict.fromkeys(blocks, everything) | {0: {0}}  # the blocks that all ways to it lead through
        changed = True
        while changed:
            changed = False
            for block in blocks:
                if block:
                    found = {block} | set.intersection(*(dominators[each] for each in before[block]))
                    changed |= found != dominators[block]
                    dominators[block] = found
        bodies: dict = {}
        for block, (_, after) in blocks.items():
            for head in after:
                if head in dominators[block]:
                    body, todo = bodies.setdefault(head, {head}), [block]
                    while todo:
                        each = todo.pop()
                        if each not in body:
                            body.add(each)
                            todo += before[each]
        loops = []
        for head, body in bodies.items():
            inner = [bodies[each] for each in body - {head} if each in bodies]
            loops.append(Loop(self.code(body - set().union(*inner)), self.code(body)))
        return loops


@dataclass
class Loop:
    own: list[Instruction]  # what no inner loop has
    body: list[Instruction]  # with the inner loops

    @property
    def products(self):
        return sum(each.multiplies_and_adds for each in self.own)


def share(kernel):
    """Of the instructions in a kernel's hottest loops, the share that multiplies and adds.

    A loop is as hot as it has multiply-adds, times their share of its instructions. The hottest one counts, and all
    that are at least half as hot: not the remainders of unrolled loops. A kernel without such a loop counts as a
    whole."""
    heat = {id(loop): loop.products**2 / len(loop.own) for loop in kernel.loops}
    most = max(heat.values(), default=0)
    hot = [loop for loop in kernel.loops if most and 2 * heat[id(loop)] >= most] or [kernel.whole]
    return sum(loop.products for loop in hot) / sum(len(loop.own) for loop in hot)
