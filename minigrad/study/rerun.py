"""Forwards that differ from an earlier one only from some block on. The blocks before it are not run again.

study.flow and study.head_importance compute one loss very often, each time with another edge cut or head ablated."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..nn.module import Module


class Rerun:
    """A forward that can be repeated from one of its blocks on.

    run: a function that runs the forward, and returns a number. It is called at once. blocks: Modules that run one
    after the other. value: the number. Whole forwards are repeated if a block runs several times, has hooks, or has a
    forward that was assigned to it."""

    def __init__(self, blocks: "Sequence[Module]", run: Callable[[], float]) -> None:
        self.blocks, self._run = list(blocks), run
        self._outputs: dict[Module, list[Any]] = {block: [] for block in self.blocks}
        is_changed = any("forward" in vars(block) or any(map(_has_hooks, block.modules())) for block in self.blocks)
        handles = [block.register_forward_hook(self._keep) for block in self.blocks]
        try:
            self.value = run()
        finally:
            for handle in handles:
                handle.remove()
        self._can_skip = not is_changed and all(len(outputs) == 1 for outputs in self._outputs.values())

    def _keep(self, block, args, output):
        self._outputs[block].append(output)

    def block_with(self, module: "Module | None") -> int:
        """Return the number of the block that has a module in it; 0 if none has."""
        return next((i for i, block in enumerate(self.blocks) if any(m is module for m in block.modules())), 0)

    def value_from(self, first: int) -> float:
        """Return the number for a forward in which block number `first`, or something after it, has been changed."""
        with self._skipped(self.blocks[:first] if self._can_skip else []):
            return self._run()

    @contextmanager
    def _skipped(self, blocks: "Sequence[Module]") -> Iterator[None]:
        """Within the with-block, these blocks return the outputs of the first forward."""
        for block in blocks:
            (output,) = self._outputs[block]
            vars(block)["forward"] = lambda *args, output=output, **kwargs: output
        try:
            yield
        finally:
            for block in blocks:
                del vars(block)["forward"]


def _has_hooks(module):
    return bool(module._forward_hooks or module._forward_pre_hooks or getattr(module, "_head_hooks", None))
