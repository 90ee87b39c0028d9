"""Heads over the course of training: patterns and gradients on the same input, every few steps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import enable_grad
from ..base.errors import UnknownName, unknown
from ..tensor import Tensor, grad
from ..typing import Array, FilePath
from . import report
from .flow import flow
from .importance import returned_loss
from .layers import attention_layers, undisturbed
from .trace import trace_heads

if TYPE_CHECKING:
    from ..nn.module import Module


class Recorder:
    """Call it after every step of training. It keeps the heads once in `every` steps, and when it is made.

        record = study.Recorder(model, probe=(x, y), every=25)
        for step in range(1, 601):
            …
            record(step, loss)
        record.to_html("training.html")

    probe: the arguments of loss(model, *probe), or a single Tensor for model(probe), which gives no gradients. The
    model sees it in eval mode, no .grad is touched, no hook of a parameter runs and no random numbers are drawn, so
    training continues as if nothing had been kept. start: the step at which training begins or resumes.
    flow: also keep where the gradients come from, at the price of another forward and backward.
    snapshots: [(step, {path: report.LayerView})], in memory. losses: (steps, values). flows: [(step, Flow)]."""

    def __init__(
        self,
        model: "Module",
        probe: Tensor | Sequence[Any],
        every: int = 25,
        loss: Callable[..., Tensor] = returned_loss,
        start: int = 0,
        flow: bool = False,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        if flow and isinstance(probe, Tensor):
            raise ValueError("flow=True needs a probe with a loss: the arguments of loss(model, *probe)")
        self.model, self.every, self.loss, self._with_flow = model, every, loss, flow
        self.probe: Any = probe
        self.snapshots, self.losses, self.flows = [], ([], []), []
        self._keep(start)

    def __call__(self, step: int, loss: float | Tensor) -> None:
        """To be called after each step, which are counted from 1, with its loss, a number or a Tensor."""
        self.losses[0].append(step)
        self.losses[1].append(loss.item() if isinstance(loss, Tensor) else float(loss))
        if step % self.every == 0:
            self._keep(step)

    def series(self, stat: str) -> tuple[list[int], dict[str, Array]]:
        """(steps, {path: (snapshots, heads)}) of a statistic, by its name in study.STATS. Raises KeyError for
        another."""
        views = [view for _, layers in self.snapshots for view in layers.values()]
        if any(stat not in view.stats for view in views):
            raise UnknownName(unknown("statistic", stat, views[0].stats))
        paths = self.snapshots[0][1]
        return self._steps, {p: np.array([layers[p].stats[stat] for _, layers in self.snapshots]) for p in paths}

    def edges(self, source: Any, target: Any) -> tuple[list[int], dict[str, Array]]:
        """(steps, {input: (snapshots,)}) of the edges between two nodes, as in Flow.edge. Raises ValueError without
        flow=True, and KeyError for an unknown node."""
        if not self.flows:
            raise ValueError("no flow was kept: make the Recorder with flow=True")
        each = [flow.edge(source, target) for _, flow in self.flows]
        return self._steps, {p: np.array([edges[p] for edges in each]) for p in each[0]}

    @property
    def _steps(self):
        return [step for step, _ in self.snapshots]

    def to_html(
        self,
        path: FilePath,
        tokens: Any = None,
        title: str = "Attention heads in training",
        vocab: Any = None,
        limit: int = report.LIMIT,
    ) -> Path:
        """Write all snapshots as one HTML file with a scrubber through training; returns its path. tokens, vocab and
        limit: as in HeadTrace.to_html."""
        return report.write(
            path,
            self.snapshots,
            title=title,
            tokens=self._trace.labels(tokens, vocab),
            losses=self.losses,
            flows=[flow for _, flow in self.flows] or None,
            limit=limit,
        )

    def _keep(self, step):
        with undisturbed(self.model), trace_heads(self.model, grads=not isinstance(self.probe, Tensor)) as trace:
            if isinstance(self.probe, Tensor):
                self.model(self.probe)
            else:
                self._backward()
        table = trace.table()
        self.snapshots.append((step, {path: trace[path].view(table) for path in trace}))
        self._trace = trace
        if self._with_flow:
            self.flows.append((step, flow(self.model, self.probe, self.loss)))

    def _backward(self):
        """A forward, and a backward that ends at the first layer's heads, for the trace to keep."""
        heads = []  # q, k and v of all layers
        layers = attention_layers(self.model).values()
        handles = [
            layer.register_head_hook(p, lambda _, x: heads.append(x), last=True) for layer in layers for p in "qkv"
        ]
        try:
            with enable_grad():
                loss = self.loss(self.model, *self.probe)
        finally:
            for handle in handles:
                handle.remove()
        if heads := [x for x in heads if x.requires_grad]:
            grad(loss, heads, allow_unused=True)
