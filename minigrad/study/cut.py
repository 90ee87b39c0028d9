"""Cuts of one edge of the residual stream: in backward, or in forward.

A reader gets the sum of what was written before it. cut_gradient takes the gradient away from one write: every value is
the model's own, and only the gradients that come back change. Training with such a cut shows whether a part learns from
that gradient. EdgeCut can also take the write itself away, which shows what the edge is worth to the loss.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import is_grad_enabled
from ..base.errors import UnknownName, unknown
from ..nn import Dropout
from ..nn import functional as F
from ..nn.positions import rotary
from ..ops import public as ops
from ..tensor import tensor
from .layers import attention_layers, numbers_of_heads
from .names import Node, node_of
from .stream import stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

INPUTS = "q", "k", "v"
BIAS = ".bias"  # the path of an attention layer's bias, as a Node, ends with this


@contextmanager
def cut_gradient(
    model: "Module",
    source: Node | str,
    target: Node | str,
    part: str | None = None,
    factor: float | Callable[[int], float] = 0.0,
) -> Iterator[None]:
    """Within the with-block, let no gradient flow from `target` to `source` through the residual stream between them.
    All values stay as they are.

    source: a head such as "0.2", an attention layer or an MLP by its path, "tokens", "positions", or "input", all that
    comes into the first block. target: a head, a layer or an MLP that comes later, or "logits". part: "q", "k" or "v"
    of a head or an attention layer; None: all of it. Names are those of study.flow. factor: what the gradient is
    multiplied by; or a function that gives it for the number of forwards with gradients since the with-block began.

    Only the direct path is cut: gradients still flow through parts between the two. An attention layer that is named
    takes the batched form, whose values agree with the fused form's to rounding.

    Raises TypeError or ValueError for a model whose stream is not known (see flow), that has dropout, or that has no
    such parts; KeyError for an unknown name."""
    if any(isinstance(module, Dropout) and module.p for module in model.modules()):
        raise ValueError("cut_gradient needs a model without dropout: set p of its Dropouts to 0")
    forwards = 0

    def without_gradient(write):
        nonlocal forwards
        if not is_grad_enabled():
            return None
        kept = factor(forwards) if callable(factor) else factor
        forwards += 1
        return (1 - kept) * (write - write.detach())

    heads = numbers_of_heads(attention_layers(model))
    begin, end = node_of(source, heads), node_of(target, heads)
    with EdgeCut(stream_of(model), begin, end, part, without_gradient).hooked(model):
        yield


class EdgeCut:
    """Cuts one edge, from the Node `source` to the Node `target` by its input `part`, in the Stream of a model.

    removed(write): what is taken out of the target's own copy of the stream, a Tensor like write, or None for
    nothing."""

    def __init__(self, stream, source, target, part, removed):
        self.stream, self.source, self.target, self.removed = stream, source, target, removed
        self.missing: Any = None  # the part of the stream that the target's copy lacks, in this forward
        self.read: Any = None  # the stream that the target reads, in this forward
        self.has_written = False  # True once the source has written in this forward
        writer = source.path.removesuffix(BIAS)
        begins = ["input", *(() if stream.embedding is None else ("tokens", "positions"))]
        order = dict.fromkeys(begins, -1) | {each.path: i for i, each in enumerate(stream.parts)}
        readers = {each.path: each for each in stream.parts}
        if writer not in order:
            raise UnknownName(unknown("part that writes into the stream", source.path, order))
        if target.path not in [*readers, "logits"]:
            raise UnknownName(unknown("part that reads the stream", target.path, [*readers, "logits"]))
        begin, end = order[writer], order.get(target.path, len(order))
        if begin >= end:
            raise ValueError(f"{source} does not come before {target}")
        self.reader = readers.get(target.path)
        self.writer = stream.parts[begin] if begin >= 0 else None
        inputs = INPUTS if self.reader is not None and self.reader.is_attention else ()
        if part is not None and part not in inputs:
            raise ValueError(f"part must be 'q', 'k' or 'v', of attention, or None; got {part!r} of {target}")
        self.inputs = inputs if part is None else (part,)
        for node, at in ((source, self.writer), (target, self.reader)):
            count = at.module.num_heads if at is not None and at.is_attention else 0
            if node.head is not None and node.head not in range(count):
                raise UnknownName(f"{node.path} has no head {node.head}")

    @contextmanager
    def hooked(self, model):
        """Within the with-block, the edge is cut in the model's forwards."""
        with ExitStack() as stack:
            handles = [*self._hook_writer(), *self._hook_reader(), model.register_forward_hook(self._forget)]
            for handle in handles:
                stack.callback(handle.remove)
            yield

    def _forget(self, module, args, y):
        """Drop what belongs to this forward, which would keep its graph alive."""
        self.missing, self.read, self.has_written = None, None, False

    # -- the writer

    def _hook_writer(self):
        stream, path = self.stream, self.source.path
        if self.writer is None:
            first_block, embedding = stream.body[0], stream.embedding
            if path == "input":
                return [first_block.register_forward_pre_hook(lambda module, args: self._wrote(args[0]))]
            if path == "tokens":
                return [embedding.register_forward_hook(lambda module, args, y: self._wrote(_tokens(y)))]
            # What is in the stream at the first block, less the tokens, are the positions.
            look = embedding.register_forward_hook(lambda module, args, y: self._look(_tokens(y)))
            return [look, first_block.register_forward_pre_hook(lambda module, args: self._wrote(args[0] - self.read))]
        layer = self.writer.module
        if self.source.head is not None:
            return [layer.register_head_hook("z", self._head_wrote, last=True)]
        if path.endswith(BIAS):
            return [layer.register_forward_hook(lambda layer, args, y: self._wrote(_bias_like(layer, y)))]
        return [layer.register_forward_hook(lambda module, args, y: self._wrote(_first(y)))]

    def _wrote(self, y):
        self.missing, self.has_written = self.removed(y), True

    def _head_wrote(self, layer, z):
        h, d = self.source.head, layer.d_v
        z = z[:, h] if layer.head_gates is None else z[:, h] * layer.head_gates[h]  # (B, T, d_v)
        self._wrote(F.linear(z, layer.out_proj.weight[:, h * d : (h + 1) * d]))  # (B, T, C)

    # -- the reader

    def _hook_reader(self):
        """Hooks that add to what the target reads the difference that the cut makes. The target's input is not
        replaced, since another cut may have changed it too."""
        stream, reader = self.stream, self.reader
        if reader is None:  # all that comes out at the end, whatever reads it
            return [stream.body[-1].register_forward_hook(self._leave)]
        look = reader.reads_at.register_forward_pre_hook(lambda module, args: self._look(args[0]))
        if not reader.is_attention:
            return [look, reader.module.register_forward_pre_hook(self._enter)]
        point = "x_{}" if self.target.head is None else "{}"
        return [look, *(reader.module.register_head_hook(point.format(p), self._changed(p)) for p in self.inputs)]

    def _look(self, x):
        self.read = x

    def _leave(self, module, args, y):
        if (change := self._change()) is not None:
            return (y[0] + change, *y[1:]) if isinstance(y, tuple) else y + change

    def _enter(self, module, args):
        if (change := self._change()) is not None:
            return args[0] + change, *args[1:]

    def _change(self):
        """What the cut adds to the target's input, behind its norm: (B, T, C), or None for nothing."""
        if not self.has_written:
            raise RuntimeError(f"{self.source} did not run before {self.target}")
        if self.missing is None:
            return None
        norm = None if self.reader is None else self.reader.norm
        if norm is None:
            return -self.missing
        return norm.forward(self.read - self.missing) - norm.forward(self.read)

    def _changed(self, p):
        """A head hook that changes the input of all heads, or q, k or v of one head."""

        def hook(layer, x):
            change, head = self._change(), self.target.head  # (B, T, C)
            if change is None or head is None:
                return None if change is None else x + change
            i, d = INPUTS.index(p), layer.d_v if p == "v" else layer.d_k
            n = head if p == "q" else layer.kv_of_head[head]
            change = F.linear(change, layer.weights()[i][n * d : (n + 1) * d])[..., None, :, :]  # (B, 1, T, d)
            if layer.positions == "rotary" and p != "v":
                change = rotary(change)
            is_target = tensor(np.arange(layer.num_heads).reshape(-1, 1, 1) == head, device=x.device)
            return x + ops.where(is_target, change, 0.0)

        return hook


def _first(y):
    return y[0] if isinstance(y, tuple) else y


def _tokens(y):
    if y.ndim != 3:
        raise ValueError("the model's first nn.Embedding is not that of its tokens: cut what comes from its 'input'")
    return y


def _bias_like(layer, y):
    return layer.out_proj.bias.expand(*_first(y).shape)
