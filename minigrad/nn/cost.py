"""What a layer or a model costs, counted from its sizes without computing anything."""

from dataclasses import dataclass

import numpy as np

from ..dtypes import DEFAULT_FLOAT
from ..typing import DTypeLike

__all__ = ["Cost", "linear", "attention"]


@dataclass(frozen=True)
class Cost:
    """parameters: how many numbers are trained. flops: of one forward, two for each multiplication with its addition;
    elementwise work is left out, and a causal mask saves nothing. Backward takes twice as many. kv_cache: bytes of keys
    and values for generation."""

    parameters: int = 0
    flops: int = 0
    kv_cache: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.parameters + other.parameters, self.flops + other.flops, self.kv_cache + other.kv_cache)

    def __str__(self) -> str:
        return f"{self.parameters:,} parameters, {self.flops / 1e9:,.3f} GFLOP forward, {self.kv_cache:,} B of KV cache"


def linear(in_features: int, out_features: int, rows: int, bias: bool) -> Cost:
    """The Cost of y = x Wᵀ + b over `rows` rows: x (rows, in_features) -> (rows, out_features)."""
    return Cost(in_features * out_features + bias * out_features, 2 * rows * in_features * out_features)


def attention(
    C: int,
    nh: int,
    nkv: int,
    d_k: int,
    d_v: int,
    T: int,
    S: int | None = None,
    batch: int = 1,
    kdim: int | None = None,
    vdim: int | None = None,
    bias: bool = True,
    dtype: DTypeLike = DEFAULT_FLOAT,
) -> Cost:
    """The Cost of MultiheadAttention over T queries (batch, T, C) and S keys (None: T)."""
    S, kdim, vdim = (T if S is None else S), kdim or C, vdim or C
    projections = (
        linear(C, nh * d_k, batch * T, bias)
        + linear(kdim, nkv * d_k, batch * S, bias)
        + linear(vdim, nkv * d_v, batch * S, bias)
        + linear(nh * d_v, C, batch * T, bias)
    )
    scores_and_values = Cost(flops=2 * batch * nh * T * S * (d_k + d_v))
    cache = Cost(kv_cache=batch * S * nkv * (d_k + d_v) * np.dtype(dtype).itemsize)
    return projections + scores_and_values + cache
