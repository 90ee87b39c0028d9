"""The residual stream of a model: its writers, its readers, and the norms between them.

The stream begins with the input of the first block, such as a sum of embeddings. Each sublayer, an attention layer or
an MLP, reads the stream, perhaps through a norm of its own, and adds its output to it. After the last block, the model
computes its output from the stream.

The sublayers of nn.GPT and of AttentionOnly are known. Blocks of your own declare them: {name of the sublayer's module:
name of the norm before it, or None}, in order. The blocks are the children of one Module, such as an nn.ModuleList.

    class Block(nn.Module):
        study_parts = {"attn": "ln_1", "mlp": "ln_2"}  # x = x + attn(ln_1(x)), and then x + mlp(ln_2(x))

flow.py computes the edges of the stream's graph, and cut.py cuts an edge."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..autograd import enable_grad, no_grad
from ..nn import Embedding, LayerNorm, Module, MultiheadAttention, RMSNorm
from ..nn.gpt.model import Block
from ..nn.utils import evaluating
from ..tensor import Tensor, grad, ones_like, zeros
from .importance import check_batch, value_of
from .layers import alone, as_float64, attention_layers, only_prediction
from .names import Part, layer_names
from .trace import trace_heads

CHECKED_TO = {8: 1e-9, 4: 1e-4, 2: 2e-2}  # {itemsize of the model's dtype: relative error allowed in a stream}
RTOL = {8: 1e-10, 4: 1e-6, 2: 2e-2}  # {itemsize of the model's dtype: relative error allowed in sums of gradients}


def not_a_stream_error(what, error):
    """Return the error that gradients do not add up. what: the sum, such as "edges from 0.1". error: a relative one."""
    return ValueError(
        f"the {what} do not add up to its gradient, they are off by {error:.1e}: a part is not x + part(norm(x)) as "
        f"study_parts declares it (parts in parallel, scaled parts and norms after a part are not covered), or the "
        f"loss reads the stream before its end"
    )


# --------------------------------------------------------------------------------------------- the sublayers of a model


@dataclass(eq=False)
class Sublayer:
    """An attention layer or an MLP, and the norm through which it reads the stream, or None.

    layer: with what the names of its heads begin, if it is an attention layer."""

    path: str
    module: Module
    norm: Module | None
    layer: str = ""

    @property
    def is_attention(self) -> bool:
        return isinstance(self.module, MultiheadAttention)

    @property
    def entry(self) -> Module:
        """The module that is called with the stream: the norm, or without one the sublayer itself."""
        return self.module if self.norm is None else self.norm

    def head(self, number: int) -> Part:
        return Part(self.path, number, self.layer)


@dataclass(eq=False)
class Stream:
    """The residual stream of a model.

    blocks: the model's blocks, in order. sublayers: those of all blocks, in order. embedding: the model's first
    nn.Embedding whose rows are as wide as the stream, or None."""

    blocks: list[Module]
    sublayers: list[Sublayer]
    embedding: Module | None

    @property
    def start(self):
        """The key, in a Pass, of the stream at the input of the first block."""
        return self.blocks[0], "in"

    @property
    def end(self):
        """The key, in a Pass, of the stream at the output of the last block."""
        return self.blocks[-1], "out"


def stream_of(model):
    """Return the Stream of a Module. Blocks of your own declare their sublayers, as shown at the top of this file.

    Raises TypeError if a block with attention does not declare its sublayers, or if there are two lists of blocks, or a
    norm that is not nn.LayerNorm or nn.RMSNorm over the last dim. Raises ValueError if there is no attention layer."""
    layers = attention_layers(model)
    names = layer_names(layers)
    lists: dict[str, dict[Module, list[Sublayer]]] = {}  # {path of a Module: {its child that is a block: sublayers}}
    for path, parent in model.named_modules():
        for name, block in parent.named_children():
            of_block = _sublayers_of(block, f"{path}.{name}".removeprefix("."), names)
            if of_block:
                lists.setdefault(path, {})[block] = of_block
    sublayers = [sublayer for of_list in lists.values() for of_block in of_list.values() for sublayer in of_block]
    _check_sublayers(model, layers, sublayers)
    if len(lists) > 1:
        raise TypeError(f"a model of one residual stream is needed; this one has blocks in {', '.join(lists)}")
    (blocks_with_sublayers,) = lists.values()
    C = next(iter(layers.values())).embed_dim
    embeddings = (m for m in model.modules() if isinstance(m, Embedding) and m.embedding_dim == C)
    return Stream(list(blocks_with_sublayers), sublayers, next(embeddings, None))


def _sublayers_of(block, path, names):
    """The Sublayers of a block, in the order in which they write; none for a Module that does not declare them."""
    declared = getattr(block, "study_parts", {"attn": "norm1", "mlp": "norm2"} if isinstance(block, Block) else {})
    sublayers = []
    for name, norm in declared.items():
        full_path = f"{path}.{name}"
        norm_module = None if norm is None else _declared_module(block, norm)
        sublayers.append(Sublayer(full_path, _declared_module(block, name), norm_module, names.get(full_path, "")))
    return sublayers


def _declared_module(block, name):
    """The Module that study_parts of a block names. Raises TypeError if there is none."""
    found = dict(block.named_modules()).get(name)
    if found is None:
        raise TypeError(
            f"study_parts of {type(block).__name__} names {name!r}, and the block has no such module; it has "
            f"{', '.join(name for name, _ in block.named_children())}"
        )
    return found


def _check_sublayers(model, layers, sublayers):
    """Raise TypeError unless all attention layers are sublayers and all norms are known: see stream_of."""
    declared = {sublayer.module for sublayer in sublayers}
    for path, layer in layers.items():
        if layer not in declared:
            raise TypeError(_undeclared(model, path))
    for sublayer in sublayers:
        norm = sublayer.norm
        if norm is not None and (not isinstance(norm, (LayerNorm, RMSNorm)) or len(norm.normalized_shape) != 1):
            raise TypeError(
                f"{sublayer.path} reads the stream through {norm}: it has to be an nn.LayerNorm or nn.RMSNorm over the "
                f"last dim, whose gradient is known"
            )


def _undeclared(model, path):
    """The text of the error for an attention layer whose block does not declare it, with the line to add."""
    if "." not in path:
        return (
            f"the residual stream of {path or 'the layer'} is not known: put the layer into a block, a Module that "
            f"adds its output to the stream, and give the class of the block study_parts (see minigrad/study/README.md)"
        )
    parent, _, name = path.rpartition(".")
    block = dict(model.named_modules())[parent]
    norms = [child for child, module in block.named_children() if isinstance(module, (LayerNorm, RMSNorm))]
    others = [
        child for child, module in block.named_children() if child not in (name, *norms) and [*module.parameters()]
    ]
    parts = [name, *others]
    of_parts = [f'"{norm}"' for norm in norms] if len(norms) == len(parts) else ["None"] * len(parts)
    declaration = ", ".join(f'"{part}": {norm}' for part, norm in zip(parts, of_parts))
    return (
        f"the residual stream of {path} is not known. Add to the class {type(block).__name__} what it adds to its "
        f"stream, in order, and the norm that each part reads through, or None; perhaps "
        f"study_parts = {{{declaration}}}"
    )


# ------------------------------------------------------------------------------------------------------------- one pass


@dataclass
class _Probe:
    """A value that a Pass keeps. name: of the part it belongs to. with_gradient: True if its gradient is kept too."""

    name: str
    with_gradient: bool


def _probes(stream):
    """{(module, "in" or "out"): _Probe}: the start and end of the stream, and the inputs and outputs of sublayers."""
    probes = {stream.start: _Probe("the first block", True), stream.end: _Probe("the last block", True)}
    for sublayer in stream.sublayers:
        probes.setdefault((sublayer.entry, "in"), _Probe(sublayer.path, False))
        probes[sublayer.module, "out"] = _Probe(sublayer.path, True)
        if not sublayer.is_attention:
            probes[sublayer.module, "in"] = _Probe(sublayer.path, True)
    return probes


class Write(NamedTuple):
    """An event in one sequence: parts add to the stream at the same time.

    rows (parts, T, C): what each part adds. totals (parts,): ⟨row, gradient of the row⟩, summed over positions."""

    parts: list[Part]
    rows: np.ndarray
    totals: Any


class Read(NamedTuple):
    """An event in one sequence: inputs of parts read the stream, through a norm or directly.

    inputs: [(Part, "q", "k", "v" or "")]. x (T, C): the stream. G (inputs, T, C): the gradient of each input's own
    copy of the stream. sizes (inputs, T): an upper bound of |G| at each position, without the projection of the norm.
    Rounding errors of G are relative to it."""

    inputs: list[tuple[Part, str]]
    x: np.ndarray
    G: np.ndarray
    sizes: np.ndarray


def check_first_forward(model, stream):
    """Register hooks that check, in the first forward of the model, that each sublayer adds its output to the stream as
    declared. They raise ValueError if it does not. Return their handles."""
    check = _Check()
    handles = [model.register_forward_hook(lambda module, args, y: check.stop())]
    for sublayer in stream.sublayers:
        handles.append(sublayer.entry.register_forward_pre_hook(partial(check.entered, sublayer)))
        handles.append(sublayer.module.register_forward_hook(partial(check.left, sublayer)))
    handles.append(stream.blocks[-1].register_forward_hook(lambda module, args, y: check.compare(first_output(y))))
    return handles


class _Check:
    """Follows the stream through a forward.

    done: the paths of the sublayers that have run. read: the stream that one is reading. after: the stream after the
    last one, as declared."""

    def __init__(self):
        self.active, self.done = True, []
        self.read: Tensor | None = None
        self.after: Tensor | None = None

    def stop(self):
        self.active, self.read, self.after = False, None, None

    def entered(self, sublayer, module, args):
        if self.active and args:
            self.compare(args[0])
            self.read = args[0].detach()

    def left(self, sublayer, module, args, y):
        if self.active and self.read is not None:
            if sublayer.path in self.done:
                raise ValueError(f"{sublayer.path} ran twice: once is needed, to tell its gradients apart")
            self.done.append(sublayer.path)
            self.after = self.read + first_output(y).detach()

    def compare(self, x):
        """Raise ValueError unless x is the stream after the last sublayer."""
        if not self.active or self.after is None:
            return
        with no_grad():
            error = (x.detach() - self.after).abs().max() / self.after.abs().max().clamp(1e-30)
        if error.item() > CHECKED_TO[x.dtype.itemsize]:
            raise ValueError(
                f"the stream after {self.done[-1]} is not x + {self.done[-1].rpartition('.')[-1]}(norm(x)), as "
                f"study_parts declares it; it is off by {error.item():.1e}"
            )


def first_output(y):
    """Return y, or the first item of a tuple."""
    return y[0] if isinstance(y, tuple) else y


def kind_of_input(part, p):
    """Return the kind under which an input is added up: "q", "k" or "v" of any head, "mlp" or "logits"."""
    return p or ("logits" if part.path == "logits" else "mlp")


class Pass:
    """A forward of loss(model, *batch), and a backward, with the values and gradients of a Stream.

    x: {(module, "in" or "out"): the input or output of the module}, arrays (B, T, C), float64. dx: their gradients, for
    the keys at which one is needed. trace: a HeadTrace of all heads. loss: a float. dtype: of the stream in the model.
    Gradients of parameters are not computed, so frozen parameters make no difference.

    by_prediction: loss returns (B, P) losses, whose sum is differentiated. predictions() then differentiates the losses
    of one prediction after the other."""

    def __init__(self, model, stream, batch, loss, by_prediction=False):
        check_batch(batch)
        self.x, self.dx, self.dtype = {}, {}, None
        self.stream, self._probes = stream, _probes(stream)
        # {key: a Tensor of zeros that the hooks added to the stream there; its gradient is dx[key]}
        self._zeros: dict[Any, Tensor] = {}
        with alone(model):
            self._run(model, batch, loss, by_prediction)
        for key, probe in self._probes.items():
            if key not in self.x:
                through = type(key[0]).__name__
                raise ValueError(
                    f"{probe.name}, or the {through} before it, did not run for this loss: see study_parts"
                )

    def _run(self, model, batch, loss, by_prediction):
        """Run the model with hooks on all probes, and differentiate its loss."""
        handles = [module.register_forward_pre_hook(self._before) for module, side in self._probes if side == "in"]
        handles += [module.register_forward_hook(self._after) for module, side in self._probes if side == "out"]
        if self.stream.embedding is not None:
            handles.append(self.stream.embedding.register_forward_hook(self._after))
        try:
            with evaluating(model), trace_heads(model) as self.trace, enable_grad():
                self._losses = _losses(loss, model, batch) if by_prediction else value_of(loss, model, batch)
                if not self._losses.requires_grad:
                    raise ValueError("the loss does not depend on the residual stream, or requires no gradient")
                self._differentiate(ones_like(self._losses.detach()), retain_graph=by_prediction)
        finally:
            for handle in handles:
                handle.remove()

    def _differentiate(self, weights, retain_graph):
        """Set dx, the gradients in the trace, and loss to those of the losses times `weights`, summed."""
        self.trace.clear_gradients()
        zeros = list(self._zeros.values())
        gradients = grad(self._losses, zeros, weights, retain_graph=retain_graph, allow_unused=True)
        for key, g in zip(self._zeros, gradients):
            self.dx[key] = np.zeros_like(self.x[key]) if g is None else as_float64(g)
        self.loss = (self._losses.detach() * weights).sum().item()

    def predictions(self) -> "Iterator[Pass]":
        """Yield this Pass once for each prediction, with the gradients of its losses in all sequences."""
        P = self._losses.shape[1]
        for p in range(P):
            self._differentiate(only_prediction(self._losses, p), retain_graph=p < P - 1)
            yield self

    def _keep(self, key, x):
        """Keep the value of a Tensor under a key. Return the Tensor, plus zeros if its gradient is needed."""
        if key in self.x:
            name = self._probes[key].name if key in self._probes else "the embedding"
            raise ValueError(f"{name} ran twice: once is needed, to tell its gradients apart")
        self.x[key], self.dtype = as_float64(x), x.dtype
        if key not in self._probes or not self._probes[key].with_gradient:
            return x
        self._zeros[key] = zeros(*x.shape, dtype=x.dtype, device=x.device, requires_grad=True)
        return x + self._zeros[key]

    def _before(self, module, args):
        """A forward pre-hook: keep the module's first argument."""
        if not args:
            raise ValueError(f"{type(module).__name__} was called by keyword: its input has to be the first argument")
        return (self._keep((module, "in"), args[0]), *args[1:])

    def _after(self, module, args, y):
        """A forward hook: keep the module's output, the first of a tuple."""
        if module is self.stream.embedding and self.stream.start in self.x:
            return None  # the loss may use the table again, as a tied head does
        key = module, "out"
        return (self._keep(key, y[0]), *y[1:]) if isinstance(y, tuple) else self._keep(key, y)

    def trace_of(self, sublayer):
        """Return the LayerTrace of an attention layer. Raises ValueError unless the layer ran once."""
        calls = self.trace.calls(sublayer.path)
        if len(calls) != 1:
            raise ValueError(f"{sublayer.path} ran {len(calls)} times: once is needed")
        return calls[0]

    def beginning(self):
        """Return the summands of the stream at its start, {name: (B, T, C)}: "tokens" and "positions", or "input"."""
        x, tokens = self.x[self.stream.start], self.x.get((self.stream.embedding, "out"))
        if tokens is None or tokens.shape != x.shape:
            return {"input": x}
        return {"tokens": tokens} | ({} if np.array_equal(tokens, x) else {"positions": x - tokens})

    def events(self, b: int) -> Iterator[Write | Read]:
        """Yield the Writes and Reads of the stream in sequence b, in order."""
        stream, dx = self.stream, self.dx[self.stream.start][b]
        for name, y in self.beginning().items():
            yield Write([Part(name)], y[b][None], [(y[b] * dx).sum()])
        for sublayer in stream.sublayers:
            if sublayer.is_attention:
                yield from self._attention_reads(sublayer, b)
                yield from self._attention_writes(sublayer, b)
            else:
                yield self._read([(Part(sublayer.path), "")], sublayer, b, self.dx[sublayer.module, "in"][b][None])
                y, dy = self.x[sublayer.module, "out"][b], self.dx[sublayer.module, "out"][b]
                yield Write([Part(sublayer.path)], y[None], [(y * dy).sum()])
        x, dx = self.x[stream.end][b], self.dx[stream.end][b][None]
        yield Read([(Part("logits"), "")], x, dx, np.linalg.norm(dx, axis=-1))

    def _read(self, inputs, sublayer, b, dy):
        """The Read by inputs of a sublayer. dy (inputs, T, C): their gradients, of the output of the norm."""
        x = self.x[sublayer.entry, "in"][b]
        if sublayer.norm is None:
            return Read(inputs, x, dy, np.linalg.norm(dy, axis=-1))
        G = back_through_norm(sublayer.norm, x, dy, self.dtype)
        return Read(inputs, x, G, largest_back_through_norm(sublayer.norm, x, dy, self.dtype))

    def _attention_reads(self, sublayer, b):
        """Yield the Reads of an attention layer's heads; none if the loss does not depend on the layer."""
        trace = self.trace_of(sublayer)
        for p in "qkv" if trace.has_grads else "":
            W = getattr(trace, f"W_{p.upper()}")  # (n, C, d)
            dy = trace.projection_grad(p)[b] @ W.swapaxes(1, 2)  # (n, T, C)
            yield self._read([(sublayer.head(h), p) for h in trace.heads], sublayer, b, dy)

    def _attention_writes(self, sublayer, b):
        """Yield the Writes of an attention layer's heads, and of its output bias."""
        trace, bias, dy = self.trace_of(sublayer), sublayer.module.out_proj.bias, self.dx[sublayer.module, "out"][b]
        z, dz = as_float64(trace.z[b]), trace.z_grad[b] if trace.has_grads else 0.0
        yield Write([sublayer.head(h) for h in trace.heads], z @ trace.W_O, (z * dz).sum((1, 2)))
        if bias is not None:
            y = np.broadcast_to(as_float64(bias), dy.shape)
            yield Write([Part(f"{sublayer.path}.bias")], y[None], [(y * dy).sum()])


