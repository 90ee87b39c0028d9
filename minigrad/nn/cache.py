"""A cache for generation: keys and values of the positions that a layer has seen."""

from ..autograd import is_grad_enabled
from ..tensor import Tensor, zeros
from ..typing import DTypeLike


class KVCache:
    """Keys and values of one attention layer, so that a new token costs a single query instead of a whole forward.

    k (B, nkv, capacity, d_k) and v (B, nkv, capacity, d_v); the first `length` positions are filled. It is made by
    MultiheadAttention.new_cache and GPT.new_cache. It works only under no_grad(), since it is filled in place."""

    def __init__(
        self, batch: int, num_kv_heads: int, capacity: int, d_k: int, d_v: int, dtype: DTypeLike, device: str = "cpu"
    ) -> None:
        self.k = zeros(batch, num_kv_heads, capacity, d_k, dtype=dtype, device=device)
        self.v = zeros(batch, num_kv_heads, capacity, d_v, dtype=dtype, device=device)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k (B, nkv, T, d_k) and v (B, nkv, T, d_v). Return all keys and values so far, as views.

        Raises ValueError for wrong shapes or a full cache, TypeError for wrong dtypes, and RuntimeError where gradients
        are recorded."""
        start, end = self.length, self.length + k.shape[2]
        self._check(k, v, end)
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]

    def clear(self) -> None:
        """Forget all positions."""
        self.length = 0

    def _check(self, k, v, end):
        """Raise RuntimeError, ValueError or TypeError unless k and v can be stored up to position `end`."""
        B, nkv, capacity, d_k = self.k.shape
        d_v = self.v.shape[3]
        if is_grad_enabled():
            raise RuntimeError("a KVCache is filled in place, which gradients cannot follow: use no_grad()")
        given = [x.shape[:2] + x.shape[3:] for x in (k, v)]
        if given != [(B, nkv, d_k), (B, nkv, d_v)] or k.shape[2] != v.shape[2]:
            raise ValueError(f"k {k.shape} and v {v.shape} do not fit a KVCache of {self.k.shape} and {self.v.shape}")
        if not k.dtype == v.dtype == self.k.dtype:
            raise TypeError(f"this KVCache is for {self.k.dtype}, got keys of {k.dtype} and values of {v.dtype}")
        if end > capacity:
            added = end - self.length
            raise ValueError(f"a KVCache of {capacity} positions holds {self.length} and cannot take {added} more")
