"""Attention heads as one HTML file: the text, each head's pattern beside its gradient, and where the gradients come
from.

The file contains its script, its style and its numbers, so it opens from a disk and needs no network. Names, titles and
tokens come from models and corpora, and are not trusted. They are escaped here; the page's script inserts them as text
only; and the page's policy lets no other script run.

The page's data are one dict, written as JSON, and arrays: see packing.py. page/numbers.js reads them."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from ..base.errors import printable
from ..base.files import atomic_write
from ..typing import Array
from . import packing
from .names import Part
from .stats import STATS

PAGE = Path(__file__).parent / "page"
SCRIPTS = "numbers.js", "maps.js", "text.js", "panels.js", "backward.js", "flow.js", "history.js", "state.js"
LIMIT = 5_000_000  # bytes of the file: a larger one opens slowly on a phone
PREDICTION_SHARE = 0.4  # the most that maps of dS by prediction take of the limit, before they are deflated
EDGES_PER_PART = 12  # the page has this many of the largest edges to each part, and from each part


class FlowData(Protocol):
    """What the page reads of a study.Flow, which is defined above this file."""

    method: str
    sources: list[Part]
    inputs: list[tuple[Part, str]]

    @property
    def all(self) -> "EdgesData": ...
    def by_input(self, source: Part, /) -> dict[str, float]: ...


class EdgesData(Protocol):
    """What the page reads of study.Edges."""

    first_order: Sequence[float]
    errors: Sequence[float]

    def __iter__(self) -> Iterator[tuple[Part, Part, str, float]]: ...


class LessonData(Protocol):
    """What HeadTrace.to_html reads of a study.Lesson."""

    head: str
    positions: Array


class HistoryData(Protocol):
    """What the page reads of a study.History."""

    steps: list[int]
    series: dict[str, dict[str, dict[str, Array]]]


HISTORY = {  # {group of a History: (title, meaning)}
    "scores": ("Scores", "Attention to the token before, to earlier copies of the token, and to what followed these, "
               "on random tokens that repeat."),
    "gate_grad": ("Gradient of a gate on the head", "The parts that come through the Q, K or V of later heads, "
                  "through MLPs, and straight from the logits. Negative: more of the head lowers the loss."),
    "lesson": ("What the next step teaches", "How far the next step of gradient descent moves the attention towards "
               "the token before, in units of the mean change of a score, by the same inputs."),
}  # fmt: skip


@dataclass(eq=False)
class LayerView:
    """What a report shows of one layer, for nh of its heads, B sequences, T queries and S keys.

    heads: their numbers. pattern: (B, nh, T, S), 0 where a query does not see a key. gradients: {label: (B, nh, T, S)},
    such as dS and dP; nan and infinity are marked in the page. stats: {name: (nh,)}, nan if unknown. by_token: {label:
    (B, nh, T or S)}, the sizes of dz and dq for each query and of dk and dv for each key. is_cross: True for
    cross-attention. name: the prefix of the names of heads, such as "1"; "": the layer's path.

    by_prediction: {"gate_grad by prediction": (B, nh, T)}, the part of gate_grad that comes from each of T predictions,
    and {"dS by prediction": (B, nh, K, T, S)}, the part of dS from each of K predictions, whose positions are in
    prediction_of (B, nh, K)."""

    heads: list[int]
    pattern: np.ndarray
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    by_token: dict[str, np.ndarray] = field(default_factory=dict)
    is_cross: bool = False
    name: str = ""
    by_prediction: dict[str, np.ndarray] = field(default_factory=dict)
    prediction_of: np.ndarray | None = None

    @property
    def maps(self) -> dict[str, np.ndarray]:
        """{label: (B, nh, T, S)}: the pattern, then the gradients. A cell whose pattern is 0 in every head, by the mask
        or by rounding, is 0 in all of these maps, and is not shown."""
        seen = (self.pattern > 0).any(1, keepdims=True)
        return {"pattern": self.pattern, **{label: np.where(seen, x, 0) for label, x in self.gradients.items()}}


def add_predictions(gradients, limit=LIMIT):
    """Set by_prediction of LayerViews. gradients: {LayerView: (gate (P, B, nh), dS (P, B, nh, T, S)), or None}.

    Each head gets the dS of the K predictions with the largest parts of its gate_grad. K is as large as the limit of
    the page allows. Views with other numbers of predictions and queries get none."""
    fitting = {view: each for view, each in gradients.items() if each and len(each[0]) == view.pattern.shape[2]}
    cells = sum(view.pattern.size / 2 for view in fitting)  # a mask hides about half of them
    for view, (gate, dS) in fitting.items():
        K = min(len(gate), int(PREDICTION_SHARE * limit / 4 / cells))
        view.by_prediction["gate_grad by prediction"] = gate = np.moveaxis(gate, 0, -1)  # (B, nh, P)
        view.prediction_of = largest = np.argsort(-np.abs(gate), axis=-1, kind="stable")[..., :K]
        dS = np.moveaxis(dS, 0, 2)  # (B, nh, P, T, S)
        view.by_prediction["dS by prediction"] = np.take_along_axis(dS, largest[..., None, None], 2)


def write(path, views, **options):
    """Write the page to `path`, whole or not at all, and make the folders it needs. Return the Path. See `page`."""
    path = Path(path)
    data = page(views, **options).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, data)
    return path


def page(
    views, *, title, tokens=None, flow=None, meanings=None, matters=None, of="the loss", losses=None, history=None,
    limit=LIMIT,
):  # fmt: skip
    """Return the HTML as a string.

    views: {layer path: LayerView}.
    tokens: the text along the axes: B lists of T strings, or {layer path: (B lists of T queries, B lists of S keys)}.
        Without tokens, and for layers that the dict lacks, the axes show positions.
    flow: a study.Flow, or None.
    meanings: {name of a statistic: its meaning}, besides those of STATS.
    matters: name of a statistic. The page opens on the head with the largest absolute value of it (None: gate_grad, if
        there is one).
    of: the name of the differentiated quantity, such as "the loss".
    losses: (B, T), the loss of the prediction at each position, or None.
    history: a study.History of the same model, or None.
    limit: the most bytes that the file may have. If it would have more, the maps of the heads that matter least show
        the means of blocks of cells.
    Raises ValueError for arrays that do not fit together, and for a page over the limit even so."""
    if not views:
        raise ValueError("no layers to show")
    layer_entries, texts = [_layer_entry(path, view) for path, view in views.items()], []
    if isinstance(tokens, dict) and not tokens.keys() <= views.keys():
        raise ValueError(f"tokens are given for {sorted(tokens.keys() - views.keys())}, but layers are {list(views)}")
    stats = _stats(views.values())
    data = {
        "sequences": len(next(iter(views.values())).pattern),
        "layers": [entry | {"tokens": _token_lists(tokens, entry, texts)} for entry in layer_entries],
        "tokens": [[[visible(t) for t in sequence] for sequence in text] for text in texts],
        "stats": stats,
        "meanings": {name: str(STATS[name]) for name in stats if name in STATS} | (meanings or {}),
        "matters": matters or ("gate_grad" if "gate_grad" in stats else None),
        "of": printable(str(of)),
        "losses": None if losses is None else _losses(losses, layer_entries[0]),
        "flow": None if flow is None else _flow_data(flow, views),
        "history": None if history is None else _history_data(history, views),
    }
    order = _by_importance(views.values(), data["matters"])
    for blocks in packing.choices([*views.values()], order, limit):
        packed = packing.packed([*views.values()], blocks)
        if len(packed) > limit:
            continue
        layers = [entry | {"blocks": sides} for entry, sides in zip(data["layers"], blocks)]
        text = _filled(title, data | {"layers": layers}, packed)
        if len(text.encode()) <= limit:
            return text
    raise ValueError(
        f"the report would be larger than its limit of {limit / 1e6:.3g} MB: give fewer layers, heads or "
        "sequences, shorter text, or a larger limit"
    )


def _by_importance(views, matters):
    """[(number of a view, number of a head in it)]: those with the largest absolute value of a statistic first."""
    sizes = {}
    for i, view in enumerate(views):
        values = np.nan_to_num(np.abs(np.asarray(view.stats.get(matters, np.zeros(len(view.heads))), np.float64)))
        sizes |= {(i, h): -value for h, value in enumerate(values)}
    return sorted(sizes, key=lambda place: sizes[place])


def _filled(title, data, packed):
    """The template with the title, style, script, data and numbers filled in."""
    # Names of statistics may be hostile text too. An escaped < can neither end a script element nor open a comment.
    text = json.dumps(data, allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    template, style, *scripts = (
        (PAGE / name).read_text(encoding="utf-8") for name in ("template.html", "style.css", *SCRIPTS)
    )
    script = "".join(scripts)
    parts = {
        "TITLE": html.escape(str(title).encode("utf-8", "backslashreplace").decode()),  # it may hold lone surrogates
        "STYLE": style,
        "HASH": base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        "DATA": text,
        "NUMBERS": packed,
        "SCRIPT": script,
    }
    # A single pass over the template, so that a title that looks like a placeholder stays as it is.
    return re.sub(f"<!--({'|'.join(parts)})-->", lambda match: parts[match[1]], template)


# ---------------------------------------------------------------------------------------------------- parts of the data


def _layer_entry(path, view):
    """The entry of a layer in the page's data: its names and shapes. Raises ValueError if its arrays do not fit."""
    (B, _, T, S), nh = view.pattern.shape, len(view.heads)
    for kind, shapes in ("gradients", [(B, nh, T, S)]), ("by_token", [(B, nh, T), (B, nh, S)]), ("stats", [(nh,)]):
        for label, x in getattr(view, kind).items():
            if np.shape(x) not in shapes:
                raise ValueError(f"layer {path}: {label!r} of its {kind} is {np.shape(x)}, its pattern {(B, nh, T, S)}")
    return {
        "path": str(path),
        "name": view.name or str(path) or "0",
        "heads": [int(h) for h in view.heads],
        "sequences": B,
        "queries": T,
        "keys": S,
        "isCross": bool(view.is_cross),
        "kinds": ["pattern", *map(str, view.gradients)],
        "byToken": [[str(name), x.shape[-1]] for name, x in view.by_token.items()],
        "byPrediction": [[name, x[0, 0].size] for name, x in view.by_prediction.items()],
        "predictionOf": None if view.prediction_of is None else view.prediction_of.tolist(),
    }