def _losses(loss, model, batch):
    """loss(model, *batch), a Tensor (B, P). Raises ValueError for anything else."""
    losses = loss(model, *batch)
    if not isinstance(losses, Tensor) or losses.ndim != 2:
        got = getattr(losses, "shape", type(losses).__name__)
        raise ValueError(f"by_prediction=True needs a loss function that returns losses (B, P), got {got}")
    return losses


# ---------------------------------------------------------------------------------------------------------------- norms


def back_through_norm(norm, x, dy, dtype):
    """Return dx of y = norm(x), from x (n, C) and dy (…, n, C), float64: (I - x̂ x̂ᵀ / C) (w ⊙ dy) / σ. For a
    LayerNorm, x and w ⊙ dy are centred first. dtype: of x in the model, which decides a default eps."""
    dy, sigma = _weight(norm) * dy, _sigma(norm, x, dtype)
    if isinstance(norm, LayerNorm):
        x, dy = (a - a.mean(-1, keepdims=True) for a in (x, dy))
    xhat = x / sigma
    return (dy - xhat * (dy * xhat).mean(-1, keepdims=True)) / sigma


def largest_back_through_norm(norm, x, dy, dtype):
    """Return ‖w ⊙ dy‖ / σ, an upper bound of ‖dx‖: the norm's projection only shortens. Over the last dim, (…, n)."""
    return np.linalg.norm(_weight(norm) * dy, axis=-1) / _sigma(norm, x, dtype)[..., 0]


def _weight(norm):
    return 1.0 if norm.weight is None else as_float64(norm.weight)


def _sigma(norm, x, dtype):
    """σ, the number by which a norm divides each row of x (…, C): (…, 1)."""
    eps = np.finfo(dtype).eps if norm.eps is None else norm.eps
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)
