"""Encoders, decoders, and both together (Vaswani et al. 2017), with PyTorch's names and arguments.

Shapes here are those with batch_first=True; with batch_first=False, read (T, B, C) for (B, T, C). Only attention knows
the difference, for everything else in a layer takes each position on its own."""

import copy
from collections.abc import Mapping
from typing import Any

from ..dtypes import DEFAULT_FLOAT
from ..tensor import Tensor, full
from ..typing import DTypeLike
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .containers import ModuleList
from .layers import Dropout, LayerNorm, Linear
from .module import Module, factory

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def _activation(activation):
    if callable(activation):
        return activation
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be a function or one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    return _ACTIVATIONS[activation]


class _Layer(Module):
    """The parts of a layer: self-attention, in a decoder also attention to an encoder's output, and a feedforward
    network. Each has a residual connection, a norm and a dropout."""

    of_decoder = False

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, *, batch_first: bool | None = None,
                 norm_first: bool = False, bias: bool = True, attention: Mapping[str, Any] | None = None,
                 device: str | None = None, dtype: DTypeLike = DEFAULT_FLOAT) -> None:  # fmt: skip
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        options = dict(dropout=dropout, bias=bias, batch_first=batch_first) | place | dict(attention or {})

        def norm():
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **place)

        self.self_attn = MultiheadAttention(d_model, nhead, **options)
        if self.of_decoder:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **options | dict(positions=None))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm1, self.norm2 = norm(), norm()
        if self.of_decoder:
            self.norm3 = norm()
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if self.of_decoder:
            self.dropout3 = Dropout(dropout)
        self.activation, self.norm_first = _activation(activation), norm_first

    def _with_residual(self, x, part, norm, dropout):
        if self.norm_first:
            return x + dropout(part(norm(x)))
        return norm(x + dropout(part(x)))

    def _feedforward(self, x):
        x = self.activation(self.linear1(x))  # (B, T, dim_feedforward)
        return self.linear2(self.dropout(x))  # (B, T, C)


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feedforward network: (B, T, C) -> (B, T, C), C = d_model.

    norm_first: the norms come before the parts, as in GPT-2, instead of after the sums, as in the paper. attention:
    further arguments of MultiheadAttention, such as dict(impl="per_head", num_kv_heads=2). activation: "relu", "gelu",
    "silu" or a function. batch_first has to be said, as there: False for (T, B, C). Raises TypeError without it, and
    ValueError for other options."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:  # fmt: skip
        """src (B, T, C); masks as in MultiheadAttention: True means not to attend."""

        def attend(x):
            return self.self_attn(x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, is_causal=is_causal)[0]

        x = self._with_residual(src, attend, self.norm1, self.dropout1)  # (B, T, C)
        return self._with_residual(x, self._feedforward, self.norm2, self.dropout2)  # (B, T, C)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output `memory`, then a feedforward network: (B, T, C) -> (B, T, C).

    Arguments as for TransformerEncoderLayer."""

    of_decoder = True

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:  # fmt: skip
        """tgt (B, T, C), memory (B, S, C); masks as in MultiheadAttention: True means not to attend."""

        def attend(x):
            return self.self_attn(
                x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, is_causal=tgt_is_causal
            )[0]

        def look_up(x):
            return self.multihead_attn(
                x, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask, is_causal=memory_is_causal
            )[0]

        x = self._with_residual(tgt, attend, self.norm1, self.dropout1)  # (B, T, C)
        x = self._with_residual(x, look_up, self.norm2, self.dropout2)  # (B, T, C)
        return self._with_residual(x, self._feedforward, self.norm3, self.dropout3)  # (B, T, C)


def _copies(layer, n):
    """n layers of the same sizes, each with its own initial weights."""
    if n < 1:
        raise ValueError(f"num_layers must be at least 1, got {n}")
    layers = [layer] + [copy.deepcopy(layer) for _ in range(n - 1)]
    for other in layers[1:]:
        for module in reversed(list(other.modules())):  # parts first: what contains them may reset them in its own way
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return ModuleList(layers)


class _Stack(Module):
    """Layers one after the other, and a norm at the end, if there is one."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers, self.norm = _copies(layer, num_layers), norm

    def _through(self, x, *args, **masks):
        for layer in self.layers:
            x = layer(x, *args, **masks)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """num_layers layers like encoder_layer, then norm, if given: (B, T, C) -> (B, T, C).

    Unlike in PyTorch, each layer begins with its own weights. enable_nested_tensor, PyTorch's, changes nothing."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True) -> None:  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:  # fmt: skip
        """src (B, T, C) through all layers; masks as in a layer."""
        return self._through(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(_Stack):
    """num_layers layers like decoder_layer, then norm, if given: (B, T, C) and memory (B, S, C) -> (B, T, C).

    Unlike in PyTorch, each layer begins with its own weights."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **named: Any) -> Tensor:
        """tgt (B, T, C) and memory (B, S, C) through all layers; masks as in a layer."""
        return self._through(tgt, memory, *masks, **named)


class Transformer(Module):
    """An encoder and a decoder that attends to its output: src (B, S, C), tgt (B, T, C) -> (B, T, C).

    Embeddings, positions and the projection to a vocabulary are left to the caller. Arguments as for the layers."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, *, batch_first: bool | None = None, norm_first: bool = False,
                 bias: bool = True, attention: Mapping[str, Any] | None = None, device: str | None = None,
                 dtype: DTypeLike = DEFAULT_FLOAT) -> None:  # fmt: skip
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        options = dict(batch_first=batch_first, norm_first=norm_first, bias=bias, attention=attention) | place
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, **place) for _ in range(2)]
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*sizes, **options), num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*sizes, **options), num_decoder_layers, norms[1])
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool = False, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:  # fmt: skip
        """src (B, S, C) and tgt (B, T, C) -> (B, T, C); masks as in the layers."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                            tgt_is_causal, memory_is_causal)  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: DTypeLike = DEFAULT_FLOAT) -> Tensor:
        """(sz, sz): -∞ above the diagonal, where a position would see later ones, else 0."""
        return full((sz, sz), -float("inf"), **factory(device, dtype)).triu(1)
