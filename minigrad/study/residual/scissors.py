"""One edge of a residual stream is cut: in backward, or in forward.

What a reader gets is a sum of what was written before it. cut_gradient takes the gradient from one write t, so that
every value is the model's own, and all that changes is which gradients come back: training with such a cut shows
whether a part learns by way of that gradient. Scissors that take t itself show what the edge is worth to the loss.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd import is_grad_enabled
from ...base.errors import UnknownName, unknown
from ...nn import Dropout
from ...nn import functional as F
from ...nn.positions import rotary
from ...ops import public as ops
from ...tensor import tensor
from ..layers import attention_layers
from .edges import Node, node_of
from .streams import first_of, streams

if TYPE_CHECKING:
    from ...nn.module import Module

PARTS = "q", "k", "v"
BIAS = ".bias"  # of an attention layer, as a Node


@contextmanager
def cut_gradient(
    model: "Module",
    source: Node | str,
    target: Node | str,
    part: str | None = None,
    factor: float | Callable[[int], float] = 0.0,
) -> Iterator[None]:
    """Inside the with, no gradient flows from `target` to `source` through the residual stream between them; all values
    stay as they are.

    source: a head ("0.2": head 2 of attention layer 0; "blocks.0.attn head 2"), an attention layer or an MLP by its
    path, "tokens", "positions", or "input" where there is no embedding. target: a head, a layer or an MLP that comes
    later, or "logits" ("output" of an nn.TransformerEncoder). part: "q", "k" or "v" of a head or an attention layer;
    None: all of it. The names are those of study.flow. factor: what the gradient is multiplied by; or a function that
    gives it, of the number of forwards with gradients since the with began.

    Only the direct path is cut: what flows through parts between the two still does. A layer of which a head or a part
    is named takes the batched form of attention, whose values agree with the fused form's to rounding.

    Raises TypeError or ValueError for a model whose stream is not known (see flow), or has dropout or no such
    parts; KeyError for an unknown name."""
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

    begin, end = (node_of(name, attention_layers(model)) for name in (source, target))
    with Scissors(streams(model), begin, end, part, without_gradient).hooked(model):
        yield


class Scissors:
    """Cuts one edge, from the Node `source` to the Node `target` by its `part`, in the `found` Streams of a model.

    taken(write): what the target's own copy of the stream lacks, a Tensor like write, or None for nothing."""

    def __init__(self, found, source, target, part, taken):
        self.source, self.target, self.part, self.taken = source, target, part, taken
        self.gap: Any = None  # what the target's copy lacks, as far as the forward has come,
        self.read: Any = None  # and the stream that the target reads
        self.ran = False  # whether the source has written in this forward
        writer = source.path.removesuffix(BIAS)
        for stream in found:
            order = {part.path: i for i, part in enumerate(stream.parts)}
            begins = ("input",) if stream.embedding is None else ("tokens", stream.rest)
            first = {stream.named(name): -1 for name in begins}
            readers = {part.path: part for part in (*stream.parts, *stream.readers)}
            known = [*first, *order], [*readers, stream.named(stream.end)]
            if writer in known[0] and target.path in known[1]:
                break
        else:
            wrong = source.path if writer not in known[0] else target.path
            raise UnknownName(unknown("part of one stream", wrong, dict.fromkeys(known[0] + known[1])))
        begin, end = (first | order)[writer], order.get(target.path, len(order))
        self.reader: Any = readers.get(target.path)
        if begin >= end - getattr(self.reader, "behind", 0):
            raise ValueError(f"{source} does not come before {target}")
        self.stream = stream
        self.writer = stream.parts[begin] if begin >= 0 else None
        self.between = [part.after for part in stream.parts[max(begin, 0) : end] if part.after is not None]
        inputs = self.reader.inputs if self.reader is not None and self.reader.is_attention else ""
        if part is not None and (part not in PARTS or part not in inputs):
            raise ValueError(f"part must be 'q', 'k' or 'v', of attention, or None; got {part!r} of {target}")
        for node, at in ((source, self.writer), (target, self.reader)):
            heads = at.first.num_heads if at is not None and at.is_attention else 0
            if node.head is not None and node.head not in range(heads):
                raise UnknownName(f"{node.path} has no head {node.head}")

    @contextmanager
    def hooked(self, model):
        """Within the with-block, forwards of the model are cut."""
        with ExitStack() as stack:

            def keep(handle):
                stack.callback(handle.remove)

            self._hook_writer(keep)
            for norm in self.between:
                keep(norm.register_forward_hook(self._passed))
            self._hook_reader(keep)
            keep(model.register_forward_hook(self._forget))
            yield

    def _forget(self, module, args, y):
        self.gap, self.read, self.ran = None, None, False  # else they would keep the graph of the forward

    # -- what was written

    def _hook_writer(self, keep):
        stream, source = self.stream, self.source
        if self.writer is None and stream.embedding is None:
            keep(stream.body[0].register_forward_pre_hook(lambda module, args: self._wrote(args[0])))
        elif self.writer is None and source.path == stream.named("tokens"):
            keep(stream.embedding.register_forward_hook(lambda module, args, y: self._wrote(y)))
        elif self.writer is None:
            keep(stream.embedding.register_forward_hook(self._look_at_tokens))
            keep(stream.body[0].register_forward_pre_hook(lambda module, args: self._wrote(args[0] - self.read)))
        elif source.head is not None:
            keep(self.writer.last.register_head_hook("z", self._wrote_of_head, last=True))
        elif source.path.endswith(BIAS):
            keep(self.writer.last.register_forward_hook(self._wrote_bias))
        else:
            keep(self.writer.last.register_forward_hook(lambda module, args, y: self._wrote(y)))

    def _look_at_tokens(self, module, args, y):
        self.read = y

    def _wrote(self, y):
        y = y[0] if isinstance(y, tuple) else y
        if self.writer is not None and not np.array_equal(self.writer.scale, 1.0):
            y = y * tensor(self.writer.scale, dtype=y.dtype, device=y.device)
        self.gap, self.ran = self.taken(y), True

    def _wrote_bias(self, layer, args, y):
        self._wrote(layer.out_proj.bias.expand(*(y[0] if isinstance(y, tuple) else y).shape))

    def _wrote_of_head(self, layer, z):
        h, d = int(self.source.head or 0), layer.d_v
        z = z[:, h] if layer.head_gates is None else z[:, h] * layer.head_gates[h]  # (B, T, d_v)
        self._wrote(F.linear(z, layer.out_proj.weight[:, h * d : (h + 1) * d]))  # (B, T, C)

    def _passed(self, norm, args, y):
        if self.gap is not None:  # a norm on the stream itself
            self.gap = y - norm.forward(args[0] - self.gap)

    # -- and who reads it

    def _cut(self, x):
        """x, a stream (B, T, C), without what the target lacks."""
        if not self.ran:
            raise RuntimeError(f"{self.source} did not run before {self.target}")
        return x if self.gap is None else x - self.gap

    def _hook_reader(self, keep):
        def cut_first(module, args):
            x = self._cut(first_of(module, args))
            return tuple(x if arg is args[0] else arg for arg in args)

        def look(module, args):
            self.read = first_of(module, args)

        def cut_last(module, args, y):
            return (self._cut(y[0]), *y[1:]) if isinstance(y, tuple) else self._cut(y)

        stream, reader, part = self.stream, self.reader, self.part
        if reader is None:  # all that comes out at the end, whatever reads it
            keep(stream.body[-1].register_forward_hook(cut_last))
            return
        within, norm = reader in stream.parts, reader.before  # within, or else it reads what comes out at the end
        at: Any = norm or (reader.first if within else None)  # which is called with what is read
        shared = norm is not None and sum(each.before is norm for each in stream.parts) > 1
        if within and part is None and self.target.head is None and not shared:
            keep(at.register_forward_pre_hook(cut_first))
            return
        if at is None:
            keep(stream.body[-1].register_forward_hook(lambda module, args, y: look(module, [y])))
        else:
            keep(at.register_forward_pre_hook(look))
        if not reader.is_attention:  # a norm that others read through too
            keep(reader.first.register_forward_pre_hook(lambda module, args: (self._change(norm) + args[0], *args[1:])))
            return
        for p in reader.inputs if part is None else part:
            point = f"x_{p}" if self.target.head is None else p
            keep(reader.first.register_head_hook(point, self._changed(p, norm)))

    def _change(self, norm):
        """How what the target reads through a norm differs from what it is without a cut: (B, T, C), or 0."""
        cut = self._cut(self.read)
        if self.gap is None:
            return 0.0
        return -self.gap if norm is None else norm.forward(cut) - norm.forward(self.read)

    def _changed(self, part, norm):
        """A head hook that changes what all heads read, or what one head makes of it. The change is added, and not put
        in x's place, since another cut may have changed x."""

        def hook(layer, x):
            change, head = self._change(norm), self.target.head  # (B, T, C)
            if self.gap is None:
                return None
            if head is None:
                return x + change
            i, d = PARTS.index(part), layer.d_v if part == "v" else layer.d_k
            n = head if part == "q" else layer.kv_of_head[head]
            change = F.linear(change, layer.weights()[i][n * d : (n + 1) * d])[..., None, :, :]  # (B, 1, T, d)
            if layer.positions == "rotary" and part != "v":
                change = rotary(change)
            this = tensor(np.arange(layer.num_heads).reshape(-1, 1, 1) == head, device=x.device)
            return x + ops.where(this, change, 0.0)

        return hook
