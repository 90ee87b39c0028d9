"""Layers, attention, transformers and GPT; `functional` holds the functions behind them.

README.md in this folder gives an order of reading."""

from . import cost, functional, gpt, init, positions, utils
from .attention import MultiheadAttention
from .cache import KVCache
from .generate import choose
from .config import GPTConfig
from .gpt import GPT, MLP, Block
from .layers import (
    GELU, CrossEntropyLoss, Dropout, Embedding, Identity, LayerNorm, Linear, ModuleDict, ModuleList, ReLU, RMSNorm,
    Sequential, Sigmoid, SiLU, Softmax, Tanh,
)  # fmt: skip
from .module import Module, Parameter
from .recompute import recompute
from .transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
)  # fmt: skip

__all__ = [
    "GELU", "GPT", "MLP", "Block", "CrossEntropyLoss", "Dropout", "Embedding", "GPTConfig", "Identity", "KVCache",
    "LayerNorm", "Linear", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "RMSNorm", "ReLU",
    "Sequential", "SiLU", "Sigmoid", "Softmax", "Tanh", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer", "choose", "cost", "functional", "gpt", "init", "positions",
    "recompute", "utils",
]  # fmt: skip
