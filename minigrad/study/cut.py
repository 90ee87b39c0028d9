"""Cut one edge between two parts of a model: its gradient only, or its value.

A part reads the sum of everything that was written into the residual stream before it. cut_gradient stops the gradient
that goes from one reader to one writer: all values stay, only gradients change. Training with such a cut shows whether
the writer learns from that gradient. EdgeCut can also subtract the value, as study.flow(method="cut") does, which shows
how the loss depends on the edge.
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
from ..tensor import Tensor, tensor
from .layers import alone, attention_layers, numbers_of_heads
from .names import Part, part_of
from .stream import check_first_forward, first_output, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

INPUTS = "q", "k", "v"
BIAS = ".bias"  # a Part that is an attention layer's output bias has the path of the layer and this


@contextmanager
def cut_gradient(
    model: "Module",
    source: Part | str,
    target: Part | str,
    input: str | None = None,
    factor: float | Callable[[int], float] = 0.0,
) -> Iterator[None]:
    """Within the with-block, let no gradient flow from `target` to `source` through the residual stream between them.
    All values stay as they are.

    source: a head such as "0.2", an attention layer or an MLP by its path, "tokens", "positions", or "input", all that
    comes into the first block. target: a head, a layer or an MLP that comes later, or "logits". input: "q", "k" or "v"
    of a head or an attention layer; None: all three. Names are as in study.flow. factor: the gradient is multiplied by
    this number, or by factor(n), where n counts the forwards with gradients since the with-block began, from 0.

    Only the direct path is cut: gradients still flow through parts between the two. If source or target is in an
    attention layer, the layer runs with impl="batched", whose values agree with those of "fused" to rounding.

    Raises TypeError or ValueError for a model whose stream is not known (see flow), that has dropout, or that has no
    such parts; KeyError for an unknown name. The first forward raises ValueError if the parts are not declared as they
    run."""
    if any(isinstance(module, Dropout) and module.p for module in model.modules()):
        raise ValueError("cut_gradient needs a model without dropout: set p of its Dropouts to 0")
    forwards = 0

    def without_gradient(write):
        """Return a Tensor of zeros whose gradient cancels (1 - factor) of the write's gradient."""
        nonlocal forwards
        if not is_grad_enabled():
            return None
        kept = factor(forwards) if callable(factor) else factor
        forwards += 1
        return (1 - kept) * (write - write.detach())

    heads = numbers_of_heads(attention_layers(model))
    begin, end, stream = part_of(source, heads), part_of(target, heads), stream_of(model)
    with alone(model), ExitStack() as stack:
        for handle in check_first_forward(model, stream):
            stack.callback(handle.remove)
        stack.enter_context(EdgeCut(stream, begin, end, input, without_gradient).hooked(model))
        yield


