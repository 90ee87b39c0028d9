"""What every head computes, and the gradients that come back to it, for any model and any loss.

    with study.trace_heads(model) as trace:
        loss = loss_fn(model(x), y)
        loss.backward()
    trace["blocks.1.attn"].pattern_grad[b, h]    # (T, S)
    trace["1.2"].pattern_grad[b]                 # the same, of head 2

Values come from head hooks (nn.MultiheadAttention.register_head_hook), gradients from hooks on the Tensors of these.
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
from .layers import (
    WEIGHTS,
    alone,
    as_float64,
    as_list,
    attention_layers,
    before_rotary,
    head_weights,
    numbers_of_heads,
    only_prediction,
)  # fmt: skip
from .models import AttentionOnly
from .names import head_of, layer_names, part_of, path_of
from .stats import GRADIENTS, POSITIONS, STATS, TOKENS, HeadTable

if TYPE_CHECKING:
    from ..nn.attention import MultiheadAttention
    from ..nn.module import Module
    from ..training.text import CharVocab

    Sequences = Sequence[Sequence[str]]  # a text for each token of each sequence
    Texts = str | Sequence[str] | Sequences | Mapping[str, tuple[Sequences, Sequences]]

SHAPES = {  # {attribute of a LayerTrace with an axis of heads: its shape}
    "q": "(B, n, T, d_k)", "k": "(B, n, S, d_k)", "v": "(B, n, S, d_v)", "scores": "(B, n, T, S)",
    "pattern": "(B, n, T, S)", "z": "(B, n, T, d_v)",
}  # fmt: skip
SHARED = [*INPUTS, OUTPUT]  # values that all heads share
WITHOUT_HEADS = [*SHARED, f"{OUTPUT}_grad"]  # values without an axis of heads
BY_PREDICTION = "scores_grad_by_prediction", "gate_grad_by_prediction"  # set by HeadTrace.backward
NAMES = [*SHAPES, *SHARED, *(f"{name}_grad" for name in [*SHAPES, *SHARED]), *WEIGHTS, *BY_PREDICTION]


@contextmanager
def trace_heads(
    model: "Module",
    grads: bool = True,
    layers: Iterable[int | str] | int | str | None = None,
    heads: Iterable[int | str] | int | str | None = None,
) -> "Iterator[HeadTrace]":
    """Within the with-block, keep in a HeadTrace what the attention layers of a Module compute, and its gradients.

    grads=False: no gradients. layers: only these, by path or number. heads: only these, to save memory: a name such as
    "0.3" is a head of one layer, a number such as 3 is a head of every traced layer. Inside the block, layers run with
    impl="batched". The trace itself changes no bit of losses and gradients. Raises KeyError for an unknown layer or
    name of a head, ValueError for a number that no layer has, and for a model without attention. Raises RuntimeError if
    another thread is studying the model."""
    all_layers = attention_layers(model)
    trace = HeadTrace(attention_layers(model, layers), _chosen_heads(all_layers, layers, heads), grads)
    with alone(model):
        handles = trace._watch(model)
        try:
            yield trace
        finally:
            for handle in handles:
                handle.remove()


def _chosen_heads(all_layers, layers, heads):
    """{path of every attention layer: numbers of its traced heads}, for the arguments of trace_heads."""
    heads_of = numbers_of_heads(all_layers)
    traced = [path_of(name, heads_of) for name in (heads_of if layers is None else as_list(layers))]
    largest_nh = max(len(heads_of[path]) for path in traced)
    wanted = list(range(largest_nh)) if heads is None else as_list(heads)
    if not wanted:
        raise ValueError("no heads are named: None means all")
    # "1.2" is head 2 of layer 1; 2 is head 2 of every traced layer.
    named = {head_of(each, heads_of) for each in wanted if isinstance(each, str)}
    numbers = check_heads([each for each in wanted if not isinstance(each, str)], largest_nh)
    chosen = {}
    for path in heads_of:
        of_layer = [h for h in heads_of[path] if h in numbers or (path, h) in named]
        chosen[path] = tuple(of_layer) if path in traced else ()
    if not any(chosen.values()):
        raise ValueError(f"none of the heads {wanted} is in the layers {traced}")
    return chosen


class HeadTrace:
    """The result of trace_heads. trace["blocks.1.attn"] and trace[1] are the LayerTrace of a layer's last forward;
    trace["1.2"] is the OneHead of head 2 in it.

    layers: {path: MultiheadAttention} of the traced layers. tokens: the (B, T) ints of the model's last call, as an
    array: its only (B, T) argument of ints, or the first one of nn.GPT and AttentionOnly, whose second one is targets.
    None if there is no such argument or several."""

    tokens: Array | None = None

    def __init__(
        self, layers: "Mapping[str, MultiheadAttention]", heads: Mapping[str, Sequence[int]], grads: bool
    ) -> None:
        """heads: {path of every attention layer of the model: the numbers of its traced heads}. grads: True if
        gradients are kept."""
        self.layers, self._heads, self._with_grads = layers, heads, grads
        self._calls: dict[str, list[LayerTrace]] = {path: [] for path in layers}

    @overload
    def __getitem__(self, name: int) -> "LayerTrace": ...
    @overload
    def __getitem__(self, name: str) -> "LayerTrace | OneHead": ...
    def __getitem__(self, name: int | str) -> "LayerTrace | OneHead":
        part = part_of(name, self._heads)
        layer = self._last(part.path)
        return layer if part.head is None else OneHead(layer, part.head)

    def _last(self, layer):
        """The LayerTrace of a layer's last forward."""
        if calls := self.calls(layer):
            return calls[-1]
        path = path_of(layer, self._heads)
        why = "has not run within this trace" if self._heads[path] else "has none of the traced heads"
        raise RuntimeError(f"{path or 'the layer'} {why}")

    def calls(self, layer: int | str) -> "list[LayerTrace]":
        """Return the LayerTraces of all forwards of a layer, in order."""
        path = path_of(layer, self._heads)
        if path not in self.layers:
            raise KeyError(f"{path} is not traced: {', '.join(self.layers)}")
        return list(self._calls[path])

    def clear_gradients(self) -> None:
        """Forget all gradients so far, before another backward."""
        for calls in self._calls.values():
            for layer in calls:
                layer._take_gradients()

    def backward(self, losses: Tensor) -> None:
        """Do the backward of losses.sum(), prediction by prediction, so that the trace knows what each one sends back.

        losses: (B, P), the losses of P predictions in each sequence, such as study.prediction_losses(model, x, y). The
        gradients of the trace and every .grad are those of losses.sum().backward(), up to rounding. Besides, each
        LayerTrace has scores_grad_by_prediction (P, B, n, T, S) and gate_grad_by_prediction (P, B, n), whose sums over
        P are scores_grad, and the gradient of a gate on each head in each sequence.

        This takes P backward passes, and memory for P times scores_grad: trace_heads(heads=…) keeps it for some heads
        only. Raises ValueError unless losses have two dims."""
        if losses.ndim != 2:
            raise ValueError(f"backward by prediction needs losses (B, P), got shape {losses.shape}")
        if not self._with_grads:
            raise RuntimeError("backward by prediction needs trace_heads(grads=True)")
        layers = [layer for path in self for layer in self.calls(path)]
        for layer in layers:
            layer._predictions.clear()
        P = losses.shape[1]
        for p in range(P):
            earlier = [layer._take_gradients() for layer in layers]
            losses.backward(only_prediction(losses, p), retain_graph=p < P - 1)
            for layer, gradients in zip(layers, earlier):
                layer._end_prediction(gradients)
        for layer in layers:
            layer._join_predictions()

    def __iter__(self) -> Iterator[str]:
        """The paths of the layers that have run."""
        return (path for path, calls in self._calls.items() if calls)

    def table(self, stats: Iterable[str] | None = None, tokens: Array | Tensor | None = None) -> HeadTable:
        """Return a HeadTable of statistics of the layers' last forwards.

        stats: names of STATS (None: all that can be computed). tokens: (B, T) ints, for statistics that need them
        (None: those of the trace). A number is nan if the layer lacks what the statistic needs: gradients, or keys at
        the same positions as the queries."""
        tokens = self.tokens if tokens is None else np.asarray(tokens)
        if stats is None:
            available = {POSITIONS}
            if any(self._last(path).has_grads for path in self):
                available.add(GRADIENTS)
            if tokens is not None:
                available.add(TOKENS)
            stats = [name for name, stat in STATS.items() if available.issuperset(stat.needs)]
        stats = as_list(stats)
        if wrong := [name for name in stats if name not in STATS]:
            raise KeyError(unknown("statistic", wrong[0], STATS))
        if needing := [name for name in stats if TOKENS in STATS[name].needs]:
            shapes = {self._last(path).pattern.shape[::2] for path in self}
            if tokens is None:
                raise ValueError(f"{needing[0]} needs the tokens, (B, T) ints: pass tokens=")
            if tokens.shape not in shapes:
                raise ValueError(f"tokens of shape {tokens.shape} fit no layer: (B, T) are {sorted(shapes)}")
        columns = {name: {path: STATS[name].of(self._last(path), tokens) for path in self} for name in stats}
        return HeadTable(columns, self._heads)

    def to_html(
        self, path: FilePath, tokens: "Texts | None" = None, title: str = "Attention heads",
        importance: Mapping[str, Mapping[str, Array]] | None = None, flow: report.FlowData | None = None,
        vocab: "Callable[[int], str] | Sequence[str] | CharVocab | None" = None, of: str = "the loss",
        losses: Array | None = None, lessons: Iterable[report.LessonData] = (),
        history: report.HistoryData | None = None, limit: int = report.LIMIT,
    ) -> Path:  # fmt: skip
        """Write the patterns, their gradients and .table() as one HTML file, and return its path.

        tokens: the text along the axes: a list of T str for each sequence; one str or list for a single sequence; or
        {layer path: (lists of queries, lists of keys)}. None: the text that vocab gives for the tokens of the trace.
        vocab: a function, a list or a CharVocab that gives the text of a token.
        importance: {title: {layer path: (nh,)}}, further bars, such as results of head_importance; the page opens on
        the head with the largest number in the first. flow: a study.Flow of the same loss. of: the name of the
        differentiated quantity. losses: (B, T), the loss of the prediction at each position, which shades the text.
        lessons: study.Lessons of some heads, which become maps. history: a study.History, which becomes lines. limit:
        bytes of the file. If it would be larger, the heads that matter least have maps of blocks of cells; raises
        ValueError if it is larger even so.

        If the gradients are those of HeadTrace.backward, the page can also show the part of them that comes from one
        prediction: that of the token that is clicked."""
        table, names = self.table(), layer_names(self._heads)
        for name, column in (importance or {}).items():
            if name in table.stats:
                raise ValueError(f"the report has bars called {name!r} already")
            for layer in column:
                path_of(layer, self._heads)
            table[name] = {p: np.asarray(column[p])[list(self._heads[p])] for p in self if p in column}
        views = {p: self._last(p).view(table, names[p]) for p in self}
        report.add_predictions({views[p]: self._last(p)._by_prediction() for p in self}, limit)
        for lesson in lessons:
            layer, head = head_of(lesson.head, self._heads)
            view = views[layer]
            if lesson.positions.shape != view.pattern.shape[-2:]:
                raise ValueError(
                    f"the lesson of {lesson.head} is {lesson.positions.shape}, its pattern {view.pattern.shape}"
                )
            maps = view.gradients.setdefault("lesson", np.zeros(view.pattern.shape))
            maps[:, view.heads.index(head)] = lesson.positions
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
            history=history,
            limit=limit,
        )

    def labels(self, tokens: Any, vocab: Any = None) -> Any:  # Any: the types of to_html, and what report.page takes
        """Return the `tokens` of report.page from the `tokens` and `vocab` of to_html."""
        if tokens is None and self.tokens is not None:
            text = vocab if callable(vocab) else str if vocab is None else getattr(vocab, "chars", vocab).__getitem__
            ids = [[text(token) for token in row] for row in self.tokens.tolist()]
            return {path: (ids, ids) for path in self if self._last(path).pattern.shape[-2:] == (len(ids[0]),) * 2}
        tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        is_one_sequence = not isinstance(tokens, dict) and tokens and isinstance(tokens[0], str)
        return [list(tokens)] if is_one_sequence else tokens

    # ---------------------------------------------------------------------------------------------------------- hooks

    def _watch(self, model):
        """Register the hooks, and return their handles."""
        handles = [model.register_forward_pre_hook(self._keep_tokens)]
        for path, layer in self.layers.items():
            if self._heads[path]:
                points = (*INPUTS, *POINTS, OUTPUT)
                handles += [layer.register_head_hook(p, partial(self._keep, path, p), last=True) for p in points]
        return handles

    def _keep_tokens(self, model, args):
        """A forward pre-hook of the model."""
        ints = [x for x in args if isinstance(x, Tensor) and x.ndim == 2 and x.dtype.kind in "iu"]
        is_clear = len(ints) == 1 or (ints and isinstance(model, (GPT, AttentionOnly)))
        self.tokens = ints[0].numpy() if is_clear else None

    def _keep(self, path, point, layer, x):
        """A head hook of the layer at `path`, at `point`."""
        if point == INPUTS[0]:  # the first point of a forward
            heads = self._heads[path]
            weights = zip(*(head_weights(layer, h) for h in heads))  # copied now: the optimizer may change them later
            arrays = dict(zip(WEIGHTS, map(np.stack, weights)))
            self._calls[path].append(LayerTrace(path, layer, heads, layer.score_scale, arrays))
        self._calls[path][-1]._keep(point, x, self._with_grads)


