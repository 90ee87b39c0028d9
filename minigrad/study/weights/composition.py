"""Composition scores: how much a head reads of what an earlier head writes, by their weights (Elhage et al. 2021)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import unknown
from ...gradcheck.report import aligned
from ...nn import LayerNorm
from ..layers import as_float64, head_weights
from ..residual.streams import streams

if TYPE_CHECKING:
    from ...nn.module import Module

KINDS = "q", "k", "v"


class Composition(dict):
    """{(path of the earlier layer, path of the later one): (nh of the one, nh of the other)}. str() shows the largest
    twenty."""

    def __str__(self) -> str:
        found = [
            (score, f"{early} head {i}", f"{late} head {j}")
            for (early, late), scores in self.items()
            for (i, j), score in np.ndenumerate(np.nan_to_num(scores))
        ]
        found.sort(key=lambda row: -row[0])
        rows = [("writes", "reads", "score"), *((early, late, f"{score:.3f}") for score, early, late in found[:20])]
        return "\n".join([*aligned(rows), *([f"… and {len(found) - 20} smaller ones"] if len(found) > 20 else [])])


@dataclass(eq=False)
class _Layer:
    """The triangles R of W = Q R, for each head: ‖W_V W_O‖ = ‖R_V R_Oᵀ‖, as the columns of Q are orthonormal."""

    path: str
    W: dict  # {name: (nh, C, d)}, W_O transposed
    R: dict  # {name: (nh, d, d)}

    def product(self, left, right):
        """‖W_left W_rightᵀ‖ of each head: (nh,)."""
        return _sizes(self.R[left] @ self.R[right].swapaxes(1, 2))


def composition(model: "Module", kind: str) -> Composition:
    """The composition scores of all heads with those of later layers, a Composition.

        "q"  ‖W_OV W_QK‖  / (‖W_OV‖ ‖W_QK‖)      the later head's queries read what the earlier head writes
        "k"  ‖W_OV W_QKᵀ‖ / (‖W_OV‖ ‖W_QK‖)      its keys do
        "v"  ‖W_OV W_OV'‖ / (‖W_OV‖ ‖W_OV'‖)     its values do

    in Frobenius norms, where W_OV = W_V W_O is the earlier head's and the others are the later one's. A score is at
    most 1; where the two have nothing to do with each other, its root mean square is 1/√C. nan: one of them is 0.

    A norm that a layer reads through belongs to its weights, but for its divisor: they are centered, for a
    LayerNorm, and multiplied by its weight. Biases are left out. Each block is run once, and no other thread may use
    it meanwhile. The model: as for study.flow, but all of it must be one stream, with norms first or none. Raises
    TypeError for a model that is not known, and ValueError for one that is otherwise, for an unknown kind, for keys
    or values from elsewhere, and for "q" and "k" of rotary positions, which put another rotation between W_Q and W_K
    at each distance."""
    if kind not in KINDS:
        raise ValueError(unknown("kind of composition", kind, KINDS))
    found = streams(model)
    parts = [part for stream in found for part in stream.parts]
    if len(found) > 1 or any(part.path.endswith("multihead_attn") for part in parts):
        raise ValueError("there are several streams: composition is known within one")
    if any(part.after is not None for part in parts):
        raise ValueError("norms come after the sums: they change what a head has written before another reads it")
    if any(part.behind and part.is_attention for part in parts):
        raise ValueError("attention layers read beside each other: composition is known where they follow each other")
    layers = [_layer(part, kind) for part in parts if part.is_attention and part.first.num_heads]
    return Composition(
        {(early.path, late.path): _scores(early, late, kind) for j, late in enumerate(layers) for early in layers[:j]}
    )


def _layer(part, kind):
    layer, name = part.first, part.path
    if kind != "v" and layer.positions == "rotary":
        raise ValueError(f"{name} has rotary positions: there is no W_QK that holds at every distance")
    if {layer.kdim, layer.vdim} != {layer.embed_dim}:
        raise ValueError(f"{name} takes keys of {layer.kdim} and values of {layer.vdim} from elsewhere")
    heads = [head_weights(layer, h) for h in range(layer.num_heads)]
    W = {p: np.stack(each) for p, each in zip("QKV", zip(*(weights[:3] for weights in heads)))}
    W = {p: _behind(part.before, each) for p, each in W.items()}
    W["O"] = np.stack([(weights[3] * part.scale).T for weights in heads])
    return _Layer(name, W, {p: np.linalg.qr(each, mode="r") for p, each in W.items()})


def _behind(norm, W):
    """W (nh, C, d) as it reads the stream before a norm."""
    if getattr(norm, "weight", None) is not None:
        W = as_float64(norm.weight)[:, None] * W
    return W - W.mean(1, keepdims=True) if isinstance(norm, LayerNorm) else W


def _scores(early, late, kind):
    read, other = {"q": ("Q", "K"), "k": ("K", "Q"), "v": ("V", "O")}[kind]
    between = early.W["O"][:, None].swapaxes(2, 3) @ late.W[read]  # (nh, nh', d_v, d): all that is not triangles
    sizes = _sizes(early.R["V"][:, None] @ between @ late.R[other].swapaxes(1, 2))  # (nh, nh')
    whole = early.product("V", "O")[:, None] * late.product(read, other)
    return sizes / np.where(whole > 0, whole, np.nan)


def _sizes(x):
    return np.sqrt((x**2).sum((-2, -1)))
