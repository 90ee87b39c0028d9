"""What a block adds to its residual stream, found by running it on random numbers.

    x → a → … → what it returns

Each a is the sum of the stream and of what a module returns, perhaps times a constant, or a norm of the stream. The
graph of the run says which: so the names in a block do not matter, nor does how it calls its modules."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...autograd import enable_grad
from ...nn import LayerNorm, Module, MultiheadAttention, RMSNorm
from ...nn.utils import evaluating
from ...tensor import Tensor, tensor
from ..layers import as_float64

NORMS = LayerNorm, RMSNorm
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_head_hooks"
TOKENS = 3  # of the random stream


@dataclass(eq=False)
class Part:
    """An attention layer, or an MLP from its module `first` to its module `last`."""

    path: str
    first: Module
    last: Module
    before: Module | None = None  # the norm that it reads through,
    after: Module | None = None  # or the one that the stream passes through once it has written
    inputs: str = "qkv"  # what of attention reads the stream: of cross-attention "q", and "kv" that of the encoder
    scale: Any = 1.0  # what it returns is multiplied by: a number or (C,)
    behind: int = 0  # how many parts right before it have not yet written when it reads

    @property
    def is_attention(self):
        return isinstance(self.first, MultiheadAttention)


def parts_of(block: Module, path: str, C: int) -> list[Part]:
    """The Parts of a block, a Module that takes a stream (B, T, C) and returns it, in the order in which they write.
    Raises TypeError, which says why, for one that does not add to what it is given. A block that cannot run on a stream
    alone declares its parts: study_parts = {"attn": "norm1", "mlp": "norm2"}, a norm or None before each."""
    if declared := getattr(block, "study_parts", None):
        norms = {name: norm and block.get_submodule(norm) for name, norm in declared.items()}
        of = {name: block.get_submodule(name) for name in declared}
        return [Part(f"{path}.{name}", of[name], of[name], norm) for name, norm in norms.items()]
    like = next(block.parameters(), None)
    about: Any = {} if like is None else dict(dtype=like.dtype, device=like.device)
    x = tensor(np.random.default_rng(0).standard_normal((1, TOKENS, C)), requires_grad=True, **about)
    run = _Run(block, path, x)
    with _without_hooks(block), ExitStack() as stack, evaluating(block), enable_grad():
        for name, module in block.named_modules():
            keep = module.register_forward_hook(lambda *call, name=name: run.ran(name, *call))
            stack.callback(keep.remove)
            if isinstance(module, MultiheadAttention):
                stack.callback(module.register_head_hook("x_q", run.asked, last=True).remove)
        try:
            y = block(x)
        except Exception as error:
            declare = 'declare its parts, such as study_parts = {"attn": "norm1", "mlp": "norm2"}'
            raise TypeError(f"{path} does not run on a stream (1, {TOKENS}, {C}) alone: {error}; {declare}") from error
    y = y[0] if isinstance(y, tuple) and y else y
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise TypeError(f"{path} returns {getattr(y, 'shape', type(y).__name__)} for a stream {x.shape}")
    found = run.written(y.node)
    if found is None:
        raise TypeError(f"{path} returns something else than what it is given and what it adds to that")
    for i, part in enumerate(found):
        part.behind = i - part.behind
    return found


@contextmanager
def _without_hooks(block):
    """Within the with-block no hook that a module of the block has is called: it may belong to another run."""
    kept = [
        (module, {name: module.__dict__.pop(name) for name in HOOKS if name in vars(module)})
        for module in block.modules()
    ]
    try:
        yield
    finally:
        for module, hooks in kept:
            for name in HOOKS:
                module.__dict__.pop(name, None)
            module.__dict__.update(hooks)


class _Call(NamedTuple):
    """Of a module: what it was first given and what it returned, as nodes of the graph."""

    name: str
    module: Module
    x: Any
    y: Any


class _Run:
    """A forward of a block: which module made what."""

    def __init__(self, block, path, x):
        self.block, self.path = block, path
        self.start, self.versions = x.node, {x.node: []}  # node of the stream -> the Parts that have written by then
        self.calls = []  # in the order of their ends
        self.queries = {}  # attention layer -> node of what it reads

    def ran(self, name, module, args, y):
        x, y = (args[0] if args else None), (y[0] if isinstance(y, tuple) and y else y)
        if isinstance(y, Tensor):
            self.calls.append(_Call(name, module, x.node if isinstance(x, Tensor) else None, y.node))

    def asked(self, layer, x):
        self.queries[layer] = x.node

    def written(self, node):
        """The Parts that have written when `node` is the stream; None if it is not."""
        if node in self.versions:
            return self.versions[node]
        if node is None or node.op is None:
            return None
        found = None
        norm = next((call for call in self.calls if call.y is node and isinstance(call.module, NORMS)), None)
        if norm is not None:
            found = self.written(norm.x) or None  # a norm before any part is none of the stream's
            if found:
                found[-1].after = norm.module
        elif node.op.name == "add":
            for stream, added in node.op.parents, node.op.parents[::-1]:
                if (before := self.written(stream)) is not None:
                    found = [*before, *self._parts(added, 1.0)]
                    break
        if found is not None:
            self.versions[node] = found
        return found

    def _parts(self, node, scale):
        """The Parts that together return the value of a node, times scale."""
        makes = [call for call in self.calls if node and call.y is node is not call.x and call.module is not self.block]
        if makes:
            attention = [call for call in makes if isinstance(call.module, MultiheadAttention)]
            return [self._part((attention or makes)[-1], scale)]
        name, parents = ("a constant", ()) if node is None or node.op is None else (node.op.name, node.op.parents)
        if name == "add":
            return [part for parent in parents for part in self._parts(parent, scale)]
        for i in {"mul": (0, 1), "div": (0,)}.get(name, ()):  # which factor may be what is added; the other is constant
            if _leads_to(self.start, parents[i]) and not _leads_to(self.start, parents[1 - i]):
                by = as_float64(node.op.saved_inputs()[1 - i])
                if by.size in (1, by.shape[-1] if by.ndim else 1):
                    return self._parts(parents[i], scale * (by if name == "mul" else 1 / by).reshape(-1))
        raise TypeError(f"{self.path} adds to its stream what none of its modules returns: {name}")

    def _part(self, call, scale):
        path, module = (f"{self.path}.{call.name}" if call.name else self.path), call.module
        if isinstance(module, NORMS):
            raise TypeError(f"{path} is a norm of what is added to the stream, so that heads do not add up")
        if isinstance(module, MultiheadAttention):  # one without heads asks nothing
            return self._reading(path, module, module, self.queries.get(module, call.x), scale)
        if self._norm(call.x) is not None:
            return self._reading(path, module, module, call.x, scale)
        readers = [each for each in self.calls if self._norm(each.x) is not None and _leads_to(each.y, call.y)]
        readers = [each for each in readers if not isinstance(each.module, (*NORMS, MultiheadAttention))]
        if len(readers) != 1:
            names = ", ".join(each.name for each in readers) or "none"
            raise TypeError(f"{path} must return what one module of {self.path} has read from the stream, not: {names}")
        return self._reading(f"{self.path}.mlp", readers[0].module, module, readers[0].x, scale)

    def _norm(self, node):
        """(the norm through which a node is read from the stream, or None; how many parts had written); None for a node
        that is neither the stream nor a norm of it."""
        if node in self.versions:
            return None, len(self.versions[node])
        for call in self.calls:
            if call.y is node and isinstance(call.module, NORMS) and call.x in self.versions:
                return call.module, len(self.versions[call.x])
        return None

    def _reading(self, path, first, last, x, scale):
        read = self._norm(x)
        if read is None:
            by = [f"{call.name}, a {type(call.module).__name__}" for call in self.calls if x and call.y is x][:1]
            raise TypeError(f"{path} reads neither the stream nor an nn.LayerNorm or nn.RMSNorm of it: {by}")
        norm, written = read
        scale = np.asarray(scale, np.float64)
        return Part(path, first, last, norm, scale=scale.item() if scale.size == 1 else scale, behind=written)


def _leads_to(node, end):
    """Is a node among what `end` was made of?"""
    left, seen = [end], set()
    while left:
        if (at := left.pop()) is node:
            return True
        if at is not None and at not in seen and at.op is not None:
            seen.add(at)
            left += at.op.parents
    return False
