"""The edges within one residual stream: what each node writes times the gradient at each reader's copy. See flow.py."""

import re
from dataclasses import dataclass

import numpy as np

from ...autograd import enable_grad
from ...nn.utils import evaluating
from ...tensor import Tensor, grad
from ..effects.importance import check_batch, value_of
from ..layers import as_float64, attention_layers, head_weights, path_of
from ..trace import HeadTrace, trace_heads
from .streams import Seen, back_at_most, back_through_norm, norms, through_norm, watching

ROWS = 2.0**23  # numbers of all writes or reads that are held at a time


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
class Run:
    """What a forward and a backward left."""

    seen: Seen
    trace: HeadTrace
    loss: Tensor


def run_once(model, found, batch, loss):
    """The Run of loss(model, *batch), whose streams have been found. The gradient is that of what is put into the
    streams: it does not matter which parameters are frozen, and none of theirs is computed."""
    if all(layer.num_heads == 0 for layer in attention_layers(model).values()):
        raise ValueError("all heads are pruned")
    check_batch(batch)
    with evaluating(model), trace_heads(model) as trace, watching(found) as seen, enable_grad():
        value = value_of(loss, model, batch)
        if not value.requires_grad:
            raise ValueError("the loss does not depend on a residual stream, or requires no gradient")
        seen.take(grad(value, list(seen.put_in.values()), allow_unused=True))
    for stream in found:
        for path, module in _modules(stream):
            if module not in seen.into and module not in seen.out:
                raise ValueError(f"{path} did not run for this loss")
        if stream.norm is not None and not np.array_equal(seen.into[stream.norm], seen.out[stream.body[-1]]):
            stream.norm = None  # it belongs to something else
    return Run(seen, trace, value.detach())


def _modules(stream):
    """(what to call it, module) of all that has to run in a stream."""
    yield stream.name or "the model", stream.body[0]
    for part in stream.parts:
        yield part.path, part.last
        for norm in (part.before, part.after):
            if norm is not None:
                yield f"the norm of {part.path}", norm
    if stream.norm is not None:
        yield f"the norm at the end of {stream.name or 'the model'}", stream.norm


