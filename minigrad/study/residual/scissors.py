"""A gradient that does not flow back from one reader of a residual stream to one of its writers.

What a reader gets is a sum of what was written before it. Of one write t it gets t without its gradient, so that every
value is the model's own, and all that changes is which gradients come back. Training with such a cut shows whether a
part learns by way of that gradient.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd import is_grad_enabled
from ...base.errors import UnknownName, unknown
from ...nn import Dropout
from ...nn import functional as F
from ...ops import public as ops
from ...tensor import tensor
from ..layers import attention_layers, path_of
from .edges import Node
from .streams import streams

if TYPE_CHECKING:
    from ...nn.module import Module

PARTS = "q", "k", "v"


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

    Raises TypeError or ValueError for a model whose stream is not known (see flow), runs through norms after its parts,
    or has dropout, recompute or no such parts; KeyError for a name that there is not."""
    if any(isinstance(module, Dropout) and module.p for module in model.modules()):
        raise ValueError("cut_gradient needs a model without dropout: set p of its Dropouts to 0")
    if getattr(getattr(model, "config", None), "recompute", False):
        raise ValueError("cut_gradient needs recompute=False: a block that runs again has writes of its own")
    with ExitStack() as stack:
        _Scissors(model, source, target, part, factor).hook(model, lambda handle: stack.callback(handle.remove))
        yield


class _Scissors:
    """The hooks of one cut, and what a forward has left of it: the write, and the stream that the target reads."""

    def __init__(self, model, source, target, part, factor):
        self.factor = factor
        self.forwards = 0
        self.write: Any = None
        self.read: Any = None
        self.source, self.target, self.part = _node(model, source), _node(model, target), part
        for stream in streams(model):
            order = {part.path: i for i, part in enumerate(stream.parts)}
            begins = ("input",) if stream.embedding is None else ("tokens", stream.rest)
            first = {stream.named(name): -1 for name in begins}
            known = [*first, *order], [*order, stream.named(stream.end)]
            if self.source.path in known[0] and self.target.path in known[1]:
                break
        else:
            wrong = self.source.path if self.source.path not in known[0] else self.target.path
            raise UnknownName(unknown("part of one stream", wrong, dict.fromkeys(known[0] + known[1])))
        if any(part.after is not None for part in stream.parts):
            raise ValueError("cut_gradient needs norms before the parts of a stream, not after them")
        begin = (first | order)[self.source.path]
        end = order.get(self.target.path, len(order))
        if begin >= end:
            raise ValueError(f"{self.source} does not come before {self.target}")
        self.stream = stream
        self.writer = stream.parts[begin] if begin >= 0 else None
        self.reader: Any = stream.parts[end] if end < len(order) else None
        of_heads = self.reader is not None and self.reader.is_attention
        if part not in (None, *PARTS) or (part is not None and not of_heads):
            raise ValueError(f"part must be 'q', 'k' or 'v', of attention, or None; got {part!r} of {self.target}")
        for node, at in ((self.source, self.writer), (self.target, self.reader)):
            heads = at.first.num_heads if at is not None and at.is_attention else 0
            if node.head is not None and node.head not in range(heads):
                raise UnknownName(f"{node.path} has no head {node.head}")

    # -- what was written

    def hook(self, model, keep):
        """Register all hooks; keep(handle) has them removed."""
        stream, source = self.stream, self.source
        if self.writer is None and stream.embedding is None:
            keep(stream.body[0].register_forward_pre_hook(lambda module, args: self._wrote(args[0])))
        elif self.writer is None:
            keep(stream.embedding.register_forward_hook(lambda module, args, y: self._wrote(y)))
            if source.path != stream.named("tokens"):
                keep(stream.body[0].register_forward_pre_hook(self._wrote_the_rest))
        elif source.head is not None:
            keep(self.writer.last.register_head_hook("z", self._wrote_of_head, last=True))
        else:
            keep(self.writer.last.register_forward_hook(lambda module, args, y: self._wrote(y)))
        self._hook_reader(keep)
        keep(model.register_forward_hook(self._forget))

    def _forget(self, module, args, y):
        self.write = self.read = None  # else they would keep the graph of the forward

    def _wrote(self, y):
        self.write = y[0] if isinstance(y, tuple) else y
        self.forwards += is_grad_enabled()

    def _wrote_the_rest(self, module, args):
        self.write = args[0] - self.write  # what is put in but for the tokens

    def _wrote_of_head(self, layer, z):
        h, d = int(self.source.head or 0), layer.d_v
        z = z[:, h] if layer.head_gates is None else z[:, h] * layer.head_gates[h]  # (B, T, d_v)
        self._wrote(F.linear(z, layer.out_proj.weight[:, h * d : (h + 1) * d]))  # (B, T, C)

    # -- and who reads it

    def _cut(self, x):
        """x, a stream (B, T, C), of which the write has less gradient, or none."""
        if not is_grad_enabled():
            return x
        if self.write is None:
            raise RuntimeError(f"{self.source} did not run before {self.target}")
        factor = self.factor
        if callable(factor):
            factor = factor(self.forwards - 1)
        return x - (1 - factor) * (self.write - self.write.detach())

    def _hook_reader(self, keep):
        def cut_first(module, args):
            x = self._cut(args[0])
            return tuple(x if arg is args[0] else arg for arg in args)

        def look(module, args):
            self.read = args[0]

        reader, norm = self.reader, self.stream.norm if self.reader is None else self.reader.before
        if reader is None and norm is None:
            last = self.stream.body[-1]
            keep(last.register_forward_hook(lambda module, args, y: self._cut(y)))
        elif reader is None or (self.part is None and self.target.head is None):
            keep((reader.first if norm is None else norm).register_forward_pre_hook(cut_first))
        else:
            keep((reader.first if norm is None else norm).register_forward_pre_hook(look))
            for part in PARTS if self.part is None else self.part:
                heads = self.target.head is not None
                keep(reader.first.register_head_hook(part if heads else f"x_{part}", self._replaced(part, norm, heads)))

    def _replaced(self, part, norm, of_head):
        """A head hook: for what all heads read, or for the part of one head, the same value with another gradient."""

        def hook(layer, x):
            if not is_grad_enabled():
                return None
            change = self._made(layer, norm, self._cut(self.read), part, of_head)
            change = change - self._made(layer, norm, self.read, part, of_head)  # 0, but not its gradient
            if of_head:
                this = np.arange(layer.num_heads).reshape(-1, 1, 1) == self.target.head
                change = ops.where(tensor(this, device=x.device), change, 0.0)
            return x + change  # and not in x's place, since another cut may have changed x

        return hook

    def _made(self, layer, norm, stream, part, of_head):
        """What the layer makes of a stream: its input (B, T, C), or q, k or v of all heads (B, nh, T, d)."""
        x = stream if norm is None else norm.forward(stream)
        if not of_head:
            return x
        projected = layer._projected(x, x, x, 0)[PARTS.index(part)]
        return projected if part == "q" else layer._for_each_head(projected)


def _node(model: "Module", name: Any) -> Node:
    """A Node from itself or its name: "0.2", "blocks.0.attn head 2", "blocks.0.mlp", "tokens"."""
    if isinstance(name, Node):
        return name
    if of_layer := re.fullmatch(r"(\d+)\.(\d+)", name):
        return Node(path_of(int(of_layer[1]), attention_layers(model)), int(of_layer[2]))
    path, said, head = name.partition(" head ")
    return Node(path, int(head)) if said and head.isdecimal() else Node(name)