class LayerTrace:
    """One forward of an attention layer, and its gradients, as arrays for n of its heads, whose numbers are `heads`.

        q (B, n, T, d_k), k (B, n, S, d_k), v (B, n, S, d_v)    after rotary positions; shared k and v are repeated
        scores (B, n, T, S) = scale · q kᵀ                      before the mask
        pattern (B, n, T, S)                                    the softmax of the masked scores
        z (B, n, T, d_v) = pattern v

    The gradients q_grad, k_grad, v_grad, scores_grad, pattern_grad and z_grad have the same shapes. They are sums over
    all backward passes so far, and raise RuntimeError before the first. (Katz and Wolf, 2024, call scores_grad reversed
    attention.) After HeadTrace.backward there are also

        scores_grad_by_prediction (P, B, n, T, S), gate_grad_by_prediction (P, B, n)

    Values of the whole layer, and weights:

        x_q (B, T, C), x_k (B, S, C), x_v (B, S, C)             the layer's query, key and value; often one array
        y (B, T, C), y_grad                                     its output
        x_q_grad (B, n, T, C), x_k_grad, x_v_grad               of each head's own copy of x_q, dq W_Qᵀ, and so on;
                                                                their sum over all heads is the gradient of x_q.
                                                                float64, computed at each access
        W_Q (n, C, d_k), W_K, W_V, W_O (n, d_v, C)              in this forward, float64; W_O includes head_gates

    scale: of the scores. layer: the MultiheadAttention. If a hook replaced a value, it is the new value."""

    def __init__(
        self, path: str, layer: "MultiheadAttention", heads: Sequence[int], scale: float, arrays: dict[str, Any]
    ) -> None:
        self.path, self.layer, self.heads, self.scale, self._arrays = path, layer, heads, scale, arrays
        self.gates = np.array([layer.head(h).gate for h in heads])
        self._inputs: dict[str, Tensor] = {}  # {point: the layer's input}, during the forward
        # In HeadTrace.backward: dS and the gradient of a gate from each prediction, None if it does not depend on them.
        self._predictions: list[tuple[Array, Array] | None] = []

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
        if name in BY_PREDICTION:
            raise RuntimeError(f"there is no {name} in {where}: call backward(losses) of the HeadTrace")
        if name == value:
            raise RuntimeError(f"there is no {name} in {where}: it was not computed")
        raise RuntimeError(
            f"no grad yet of {value} in {where}: call backward() on a loss of it, without no_grad() and grads=False"
        )

    def __dir__(self):
        return [*super().__dir__(), *NAMES]

    def projection_grad(self, p: str) -> Array:
        """Return the gradient of the projection "q", "k" or "v", before rotary positions: (B, n, T or S, d), float64.
        Without rotary positions it is q_grad, k_grad or v_grad."""
        dx = as_float64(getattr(self, f"{p}_grad"))
        return before_rotary(dx) if p != "v" and self.layer.positions == "rotary" else dx

    def factors(self, weight: str) -> tuple[Array, Array]:
        """Return x and dy of dW = Σ_t x_t ⊗ dy_t, for the heads' "W_Q", "W_K", "W_V" or "W_O", float64.

        One of them is shared by the heads, (B, T, m); the other has an axis of heads, (B, n, T, m). dq and dk are taken
        before rotary positions."""
        if weight == "W_O":
            return as_float64(self.z) * self.gates[:, None, None], as_float64(self.y_grad)
        p = weight.removeprefix("W_").lower()
        return as_float64(getattr(self, f"x_{p}")), self.projection_grad(p)

    def weight_grad(self, weight: str) -> Array:
        """Return dW for each head, without the parts of other heads that share W: (n, m, d), float64."""
        x, dy = self.factors(weight)
        dW = np.tensordot(x, dy, ([0, x.ndim - 2], [0, dy.ndim - 2]))  # (m, n, d) or (n, m, d)
        return dW if weight == "W_O" else dW.swapaxes(0, 1)

    def __repr__(self):
        (B, _, T, S), with_grads = self.pattern.shape, "with" if self.has_grads else "without"
        where = f"{self.path or 'the layer'}, heads {list(self.heads)}"
        return f"<LayerTrace of {where}: B={B}, T={T}, S={S}, {with_grads} gradients>"

    @property
    def has_grads(self) -> bool:
        """True if a backward has reached the layer."""
        return all(f"{name}_grad" in self._arrays for name in [*SHAPES, OUTPUT])

    @property
    def is_cross(self) -> bool:
        """True if queries and keys come from different inputs."""
        return self.x_q is not self.x_k

    def view(self, table: HeadTable, name: str) -> report.LayerView:
        """Return this layer as the report shows it, with its rows of a HeadTable. name: the prefix of its heads."""
        gradients, by_token = {}, {}
        if self.has_grads:  # the page opens on the first: dS, as much of dP belongs to keys that the mask hides
            gradients = {"dS": self.scores_grad, "dP": self.pattern_grad}
            by_token = {f"d{p}": np.linalg.norm(as_float64(getattr(self, f"{p}_grad")), axis=-1) for p in "zqkv"}
        unknown_values = np.full(len(self.heads), np.nan)
        stats = {stat: table[stat].get(self.path, unknown_values) for stat in table.stats}
        return report.LayerView(list(self.heads), self.pattern, gradients, stats, by_token, self.is_cross, name)

    def _by_prediction(self):
        """(gate_grad_by_prediction, scores_grad_by_prediction), or None without a backward of HeadTrace."""
        return tuple(self._arrays[name] for name in BY_PREDICTION[::-1]) if BY_PREDICTION[0] in self._arrays else None

    def _keep(self, point, x, grads):
        """Keep the value at a head hook's point, and with grads=True its gradients too."""
        if point in INPUTS:  # inputs that are the same Tensor share an array
            same = next((p for p, other in self._inputs.items() if other is x), None)
            self._arrays[point] = x.numpy(force=True) if same is None else self._arrays[same]
            self._inputs[point] = x
            return
        self._inputs.clear()
        name = "scores" if point == "qk" else point
        self._arrays[name] = self._traced_heads(point, x, self.scale)
        if grads and x.node is not None:
            trace_ref = weakref.ref(self)  # the graph may outlive the trace: its hooks must not keep the arrays alive

            def add_gradient(g):
                trace = trace_ref()
                if trace is not None:
                    trace._add_gradient(f"{name}_grad", point, g)

            x.register_hook(add_gradient)

    def _add_gradient(self, name, point, g):
        g = self._traced_heads(point, g, 1 / self.scale)
        # A new array: the caller may have kept the old one.
        self._arrays[name] = self._arrays[name] + g if name in self._arrays else g

    def _take_gradients(self):
        """Remove the gradients so far from this trace, and return them as {name: array}."""
        names = [name for name in self._arrays if name.endswith("_grad")]
        return {name: self._arrays.pop(name) for name in names}

    def _end_prediction(self, earlier):
        """Keep what the backward of one prediction has left here, and add the gradients of `earlier` ones to it."""
        if self.has_grads:
            self._predictions.append((self.scores_grad, (as_float64(self.z_grad) * self.z).sum((2, 3))))
        else:
            self._predictions.append(None)
        for name, g in earlier.items():
            self._arrays[name] = self._arrays[name] + g if name in self._arrays else g

    def _join_predictions(self):
        """Make arrays of what _end_prediction has kept, unless no prediction depends on this forward."""
        reached = next((each for each in self._predictions if each is not None), None)
        if reached is not None:
            nothing = tuple(map(np.zeros_like, reached))
            by_name = zip(BY_PREDICTION, zip(*(each or nothing for each in self._predictions)))
            self._arrays |= {name: np.stack(each) for name, each in by_name}
        self._predictions.clear()

    def _traced_heads(self, point, x, scale):
        """x as an array: the traced heads (B, n, …) of a value (B, nh, …), all of the output y; q kᵀ times scale."""
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
        if name in WITHOUT_HEADS:
            return value
        i = self.layer.heads.index(self.head)
        if name in BY_PREDICTION:
            return value[:, :, i]
        return value[i] if name in WEIGHTS else value[:, i]

    def __dir__(self):
        return [*super().__dir__(), *NAMES]
