"""Scaled dot-product attention: scores, the masked softmax that turns them into a pattern, and their product with v."""

from ..autograd import Fused, Op, composite
from ..cases import Fixed, case
from ._args import require_float
from .dropout import dropout


class AttentionPattern(Op):
    """pattern = softmax(scale · scores) over the last dim, exactly 0 where masked;   dscores = scale · softmax'

    scores (…, T, S). mask: bool (True: attend) or None, broadcast to scores; is_causal: query i sees keys up to i.
    A query that sees nothing has a pattern of zeros, and zero gradients."""

    cases = [
        case((2, 3, 3), None, scale=0.5, is_causal=True),
        case((4, 2), None, scale=1.0, is_causal=True),
        case((2, 2, 3), Fixed([[True, False, True], [False, False, False]]), scale=0.5, is_causal=False),
    ]
    analytic = True

    def forward(self, scores, mask, scale, is_causal):
        return self.save_output(self.backend.attention_pattern(scores, scale, mask, is_causal))

    def backward(self, dy):
        return AttentionPatternBackward.apply(dy, self.saved_output(), scale=self.scale), None


class AttentionPatternBackward(Fused):
    """dscores = scale · pattern (dpattern - Σ dpattern pattern)"""

    cases = [case((2, 3, 4), (2, 3, 4), scale=0.5)]
    analytic = True

    def forward(self, dy, pattern, scale):
        self.save_inputs(dy, pattern)
        return self.backend.attention_pattern_backward(dy, pattern, scale)

    @staticmethod
    def composed(dy, pattern, scale):
        return pattern * (dy - (dy * pattern).sum(-1, keepdim=True)) * scale


def attention_pattern(scores, mask=None, is_causal=False, scale=1.0):
    """softmax(scale · scores + mask) over the last dim of scores (…, T, S): which keys each query reads, and how much.

    mask: bool Tensor (True: attend), float Tensor (added), or None, broadcast to scores."""
    require_float("attention_pattern", scores)
    if mask is not None:
        try:
            mask.expand(scores.shape)
        except ValueError:
            raise ValueError(
                f"attention: mask of shape {mask.shape} does not broadcast to scores of shape {scores.shape}"
            ) from None
        if mask.dtype == scores.dtype:
            scores, scale, mask = scores * scale + mask, 1.0, None
        elif mask.dtype.kind != "b":
            raise TypeError(f"attention: mask must be bool or {scores.dtype} like q, k and v, got {mask.dtype}")
    return AttentionPattern.apply(scores, mask, scale=float(scale), is_causal=bool(is_causal))


@composite(case((2, 3, 4), (2, 3, 4), (2, 3, 4), is_causal=True), case((2, 3, 4), (2, 5, 4), (2, 5, 2), scale=0.3))
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """z = softmax(q kᵀ / √d_k + mask) v   (Vaswani et al. 2017, eq. 1)

    query (…, T, d_k), key (…, S, d_k), value (…, S, d_v) -> (…, T, d_v). attn_mask: bool (True: attend) or float,
    broadcast to (…, T, S). scale replaces 1/√d_k. dropout_p applies to the pattern, always: pass 0 to evaluate.
    Unlike PyTorch, attn_mask and is_causal may be given together, and a query that sees nothing gives zeros."""
    require_float("scaled_dot_product_attention", query, key, value)
    if query.ndim < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"attention: query {query.shape}, key {key.shape}, value {value.shape} are not (…, T, d_k), (…, S, d_k), "
            f"(…, S, d_v)"
        )
    scale = (query.shape[-1] or 1) ** -0.5 if scale is None else scale
    scores = query @ key.mT  # (…, T, S)
    pattern = attention_pattern(scores, attn_mask, is_causal, scale)  # (…, T, S)
    if dropout_p:
        pattern = dropout(pattern, dropout_p)
    return pattern @ value  # (…, T, d_v)
