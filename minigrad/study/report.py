"""Attention heads as one HTML file: the text, each head's pattern beside its gradient, and where the gradients come
from.

The file contains its script, its style and its numbers, so it opens from a disk and needs no network. Names, titles and
tokens come from models and corpora and are not trusted: they are escaped here, the page's script inserts them as text
only, and the page's policy lets no other script run.

The page's data are one dict, written as JSON, and arrays: float32, one after the other, deflated, in base64.
page/numbers.js reads them."""

import base64
import hashlib
import html
import json
import math
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..base.errors import printable
from ..base.files import atomic_write
from .stats import STATS

PAGE = Path(__file__).parent / "page"
SCRIPTS = "numbers.js", "maps.js", "text.js", "panels.js", "backward.js", "flow.js", "state.js"
LIMIT = 30_000_000  # bytes of a whole file: a larger one is slow to open on a phone
EDGES = 12  # the largest edges to each node, and from each node, are in the page: this many


@dataclass(eq=False)
class LayerView:
    """What a report shows of one layer, for nh of its heads, B sequences, T queries and S keys.

    heads: the heads' numbers. pattern: (B, nh, T, S), with zeros where a query does not see a key. gradients: {label:
    (B, nh, T, S)}, such as dS and dP; they may hold NaN and infinity, which the page marks. stats: {name: (nh,)}, nan
    where there is no number. by_token: {label: (B, nh, T or S)}, sizes of gradients: of dq for each query, of dk and dv
    for each key. crossed: True if queries and keys are of different sequences. name: what the names of the layer's
    heads begin with, such as "1"; "" for its path."""

    heads: list[int]
    pattern: np.ndarray
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    by_token: dict[str, np.ndarray] = field(default_factory=dict)
    crossed: bool = False
    name: str = ""

    @property
    def maps(self) -> dict[str, np.ndarray]:
        """{label: (B, nh, T, S)}, the pattern first. A cell to which no head gives a weight, since a mask hides it or
        the weights are rounded to 0, is 0 in all of them, and is not shown."""
        seen = (self.pattern > 0).any(1, keepdims=True)
        return {"pattern": self.pattern, **{label: np.where(seen, x, 0) for label, x in self.gradients.items()}}


def write(path, views, **options):
    """Write the page to `path`, whole or not at all, and make the folders it needs. Return the Path. See `page`."""
    path = Path(path)
    data = page(views, **options).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, data)
    return path


def page(
    views, *, title, tokens=None, flow=None, meanings=None, matters=None, of="the loss", losses=None, limit=LIMIT,
):  # fmt: skip
    """Return the HTML as a string.

    views: {layer path: LayerView}.
    tokens: the text along the axes: B lists of T strings, or {layer path: (B lists of T queries, B lists of S keys)}.
        Without tokens, and for layers that are not named, the axes show positions.
    flow: a study.Flow, or None.
    meanings: {name of a statistic: its meaning}, beside those of STATS. matters: the page opens on the head for which
        this statistic is largest in size (None: gate_grad, if there is one).
    of: what is differentiated, in a few words that fit into a sentence.
    losses: (B, T), the loss of the prediction at each position, or None.
    limit: the most bytes that the file may have.
    Raises ValueError for arrays that do not fit together, and for a page over the limit."""
    if not views:
        raise ValueError("no layers to show")
    forms, pool = [_form(path, view) for path, view in views.items()], []
    if isinstance(tokens, dict) and not tokens.keys() <= views.keys():
        raise ValueError(f"tokens are given for {sorted(tokens.keys() - views.keys())}, but layers are {list(views)}")
    stats = _stats(views.values())
    data = {
        "sequences": len(next(iter(views.values())).pattern),
        "layers": [form | {"tokens": _labels(tokens, form, pool)} for form in forms],
        "tokens": [[[visible(t) for t in sequence] for sequence in lists] for lists in pool],
        "stats": stats,
        "meanings": {name: str(STATS[name]) for name in stats if name in STATS} | (meanings or {}),
        "matters": matters or ("gate_grad" if "gate_grad" in stats else None),
        "of": printable(str(of)),
        "losses": None if losses is None else _losses(losses, forms),
        "flow": None if flow is None else _flow_data(flow, views),
    }
    packed = _packed([x for view in views.values() for x in (*view.maps.values(), *view.by_token.values())])
    text = "" if len(packed) > limit else _filled(title, data, packed)
    if not text or len(text.encode()) > limit:
        raise ValueError(
            f"the report would be larger than its limit of {limit / 1e6:.3g} MB: give fewer layers, heads or "
            "sequences, shorter text, or a larger limit"
        )
    return text


def _filled(title, data, packed):
    """The template with everything in its place."""
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
    # One pass over the template: a title that looks like a placeholder is not replaced.
    return re.sub(f"<!--({'|'.join(parts)})-->", lambda match: parts[match[1]], template)


