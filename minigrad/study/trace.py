"""What every head computes, and the gradients that come back to it, for any model and any loss.

    with study.trace_heads(model) as trace:
        loss = loss_fn(model(x), y)
        loss.backward()
    trace["blocks.1.attn"].pattern_grad[b, h]    # (T, S)
    trace["1.2"].pattern_grad[b]                 # the same, of head 2

It works by head hooks (nn.MultiheadAttention.register_head_hook) and by hooks on the tensors that these receive.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..base.errors import unknown
from ..nn import GPT
from ..nn.heads import INPUTS, OUTPUT, POINTS, check_heads
from ..tensor import Tensor
from ..typing import Array, FilePath
from . import report
from .layers import WEIGHTS, as_float64, as_list, attention_layers, before_rotary, head_weights, numbers_of_heads
from .models import AttentionOnly
from .names import head_of, layer_names, node_of, path_of
from .stats import GRADIENTS, POSITIONS, STATS, TOKENS, HeadTable

if TYPE_CHECKING:
    from ..nn.attention import MultiheadAttention
    from ..nn.module import Module
    from ..training.text import CharVocab

SHAPES = {  # {attribute of a LayerTrace that each head has: its shape}
    "q": "(B, n, T, d_k)", "k": "(B, n, S, d_k)", "v": "(B, n, S, d_v)", "scores": "(B, n, T, S)",
    "pattern": "(B, n, T, S)", "z": "(B, n, T, d_v)",
}  # fmt: skip
SHARED = [*INPUTS, OUTPUT]  # values that all heads share
_OF_THE_LAYER = [*SHARED, f"{OUTPUT}_grad"]  # values without an axis of heads
NAMES = [*SHAPES, *SHARED, *(f"{name}_grad" for name in [*SHAPES, *SHARED]), *WEIGHTS]


@contextmanager
def trace_heads(
    model: "Module",
    grads: bool = True,
    layers: Iterable[int | str] | int | str | None = None,
    heads: Iterable[int | str] | int | str | None = None,
) -> "Iterator[HeadTrace]":
    """Within the with-block, keep in a HeadTrace what the attention layers of a Module compute, and its gradients.

    grads=False: no gradients. layers: only these, by path or number. heads: only these, to save memory: names such as
    "0.3", or numbers, which are meant in every layer. Inside the block, layers take the batched form: losses and
    gradients are, bit for bit, those of that form without a trace. Raises KeyError for an unknown layer or name of a
    head, ValueError for a number that no layer has, and for a model without attention."""
    all_layers = attention_layers(model)
    trace = HeadTrace(attention_layers(model, layers), _chosen_heads(all_layers, layers, heads))
    handles = trace._watch(model, grads)
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def _chosen_heads(all_layers, layers, heads):
    """{path of every attention layer: the numbers of its heads that are traced}, none in a layer that is not traced."""
    known = numbers_of_heads(all_layers)
    traced = [path_of(name, known) for name in (known if layers is None else as_list(layers))]
    most = max(len(known[path]) for path in traced)
    wanted = list(range(most)) if heads is None else as_list(heads)
    if not wanted:
        raise ValueError("no heads are named: None means all")
    names = {head_of(each, known) for each in wanted if isinstance(each, str)}  # one layer's head each
    numbers = check_heads([each for each in wanted if not isinstance(each, str)], most)  # meant in every layer
    chosen = {}
    for path in known:
        of_layer = [h for h in known[path] if h in numbers or (path, h) in names]
        chosen[path] = tuple(of_layer) if path in traced else ()
    if not any(chosen.values()):
        raise ValueError(f"none of the heads {wanted} is in the layers {traced}")
    return chosen


class HeadTrace:
    """What trace_heads kept. trace["blocks.1.attn"] and trace[1] are the LayerTrace of a layer's last forward;
    trace["1.2"] is the OneHead of head 2 in it.

    layers: {path: MultiheadAttention} of the layers traced. tokens: the (B, T) ints that the model was last called
    with, as an array; None where it is not clear which argument they are, or where layers are not batch first. They are
    the only ints among the arguments, or the first ones given to an nn.GPT or AttentionOnly, whose second ones are
    targets."""

    tokens: Array | None = None

    def __init__(self, layers: "Mapping[str, MultiheadAttention]", heads: Mapping[str, Sequence[int]]) -> None:
        """heads: {path of every attention layer of the model: the numbers of the heads traced}."""
        self.layers, self._heads = layers, heads
        self._calls: dict[str, list[LayerTrace]] = {path: [] for path in layers}

    @overload
    def __getitem__(self, name: int) -> "LayerTrace": ...
    @overload
    def __getitem__(self, name: str) -> "LayerTrace | OneHead": ...
    def __getitem__(self, name: int | str) -> "LayerTrace | OneHead":
        node = node_of(name, self._heads)
        layer = self._last(node.path)
        return layer if node.head is None else OneHead(layer, node.head)

    def _last(self, layer):
        """The LayerTrace of a layer's last forward."""
        if calls := self.calls(layer):
            return calls[-1]
        path = path_of(layer, self._heads)
        why = "has not run within this trace" if self._heads[path] else "has none of the heads that are traced"
        raise RuntimeError(f"{path or 'the layer'} {why}")

    def calls(self, layer: int | str) -> "list[LayerTrace]":
        """The LayerTraces of all forwards of a layer, in order: several if it was used again."""
        path = path_of(layer, self._heads)
        if path not in self.layers:
            raise KeyError(f"{path} is not traced: {', '.join(self.layers)}")
        return list(self._calls[path])

    def __iter__(self) -> Iterator[str]:
        """The paths of the layers that have run."""
        return (path for path, calls in self._calls.items() if calls)

    def table(self, stats: Iterable[str] | None = None, tokens: Any = None) -> HeadTable:
        """Return a HeadTable of statistics of the layers' last forwards: names of STATS, by default all that can be
        computed.

        tokens: (B, T) ints, for statistics that need them (None: those of the trace). Numbers are nan in a layer that
        lacks what a statistic needs: gradients, or keys at the same positions as the queries."""
        tokens = self.tokens if tokens is None else np.asarray(tokens)
        if stats is None:
            has = {POSITIONS}
            has |= {GRADIENTS} if any(self._last(path).has_grads for path in self) else set()
            has |= set() if tokens is None else {TOKENS}
            stats = [name for name, stat in STATS.items() if has.issuperset(stat.needs)]
        stats = as_list(stats)
        if wrong := [name for name in stats if name not in STATS]:
            raise KeyError(unknown("statistic", wrong[0], STATS))
        if needing := [name for name in stats if TOKENS in STATS[name].needs]:
            fitting = {self._last(path).pattern.shape[::2] for path in self}
            if tokens is None:
                raise ValueError(f"{needing[0]} needs the tokens, (B, T) ints: pass tokens=")
            if tokens.shape not in fitting:
                raise ValueError(f"tokens of shape {tokens.shape} fit no layer: (B, T) are {sorted(fitting)}")
        columns = {name: {path: STATS[name].of(self._last(path), tokens) for path in self} for name in stats}
        return HeadTable(columns, self._heads)

    def to_html(
        self, path: FilePath, tokens: Any = None, title: str = "Attention heads",
        importance: Mapping[str, Mapping[str, Array]] | None = None, flow: Any = None,
        vocab: "Callable[[int], str] | Sequence[str] | CharVocab | None" = None, of: str = "the loss",
        losses: Array | None = None, lessons: Iterable[Any] = (), limit: int = report.LIMIT,
    ) -> Path:  # fmt: skip
        """Write the patterns, their gradients and .table() as one HTML file, and return its path.

        tokens: the text along the axes: a list of T str for each sequence; one str or list for a single sequence; or
        {layer path: (lists of queries, lists of keys)}. None: what vocab makes of the numbers that the model was given.
        vocab: a function, a list or a CharVocab that gives the text of a token's number.
        importance: {title: {layer path: (nh,)}}, further bars, such as head_importance's; the page opens on the head
        for which the first is largest. flow: a study.Flow of the same loss. of: what is differentiated, in a few words
        that fit into a sentence. losses: (B, T), the loss of the prediction at each position, by which the text is
        shaded. lessons: what study.lesson gives for some heads, further maps. limit: bytes; raises ValueError for a
        larger page."""
        table, names = self.table(), layer_names(self._heads)
        for name, column in (importance or {}).items():
            if name in table.stats:
                raise ValueError(f"the report has bars called {name!r} already")
            for layer in column:
                path_of(layer, self._heads)
            table[name] = {p: np.asarray(column[p])[list(self._heads[p])] for p in self if p in column}
        views = {p: self._last(p).view(table, names[p]) for p in self}
        for each in lessons:
            layer, head = head_of(each.head, self._heads)
            view = views[layer]
            if each.positions.shape != view.pattern.shape[-2:]:
                raise ValueError(
                    f"the lesson of {each.head} is {each.positions.shape}, its pattern {view.pattern.shape}"
                )
            maps = view.gradients.setdefault("lesson", np.zeros(view.pattern.shape))
            maps[:, view.heads.index(head)] = each.positions
        return report.write(
            path,
            views,
            title=title,
            tokens=self.labels(tokens, vocab),
            flow=flow,
            meanings=dict.fromkeys(importance or {}, f"how much the head matters to {of}"),
            matters=next(iter(importance or {}), None),
            of=of,
            losses=losses,
            limit=limit,
        )

    def labels(self, tokens: Any, vocab: Any = None) -> Any:
        """The tokens in the form that report.page takes, from those that to_html takes."""
        if tokens is None and self.tokens is not None:
            text = vocab if callable(vocab) else str if vocab is None else getattr(vocab, "chars", vocab).__getitem__
            ids = [[text(token) for token in row] for row in self.tokens.tolist()]
            return {path: (ids, ids) for path in self if self._last(path).pattern.shape[-2:] == (len(ids[0]),) * 2}
        tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        alone = not isinstance(tokens, dict) and tokens and isinstance(tokens[0], str)
        return [list(tokens)] if alone else tokens

    # ---------------------------------------------------------------------------------------------------------- hooks

    def _watch(self, model, grads):
        """Register the hooks, and return their handles."""
        handles = [model.register_forward_pre_hook(self._keep_tokens)]
        for path, layer in self.layers.items():
            if self._heads[path]:
                points = (*INPUTS, *POINTS, OUTPUT)
                handles += [layer.register_head_hook(p, partial(self._keep, path, p, grads), last=True) for p in points]
        return handles

    def _keep_tokens(self, model, args):
        ints = [x for x in args if isinstance(x, Tensor) and x.ndim == 2 and x.dtype.kind in "iu"]
        known = len(ints) == 1 or (ints and isinstance(model, (GPT, AttentionOnly)))
        self.tokens = ints[0].numpy() if known else None

    def _keep(self, path, point, grads, layer, x):
        if point == INPUTS[0]:
            heads = self._heads[path]
            weights = zip(*(head_weights(layer, h) for h in heads))  # kept now: the optimizer may change them later
            arrays = dict(zip(WEIGHTS, map(np.stack, weights)))
            self._calls[path].append(LayerTrace(path, layer, heads, layer.score_scale, arrays))
        self._calls[path][-1]._keep(point, x, grads)


