"""Layers, attention, the transformer; `functional` holds the functions behind them."""

from . import functional, init, utils
from .attention import MultiheadAttention
from .layers import (
    GELU, CrossEntropyLoss, Dropout, Embedding, Identity, LayerNorm, Linear, ModuleDict, ModuleList, ReLU, RMSNorm,
    Sequential, Sigmoid, SiLU, Softmax, Tanh,
)  # fmt: skip
from .module import Module, Parameter
from .transformer import GPT, MLP, Block, GPTConfig

__all__ = [
    "GELU", "GPT", "MLP", "Block", "CrossEntropyLoss", "Dropout", "Embedding", "GPTConfig", "Identity", "LayerNorm",
    "Linear", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "RMSNorm", "ReLU", "Sequential",
    "SiLU", "Sigmoid", "Softmax", "Tanh", "functional", "init", "utils",
]  # fmt: skip
