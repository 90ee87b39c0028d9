"""Layers, attention, transformers and GPT; `functional` holds the functions behind them.

README.md in this folder gives an order of reading.

Contents

Modules and parameters
    Module          Base class of layers and models
    ModuleDict      A dict of modules by name, which is not called itself, from a dict or (name, module) pairs
    ModuleList      A list of modules, which is not called itself: list[i] is a module, list[i:j] a ModuleList
    Parameter       A Tensor that a Module counts as its own to train: a leaf, contiguous, requiring a gradient by …
    ParameterDict   A dict of parameters by name
    ParameterList   A list of parameters
    Sequential      Modules applied one after the other: Sequential(a, b), or Sequential(OrderedDict(first=a, …

Layers
    CosineSimilarity   F.cosine_similarity of x1 and x2, broadcast, along dim, which is dropped: (N, C) and (N, C) -> …
    Dropout            In training, each element becomes 0 with probability p and is divided by 1 - p otherwise; …
    Embedding          Rows of a weight (num_embeddings, embedding_dim), named by an int index: (…) -> (…, …
    Flatten            Dims start_dim to end_dim as one: (N, d1, d2, …) -> (N, d1 · d2 · …) by default
    Identity           Gives back what it is given, a Tensor of any shape, whatever arguments it was made with
    LayerNorm          Each row, over the last dims, shifted and scaled to mean 0 and variance 1, times weight plus …
    Linear             y = x Wᵀ + b, (…, in_features) -> (…, out_features)
    RMSNorm            Each row, over the last dims, scaled to mean square 1, times weight, at first ones: (…, …
    Unflatten          One dim as several, of these sizes, one of which may be -1: (N, C · H) -> (N, C, H) by …

Activations
    CELU          x where x > 0, else alpha (e^(x / alpha) - 1), elementwise
    ELU           x where x > 0, else alpha (e^x - 1), elementwise
    GELU          x Φ(x), or its approximation by tanh with approximate="tanh", elementwise
    GLU           The first half of x along dim, times σ of the second: (…, 2 n) -> (…, n) by default
    Hardshrink    x where |x| > lambd, else 0, elementwise
    Hardsigmoid   x / 6 + 1/2, limited to [0, 1], elementwise
    Hardswish     x hardsigmoid(x), elementwise
    Hardtanh      x limited to [min_val, max_val], elementwise
    LeakyReLU     x where x > 0, else negative_slope x, elementwise
    LogSigmoid    ln σ(x), elementwise
    LogSoftmax    The logarithm of softmax along dim, of x's shape: see F.log_softmax
    Mish          x tanh(softplus(x)), elementwise
    PReLU         x where x > 0, else weight x, of x's shape
    ReLU          max(x, 0), elementwise
    ReLU6         x limited to [0, 6], elementwise
    SELU          1.0507 elu(x, 1.67326), elementwise
    SiLU          x σ(x), elementwise
    Sigmoid       1 / (1 + e^-x), elementwise
    Softmax       Softmax along dim, of x's shape: see F.softmax
    Softmin       Softmax of -x along dim, of x's shape
    Softplus      ln(1 + e^(beta x)) / beta, and x where beta x > threshold, elementwise
    Softshrink    x moved by lambd towards 0, and 0 if it is not so far away, elementwise
    Softsign      x / (1 + |x|), elementwise
    Tanh          tanh x, elementwise
    Tanhshrink    x - tanh x, elementwise

Losses
    BCELoss             F.binary_cross_entropy of probabilities and target, of one shape: their mean, (), by default
    BCEWithLogitsLoss   F.binary_cross_entropy_with_logits of logits and target, of one shape: their mean, (), by …
    CrossEntropyLoss    F.cross_entropy of logits (N, V) and classes (N,), or their probabilities (N, V): their mean, …
    HuberLoss           F.huber_loss of input and target, of one shape: their mean, (), by default
    KLDivLoss           F.kl_div of log-probabilities and target, of one shape: the mean of its terms, (), by default
    L1Loss              The mean of |input - target|, (), of two Tensors of one shape; other reductions: see F.l1_loss
    MSELoss             The mean of (input - target)², (), of two Tensors of one shape; other reductions: see F.mse_loss
    NLLLoss             F.nll_loss of log-probabilities (N, V) and classes (N,): their mean, (), by default
    SmoothL1Loss        F.smooth_l1_loss of input and target, of one shape: their mean, (), by default

Attention and transformers
    KVCache                   Keys and values of one attention layer, so that a new token costs a single query …
    MultiheadAttention        MultiHead(q, k, v) = Concat(head_1 … head_nh) W_O,   head_i = softmax(Q_i K_iᵀ / √d_k + …
    Transformer               An encoder and a decoder that attends to its output: src (B, S, C), tgt (B, T, C) -> …
    TransformerDecoder        num_layers layers like decoder_layer, then norm, if given: (B, T, C) and memory (B, S, …
    TransformerDecoderLayer   Self-attention, attention to the encoder's output `memory`, then a feedforward network: …
    TransformerEncoder        num_layers layers like encoder_layer, then norm, if given: (B, T, C) -> (B, T, C)
    TransformerEncoderLayer   Self-attention, then a feedforward network: (B, T, C) -> (B, T, C), C = d_model

GPT
    GPTConfig   Sizes of a GPT
    choose      One token for each row of logits (B, V): int64 (B, 1)
    recompute   function(*args) without keeping what its backward needs: backward runs it a second time, and keeps that

GPT, the decoder-only transformer, after GPT-2 and nanoGPT
    Block   x + attention(norm x), causal, and then x + mlp(norm x): (B, T, C) -> (B, T, C)
    GPT     Token and position embeddings, blocks, a norm, and an unembedding, the token embedding again if config.tied
    MLP     Two linear layers with a GELU in between: (B, T, C) -> (B, T, C)

Modules
    cost         What a layer or a model costs, counted from its sizes without computing anything
    functional   The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`
    gpt          GPT, as in nanoGPT: the model, its configuration, GPT-2's checkpoints, and how it writes
    init         Initial values: each function fills a tensor in place, keeping its shape, dtype and place in memory, …
    positions    Four ways to tell attention where a token stands
    utils        Helpers for loops of training and evaluation
"""

