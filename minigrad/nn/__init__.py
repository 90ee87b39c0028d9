"""Layers, attention and GPT; `functional` holds the functions behind them.

README.md in this folder has a reading order.
"""

from typing import TYPE_CHECKING

from . import functional, gpt, init, positions, utils
from .activations import ELU, GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .attention import MultiheadAttention
from .cache import KVCache
from .containers import ModuleDict, ModuleList, Sequential
from .gpt.generate import choose
from .gpt.config import GPTConfig
from .gpt.model import GPT, MLP, Block
from .layers import Dropout, Embedding, Flatten, Identity, LayerNorm, Linear, RMSNorm
from .losses import BCEWithLogitsLoss, CrossEntropyLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss
from .module import Module, Parameter
from ..base.missing import module_getattr

__all__ = [
    "BCEWithLogitsLoss", "Block", "CrossEntropyLoss", "Dropout", "ELU", "Embedding", "Flatten", "GELU", "GPT",
    "GPTConfig", "Identity", "KLDivLoss", "KVCache", "L1Loss", "LayerNorm", "LeakyReLU", "Linear", "LogSoftmax", "MLP",
    "MSELoss", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "NLLLoss", "Parameter", "RMSNorm", "ReLU",
    "Sequential", "SiLU", "Sigmoid", "SmoothL1Loss", "Softmax", "Softplus", "Tanh", "choose", "functional", "gpt",
    "init", "positions", "utils",
]  # fmt: skip

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__ = module_getattr(__name__)
    for _module in functional, init, utils:
        _module.__getattr__ = module_getattr(_module.__name__)