def _token_lists(tokens, entry, texts):
    """[index of the queries' tokens, index of the keys' tokens] of a layer in `texts`, to which new ones are added."""
    queries_and_keys = tokens.get(entry["path"]) if isinstance(tokens, dict) else (tokens, tokens)
    if tokens is None or queries_and_keys is None:
        return None
    indices = []
    for text, axis in zip(queries_and_keys, ("queries", "keys")):
        counts = [len(sequence) for sequence in text]
        if counts != [entry[axis]] * entry["sequences"]:
            raise ValueError(
                f"layer {entry['path']} has {entry['sequences']} sequences of {entry[axis]} {axis}, but the tokens "
                f"given are {len(counts)} of {sorted(set(counts))}; a layer with text of its own needs "
                f"tokens={{{entry['path']!r}: (queries, keys)}}"
            )
        if not any(text is other for other in texts):
            texts.append(text)
        indices.append(next(i for i, other in enumerate(texts) if text is other))
    return indices


def visible(token):
    """A token as visible text: ␣ for a space, ⏎ and ⇥ for a new line and a tab, \\x00, and ∅ for an empty one."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    return printable("".join(marks.get(c, c) for c in str(token))) or "∅"


def _stats(views):
    """{name: [a list of numbers for each layer]}, nan if a layer lacks the statistic."""
    names = dict.fromkeys(name for view in views for name in view.stats)
    return {
        str(name): [_numbers(view.stats.get(name, [math.nan] * len(view.heads))) for view in views] for name in names
    }


def _numbers(values):
    """Numbers as a list for JSON. nan and infinity, which JSON lacks, become words that JavaScript's Number() reads."""
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [words.get(str(v), v) for v in np.asarray(values, np.float64).tolist()]


