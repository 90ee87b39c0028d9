"""The residual stream of a model: what is written into it, what reads it, and which norms lie between.

The stream begins with what the model puts in, such as embeddings. Each part, an attention layer or an MLP, reads the
stream, perhaps through a norm of its own, and adds its output to it. The model's output is read at the end.

The parts of nn.GPT and of AttentionOnly are known. Blocks of your own, in an nn.ModuleList or an nn.Sequential, declare
what they add to the stream: the name of each part, in order, and of the norm that it reads through, or None:

    class Block(nn.Module):
        study_parts = {"attn": "ln_1", "mlp": "ln_2"}  # x = x + attn(ln_1(x)), and then x + mlp(ln_2(x))

flow.py follows gradients along the stream, and cut.py cuts it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..autograd import enable_grad
from ..nn import Embedding, LayerNorm, Module, ModuleList, MultiheadAttention, RMSNorm, Sequential
from ..nn.gpt.model import Block
from ..nn.utils import evaluating
from ..tensor import grad, zeros
from .importance import check_batch, value_of
from .layers import as_float64, attention_layers
from .names import Node, layer_names
from .trace import trace_heads

# ------------------------------------------------------------------------------------------------ the parts of a model


@dataclass(eq=False)
class Part:
    """An attention layer or an MLP, and the norm that it reads the stream through, or None.

    layer: what the names of its heads begin with, if it is an attention layer."""

    path: str
    module: Module
    norm: Module | None
    layer: str = ""

    @property
    def is_attention(self):
        return isinstance(self.module, MultiheadAttention)

    @property
    def reads_at(self):
        """The module that is called with the stream: the norm, or the part itself where there is none."""
        return self.module if self.norm is None else self.norm

    def head(self, number):
        return Node(self.path, number, self.layer)


@dataclass(eq=False)
class Stream:
    """A model's residual stream: the blocks that it runs through, their parts in order, and the model's first
    nn.Embedding of the stream's width."""

    body: list[Module]
    parts: list[Part]
    embedding: Module | None

    @property
    def start(self):
        """The key, in a Pass, of the stream as it enters the first block."""
        return self.body[0], "in"

    @property
    def end(self):
        """The key, in a Pass, of the stream as it leaves the last block."""
        return self.body[-1], "out"


def stream_of(model):
    """Return the Stream of a Module: see the top of this file.

    Raises TypeError, which says what to do, if a block with attention does not declare its parts, if there are two
    lists of blocks, or if a norm is not nn.LayerNorm or nn.RMSNorm over the last dim; ValueError without attention."""
    layers = attention_layers(model)
    names = layer_names(layers)
    lists = {}  # {path of a list of blocks: {block: its parts}}, only of blocks that have parts
    for path, blocks in model.named_modules():
        if isinstance(blocks, (ModuleList, Sequential)):
            found = {block: _parts(block, f"{path}.{i}".removeprefix("."), names) for i, block in enumerate(blocks)}
            found = {block: parts for block, parts in found.items() if parts}
            if found:
                lists[path] = found
    parts = [part for found in lists.values() for of_block in found.values() for part in of_block]
    _check_parts(layers, parts)
    if len(lists) > 1:
        raise TypeError(
            f"a model of one residual stream is needed; this one has the lists of blocks {', '.join(lists)}"
        )
    (blocks,) = lists.values()
    C = next(part.module.embed_dim for part in parts if part.is_attention)
    embeddings = (m for m in model.modules() if isinstance(m, Embedding) and m.embedding_dim == C)
    return Stream(list(blocks), parts, next(embeddings, None))


def _parts(block, path, names):
    """The Parts of a block in the order in which they write; none for a Module that does not declare them."""
    declared = getattr(block, "study_parts", {"attn": "norm1", "mlp": "norm2"} if isinstance(block, Block) else {})
    parts = []
    for name, norm in declared.items():
        part = f"{path}.{name}"
        norm_module = None if norm is None else block.get_submodule(norm)
        parts.append(Part(part, block.get_submodule(name), norm_module, names.get(part, "")))
    return parts


def _check_parts(layers, parts):
    declared = {part.module for part in parts}
    for path, layer in layers.items():
        if layer not in declared:
            raise TypeError(
                f"the residual stream of {path or 'the layer'} is not known: the class of its block, in an "
                'nn.ModuleList or nn.Sequential, has to say study_parts = {"attn": "norm1", "mlp": "norm2"}, what the '
                "block adds to its stream and the norm that each part reads through"
            )
    for part in parts:
        norm = part.norm
        if norm is not None and (not isinstance(norm, (LayerNorm, RMSNorm)) or len(norm.normalized_shape) != 1):
            raise TypeError(f"a norm must be nn.LayerNorm or nn.RMSNorm over the last dim, got {norm}")


