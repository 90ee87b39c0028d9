"""The residual stream of a model: what is written into it, what reads it, and where norms lie.

It begins with what is put in, such as embeddings. Each part, an attention layer or an MLP, reads it, perhaps
through a norm of its own, and adds to it. What comes out is read at the end.

nn.GPT and AttentionOnly are known. Blocks of your own, in an nn.ModuleList or an nn.Sequential, say what they add to
the stream, part by part, each with the norm that it reads through, or None:

    class Block(nn.Module):
        study_parts = {"attn": "ln_1", "mlp": "ln_2"}  # x = x + attn(ln_1(x)), and then x + mlp(ln_2(x))

flow.py follows gradients along the stream, and cut.py cuts it."""

import re
from dataclasses import dataclass

import numpy as np

from ..autograd import enable_grad
from ..nn import Embedding, LayerNorm, Module, ModuleList, MultiheadAttention, RMSNorm, Sequential
from ..nn.gpt.model import Block
from ..nn.utils import evaluating
from ..tensor import grad, zeros
from .importance import check_batch, value_of
from .layers import as_float64, attention_layers, path_of
from .trace import trace_heads


@dataclass(frozen=True)
class Node:
    """What writes into the stream or reads it. head: its number, or None if it is not a head."""

    path: str
    head: int | None = None

    def __str__(self) -> str:
        return self.path if self.head is None else f"{self.path} head {self.head}"


def node_of(name, layers):
    """A Node from itself, from (path, head), or from a name: "0.2" (head 2 of attention layer 0), "blocks.0.attn head
    2", "blocks.0.mlp", "tokens". An attention layer, {path: …} of `layers`, may be given by its number."""
    if isinstance(name, Node):
        return name
    path, head = name if isinstance(name, tuple) else (name, None)
    if isinstance(path, str) and head is None:
        if found := re.fullmatch(r"(\d+)\.(\d+)", path):
            path, head = int(found[1]), int(found[2])
        elif found := re.fullmatch(r"(.*) head (\d+)", path):
            path, head = found[1], int(found[2])
    return Node(path if isinstance(path, str) else path_of(path, layers), head)


@dataclass(eq=False)
class Part:
    """An attention layer or an MLP, and the norm that it reads through."""

    path: str
    module: Module
    norm: Module | None

    @property
    def is_attention(self):
        return isinstance(self.module, MultiheadAttention)

    @property
    def reads_at(self):
        """The module that is called with the stream as it is read."""
        return self.module if self.norm is None else self.norm


@dataclass(eq=False)
class Stream:
    """A model's residual stream: the blocks that it runs through, their parts in order, and the model's first
    nn.Embedding of its width."""

    body: list[Module]
    parts: list[Part]
    embedding: Module | None


def stream_of(model):
    """The Stream of a Module: see the top of this file. Raises TypeError, which says what to do, for attention in
    blocks that do not say what their parts are, for two lists of blocks, and for other norms than nn.LayerNorm and
    nn.RMSNorm over the last dim; ValueError without attention."""
    rows = {}  # {path of a list of blocks: {block: its parts}}, blocks without parts left out
    for path, row in model.named_modules():
        if isinstance(row, (ModuleList, Sequential)):
            found = {block: _parts(block, f"{path}.{i}".removeprefix(".")) for i, block in enumerate(row)}
            if found := {block: parts for block, parts in found.items() if parts}:
                rows[path] = found
    parts = [part for found in rows.values() for each in found.values() for part in each]
    _check(model, parts)
    if len(rows) > 1:
        raise TypeError(f"a model of one residual stream is needed; this one has the lists of blocks {', '.join(rows)}")
    (blocks,) = rows.values()
    C = next(part.module.embed_dim for part in parts if part.is_attention)
    embeddings = (m for m in model.modules() if isinstance(m, Embedding) and m.embedding_dim == C)
    return Stream(list(blocks), parts, next(embeddings, None))


def _parts(block, path):
    """The Parts of a block in the order in which they write; none for a Module that does not say which they are."""
    declared = getattr(block, "study_parts", {"attn": "norm1", "mlp": "norm2"} if isinstance(block, Block) else {})
    return [
        Part(f"{path}.{name}", block.get_submodule(name), norm and block.get_submodule(norm))
        for name, norm in declared.items()
    ]


def _check(model, parts):
    for path, layer in attention_layers(model).items():
        if not any(part.module is layer for part in parts):
            raise TypeError(
                f"the residual stream of {path or 'the layer'} is not known: the class of its block, in an "
                'nn.ModuleList or nn.Sequential, has to say study_parts = {"attn": "norm1", "mlp": "norm2"}, what the '
                "block adds to its stream and the norm that each part reads through"
            )
    for part in parts:
        norm = part.norm
        if norm is not None and (not isinstance(norm, (LayerNorm, RMSNorm)) or len(norm.normalized_shape) != 1):
            raise TypeError(f"a norm must be nn.LayerNorm or nn.RMSNorm over the last dim, got {norm}")


