"""The residual streams of a model: what is written into them, what reads them, and where norms lie.

A stream begins with what is put in, such as embeddings. Each part, an attention layer or an MLP, reads it, through a
norm of its own if the norms come first, and adds to it. In the original transformer the stream itself passes through a
norm after each sum. What comes out is read at the end, or by the cross-attention of a decoder."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...nn import (
    GPT,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    ModuleDict,
    ModuleList,
    MultiheadAttention,
    RMSNorm,
    Sequential,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from ...tensor import zeros
from ..layers import as_float64, attention_layers
from ..models import AttentionOnly
from .blocks import NORMS, Part, parts_of

TWICE = "a layer ran twice: once is needed, to tell its gradients apart"
_LAYERS = TransformerEncoderLayer, TransformerDecoderLayer


@dataclass(eq=False)
class Stream:
    """A residual stream: its parts in order, and the norm through which it is read at the end."""

    name: str  # "" for the only one
    body: list[Module]  # the modules that it runs through
    parts: list[Part]
    norm: Module | None
    end: str = "output"  # what is read there
    embedding: Module | None = None
    rest: str = "positions"  # what is put in besides
    readers: list[Part] = field(default_factory=list)  # of other streams
    unembedding: Module | None = None  # an nn.Linear that seems to make the logits

    def named(self, end):
        """The path of one of its ends, such as "tokens"."""
        return _under(self.name, end)


def streams(model):
    """The Streams of a Module that is, or contains, an nn.Transformer, an encoder, a decoder or layers of one; or a
    list or Sequential of blocks that add to what they are given, whatever their names (see parts_of). Raises TypeError
    for any other, and for norms that are not nn.LayerNorm or nn.RMSNorm; ValueError if it is not batch first."""
    found = _streams(model, "")
    if not found:
        raise TypeError(
            f"{type(model).__name__} has no residual stream that is known: no nn.ModuleList or nn.Sequential of blocks "
            "with attention, and no nn.TransformerEncoder or nn.TransformerDecoder"
        )
    inside = {m for stream in found for block in stream.body for m in block.modules()}
    for path, layer in attention_layers(model).items():
        if layer not in inside:
            raise TypeError(f"{path} is in no list of blocks: its residual stream is not known")
    if not all(part.first.batch_first for stream in found for part in stream.parts if part.is_attention):
        raise ValueError(
            "a residual stream has to be (B, T, C): make the model with batch_first=True, and load into it the "
            "state_dict() of this one, whose parameters are the same"
        )
    for stream in found:
        for norm in (stream.norm, *(n for part in stream.parts for n in (part.before, part.after))):
            if norm is not None and not isinstance(norm, (LayerNorm, RMSNorm)):
                raise TypeError(f"a norm must be nn.LayerNorm or nn.RMSNorm, got {type(norm).__name__}")
            if norm is not None and len(norm.normalized_shape) != 1:
                raise TypeError(f"a norm must be over the last dim alone, got {norm}")
    return found


def _streams(module, path, outer=None):
    if isinstance(module, Transformer):
        encoder, decoder = (_of_layers(getattr(module, side), _under(path, side)) for side in ("encoder", "decoder"))
        crossing = [part for part in decoder.parts if part.is_attention and part.inputs == "q"]
        encoder.readers = [Part(part.path, part.first, part.last, encoder.norm, inputs="kv") for part in crossing]
        return [encoder, decoder]
    if isinstance(module, (TransformerEncoder, TransformerDecoder, *_LAYERS)):
        return [_of_layers(module, path)]
    if not isinstance(module, (ModuleDict, ModuleList, Sequential)):
        outer = module  # else the norm at the end may be beside
    rows = [("", module)] if _is_trunk(module) else [each for each in module.named_children() if _is_trunk(each[1])]
    if len(rows) == 1:
        (name, row), outer = rows[0], outer or module
        return [_of_blocks(module, path, name, row, outer)]
    children = [each for each in module.named_children() if each not in rows]
    streams = [_of_blocks(module, path, name, row, None) for name, row in rows]
    return streams + [stream for name, child in children for stream in _streams(child, _under(path, name), outer)]


def _is_trunk(row):
    return isinstance(row, (ModuleList, Sequential)) and any(_attends(block) for block in row)


def _attends(module):
    return any(isinstance(m, MultiheadAttention) for m in module.modules())


def _of_blocks(module, path, name, row, outer):
    """The Stream through the blocks of a list in a module at `path`, called `name` there. outer: the module in which
    its embedding, its last norm and its unembedding are looked for, or None where it is one of several."""
    row_path = _under(path, name) if name else path
    C = next(m.embed_dim for block in row for m in block.modules() if isinstance(m, MultiheadAttention))
    found = {}  # {number of a block: its Parts}
    for i, block in enumerate(row):
        try:
            found[i] = parts_of(block, f"{row_path}.{i}" if row_path else str(i), C)
        except TypeError:  # such as the unembedding of a Sequential
            if _attends(block):
                raise
    attending = [i for i, block in enumerate(row) if _attends(block)]
    first, last = min(attending), max(attending)
    if missing := [i for i in range(first, last) if i not in found]:
        parts_of(row[missing[0]], f"{row_path}.{missing[0]}", C)  # raises
    while first - 1 in found:
        first -= 1
    while last + 1 in found:
        last += 1
    body = [row[i] for i in range(first, last + 1)]
    parts = [part for i in range(first, last + 1) for part in found[i]]
    if outer is None:
        return Stream(row_path, body, parts, None)
    inside = {m for block in body for m in block.modules()}
    around = [m for m in outer.modules() if m is body[0] or m not in inside]  # in the order of their definition
    before, after = around[: around.index(body[0])], around[around.index(body[0]) :]
    embedding = next((m for m in before if isinstance(m, Embedding) and m.embedding_dim == C), None)
    norm = next((m for m in after if isinstance(m, NORMS) and m.normalized_shape == (C,)), None)
    linear = next((m for m in reversed(after) if isinstance(m, Linear) and m.in_features == C), None)
    rest = "positions" if isinstance(module, (GPT, AttentionOnly)) else "the rest"
    return Stream(path, body, parts, norm, "logits", embedding, rest, unembedding=linear)


def _of_layers(module, path):
    """Of a TransformerEncoder or TransformerDecoder, or of a single layer."""
    alone = isinstance(module, _LAYERS)
    layers = {path: module} if alone else {_under(path, f"layers.{i}"): m for i, m in enumerate(module.layers)}
    parts = []
    for here, layer in layers.items():
        modules = [("self_attn", layer.self_attn, layer.self_attn)]
        if hasattr(layer, "multihead_attn"):
            modules.append(("multihead_attn", layer.multihead_attn, layer.multihead_attn))
        modules.append(("mlp", layer.linear1, layer.linear2))
        for n, (name, first, last) in enumerate(modules, 1):
            norm = getattr(layer, f"norm{n}")
            before, after = (norm, None) if layer.norm_first else (None, norm)
            inputs = "q" if name == "multihead_attn" else "qkv"
            parts.append(Part(_under(here, name), first, last, before, after, inputs))
    return Stream(path, list(layers.values()), parts, None if alone else module.norm)


def _under(path, name):
    return f"{path}.{name}" if path else name


# ------------------------------------------------------------------------------------------------------------ recording


def first_of(module, args):
    """The first of the arguments of a call of a module."""
    if not args:
        raise ValueError(f"{type(module).__name__} was called by keyword: its input has to be the first argument")
    return args[0]


@dataclass(eq=False)
class Seen:
    """What one forward and backward left of the streams: {module: array}, float64."""

    into: dict = field(default_factory=dict)  # what norms, parts without one, and the first module were called with
    out: dict = field(default_factory=dict)  # what parts, embeddings, norms and the last module returned
    dtype: Any = None  # what the model computes in
    d_into: dict = field(default_factory=dict)  # the gradient of an MLP's own copy of its input
    d_out: dict = field(default_factory=dict)  # of what was returned; at (module, "in"), of what came into the first
    put_in: dict = field(default_factory=dict)  # {first module: a Tensor of zeros that was added to what came in}

    def take(self, gradients):
        """Keep the gradients of put_in."""
        for module, g in zip(self.put_in, gradients):
            if g is not None:
                self.d_out[module, "in"] = as_float64(g)


@contextmanager
def watching(found):
    """Within a with-block, keep in a Seen what runs through these Streams. Each module may run once."""
    seen, handles = Seen(), []
    embeddings = {stream.embedding: stream.body[0] for stream in found if stream.embedding is not None}

    def enter(module, args):
        x = first_of(module, args)
        if module in seen.into:
            raise ValueError(TWICE)
        seen.into[module], seen.dtype = as_float64(x), x.dtype
        if any(module is stream.body[0] for stream in found):  # all that follows needs a gradient then
            seen.put_in[module] = zeros(*x.shape, dtype=x.dtype, device=x.device, requires_grad=True)
            return (x + seen.put_in[module], *args[1:])

    def leave(module, args, output):
        if module in embeddings and embeddings[module] in seen.into:
            return  # a later look at the table, such as the loss may take
        if module in seen.out:
            raise ValueError(TWICE)
        y = output[0] if isinstance(output, tuple) else output
        seen.out[module] = as_float64(y)
        if y.node is not None:
            y.register_hook(partial(came, module))

    def came(key, g):
        seen.d_out[key] = seen.d_out.get(key, 0.0) + as_float64(g)

    def own_copy(module, dxs, dys):
        if dxs[0] is not None:
            seen.d_into[module] = as_float64(dxs[0])

    for stream in found:
        entered, left = [stream.body[0]], [stream.body[-1], stream.embedding, stream.norm]
        for part in stream.parts:
            entered += [part.before or part.first, part.after]
            left.append(part.last)
            if not part.is_attention:
                handles.append(part.first.register_full_backward_hook(own_copy))
        entered.append(stream.norm)
        handles += [m.register_forward_pre_hook(enter) for m in dict.fromkeys(entered) if m is not None]
        handles += [m.register_forward_hook(leave) for m in dict.fromkeys(left) if m is not None]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


# ---------------------------------------------------------------------------------------------------------------- norms


def through_norm(norm, x, u, dtype):
    """The change of norm(x) when x changes by u: x (n, C), u (…, n, C), float64. dtype: what the model computes in."""
    return _weight(norm) * _projected(norm, x, u, dtype)


def back_through_norm(norm, x, dy, dtype):
    """dx of y = norm(x), from dy (…, n, C)."""
    return _projected(norm, x, _weight(norm) * dy, dtype)


def back_at_most(norm, x, dy, dtype):
    """How large dx could be, were nothing of it projected away: (…, n), Euclidean norms. Rounding is relative to it."""
    return norms(_weight(norm) * dy) / divisor(norm, x, dtype)[..., 0]


def divisor(norm, x, dtype):
    """σ (…, 1), by which a norm divides the rows of x (…, C), float64. dtype: what the model computes in."""
    eps = np.finfo(dtype).eps if norm.eps is None else norm.eps
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def norms(x):
    """(…, C) -> (…): Euclidean, also of numbers whose squares are too small or too large for float64."""
    largest = np.abs(x).max(-1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    x = x / scale[..., None]
    return np.sqrt(np.einsum("...c,...c->...", x, x)) * scale


def _weight(norm):
    return 1.0 if norm.weight is None else as_float64(norm.weight)


def _projected(norm, x, u, dtype):
    """(I - x̂ x̂ᵀ / C) u / σ, for a LayerNorm after centering: symmetric, so that it serves in both directions."""
    sigma = divisor(norm, x, dtype)
    if isinstance(norm, LayerNorm):
        x, u = (a - a.mean(-1, keepdims=True) for a in (x, u))
    xhat = x / sigma
    return (u - xhat * (u * xhat).mean(-1, keepdims=True)) / sigma