def _losses(losses, layer_entry):
    """The losses as lists, rounded. Raises ValueError unless they are (B, T), as in a layer."""
    losses = np.asarray(losses, np.float64)
    B, T = layer_entry["sequences"], layer_entry["queries"]
    if losses.shape != (B, T):
        raise ValueError(f"losses must be {(B, T)}, one for each prediction, not {losses.shape}")
    return [_numbers(np.round(row, 4)) for row in losses]


def _flow_data(flow, views):
    """A Flow in the page's data, where a part is its index in `nodes`:

    method: of the flow. nodes: [name, index of the layer, index of the head, path], -1 for a part that is not a head of
    the report. rows: lists of parts. edges: [source, target, input, edge, standard error, edge to first order], the
    largest of each part. sums: {source: [[input, sum of edges to first order], …]}."""
    rows = rows_of(flow)
    index = {part: i for i, part in enumerate(part for row in rows for part in row)}
    heads = {(path, head): (i, j) for i, (path, view) in enumerate(views.items()) for j, head in enumerate(view.heads)}
    return {
        "method": flow.method,
        "nodes": [[str(part), *heads.get((part.path, part.head), (-1, -1)), part.path] for part in index],
        "rows": [[index[part] for part in row] for row in rows],
        "edges": _edges_to_show(flow, index),
        "sums": {index[part]: [[p, _rounded(x)] for p, x in flow.by_input(part).items()] for part in flow.sources},
    }


