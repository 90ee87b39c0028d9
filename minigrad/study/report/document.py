"""Attention heads as one HTML file: the text, each head's pattern beside its gradient, where the gradients come from,
and how training changed all of it.

The file needs no network: script, style and numbers are all in it, and it opens from a disk. Names, titles and tokens
come from models and corpora and are not trusted. They are escaped here, the page's script inserts them as text only,
and the page's policy lets no other script run.
"""

import base64
import hashlib
import html
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...base.files import atomic_write
from ...viz.labels import printable, visible
from ..stats import STATS
from . import packed
from .flow_data import flow_data
from .outcome import texts_of

PAGE = Path(__file__).parent / "page"
SCRIPTS = "numbers.js", "maps.js", "text.js", "panels.js", "backward.js", "flow.js", "training.js", "state.js"
FILES = "template.html", "style.css", *SCRIPTS
LIMIT = 30_000_000  # bytes of a whole file: a larger one is slow to open on a phone
SURELY = 1.5  # times the limit: what is estimated to be larger is not tried
STRETCHES = 600  # how many stretches a long loss curve is cut into; each is drawn by its extremes


@dataclass(eq=False)
class LayerView:
    """What a report shows of one layer, for nh of its heads, B sequences, T queries and S keys.

    heads: the heads' numbers. pattern: (B, nh, T, S), with zeros where a query does not see a key. gradients: {label:
    (B, nh, T, S)}, such as dS and dP; they may hold NaN and infinity, which the page marks. stats: {name: (nh,)}, nan
    where there is no number. by_token: {label: (B, nh, T or S)}, sizes of gradients such as dq, which has queries, or
    dk and dv, which have keys. crossed: are queries and keys of different sequences?
    """

    heads: list[int]
    pattern: np.ndarray
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    by_token: dict[str, np.ndarray] = field(default_factory=dict)
    crossed: bool = False


def page(
    snapshots, *, title, tokens=None, losses=None, flows=None, outcomes=None, vocab=None, meanings=None, matters=None,
    of="the loss", limit=LIMIT,
):  # fmt: skip
    """The HTML as a string.

    snapshots: list of (step or None, {layer path: LayerView}), with the same layers and shapes in each.
    tokens: the text along the axes: B lists of T strings, or {layer path: (B lists of T queries, B lists of S keys)}.
        Without tokens, and for layers that are not named, the axes show positions.
    losses: (steps, values), the training curve; NaN and infinity are gaps in it.
    flows, outcomes: for each snapshot a study.Flow and an outcome.Outcome, or None. vocab: a function or a list that
        gives the text of a token's number, for the outcomes.
    meanings: {name of a statistic: what it means}, beside those of STATS. matters: the statistic whose largest size
        tells on which head the page opens (None: gate_grad, if there is one).
    of: what is differentiated, in words.
    limit: bytes that the file may have. A report that would be larger gets coarser numbers, and lacks all gradients but
        the first of each layer if that is not enough; it says so.
    Raises ValueError for what does not fit together, naming the layer, and for a page over the limit.
    """
    arrays = _checked(snapshots)
    first = snapshots[0][1]
    if isinstance(tokens, dict) and not tokens.keys() <= first.keys():
        raise ValueError(f"tokens are given for {sorted(tokens.keys() - first.keys())}, but layers are {list(first)}")
    pool: list = []
    stats = _stats(snapshots)
    seen = [[packed.seen_cells(kinds["pattern"]) for kinds in frame] for frame in arrays]
    by_token = [[view.by_token for view in views.values()] for _, views in snapshots]
    header = {
        "sequences": len(arrays[0][0]["pattern"]),
        "steps": [None if step is None else int(step) for step, _ in snapshots],
        "layers": [
            {
                "path": str(path),
                "heads": [int(h) for h in view.heads],
                "queries": kinds["pattern"].shape[2],
                "keys": kinds["pattern"].shape[3],
                "crossed": bool(view.crossed),
                "byToken": [[str(name), len(x[0, 0])] for name, x in view.by_token.items()],
                "tokens": _labels(tokens, path, kinds["pattern"].shape, pool),
            }
            for (path, view), kinds in zip(first.items(), arrays[0])
        ],
        "tokens": [[[visible(t) for t in sequence] for sequence in lists] for lists in pool],
        "stats": stats,
        "meanings": {name: str(STATS[name]) for name in stats if name in STATS} | (meanings or {}),
        "matters": matters or ("gate_grad" if "gate_grad" in stats else None),
        "of": printable(str(of)),
        "losses": None if losses is None else _thinned(*losses),
        "flow": None if flows is None else flow_data(flows, list(first), [list(v.heads) for v in first.values()]),
        "outcomes": None if outcomes is None else [_outcome(each, vocab) for each in outcomes],
    }
    most = max(map(len, arrays[0]))  # kinds of numbers: the pattern, and gradients
    tops = [[_peaks(*of_layer) for of_layer in zip(*of_frame)] for of_frame in zip(arrays, seen)]
    for precision, n in (None, most), (127, most), (31, most), (31, 2), (15, 2):
        frames = [[dict(list(kinds.items())[:n]) for kinds in frame] for frame in arrays]
        left_out = {label for kinds in arrays[0] for label in list(kinds)[n:]}
        if packed.estimate(frames, seen, tops, precision) > SURELY * limit:
            continue
        chunks = packed.chunks(frames, seen, tops, by_token, precision, limit)
        if chunks is not None:
            about = {"precision": precision, "leftOut": sorted(left_out), "kinds": [list(kinds) for kinds in frames[0]]}
            about["peaks"] = [[{k: top[k] for k in kinds} for top, kinds in zip(*each)] for each in zip(tops, frames)]
            about["tokenPeaks"] = [[_peaks(x) for x in frame] for frame in by_token]
            whole = _filled(title, header | about, chunks)
            if len(whole.encode()) <= limit:
                return whole
    raise ValueError(
        f"the report would be larger than its limit of {limit / 1e6:.3g} MB: give fewer layers, heads, sequences or "
        "snapshots, shorter text, or a larger limit"
    )


