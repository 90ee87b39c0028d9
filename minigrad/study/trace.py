"""What every head computes, and the gradients that come back to it, of any model and any loss.

    with study.trace_heads(model) as tr:
        loss = loss_fn(model(x), y)
        loss.backward()
    tr["blocks.1.attn"].pattern_grad[b, h]    # (T, S)

It works by head hooks (nn.MultiheadAttention.register_head_hook) and by hooks on the tensors that these receive.
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import is_grad_enabled
from ..base.errors import unknown
from ..nn import GPT, Parameter
from ..nn.attention import INPUTS, OUTPUT, POINTS
from ..nn.heads import known_heads
from ..tensor import Tensor
from ..typing import Array, FilePath
from . import identities, report
from .layers import WEIGHTS, as_float64, attention_layers, before_rotary, path_of, several
from .models import AttentionOnly
from .report.outcome import outcome_of, texts_of
from .stats import GRADIENTS, LAYER, POSITIONS, STATS, TOKENS
from .table import HeadTable

if TYPE_CHECKING:
    from ..nn.attention import MultiheadAttention
    from ..nn.module import Module
    from .identities import IdentityReport
    from .report import LayerView
    from .report.outcome import Outcome

VALUES = ["scores" if point == "qk" else point for point in POINTS]  # what a LayerTrace has of heads,
SHARED = [*INPUTS, OUTPUT]  # and what their heads share; it has the gradients of all
NAMES = [*VALUES, *SHARED, *(f"{value}_grad" for value in [*VALUES, *SHARED]), *WEIGHTS]


@contextmanager
def trace_heads(
    model: "Module", grads: bool = True, layers: Iterable[int | str] | None = None, heads: Iterable[int] | None = None
) -> "Iterator[HeadTrace]":
    """Within a with-block, keep in a HeadTrace what the attention layers of a Module compute, and its gradients.

    grads=False: no gradients. layers: paths or numbers (None: all). heads: numbers, to save memory (None: all). Inside
    the block, layers take the batched form: losses and gradients are, bit for bit, those of that form without a trace.
    Raises KeyError for an unknown layer, naming near matches, and ValueError for a head that no layer has or a model
    without attention."""
    trace = HeadTrace(model, grads, layers, heads)
    handles = trace._register_hooks(model)
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


class HeadTrace:
    """What trace_heads kept: trace[layer], by path or number, is the LayerTrace of that layer's last forward.

    layers: {path: MultiheadAttention} of those traced. tokens: the (B, T) ints that the model was last called with, as
    an array; None where it is not clear which argument they are, or where layers are not batch first. They are the only
    ints among the arguments, or the first ones given to an nn.GPT or AttentionOnly, whose second ones are targets."""

    def __init__(
        self, model: "Module", grads: bool, layers: Iterable[int | str] | None, heads: Iterable[int] | None
    ) -> None:
        self._paths, self.layers = list(attention_layers(model)), attention_layers(model, layers)
        self.tokens: Array | None = None
        self._targets: Array | None = None
        self._logits: Tensor | None = None
        self._grads, self._calls = grads, {path: [] for path in self.layers}
        self._products = {}  # {Parameter of a layer: dp ⊙ p and |dp ⊙ p|, (2, …)}, of what came back in this block
        owners = Counter(p for m in model.modules() for p in vars(m).values() if isinstance(p, Parameter))
        self._shared = {p for p, n in owners.items() if n > 1}
        most = max(layer.num_heads for layer in self.layers.values())
        wanted = known_heads(range(most) if heads is None else several(heads), most)
        if heads is not None and not wanted:
            raise ValueError("no heads are named: None means all")
        self._heads = {path: tuple(sorted(wanted & set(range(m.num_heads)))) for path, m in self.layers.items()}

    def __getitem__(self, layer: int | str) -> "LayerTrace":
        if calls := self.calls(layer):
            return calls[-1]
        path = path_of(layer, self._paths)
        why = "has not run within this trace" if self._heads[path] else "has none of the heads that are traced"
        raise RuntimeError(f"{path or 'the layer'} {why}")

    def calls(self, layer: int | str) -> "list[LayerTrace]":
        """The LayerTraces of all forwards of a layer, in order: several if it was used again."""
        path = path_of(layer, self._paths)
        if path not in self.layers:
            raise KeyError(f"{path} is not traced: {', '.join(self.layers)}")
        return list(self._calls[path])

    def __iter__(self) -> Iterator[str]:
        """The paths of the layers that have run."""
        return (path for path, calls in self._calls.items() if calls)

    def check(self, rtol: float | None = None) -> "IdentityReport":
        """Test the formulas and identities of a head's backward on what was traced: see identities.check.

        Returns an IdentityReport. Raises IdentityError, naming layer, head and identity, if one does not hold."""
        return identities.check(self, rtol)

    def table(self, stats: Iterable[str] | None = None, tokens: Any = None) -> HeadTable:
        """A HeadTable of statistics of the layers' last forwards: names of STATS, by default all that can be computed.

        tokens: (B, T) ints, for statistics that need them (None: those of the trace). Numbers are nan in a layer that
        lacks what a statistic needs: gradients, or keys at the same positions as the queries."""
        if not any(self._heads.values()):
            raise ValueError(f"all heads of {', '.join(self.layers)} are pruned")
        tokens = self.tokens if tokens is None else np.asarray(tokens)
        if stats is None:
            has = {POSITIONS}
            has |= {GRADIENTS} if any(self[path].has_grads for path in self) else set()
            has |= set() if tokens is None else {TOKENS}
            has |= {LAYER} if any(layer is not None for layer in self.layers.values()) else set()
            stats = [name for name, stat in STATS.items() if stat.needs <= has]
        stats = several(stats)
        if wrong := [name for name in stats if name not in STATS]:
            raise KeyError(unknown("statistic", wrong[0], STATS))
        if needing := [name for name in stats if TOKENS in STATS[name].needs]:
            fitting = {self[path].pattern.shape[::2] for path in self}
            if tokens is None:
                raise ValueError(f"{needing[0]} needs the tokens, (B, T) ints: pass tokens=")
            if tokens.shape not in fitting:
                raise ValueError(f"tokens of shape {tokens.shape} fit no layer: (B, T) are {sorted(fitting)}")
        columns = {name: {path: STATS[name].of(self[path], tokens) for path in self} for name in stats}
        return HeadTable(columns, {path: self._heads[path] for path in self})

    def to_html(
        self,
        path: FilePath,
        tokens: Any = None,
        title: str = "Attention heads",
        importance: Any = None,
        flow: Any = None,
        vocab: Any = None,
        of: str = "the loss",
        limit: int = report.LIMIT,
    ) -> Path:
        """Write the patterns, their gradients and .table() as one HTML file; returns its path.

        tokens: the text along the axes: a list of T str for each sequence; one str or list for a single sequence; or
        {layer path: (lists of queries, lists of keys)}. None: what vocab makes of the numbers that the model was given.
        vocab: a function, a list or a CharVocab that gives the text of a token's number, also of predicted ones.
        importance: {title: {layer path: (nh,)}}, further bars, such as head_importance's; the page opens on the head
        for which the first is largest. flow: a study.Flow of the same loss. of: what is differentiated, in words.
        limit: bytes; raises ValueError for more."""
        table = self.table()
        for name, column in (importance or {}).items():
            if name in table.stats:
                raise ValueError(f"the report has bars called {name!r} already")
            for layer in column:
                path_of(layer, self._paths)
            table[name] = {p: np.asarray(column[p])[list(self._heads[p])] for p in self if p in column}
        return report.write(
            path,
            [(None, {p: self[p].view(table) for p in self})],
            title=title,
            tokens=self.labels(tokens, vocab),
            flows=None if flow is None else [flow],
            outcomes=None if self.outcome is None else [self.outcome],
            vocab=vocab,
            meanings=dict.fromkeys(importance or {}, f"how much the head matters to {of}"),
            matters=next(iter(importance or {}), None),
            of=of,
            limit=limit,
        )

    @property
    def outcome(self) -> "Outcome | None":
        """The outcome.Outcome of the model's last call: its predictions and the loss of each token. None where its
        tokens are not known or its output is not, or does not begin with, their logits (B, T, V)."""
        return None if self._logits is None else outcome_of(self._logits, self._targets)

    def labels(self, tokens: Any, vocab: Any = None) -> Any:
        """tokens as report.page takes them, from what to_html takes."""
        if tokens is None and self.tokens is not None:
            text = str if vocab is None else texts_of(vocab)
            ids = [[text(token) for token in row] for row in self.tokens.tolist()]
            return {path: (ids, ids) for path in self if self[path].pattern.shape[-2:] == (len(ids[0]),) * 2}
        tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        alone = not isinstance(tokens, dict) and tokens and isinstance(tokens[0], str)
        return [list(tokens)] if alone else tokens

    # ---------------------------------------------------------------------------------------------------------- hooks

    def _register_hooks(self, model):
        """Returns the handles."""
        handles = [
            model.register_forward_pre_hook(self._keep_tokens),
            model.register_forward_hook(self._keep_logits),
        ]
        parameters = {}
        for path, layer in self.layers.items():
            if self._heads[path]:
                points = (*INPUTS, *POINTS, OUTPUT)
                handles += [layer.register_head_hook(p, partial(self._keep, path, p), last=True) for p in points]
                parameters |= dict.fromkeys(p for p in layer.parameters() if p.requires_grad)
        if self._grads:
            handles += [p.register_hook(partial(self._keep_products, p)) for p in parameters]
        return handles

    def _keep_tokens(self, model, args):
        ints = [x for x in args if isinstance(x, Tensor) and x.ndim == 2 and x.dtype.kind in "iu"]
        known = len(ints) == 1 or (ints and isinstance(model, (GPT, AttentionOnly)))
        known = known and all(layer.batch_first for layer in self.layers.values())  # else they may be (T, B)
        self.tokens = ints[0].cpu().numpy().copy() if known else None
        self._targets = ints[1].cpu().numpy().copy() if known and len(ints) > 1 else None

    def _keep_logits(self, model, args, output):
        first = output[0] if isinstance(output, tuple) and output else output
        shape = None if self.tokens is None else self.tokens.shape
        self._logits = first.detach() if isinstance(first, Tensor) and first.shape[:-1] == shape else None

    def _keep_products(self, p, g):
        products = as_float64(g) * as_float64(p)  # at once, since the optimizer may change p later
        _add(self._products, p, np.stack([products, np.abs(products)]))

    def _keep(self, path, point, layer, x):
        if point == INPUTS[0]:
            self._calls[path].append(LayerTrace(path, layer, self._heads[path], self._grads))
        self._calls[path][-1]._keep(point, x)


class LayerTrace:
    """One forward of one attention layer, and the gradients that came back to it: arrays of its n `heads` (numbers).

        q (B, n, T, d_k), k (B, n, S, d_k), v (B, n, S, d_v)    as a head uses them: after rotary, shared ones repeated
        scores (B, n, T, S) = scale · q kᵀ, not yet masked      pattern (B, n, T, S) = softmax of the masked scores
        z (B, n, T, d_v) = pattern v

    q_grad, k_grad, v_grad, scores_grad, pattern_grad and z_grad have the same shapes: sums over all backward passes so
    far. They raise RuntimeError until a gradient has come. (scores_grad is what Katz and Wolf, 2024, call reversed
    attention.) What the heads share:

        x_q (B, T, C), x_k (B, S, kdim), x_v (B, S, vdim)       the layer's query, key and value; often all one array
        y (B, T, C), and y_grad                                 its output
        x_q_grad (B, n, T, C), x_k_grad, x_v_grad               of each head's own copy: dq W_Qᵀ, … All heads' add up to
                                                                the gradient of x_q. float64, computed when asked for
        W_Q (n, C, d_k), W_K, W_V, W_O (n, d_v, C)              float64, in this forward; W_O times head_gates

    gates (n,): these. scale: of the scores. dropout: the probability in use. altered: had the layer hooks that may
    replace what it computes? Gradients are then those of what was used. twice: did gradients come again after a
    backward with create_graph=True, so that some of them may be second derivatives?"""

    q: Array
    k: Array
    v: Array
    scores: Array
    pattern: Array
    z: Array
    x_q: Array
    x_k: Array
    x_v: Array
    y: Array
    q_grad: Array
    k_grad: Array
    v_grad: Array
    scores_grad: Array
    pattern_grad: Array
    z_grad: Array
    x_q_grad: Array
    x_k_grad: Array
    x_v_grad: Array
    y_grad: Array
    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array

    def __init__(self, path: str, layer: "MultiheadAttention", heads: Sequence[int], grads: bool) -> None:
        self.path, self.layer, self.heads, self.scale = path, layer, heads, layer.score_scale
        self.dropout = layer.dropout if layer.training else 0.0
        self.altered = layer.hooks_may_replace
        self.twice = self._differentiable = False
        self._selected = None if len(heads) == layer.num_heads else list(heads)
        self._grads, self._values, self._came = grads, {}, {}
        self._constant = set()  # the points where no gradient comes back
        self._given = {}  # {point: Tensor}, the inputs, until all of them are known
        each = [layer.head(h) for h in heads]
        self.gates = np.array([head.gate for head in each])
        copies = ([getattr(head, name).cpu().numpy() for head in each] for name in WEIGHTS)
        self._weights = dict(zip(WEIGHTS, map(np.stack, copies)))  # since the optimizer may change what they are of

    if not TYPE_CHECKING:  # which has the names from above

        def __getattr__(self, name):
            if name.startswith("__") or name not in NAMES:
                raise AttributeError(unknown("value", name, [*NAMES, *vars(self)]))
            if name in WEIGHTS:
                return as_float64(self._weights[name]) * (self.gates[:, None, None] if name == "W_O" else 1.0)
            value = name.removesuffix("_grad")
            if name != value and value in INPUTS:
                p = value.removeprefix("x_")
                return self.projection_grad(p) @ as_float64(self._weights[f"W_{p.upper()}"]).swapaxes(1, 2)
            point, scale = ("qk", self.scale) if value == "scores" else (value, None)
            if point not in self._values:
                raise RuntimeError(f"the forward of {self.path or 'the layer'} stopped before it had computed {value}")
            if name == value:
                return self._values[point] if scale is None else self._values[point] * scale
            if point not in self._came:
                raise RuntimeError(f"no grad yet of {value} in {self.path or 'the layer'}: {self._why_none(point)}")
            return self._came[point] if scale is None else self._came[point] / scale

    def __dir__(self):
        return [*super().__dir__(), *NAMES]

    def projection_grad(self, p: str) -> Array:
        """The gradient of "q", "k" or "v" as the weights made it, before rotary positions: (B, n, T or S, d), float64.
        It is q_grad, k_grad or v_grad where there are none."""
        dx = as_float64(getattr(self, f"{p}_grad"))
        return before_rotary(dx) if self.layer.positions == "rotary" and p != "v" else dx

    def __repr__(self):
        (B, _, T, S), with_grads = self.pattern.shape, "with" if self.has_grads else "without"
        where = f"{self.path or 'the layer'}, heads {list(self.heads)}"
        return f"<LayerTrace of {where}: B={B}, T={T}, S={S}, {with_grads} gradients>"

    @property
    def has_grads(self) -> bool:
        """True if a backward has come through the layer."""
        return all(point in self._came for point in (*POINTS, OUTPUT))

    def _why_none(self, point):
        if not self._grads:
            return "the trace was made with grads=False"
        if point in self._constant:
            return "its forward ran under no_grad(), or needed no gradient"
        return "call backward() on a loss that depends on it"

    def view(self, table: HeadTable) -> "LayerView":
        """This layer as the report shows it, with its own rows of a HeadTable."""
        gradients, by_token = {}, {}
        if self.has_grads:  # dS first, since of dP much lies on keys that the mask hides
            gradients = {"dS": self.scores_grad, "dP": self.pattern_grad}
            by_token = {f"d{p}": np.linalg.norm(as_float64(getattr(self, f"{p}_grad")), axis=-1) for p in "zqkv"}
        none = np.full(len(self.heads), np.nan)
        stats = {stat: table[stat].get(self.path, none) for stat in table.stats}
        return report.LayerView(list(self.heads), self.pattern, gradients, stats, by_token, self.crossed)

    @property
    def crossed(self) -> bool:
        """Do queries and keys come from different sequences?"""
        return self.x_q is not self.x_k

    def _keep(self, point, x):
        if point in INPUTS:
            return self._keep_input(point, x)
        self._given.clear()
        self._values[point] = self._own(point, x)
        if x.node is None:
            self._constant.add(point)
        elif self._grads:
            kept = weakref.ref(self)  # so that a graph which outlives the trace keeps this hook, but not our arrays
            x.register_hook(lambda g: (trace := kept()) and trace._arrived(point, g))

    def _keep_input(self, point, x):
        """Keep a copy, as anything may happen to x after the layer has read it: one of those that are one."""
        same = next((p for p, given in self._given.items() if given is x), None)
        self._values[point] = _copy(x) if same is None else self._values[same]
        self._given[point] = x

    def _arrived(self, point, g):
        self.twice = self.twice or (self._differentiable and point in self._came)
        self._differentiable = self._differentiable or is_grad_enabled()
        _add(self._came, point, self._own(point, g))

    def _own(self, point, x):
        """x (B, nh, …) as an array (B, n, …). The output (B, T, C) is copied: a residual stream may be added to it."""
        if point == OUTPUT:
            return _copy(x)
        array = x.detach().cpu().numpy()
        return array if self._selected is None else array[:, self._selected]


def _copy(x):
    return np.array(x.detach().cpu().numpy())


def _add(sums, key, g):
    """Add g to sums[key], in a new array: the one that is there may be somebody else's too."""
    sums[key] = sums[key] + g if key in sums else g