from typing import TYPE_CHECKING

from . import cost, functional, gpt, init, positions, utils
from .activations import (
    CELU, ELU, GELU, GLU, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, LogSoftmax, Mish, PReLU,
    ReLU, ReLU6, SELU, Sigmoid, SiLU, Softmax, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink,
)  # fmt: skip
from .attention import MultiheadAttention
from .cache import KVCache
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .gpt.generate import choose
from .gpt.config import GPTConfig
from .gpt.model import GPT, MLP, Block
from .layers import CosineSimilarity, Dropout, Embedding, Flatten, Identity, LayerNorm, Linear, RMSNorm, Unflatten
from .losses import (
    BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss,
)  # fmt: skip
from .module import Module, Parameter
from .recompute import recompute
from .transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
)  # fmt: skip
from ..base.missing import explaining, listing

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "Block", "CELU", "CosineSimilarity", "CrossEntropyLoss", "Dropout", "ELU",
    "Embedding", "Flatten", "GELU", "GLU", "GPT", "GPTConfig", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "HuberLoss", "Identity", "KLDivLoss", "KVCache", "L1Loss", "LayerNorm", "LeakyReLU", "Linear", "LogSigmoid",
    "LogSoftmax", "MLP", "MSELoss", "Mish", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "NLLLoss",
    "PReLU", "Parameter", "ParameterDict", "ParameterList", "RMSNorm", "ReLU", "ReLU6", "SELU", "Sequential", "SiLU",
    "Sigmoid", "SmoothL1Loss", "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    "Unflatten", "choose", "cost", "functional", "gpt", "init", "positions", "recompute", "utils",
]  # fmt: skip

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__, __dir__ = explaining(__name__), listing(__name__)