def _peaks(arrays, seen=None):
    return {str(name): packed.peaks(x, seen).tolist() for name, x in arrays.items()}


def _filled(title, header, chunks):
    """The template with everything in its place."""
    # Keys may be hostile text too. An escaped < can neither end a script element nor open a comment.
    text = json.dumps(header, allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    template, style, *scripts = ((PAGE / name).read_text(encoding="utf-8") for name in FILES)
    script = "".join(scripts)
    parts = {
        "TITLE": html.escape(str(title).encode("utf-8", "backslashreplace").decode()),  # it may hold lone surrogates
        "STYLE": style,
        "HASH": base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        "DATA": text,
        "NUMBERS": "".join(f'<script type="text/plain">{chunk}</script>' for chunk in chunks),
        "SCRIPT": script,
    }
    # One pass over the template, so that text which looks like a placeholder stays text.
    return re.sub(f"<!--({'|'.join(parts)})-->", lambda match: parts[match[1]], template)


def write(path, snapshots, **options):
    """Write the page to `path`, whole or not at all, and make the folders it needs. Returns the Path. See `page`."""
    path = Path(path)
    data = page(snapshots, **options).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, data)
    return path


def _checked(snapshots):
    """[snapshot][layer] -> {"pattern": (B, nh, T, S), gradient's label: (B, nh, T, S)}, or ValueError."""
    if not snapshots or not snapshots[0][1]:
        raise ValueError("no layers to show")
    arrays, forms = [], []
    for step, views in snapshots:
        arrays.append([_layer(path, view) for path, view in views.items()])
        shapes = ({kind: x.shape for kind, x in kinds.items()} for kinds in arrays[-1])
        forms.append([(path, list(view.heads), of) for (path, view), of in zip(views.items(), shapes)])
        if forms[-1] != forms[0]:
            raise ValueError(f"layers at step {step} are {forms[-1]}, but in the first snapshot {forms[0]}")
    if len(counts := {len(kinds["pattern"]) for kinds in arrays[0]}) > 1:
        raise ValueError(f"layers have {sorted(counts)} sequences: all need as many")
    return arrays