class EdgeCut:
    """A cut of one edge, from the Part `source` to `input` of the Part `target`, in the Stream of a model.

    removed: called with what the source writes, a Tensor (B, T, C). It returns a Tensor of the same shape that is
    subtracted from the target's own copy of the stream, or None to subtract nothing."""

    def __init__(self, stream, source, target, input, removed):
        self.stream, self.source, self.target, self.removed = stream, source, target, removed
        # The state of one forward:
        self.difference: Tensor | None = None  # the return value of removed()
        self.read: Any = None  # the stream that the target reads
        self.has_written = False  # True after the source has run
        writer = source.path.removesuffix(BIAS)
        starts = ["input", *(() if stream.embedding is None else ("tokens", "positions"))]
        order = dict.fromkeys(starts, -1) | {each.path: i for i, each in enumerate(stream.sublayers)}
        readers = {each.path: each for each in stream.sublayers}
        if writer not in order:
            raise UnknownName(unknown("part that writes into the stream", source.path, order))
        if target.path not in [*readers, "logits"]:
            raise UnknownName(unknown("part that reads the stream", target.path, [*readers, "logits"]))
        begin, end = order[writer], order.get(target.path, len(order))
        if begin >= end:
            raise ValueError(f"{source} does not come before {target}")
        self.reader = readers.get(target.path)
        self.writer = stream.sublayers[begin] if begin >= 0 else None
        inputs = INPUTS if self.reader is not None and self.reader.is_attention else ()
        if input is not None and input not in inputs:
            raise ValueError(f"input must be 'q', 'k' or 'v', of attention, or None; got {input!r} of {target}")
        self.inputs = inputs if input is None else (input,)
        for part, sublayer in ((source, self.writer), (target, self.reader)):
            count = sublayer.module.num_heads if sublayer is not None and sublayer.is_attention else 0
            if part.head is not None and part.head not in range(count):
                raise UnknownName(f"{part.path} has no head {part.head}")

    @contextmanager
    def hooked(self, model):
        """Within the with-block, the edge is cut in the model's forwards."""
        with ExitStack() as stack:
            handles = [*self._hook_writer(), *self._hook_reader(), model.register_forward_hook(self._forget)]
            for handle in handles:
                stack.callback(handle.remove)
            yield

    def _forget(self, module, args, y):
        """Drop the Tensors of this forward, which would keep its graph alive."""
        self.difference, self.read, self.has_written = None, None, False

    # -- the writer

    def _hook_writer(self):
        """Register hooks that call self._wrote with what the source writes. Return their handles."""
        stream, path = self.stream, self.source.path
        if self.writer is None:
            first_block, embedding = stream.blocks[0], stream.embedding
            if path == "input":
                return [first_block.register_forward_pre_hook(lambda module, args: self._wrote(args[0]))]
            if path == "tokens":
                return [embedding.register_forward_hook(lambda module, args, y: self._wrote(_tokens(y)))]
            # The positions are the stream at the first block, minus the tokens.
            keep_tokens = embedding.register_forward_hook(lambda module, args, y: self._keep_read(_tokens(y)))
            wrote = first_block.register_forward_pre_hook(lambda module, args: self._wrote(args[0] - self.read))
            return [keep_tokens, wrote]
        layer = self.writer.module
        if self.source.head is not None:
            return [layer.register_head_hook("z", self._head_wrote, last=True)]
        if path.endswith(BIAS):
            return [layer.register_forward_hook(lambda layer, args, y: self._wrote(_bias_like(layer, y)))]
        return [layer.register_forward_hook(lambda module, args, y: self._wrote(first_output(y)))]

    def _wrote(self, y):
        self.difference, self.has_written = self.removed(y), True

    def _head_wrote(self, layer, z):
        h, d = self.source.head, layer.d_v
        z = z[:, h] if layer.head_gates is None else z[:, h] * layer.head_gates[h]  # (B, T, d_v)
        self._wrote(F.linear(z, layer.out_proj.weight[:, h * d : (h + 1) * d]))  # (B, T, C)

    # -- the reader

    def _hook_reader(self):
        """Register hooks that add the change of this cut to what the target reads. Return their handles.

        They add to the target's input and do not replace it, since another cut may have changed it too."""
        stream, reader = self.stream, self.reader
        if reader is None:  # the target is "logits": the output of the last block, whatever reads it
            return [stream.blocks[-1].register_forward_hook(self._add_to_output)]
        keep_read = reader.entry.register_forward_pre_hook(lambda module, args: self._keep_read(args[0]))
        if not reader.is_attention:
            return [keep_read, reader.module.register_forward_pre_hook(self._add_to_argument)]
        point = "x_{}" if self.target.head is None else "{}"
        hooks = (reader.module.register_head_hook(point.format(p), self._head_hook(p)) for p in self.inputs)
        return [keep_read, *hooks]

    def _keep_read(self, x):
        self.read = x

    def _add_to_output(self, module, args, y):
        """A forward hook that adds the change of this cut to a module's output, the first of a tuple."""
        change = self._change()
        if change is None:
            return None
        return (y[0] + change, *y[1:]) if isinstance(y, tuple) else y + change

    def _add_to_argument(self, module, args):
        """A forward pre-hook that adds the change of this cut to a module's first argument."""
        change = self._change()
        return None if change is None else (args[0] + change, *args[1:])

    def _change(self):
        """What this cut adds to the output of the target's norm, or without one to its input: (B, T, C); None for
        nothing."""
        if not self.has_written:
            raise RuntimeError(f"{self.source} did not run before {self.target}")
        if self.difference is None:
            return None
        norm = None if self.reader is None else self.reader.norm
        if norm is None:
            return -self.difference
        return norm.forward(self.read - self.difference) - norm.forward(self.read)

    def _head_hook(self, p):
        """A head hook that adds the change to the layer's input p, or to q, k or v of the target's head."""

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


def _tokens(y):
    """Return y, the output of the first nn.Embedding. Raises ValueError unless it has the shape of tokens, (B, T,
    C)."""
    if y.ndim != 3:
        raise ValueError(
            "the model's first nn.Embedding does not embed its tokens, so 'tokens' and 'positions' are not known: "
            "use 'input' as the source"
        )
    return y


def _bias_like(layer, y):
    """Return the output bias of an attention layer, expanded to the shape of the layer's output."""
    return layer.out_proj.bias.expand(*first_output(y).shape)