class StreamEdges:
    """One stream: its writes, reads and norms in order, each as a function of rows (positions of all sequences). With a
    `clean` run, what is written is the difference between the two."""

    def __init__(self, stream, run, clean):
        self.stream, self.run, self.clean = stream, run, clean
        seen = run.seen
        self.sources, self.inputs, self.steps = [], [], []
        self.identities = []  # (name, what, is it about a source?, its number, the sum that the edges have to give)
        self.has_norms = False  # on the stream itself, so far
        self.before = []  # how many sources have written when each input is read
        self._begin()
        for i, part in enumerate(stream.parts):
            for j, reader in enumerate(stream.parts[i:], i):
                if j - reader.behind == i:
                    self._read_part(reader)
            if part.is_attention:
                self._write_heads(part)
            else:
                dy, of_run = seen.d_out.get(part.last), lambda run, part=part: run.seen.out[part.last]
                self._write(Node(part.path), of_run, dy, part.scale)
            if part.after is not None:
                self._pass(part.after)
        for part in stream.readers:
            self._read_heads(part, part.before)
        if not stream.readers:
            end = stream.norm if stream.norm is not None else stream.body[-1]
            self._read(self._named(stream.end), stream.norm, None, seen.d_out.get(end))

    # -- what is written

    def _begin(self):
        first, embedding, seen = self.stream.body[0], self.stream.embedding, self.run.seen
        x, dx, tokens = seen.into[first], seen.d_out.get((first, "in")), seen.out.get(embedding)
        if tokens is None or tokens.shape != x.shape:
            self._write(self._named("input"), lambda run: run.seen.into[first], dx)
            return
        self._write(self._named("tokens"), lambda run: run.seen.out[embedding], dx)
        if not np.array_equal(tokens, x):
            self._write(self._named(self.stream.rest), lambda run: run.seen.into[first] - run.seen.out[embedding], dx)

    def _written(self, of_run):
        """of_run(run), or the difference between the clean run and this one."""
        return of_run(self.run) if self.clean is None else of_run(self.clean) - of_run(self.run)

    def _named(self, name):
        return Node(self.stream.named(name))

    def _write(self, node, of_run, dy, scale=1.0):
        y = self._written(of_run)
        rows = _rows(y * scale)
        total = None if dy is None else float((y * dy).sum())
        self._add([node], [total], lambda at: rows[None, at])

    def _write_heads(self, part):
        layer = part.last
        dy = self.run.seen.d_out.get(layer)
        if layer.num_heads:
            call = _call(self.run, part)
            z = self._written(lambda run: as_float64(_call(run, part).z))
            W_O, rows = call.W_O * part.scale, _rows_of_heads(z)
            nodes = [Node(part.path, h) for h in call.heads]
            dz = as_float64(call.z_grad) if call.has_grads else None
            totals = [None] * len(nodes) if dz is None else (z * dz).sum((0, 2, 3)).tolist()
            self._add(nodes, totals, lambda at: rows[:, at] @ W_O)
        if layer.out_proj.bias is not None and self.clean is None:
            b = as_float64(layer.out_proj.bias)
            of_run = lambda run: np.broadcast_to(b, run.seen.out[layer].shape)  # noqa: E731
            self._write(Node(f"{part.path}.bias"), of_run, dy, part.scale)

    def _add(self, nodes, totals, rows):
        for i, (node, total) in enumerate(zip(nodes, totals), len(self.sources)):
            if total is not None:
                self.identities.append((node, "Σ edges from it = ⟨write, dwrite⟩", True, i, total))
        self.sources += nodes
        self.steps.append(("write", rows))

    # -- what reads

    def _read_part(self, part):
        if part.is_attention:
            self._read_heads(part, part.before, part.first)
        else:
            self._read(Node(part.path), part.before, part.first, self.run.seen.d_into.get(part.first))

    def _read(self, node, norm, module, dx):
        """A reader with one input, of which dx is the gradient behind the norm, if there is one."""
        if dx is None:
            return
        dx = _rows(dx)
        self._ask([(node, "")], norm, module, lambda at: dx[None, at])

    def _read_heads(self, part, norm, module=None):
        """The heads of an attention layer, by their inputs. module: see _ask."""
        layer, inputs = part.first, part.inputs
        if not layer.num_heads:
            return
        call = _call(self.run, part)
        if not call.has_grads:  # what comes after it does not matter to this loss
            return
        of = {p: np.array([head_weights(layer, h)["qkv".index(p)] for h in call.heads]) for p in inputs}
        for p in inputs:
            dx = _rows_of_heads(call.projection_grad(p))
            names, W = [(Node(part.path, h), p) for h in call.heads], of[p].swapaxes(-1, -2)  # W (n, d, C)
            self._ask(names, norm, module, lambda at, dx=dx, W=W: dx[:, at] @ W)

    def _ask(self, names, norm, module, rows):
        """rows(at): the gradients behind the norm, if there is one. The stream there is what the norm was called with,
        or else the module; None: what came out at the end."""

        def stream(run):
            came_in = module if norm is None else norm
            return _rows(run.seen.out[self.stream.body[-1]] if came_in is None else run.seen.into[came_in])

        x, dtype = stream(self.run), self.run.seen.dtype
        if not self.has_norms:
            for i, (node, p) in enumerate(names, len(self.inputs)):
                self.identities.append((node, f"Σ edges to its {p or 'input'} = ⟨stream, G⟩", False, i, None))
        before = len(self.inputs)
        self.inputs += names
        self.before += [len(self.sources)] * len(names)

        def back(at):
            """The gradients at the readers' copies of the stream, and how large they could be."""
            dy = rows(at)
            if norm is None:
                return dy, norms(dy)
            return back_through_norm(norm, x[at], dy, dtype), back_at_most(norm, x[at], dy, dtype)

        self.steps.append(("read", before, len(self.inputs), self._written(stream), back))

    def _pass(self, norm):
        x, dtype = _rows(self.run.seen.into[norm]), self.run.seen.dtype
        self.has_norms = True
        self.steps.append(("norm", lambda at, U: through_norm(norm, x[at], U, dtype)))

    # -- the edges

    def edges(self):
        """(edges (sources, inputs), [(path, head, identity, error)]). Errors are relative to Σ |write| |G| over
        positions: the edges themselves may be small because what they add up cancels."""
        E, whole = np.zeros((len(self.sources), len(self.inputs))), np.zeros(len(self.inputs))
        sizes = np.zeros_like(E)
        n, C = _rows(self.run.seen.into[self.stream.body[0]]).shape
        some = max(1, int(ROWS // (C * max(E.shape))))
        for start in range(0, n, some):
            at = slice(start, min(start + some, n))
            U = np.empty((len(self.sources), at.stop - start, C))  # what has been written so far, by `k` sources
            U_size, k = np.empty(U.shape[:2]), 0
            for kind, *step in self.steps:
                if kind == "write":
                    written = step[0](at)
                    U[k : k + len(written)], U_size[k : k + len(written)] = written, norms(written)
                    k += len(written)
                elif kind == "norm":
                    U[:k] = step[0](at, U[:k])
                    U_size[:k] = norms(U[:k])
                else:
                    i, j, x, rows = step
                    G, G_size = rows(at)
                    E[:k, i:j] += U[:k].reshape(k, -1) @ G.reshape(j - i, -1).T
                    sizes[:k, i:j] += U_size[:k] @ G_size.T
                    whole[i:j] += G.reshape(j - i, -1) @ x[at].ravel()
        return E, [self._error(E, sizes, whole, *each) for each in self.identities]

    def _error(self, E, sizes, whole, node, what, of_source, i, total):
        at = np.s_[i] if of_source else np.s_[:, i]
        difference, size = abs(E[at].sum() - (total if of_source else whole[i])), sizes[at].sum()
        about = np.finfo(self.run.seen.dtype)
        if size < about.tiny / about.eps:  # gradients so small that their last digits are gone
            return node.path, node.head, what, 0.0
        return node.path, node.head, what, float(difference / size if size else difference and np.inf)


def _call(run, part):
    calls = run.trace.calls(part.path)
    if len(calls) != 1:
        raise ValueError(f"{part.path} ran {len(calls)} times: once is needed")
    return calls[0]


def _rows(x):
    """(B, T, C) -> (B T, C)"""
    return x.reshape(-1, x.shape[-1])


def _rows_of_heads(x):
    """(B, n, T, d) -> (n, B T, d)"""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[-1])