def _history_data(history, views):
    """A History in the page's data: steps, and for each group its title, meaning and series, [name, [numbers of the
    steps, for each head of each layer of the report]]."""

    first = next(iter(history.series["scores"].values()))
    if any(path not in first or first[path].shape[1] <= max(view.heads) for path, view in views.items()):
        raise ValueError("the history is of a model with other layers or heads")

    def of_heads(numbers):
        return [[[_rounded(x) for x in numbers[path][:, head]] for head in view.heads] for path, view in views.items()]

    groups = []
    for group, (title, meaning) in HISTORY.items():
        series = [[name, of_heads(numbers)] for name, numbers in history.series[group].items()]
        groups.append({"title": title, "about": meaning, "series": series})
    return {"steps": history.steps, "groups": groups}


def rows_of(flow):
    """The Parts of a Flow as rows, from the bottom up: the start of the stream, then each sublayer in the model's
    order. The bias of an attention layer is in the row of its heads."""
    readers = dict.fromkeys(part for part, _ in flow.inputs)
    sublayers = {part.path for part in readers}
    first_row, rows = [], {}
    for part in dict.fromkeys([*flow.sources, *readers]):  # writers in their order, then the logits
        path = part.path.removesuffix(".bias")
        (rows.setdefault(path, []) if path in sublayers else first_row).append(part)
    return [first_row, *rows.values()]


def _edges_to_show(flow, index):
    """The edges of _flow_data: those among the EDGES_PER_PART largest from their source, or to their target."""
    kept, from_source, to_target = [], dict.fromkeys(index, 0), dict.fromkeys(index, 0)
    edges = flow.all
    for (u, v, p, edge), error, first in zip(edges, edges.errors, edges.first_order):
        if math.isfinite(edge) and (from_source[u] < EDGES_PER_PART or to_target[v] < EDGES_PER_PART):
            from_source[u] += 1
            to_target[v] += 1
            kept.append([index[u], index[v], p, *map(_rounded, (edge, error, first))])
    return kept


def _rounded(x):
    """A float with four digits, or None for nan and infinity, which JSON lacks."""
    return float(f"{x:.4g}") if math.isfinite(x) else None
