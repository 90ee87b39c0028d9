"""What generation remembers: keys and values of the positions that the model has seen."""

from ..autograd import is_grad_enabled
from ..tensor import zeros


class KVCache:
    """Keys and values of one attention layer, so that a new token costs a single query instead of a whole forward.

    k (B, nkv, capacity, d_k) and v (B, nkv, capacity, d_v), whose first `length` positions are filled. It is made by
    MultiheadAttention.new_cache and GPT.new_cache, and works only under no_grad() or inference(), since it is filled in
    place."""

    def __init__(self, batch, num_kv_heads, capacity, d_k, d_v, dtype, device="cpu"):
        self.k = zeros(batch, num_kv_heads, capacity, d_k, dtype=dtype, device=device)
        self.v = zeros(batch, num_kv_heads, capacity, d_v, dtype=dtype, device=device)
        self.length = 0

    def append(self, k, v):
        """Add k (B, nkv, T, d_k) and v (B, nkv, T, d_v). Returns all keys and values so far, as views.

        Raises ValueError for wrong shapes or a full cache, TypeError for dtypes, RuntimeError where gradients are on.
        """
        B, nkv, capacity, _ = self.k.shape
        start, end = self.length, self.length + k.shape[2]
        if is_grad_enabled():
            raise RuntimeError(
                "a KVCache is filled in place, which gradients cannot follow: use no_grad() or inference()"
            )
        if k.shape[:2] != (B, nkv) or v.shape[:2] != (B, nkv):
            raise ValueError(f"this KVCache is for keys and values {(B, nkv, 'T', '…')}, got {k.shape} and {v.shape}")
        if not k.dtype == v.dtype == self.k.dtype:
            raise TypeError(f"this KVCache is for {self.k.dtype}, got keys of {k.dtype} and values of {v.dtype}")
        if end > capacity:
            raise ValueError(f"a KVCache of {capacity} positions holds {start} and cannot take {k.shape[2]} more")
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]

    @property
    def nbytes(self):
        """Bytes of the whole cache, filled or not: the same as cost(capacity).kv_cache."""
        return (self.k.numel() + self.v.numel()) * self.k.dtype.itemsize