# ------------------------------------------------------------------------------------------------------------- one pass


@dataclass
class _Watched:
    """A place in the model at which a Pass keeps the stream. with_gradient: True if its gradient is kept too."""

    name: str
    with_gradient: bool


def _watched_places(stream):
    """{(module, "in" or "out"): _Watched}: where the stream begins and ends, and what its parts read and write."""
    places = {stream.start: _Watched("the model", True), stream.end: _Watched("the model", True)}
    for part in stream.parts:
        places.setdefault((part.reads_at, "in"), _Watched(part.path, False))
        places[part.module, "out"] = _Watched(part.path, True)
        if not part.is_attention:
            places[part.module, "in"] = _Watched(part.path, True)
    return places


class Write(NamedTuple):
    """Nodes add to the stream in one sequence.

    rows (nodes, T, C): what each adds. totals (nodes,): ⟨row, its gradient⟩ of each, over all positions."""

    nodes: list[Node]
    rows: np.ndarray
    totals: Any


class Read(NamedTuple):
    """Inputs of nodes read the stream in one sequence, through a norm or None.

    inputs: [(Node, "q", "k", "v" or "")]. x (T, C): the stream. G (inputs, T, C): the gradient of each input's own
    copy of the stream. sizes (inputs, T): how large G could be at each position if the norm projected nothing away;
    rounding errors are relative to that."""

    inputs: list[tuple[Node, str]]
    x: np.ndarray
    G: np.ndarray
    sizes: np.ndarray


def reading(node, p):
    """What an input of a node is called where all readers of the kind are added up: q, k, v, mlp or logits."""
    return p or ("logits" if node.path == "logits" else "mlp")