def watched(stream):
    """{(module, side "in" or "out"): (is the gradient there needed?, its name)}: where the stream begins and ends, and
    what its parts read and write."""
    ways = {(stream.body[0], "in"): (True, "the model"), (stream.body[-1], "out"): (True, "the model")}
    for part in stream.parts:
        ways.setdefault((part.reads_at, "in"), (False, part.path))
        ways[part.module, "out"] = True, part.path
        if not part.is_attention:
            ways[part.module, "in"] = True, part.path
    return ways


class Pass:
    """What a forward and a backward of loss(model, *batch) left of its Stream, as arrays (B, T, C), float64.

    x: {(module, "in" or "out"): what it was called with, or returned}; dx: its gradient, of those that nobody else
    reads. trace: a HeadTrace of all heads. loss: a float. dtype: what the model computes in. It does not matter
    which parameters are frozen, and no gradient of theirs is computed."""

    def __init__(self, model, stream, batch, loss):
        check_batch(batch)
        self.x, self.dx, self.dtype = {}, {}, None
        self._taps = {}  # {(module, side): zeros added to x there, whose gradient is x's}
        self.stream, self._watched = stream, watched(stream)
        handles = [module.register_forward_pre_hook(self._enter) for module, side in self._watched if side == "in"]
        handles += [module.register_forward_hook(self._leave) for module, side in self._watched if side == "out"]
        if stream.embedding is not None:
            handles.append(stream.embedding.register_forward_hook(self._leave))
        try:
            with evaluating(model), trace_heads(model) as self.trace, enable_grad():
                value = value_of(loss, model, batch)
                if not value.requires_grad:
                    raise ValueError("the loss does not depend on the residual stream, or requires no gradient")
                gradients = grad(value, list(self._taps.values()), allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        for key, (_, name) in self._watched.items():
            if key not in self.x:
                raise ValueError(f"{name} did not run for this loss")
        for key, g in zip(self._taps, gradients):
            self.dx[key] = np.zeros_like(self.x[key]) if g is None else as_float64(g)
        self.loss = value.item()

    def _kept(self, key, x):
        """x, or x with zeros added to it."""
        if key in self.x:
            raise ValueError("a layer ran twice: once is needed, to tell its gradients apart")
        self.x[key], self.dtype = as_float64(x), x.dtype
        if key not in self._watched or not self._watched[key][0]:
            return x
        self._taps[key] = zeros(*x.shape, dtype=x.dtype, device=x.device, requires_grad=True)
        return x + self._taps[key]

    def _enter(self, module, args):
        if not args:
            raise ValueError(f"{type(module).__name__} was called by keyword: its input has to be the first argument")
        return (self._kept((module, "in"), args[0]), *args[1:])

    def _leave(self, module, args, y):
        if module is self.stream.embedding and (self.stream.body[0], "in") in self.x:
            return None  # a later look at the table, such as the loss may take
        return (self._kept((module, "out"), y[0]), *y[1:]) if isinstance(y, tuple) else self._kept((module, "out"), y)

    def call(self, part):
        """The LayerTrace of an attention layer."""
        calls = self.trace.calls(part.path)
        if len(calls) != 1:
            raise ValueError(f"{part.path} ran {len(calls)} times: once is needed")
        return calls[0]

    def put_in(self):
        """{name: (B, T, C)}: what the stream begins with."""
        x, tokens = self.x[self.stream.body[0], "in"], self.x.get((self.stream.embedding, "out"))
        if tokens is None or tokens.shape != x.shape:
            return {"input": x}
        return {"tokens": tokens} | ({} if np.array_equal(tokens, x) else {"positions": x - tokens})


# ---------------------------------------------------------------------------------------------------------------- norms


def back_through_norm(norm, x, dy, dtype):
    """dx of y = norm(x), from x (n, C) and dy (…, n, C), float64: (I - x̂ x̂ᵀ / C) dy / σ, for a LayerNorm after
    centering. dtype: what the model computes in."""
    dy, sigma = _weight(norm) * dy, _divisor(norm, x, dtype)
    if isinstance(norm, LayerNorm):
        x, dy = (a - a.mean(-1, keepdims=True) for a in (x, dy))
    xhat = x / sigma
    return (dy - xhat * (dy * xhat).mean(-1, keepdims=True)) / sigma


def back_at_most(norm, x, dy, dtype):
    """How large dx could be, were nothing of it projected away: (…, n), Euclidean norms. Rounding is relative to it."""
    return np.linalg.norm(_weight(norm) * dy, axis=-1) / _divisor(norm, x, dtype)[..., 0]


def _weight(norm):
    return 1.0 if norm.weight is None else as_float64(norm.weight)


def _divisor(norm, x, dtype):
    """σ (…, 1), by which a norm divides the rows of x (…, C)."""
    eps = np.finfo(dtype).eps if norm.eps is None else norm.eps
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)
