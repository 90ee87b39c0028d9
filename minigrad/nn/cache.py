"""What generation remembers: keys and values of the positions that the model has seen."""

from ..autograd import is_grad_enabled
from ..dtypes import int64
from ..ops.attention import scaled_dot_product_attention
from ..ops.public import where
from ..tensor import Tensor, arange, zeros
from ..typing import DTypeLike


class KVCache:
    """Keys and values of one attention layer, so that a new token costs a single query instead of a whole forward.

    k (B, nkv, capacity, d_k) and v (B, nkv, capacity, d_v), whose first `length` positions are filled. `position`, an
    int64 Tensor (1,), is the same number on the device: with it a step is the same at each position. It is made
    by MultiheadAttention.new_cache and GPT.new_cache, and works only under no_grad(), since it is filled in place."""

    def __init__(
        self, batch: int, num_kv_heads: int, capacity: int, d_k: int, d_v: int, dtype: DTypeLike, device: str = "cpu"
    ) -> None:
        self.k = zeros(batch, num_kv_heads, capacity, d_k, dtype=dtype, device=device)
        self.v = zeros(batch, num_kv_heads, capacity, d_v, dtype=dtype, device=device)
        self.length, self.position = 0, zeros(1, dtype=int64, device=device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k (B, nkv, T, d_k) and v (B, nkv, T, d_v). Returns all keys and values so far, as views.

        Raises ValueError for wrong shapes or a full cache, TypeError for dtypes, RuntimeError where gradients are on.
        """
        self._check(k, v)
        start, T = self.length, k.shape[2]
        self.grow(T)
        self.k[:, :, start : self.length] = k
        self.v[:, :, start : self.length] = v
        self.position.add_(T)
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float = 1.0) -> Tensor:
        """Add one position, k (B, nkv, 1, d_k) and v (B, nkv, 1, d_v), and let q (B, nh, 1, d_k) attend to all so far:
        (B, nh, 1, d_v). Raises as append does.

        The operations are the same at each position, so that a captured step serves for all; the work is in proportion
        to the capacity."""
        self._check(k, v)
        self.grow(1)
        places = arange(self.k.shape[2], device=q.device)  # (capacity,)
        here = (places == self.position).unsqueeze(-1)  # (capacity, 1)
        self.k.copy_(where(here, k, self.k))
        self.v.copy_(where(here, v, self.v))
        z = scaled_dot_product_attention(q, self.k, self.v, places <= self.position, scale=scale, enable_gqa=True)
        self.position.add_(1)
        return z

    def clear(self) -> None:
        """Forget all positions."""
        self.length = 0
        for x in (self.k, self.v, self.position):  # a weight of 0 does not hide an old NaN
            x.zero_()

    def _check(self, k, v):
        B, nkv, _, d_k = self.k.shape
        d_v = self.v.shape[3]
        if is_grad_enabled():
            raise RuntimeError("a KVCache is filled in place, which gradients cannot follow: use no_grad()")
        given = [x.shape[:2] + x.shape[3:] for x in (k, v)]
        if given != [(B, nkv, d_k), (B, nkv, d_v)] or k.shape[2] != v.shape[2]:
            raise ValueError(f"k {k.shape} and v {v.shape} do not fit a KVCache of {self.k.shape} and {self.v.shape}")
        if not k.dtype == v.dtype == self.k.dtype:
            raise TypeError(f"this KVCache is for {self.k.dtype}, got keys of {k.dtype} and values of {v.dtype}")

    def grow(self, T: int) -> None:
        """Count T more positions. Raises ValueError where there is no room for them."""
        capacity = self.k.shape[2]
        if self.length + T > capacity:
            raise ValueError(f"a KVCache of {capacity} positions holds {self.length} and cannot take {T} more")
        self.length += T