class Pass:
    """A forward and a backward of loss(model, *batch), and what they left of a Stream as arrays (B, T, C), float64.

    x: {(module, "in" or "out"): what the module was called with, or returned}. dx: the gradients of some of these.
    trace: a HeadTrace of all heads. loss: a float. dtype: what the model computes in. Frozen parameters make no
    difference, and no gradient of a parameter is computed."""

    def __init__(self, model, stream, batch, loss):
        check_batch(batch)
        self.x, self.dx, self.dtype = {}, {}, None
        self._added = {}  # {key of x: zeros that were added to x there, and whose gradient is that of x}
        self.stream, self._watched = stream, _watched_places(stream)
        handles = [module.register_forward_pre_hook(self._enter) for module, side in self._watched if side == "in"]
        handles += [module.register_forward_hook(self._leave) for module, side in self._watched if side == "out"]
        if stream.embedding is not None:
            handles.append(stream.embedding.register_forward_hook(self._leave))
        try:
            with evaluating(model), trace_heads(model) as self.trace, enable_grad():
                value = value_of(loss, model, batch)
                if not value.requires_grad:
                    raise ValueError("the loss does not depend on the residual stream, or requires no gradient")
                gradients = grad(value, list(self._added.values()), allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        for key, place in self._watched.items():
            if key not in self.x:
                raise ValueError(f"{place.name} did not run for this loss")
        for key, g in zip(self._added, gradients):
            self.dx[key] = np.zeros_like(self.x[key]) if g is None else as_float64(g)
        self.loss = value.item()

    def _kept(self, key, x):
        """Keep x; return it, with zeros added if its gradient is wanted."""
        if key in self.x:
            raise ValueError("a layer ran twice: once is needed, to tell its gradients apart")
        self.x[key], self.dtype = as_float64(x), x.dtype
        if key not in self._watched or not self._watched[key].with_gradient:
            return x
        self._added[key] = zeros(*x.shape, dtype=x.dtype, device=x.device, requires_grad=True)
        return x + self._added[key]

    def _enter(self, module, args):
        if not args:
            raise ValueError(f"{type(module).__name__} was called by keyword: its input has to be the first argument")
        return (self._kept((module, "in"), args[0]), *args[1:])

    def _leave(self, module, args, y):
        if module is self.stream.embedding and self.stream.start in self.x:
            return None  # the loss may use the table again, as a tied head does
        return (self._kept((module, "out"), y[0]), *y[1:]) if isinstance(y, tuple) else self._kept((module, "out"), y)

    def call(self, part):
        """The LayerTrace of an attention layer."""
        calls = self.trace.calls(part.path)
        if len(calls) != 1:
            raise ValueError(f"{part.path} ran {len(calls)} times: once is needed")
        return calls[0]

    def beginning(self):
        """{name: (B, T, C)}: what the stream begins with, "tokens" and "positions" or "input"."""
        x, tokens = self.x[self.stream.start], self.x.get((self.stream.embedding, "out"))
        if tokens is None or tokens.shape != x.shape:
            return {"input": x}
        return {"tokens": tokens} | ({} if np.array_equal(tokens, x) else {"positions": x - tokens})

    def events(self, b: int) -> Iterator[Write | Read]:
        """Yield what happens to the stream in sequence b, in order."""
        stream, dx = self.stream, self.dx[self.stream.start][b]
        for name, y in self.beginning().items():
            yield Write([Node(name)], y[b][None], [(y[b] * dx).sum()])
        for part in stream.parts:
            if part.is_attention:
                yield from self._attention_reads(part, b)
                yield from self._attention_writes(part, b)
            else:
                inside = part.module, "in"
                yield self._read([(Node(part.path), "")], part, b, self.dx[inside][b][None])
                y, dy = self.x[part.module, "out"][b], self.dx[part.module, "out"][b]
                yield Write([Node(part.path)], y[None], [(y * dy).sum()])
        x, dx = self.x[stream.end][b], self.dx[stream.end][b][None]
        yield Read([(Node("logits"), "")], x, dx, np.linalg.norm(dx, axis=-1))

    def _read(self, inputs, part, b, dy):
        """A Read by a part. dy (inputs, T, C): gradients behind its norm."""
        x = self.x[part.reads_at, "in"][b]
        if part.norm is None:
            return Read(inputs, x, dy, np.linalg.norm(dy, axis=-1))
        G = back_through_norm(part.norm, x, dy, self.dtype)
        return Read(inputs, x, G, largest_back_through_norm(part.norm, x, dy, self.dtype))

    def _attention_reads(self, part, b):
        """Yield the Reads of an attention layer's heads; none if the loss does not depend on the layer."""
        call = self.call(part)
        for p in "qkv" if call.has_grads else "":
            W = getattr(call, f"W_{p.upper()}")  # (n, C, d)
            dy = call.projection_grad(p)[b] @ W.swapaxes(1, 2)  # (n, T, C)
            yield self._read([(part.head(h), p) for h in call.heads], part, b, dy)

    def _attention_writes(self, part, b):
        """Yield the Writes of an attention layer's heads, and of its bias."""
        call, bias, dy = self.call(part), part.module.out_proj.bias, self.dx[part.module, "out"][b]
        z, dz = as_float64(call.z[b]), call.z_grad[b] if call.has_grads else 0.0
        yield Write([part.head(h) for h in call.heads], z @ call.W_O, (z * dz).sum((1, 2)))
        if bias is not None:
            y = np.broadcast_to(as_float64(bias), dy.shape)
            yield Write([Node(f"{part.path}.bias")], y[None], [(y * dy).sum()])


# ---------------------------------------------------------------------------------------------------------------- norms


def back_through_norm(norm, x, dy, dtype):
    """The gradient dx of y = norm(x), from x (n, C) and dy (…, n, C), float64: (I - x̂ x̂ᵀ / C) dy / σ, for a LayerNorm
    after centering. dtype: what the model computes in."""
    dy, sigma = _weight(norm) * dy, _sigma(norm, x, dtype)
    if isinstance(norm, LayerNorm):
        x, dy = (a - a.mean(-1, keepdims=True) for a in (x, dy))
    xhat = x / sigma
    return (dy - xhat * (dy * xhat).mean(-1, keepdims=True)) / sigma


def largest_back_through_norm(norm, x, dy, dtype):
    """How large dx could be if the norm projected nothing away: Euclidean norms over the last dim, (…, n)."""
    return np.linalg.norm(_weight(norm) * dy, axis=-1) / _sigma(norm, x, dtype)[..., 0]


def _weight(norm):
    return 1.0 if norm.weight is None else as_float64(norm.weight)


def _sigma(norm, x, dtype):
    """The number by which a norm divides each row of x (…, C): (…, 1)."""
    eps = np.finfo(dtype).eps if norm.eps is None else norm.eps
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)