def _packed(arrays):
    with np.errstate(over="ignore"):
        data = b"".join(x.astype("<f4").tobytes() for x in arrays)
    # Raw deflate, which the page's DecompressionStream reads. In floats only the zeros of masks repeat: run lengths.
    packer = zlib.compressobj(wbits=-15, strategy=zlib.Z_RLE)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


# ---------------------------------------------------------------------------------------------------- parts of the data


def _form(path, view):
    """The shapes and names of a layer for the page. Raises ValueError if its arrays do not fit together."""
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
        "crossed": bool(view.crossed),
        "kinds": ["pattern", *map(str, view.gradients)],
        "byToken": [[str(name), x.shape[-1]] for name, x in view.by_token.items()],
    }


def _labels(tokens, form, pool):
    """[index in `pool` of the text of a layer's queries, that of its keys]; texts that the pool lacks are added."""
    given = tokens.get(form["path"]) if isinstance(tokens, dict) else (tokens, tokens)
    if tokens is None or given is None:
        return None
    places = []
    for lists, what in zip(given, ("queries", "keys")):
        counts = [len(sequence) for sequence in lists]
        if counts != [form[what]] * form["sequences"]:
            raise ValueError(
                f"layer {form['path']} has {form['sequences']} sequences of {form[what]} {what}, but the tokens given "
                f"are {len(counts)} of {sorted(set(counts))}; a layer with text of its own needs "
                f"tokens={{{form['path']!r}: (queries, keys)}}"
            )
        if not any(lists is known for known in pool):
            pool.append(lists)
        places.append(next(i for i, known in enumerate(pool) if lists is known))
    return places


def visible(token):
    """A token as visible text: ␣ for a space, ⏎ and ⇥ for a new line and a tab, \\x00, and ∅ for an empty one."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    return printable("".join(marks.get(c, c) for c in str(token))) or "∅"


def _stats(views):
    """{name: [layer][head]}, nan where a layer lacks the statistic."""
    names = dict.fromkeys(name for view in views for name in view.stats)
    return {
        str(name): [_numbers(view.stats.get(name, [math.nan] * len(view.heads))) for view in views] for name in names
    }


def _numbers(values):
    """A list for JSON, which has no nan and no infinity: these become words that JavaScript's Number() reads."""
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [words.get(str(v), v) for v in np.asarray(values, np.float64).tolist()]


def _losses(losses, forms):
    """The losses as lists, rounded. Raises ValueError unless they are (B, T)."""
    losses = np.asarray(losses, np.float64)
    B, T = forms[0]["sequences"], forms[0]["queries"]
    if losses.shape != (B, T):
        raise ValueError(f"losses must be {(B, T)}, one for each prediction, not {losses.shape}")
    return [_numbers(np.round(row, 4)) for row in losses]


def _flow_data(flow, views):
    """A flow for the page.

    method: that of the flow. nodes: [name, index of the layer, index of the head, path], with -1 for a node that is no
    head of the report. rows: lists of nodes, by index. edges: [source, target, input, edge, standard error, edge to
    first order], the largest of each node. sums: {index of a source: [[input, sum of edges to first order], …]}."""
    rows = rows_of(flow)
    number = {node: i for i, node in enumerate(node for row in rows for node in row)}
    place = {(path, head): (i, j) for i, (path, view) in enumerate(views.items()) for j, head in enumerate(view.heads)}
    return {
        "method": flow.method,
        "nodes": [[str(node), *place.get((node.path, node.head), (-1, -1)), node.path] for node in number],
        "rows": [[number[node] for node in row] for row in rows],
        "edges": _largest(flow, number),
        "sums": {number[node]: [[p, _rounded(x)] for p, x in flow.by_input(node).items()] for node in flow.sources},
    }


def rows_of(flow):
    """Lists of Nodes, from the bottom up: the beginning of the stream, then each part in the model's order. The bias of
    an attention layer is beside its heads."""
    readers = dict.fromkeys(node for node, _ in flow.inputs)
    parts = {node.path for node in readers}
    first, rows = [], {}
    for node in dict.fromkeys([*flow.sources, *readers]):  # writers in their order, then the logits
        part = node.path.removesuffix(".bias")
        (rows.setdefault(part, []) if part in parts else first).append(node)
    return [first, *rows.values()]


def _largest(flow, number):
    """The edges of _flow_data: those that are among the EDGES largest from their source, or to their target."""
    kept, leaving, leading = [], dict.fromkeys(number, 0), dict.fromkeys(number, 0)
    found = flow.all
    for (u, v, p, edge), error, first in zip(found, found.errors, found.first_order):
        if math.isfinite(edge) and (leaving[u] < EDGES or leading[v] < EDGES):
            leaving[u] += 1
            leading[v] += 1
            kept.append([number[u], number[v], p, *map(_rounded, (edge, error, first))])
    return kept


def _rounded(x):
    """A float with four digits, or None for nan and infinity, which JSON lacks."""
    return float(f"{x:.4g}") if math.isfinite(x) else None