def _layer(path, view):
    """{"pattern": (B, nh, T, S), gradient's label: (B, nh, T, S)} of a LayerView, or ValueError."""
    pattern, nh = np.asarray(view.pattern), len(view.heads)
    if pattern.ndim != 4 or pattern.shape[1] != nh or not pattern.size or not np.isfinite(pattern).all():
        raise ValueError(f"layer {path}: the pattern of {nh} heads must be (B, {nh}, T, S) finite numbers")
    if len(set(view.heads)) < nh or "pattern" in view.gradients:
        raise ValueError(f"layer {path}: its heads must be different numbers, and no gradient may be called 'pattern'")
    B, _, T, S = pattern.shape
    for kind, shapes in ("gradients", [pattern.shape]), ("by_token", [(B, nh, T), (B, nh, S)]), ("stats", [(nh,)]):
        for label, x in getattr(view, kind).items():
            if np.shape(x) not in shapes:
                raise ValueError(f"layer {path}: {label!r} of its {kind} is {np.shape(x)}, its pattern {pattern.shape}")
    return {"pattern": pattern, **{str(label): np.asarray(gradient) for label, gradient in view.gradients.items()}}


def _labels(tokens, path, shape, pool):
    """Where in `pool` a layer's texts are: [index of the queries', index of the keys']. Adds those it lacks."""
    given = tokens.get(path) if isinstance(tokens, dict) else (tokens, tokens)
    if tokens is None or given is None:
        return None
    queries, keys = given
    places = []
    for lists, n, what in ((queries, shape[2], "queries"), (keys, shape[3], "keys")):
        counts = [len(sequence) for sequence in lists]
        if counts != [n] * shape[0]:
            raise ValueError(
                f"layer {path} has {shape[0]} sequences of {n} {what}, but the tokens given are {len(counts)} of "
                f"{sorted(set(counts))}; a layer with text of its own needs tokens={{{path!r}: (queries, keys)}}"
            )
        if not any(lists is known for known in pool):
            pool.append(lists)
        places.append(next(i for i, known in enumerate(pool) if lists is known))
    return places


def _stats(snapshots):
    """{name: [snapshot][layer][head]}, nan where a layer lacks the statistic."""
    views = [list(views.values()) for _, views in snapshots]
    names = dict.fromkeys(name for frame in views for view in frame for name in view.stats)
    return {
        str(name): [[_numbers(view.stats.get(name, [math.nan] * len(view.heads))) for view in frame] for frame in views]
        for name in names
    }


def _thinned(steps, values):
    """[steps, values] of the curve. A long one is reduced to its ends and, for each stretch, its extremes and a gap."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if steps.ndim != 1 or steps.shape != values.shape or not np.isfinite(steps).all():
        raise ValueError(f"losses: as many steps as values are needed, not {steps.shape} and {values.shape}")
    keep = np.arange(len(values))
    if len(keep) > 3 * STRETCHES:
        chosen = {0, len(keep) - 1}
        for part in np.array_split(keep, STRETCHES):
            finite = np.isfinite(values[part])
            chosen.update(part[~finite][:1].tolist())
            if finite.any():
                part = part[finite]
                chosen.update([int(part[values[part].argmin()]), int(part[values[part].argmax()])])
        keep = np.array(sorted(chosen))
    return [steps[keep].tolist(), _numbers(values[keep])]


def _numbers(values, digits=17):
    """A list for JSON, which has no nan and no infinity: they become words that JavaScript's Number() reads."""
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [words.get(str(v), float(f"{v:.{digits}g}")) for v in np.asarray(values, np.float64).tolist()]


def _outcome(outcome, vocab):
    """An Outcome for JSON: the texts and probabilities of predictions, and the loss of each token."""
    if outcome is None:
        return None
    text = str if vocab is None else texts_of(vocab)

    right = None
    if outcome.targets is not None:
        right = [[visible(text(t)) if t >= 0 else None for t in row] for row in outcome.targets.tolist()]
    return {
        "top": [[[visible(text(i)) for i in ids] for ids in sequence] for sequence in outcome.ids.tolist()],
        "p": [[_numbers(row, 5) for row in sequence] for sequence in outcome.probabilities],
        "loss": None if outcome.loss is None else [_numbers(row, 5) for row in outcome.loss],
        "right": right,
    }