class LayerTrace:
    """One forward of one attention layer, and the gradients that came back to it: arrays of its n `heads` (numbers).

        q (B, n, T, d_k), k (B, n, S, d_k), v (B, n, S, d_v)    as a head uses them: after rotary, shared ones repeated
        scores (B, n, T, S) = scale · q kᵀ, not yet masked      pattern (B, n, T, S) = softmax of the masked scores
        z (B, n, T, d_v) = pattern v

    q_grad, k_grad, v_grad, scores_grad, pattern_grad and z_grad have the same shapes: sums over all backward passes so
    far. They raise RuntimeError until a gradient has come. (scores_grad is what Katz and Wolf, 2024, call reversed
    attention.) What the heads share:

        x_q (B, T, C), x_k (B, S, C), x_v (B, S, C)             the layer's query, key and value; often all one array
        y (B, T, C), and y_grad                                 its output
        x_q_grad (B, n, T, C), x_k_grad, x_v_grad               of each head's own copy: dq W_Qᵀ, … Over the heads they
                                                                add up to the gradient of x_q. float64, computed when
                                                                asked for
        W_Q (n, C, d_k), W_K, W_V, W_O (n, d_v, C)              float64, in this forward; W_O times head_gates

    scale: of the scores. layer: the MultiheadAttention. Where a hook replaced a value, the replaced one is here."""

    def __init__(
        self, path: str, layer: "MultiheadAttention", heads: Sequence[int], scale: float, arrays: dict[str, Any]
    ) -> None:
        self.path, self.layer, self.heads, self.scale, self._arrays = path, layer, heads, scale, arrays
        self.gates = np.array([layer.head(h).gate for h in heads])
        self._given: dict = {}  # {point: Tensor}, the inputs, until all of them are known

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__") or name not in NAMES:
            raise AttributeError(unknown("value", name, [*NAMES, *vars(self)]))
        if name in self._arrays:
            return self._arrays[name]
        value = name.removesuffix("_grad")
        if name != value and value in INPUTS:
            p = value.removeprefix("x_")
            return self.projection_grad(p) @ self._arrays[f"W_{p.upper()}"].swapaxes(1, 2)
        where = self.path or "the layer"
        if name == value:
            raise RuntimeError(f"there is no {name} in {where}: it was not computed")
        raise RuntimeError(
            f"no grad yet of {value} in {where}: call backward() on a loss of it, without no_grad() and grads=False"
        )

    def __dir__(self):
        return [*super().__dir__(), *NAMES]

    def projection_grad(self, p: str) -> Array:
        """Return the gradient of "q", "k" or "v" as the weights made it, before rotary positions: (B, n, T or S, d),
        float64. Without rotary positions it is q_grad, k_grad or v_grad."""
        dx = as_float64(getattr(self, f"{p}_grad"))
        return before_rotary(dx) if p != "v" and self.layer.positions == "rotary" else dx

    def factors(self, weight: str) -> tuple[Array, Array]:
        """Return x and dy of dW = Σ_t x_t ⊗ dy_t, for the heads' "W_Q", "W_K", "W_V" or "W_O", float64: (B, T, m), or
        (B, n, T, m) for the one that each head has for itself. dq and dk are those before rotary positions."""
        if weight == "W_O":
            return as_float64(self.z) * self.gates[:, None, None], as_float64(self.y_grad)
        p = weight.removeprefix("W_").lower()
        return as_float64(getattr(self, f"x_{p}")), self.projection_grad(p)

    def weight_grad(self, weight: str) -> Array:
        """Return each head's own part of dW: (n, m, d)."""
        x, dy = self.factors(weight)
        dW = np.tensordot(x, dy, ([0, x.ndim - 2], [0, dy.ndim - 2]))  # (m, n, d) or (n, m, d)
        return dW if weight == "W_O" else dW.swapaxes(0, 1)

    def __repr__(self):
        (B, _, T, S), with_grads = self.pattern.shape, "with" if self.has_grads else "without"
        where = f"{self.path or 'the layer'}, heads {list(self.heads)}"
        return f"<LayerTrace of {where}: B={B}, T={T}, S={S}, {with_grads} gradients>"

    @property
    def has_grads(self) -> bool:
        """True if a backward has come through the layer."""
        return all(f"{name}_grad" in self._arrays for name in [*SHAPES, OUTPUT])

    @property
    def crossed(self) -> bool:
        """True if queries and keys come from different inputs."""
        return self.x_q is not self.x_k

    def view(self, table: HeadTable, name: str) -> report.LayerView:
        """Return this layer as the report shows it, with its own rows of a HeadTable. name: what the names of its heads
        begin with."""
        gradients, by_token = {}, {}
        if self.has_grads:  # dS first, since of dP much lies on keys that the mask hides
            gradients = {"dS": self.scores_grad, "dP": self.pattern_grad}
            by_token = {f"d{p}": np.linalg.norm(as_float64(getattr(self, f"{p}_grad")), axis=-1) for p in "zqkv"}
        none = np.full(len(self.heads), np.nan)
        stats = {stat: table[stat].get(self.path, none) for stat in table.stats}
        return report.LayerView(list(self.heads), self.pattern, gradients, stats, by_token, self.crossed, name)

    def _keep(self, point, x, grads):
        if point in INPUTS:  # inputs that are one Tensor share an array
            same = next((p for p, given in self._given.items() if given is x), None)
            self._arrays[point] = x.numpy(force=True) if same is None else self._arrays[same]
            self._given[point] = x
            return
        self._given.clear()
        name = "scores" if point == "qk" else point
        self._arrays[name] = self._own(point, x, self.scale)
        if grads and x.node is not None:
            kept = weakref.ref(self)  # a graph may outlive the trace: its hooks must not keep our arrays
            x.register_hook(lambda g: (trace := kept()) and trace._arrived(f"{name}_grad", point, g))

    def _arrived(self, name, point, g):
        _add(self._arrays, name, self._own(point, g, 1 / self.scale))

    def _own(self, point, x, scale):
        """x as an array: all of y; of a value (B, nh, …), the traced heads (B, n, …); q kᵀ times the scale."""
        array = x.numpy(force=True)
        if point != OUTPUT and len(self.heads) != array.shape[1]:
            array = array[:, list(self.heads)]
        return array * scale if point == "qk" else array


class OneHead:
    """One head of a LayerTrace: the same names, without the axis of heads. pattern is (B, T, S), W_Q is (C, d_k)."""

    def __init__(self, layer: LayerTrace, head: int) -> None:
        self.layer, self.head = layer, head

    def __getattr__(self, name: str) -> Array:
        value = getattr(self.layer, name)
        if name in _OF_THE_LAYER:
            return value
        i = self.layer.heads.index(self.head)
        return value[i] if name in WEIGHTS else value[:, i]

    def __dir__(self):
        return [*super().__dir__(), *NAMES]


def _add(sums, key, g):
    """Add g to sums[key], in a new array: the array that is there may be used elsewhere too."""
    sums[key] = sums[key] + g if key in sums else g
