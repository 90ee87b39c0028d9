"""Layers, attention, transformers and GPT; `functional` holds the functions behind them.

README.md in this folder has a reading order.
"""

from typing import TYPE_CHECKING

from . import cost, functional, gpt, init, positions, utils
from .activations import (
    ELU, GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh,
)  # fmt: skip
from .attention import MultiheadAttention
from .cache import KVCache
from .containers import ModuleDict, ModuleList, Sequential
from .gpt.generate import choose
from .gpt.config import GPTConfig
from .gpt.model import GPT, MLP, Block
from .layers import Dropout, Embedding, Flatten, Identity, LayerNorm, Linear, RMSNorm
from .losses import (
    BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss,
)  # fmt: skip
from .module import Module, Parameter
from .transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
)  # fmt: skip
from ..base.missing import attributes

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "Block", "CrossEntropyLoss", "Dropout", "ELU", "Embedding",
    "Flatten", "GELU", "GPT", "GPTConfig", "HuberLoss", "Identity", "KLDivLoss", "KVCache", "L1Loss",
    "LayerNorm", "LeakyReLU", "Linear", "LogSoftmax", "MLP", "MSELoss", "Module", "ModuleDict",
    "ModuleList", "MultiheadAttention", "NLLLoss", "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU",
    "Sigmoid", "SmoothL1Loss", "Softmax", "Softplus", "Tanh", "Transformer", "TransformerDecoder",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "choose", "cost",
    "functional", "gpt", "init", "positions", "utils",
]  # fmt: skip

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__ = attributes(__name__)
