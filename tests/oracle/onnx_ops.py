"""`OPS`: each ONNX op that is one function of ours, or a few.

Positional parameters are the op's inputs and keywords its attributes: one that a function does not name raises."""

import functools
import math

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F
from minigrad.ops.index import GetitemAdd, ScatterAdd  # ops without a public function


def ints(x):
    """Sizes or axes as a list: an attribute in older opsets, an input in newer ones."""
    return x.tolist() if isinstance(x, mg.Tensor) else x


def variadic(function):
    return lambda *xs: functools.reduce(function, xs)


def trunc(x):
    return x.sign() * x.abs().floor()


def div(a, b):
    return a / b if a.is_floating_point() else trunc(a.double() / b.double()).to(a.dtype)


def mod(a, b, fmod=0):
    x, y = a.double(), b.double()
    return (x - (trunc if fmod else mg.floor)(x / y) * y).to(a.dtype)


def round_half_even(x):
    return mg.where(x - x.floor() == 0.5, 2 * (x.floor() / 2 + 0.5).floor(), (x + 0.5).floor())


def clip(x, low=None, high=None):
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def isinf(x, detect_negative=1, detect_positive=1):
    return x.isinf() & ((x < 0) & bool(detect_negative) | (x > 0) & bool(detect_positive))


def softplus(x):
    return mg.stack([x, mg.zeros_like(x)]).logsumexp(0)


def elu(x, alpha=1.0):
    return mg.where(x > 0, x, alpha * (x.clamp(max=0.0).exp() - 1))


def swish(x, alpha=1.0):
    return F.silu(alpha * x) / alpha


def reduction(function):
    """Of integers, in their own dtype: ours sum in int64."""

    def reduce(x, axes=None, keepdims=1, noop_with_empty_axes=0):
        axes = ints(axes) or None
        if axes is None and noop_with_empty_axes:
            return function(x.unsqueeze(-1), -1, False).to(x.dtype)
        return function(x, axes, bool(keepdims)).to(x.dtype)

    return reduce


def arg(function):
    def index(x, axis=0, keepdims=1, select_last_index=0):
        if select_last_index:
            return x.shape[axis] - 1 - function(x.flip(axis), axis, bool(keepdims))
        return function(x, axis, bool(keepdims))

    return index


def cumsum(x, axis, exclusive=0, reverse=0):
    axis = int(axis)
    y = x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)
    return (y - x if exclusive else y).to(x.dtype)


def batch_normalization(x, *parameters, epsilon=1e-5, momentum=0.9, training_mode=0):
    weight, bias, mean, var = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in parameters)
    return (x - mean) * (var + epsilon).rsqrt() * weight + bias


def group_normalization(x, weight, bias, num_groups, epsilon=1e-5, stash_type=None):
    groups = x.reshape(x.shape[0], num_groups, -1)
    weight, bias = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in (weight, bias))
    return F.layer_norm(groups, groups.shape[2:], eps=epsilon).reshape(x.shape) * weight + bias


def layer_normalization(x, weight, bias=None, axis=-1, epsilon=1e-5, stash_type=None):
    dims = tuple(range(axis % x.ndim, x.ndim))
    rstd = (x.var(dims, keepdim=True, correction=0) + epsilon).rsqrt()
    return F.layer_norm(x, x.shape[axis:], weight, bias, epsilon), x.mean(dims, keepdim=True), rstd


def lp_normalization(x, axis=-1, p=2):
    norm = x.abs().sum(axis, True) if p == 1 else (x * x).sum(axis, True).sqrt()
    return x / norm.masked_fill(norm == 0, 1.0)


def cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean"):
    return F.cross_entropy(x, target, weight, ignore_index=ignore_index, reduction=reduction), x.log_softmax(1)


def negative_log_likelihood(x, target, weight=None, ignore_index=-100, reduction="mean"):
    loss = -x.gather(1, target.masked_fill(target == ignore_index, 0).unsqueeze(1)).squeeze(1)
    return weighted(loss, target, weight, ignore_index, reduction)


def weighted(loss, target, weight, ignore_index, reduction):
    ignored = target == ignore_index
    w = mg.ones_like(loss) if weight is None else weight[target.masked_fill(ignored, 0)]
    w = w.masked_fill(ignored, 0.0)
    return loss * w if reduction == "none" else (loss * w).sum() / (w.sum() if reduction == "mean" else 1)


def dropout(x, ratio=0.5, training_mode=False, seed=None):
    return F.dropout(x, float(ratio), bool(training_mode)), mg.ones_like(x, mg.bool_)


def eye_like(x, dtype=None, k=0):
    (n, m), row, column = x.shape, max(k, 0), max(-k, 0)
    return mg.eye(n + abs(k), m + abs(k), dtype or x.dtype)[row : row + n, column : column + m]


def reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[d] if n == 0 and not allowzero else n for d, n in enumerate(ints(shape))])


def unsqueeze(x, axes):
    axes = ints(axes)
    return functools.reduce(mg.unsqueeze, sorted(axis % (x.ndim + len(axes)) for axis in axes), x)


def split(x, sizes=None, axis=0, num_outputs=None):
    return x.chunk(num_outputs, axis) if sizes is None else x.split(ints(sizes), axis)


def slice_(x, starts, ends, axes=None, steps=None):
    starts, ends, axes, steps = ints(starts), ints(ends), ints(axes), ints(steps)
    index = dict(zip(axes or range(len(starts)), map(slice, starts, ends, steps or [1] * len(starts))))
    index = {axis % x.ndim: part for axis, part in index.items()}
    return x[tuple(index.get(d, slice(None)) for d in range(x.ndim))]


def pad(x, pads, value=None, axes=None, mode="constant"):
    pads, widths = ints(pads), [(0, 0)] * x.ndim
    for axis, before, after in zip(ints(axes) or range(x.ndim), pads[: len(pads) // 2], pads[len(pads) // 2 :]):
        widths[axis] = before, after
    if mode == "constant":
        return F.pad(x, [n for pair in reversed(widths) for n in pair], value=0 if value is None else value.item())
    for dim, pair in enumerate(widths):
        x = x.index_select(dim, mg.tensor(np.pad(np.arange(x.shape[dim]), pair, mode)))
    return x


def along(x, axis, index):
    """x indexed along one axis."""
    return x[(slice(None),) * (axis % x.ndim) + (index,)]


def from_front(index, n):
    """Negative indices, which count from the end, as positive ones."""
    return mg.where(index < 0, index + n, index)


def gather_elements(x, index, axis=0):
    axis %= x.ndim
    x = x[tuple(slice(None if d == axis else n) for d, n in enumerate(index.shape))]  # index may be smaller
    return x.gather(axis, from_front(index, x.shape[axis]))


def gather_nd(x, index, batch_dims=0):
    batch = np.ogrid[tuple(slice(n) for n in index.shape[:-1])][:batch_dims]
    return x[(*batch, *index.unbind(-1))]


def scatter_elements(x, index, updates, axis=0, reduction="none"):
    axis %= x.ndim
    index = from_front(index, x.shape[axis])
    return scatter(x, updates, reduction, lambda y: ScatterAdd.apply(y, index, shape=x.shape, dim=axis))


def scatter_nd(x, index, updates, reduction="none"):
    parts = tuple(np.moveaxis(index.numpy(), -1, 0))
    return scatter(x, updates, reduction, lambda y: GetitemAdd.apply(y, shape=x.shape, index=parts))


def scatter(x, updates, reduction, place):
    """place(y): zeros of x's shape with y added at the indices, which are unique if they are not to add."""
    return x + place(updates) if reduction == "add" else mg.where(place(mg.ones_like(updates)) > 0, place(updates), x)


def compress(x, condition, axis=None):
    x, axis = (x.flatten(), 0) if axis is None else (x, axis)
    return along(x, axis, F.pad(condition, (0, x.shape[axis] - len(condition)), value=False))


def one_hot(index, depth, values, axis=-1):
    index, depth = from_front(index.long(), int(depth)), int(depth)
    beyond = (index < 0) | (index >= depth)
    hot = F.one_hot(index.masked_fill(beyond, depth), depth + 1)[..., :depth].bool()
    order = list(range(index.ndim))
    order.insert(axis % hot.ndim, index.ndim)
    return mg.where(hot.permute(order), values[1], values[0])


def hardmax(x, axis=-1):
    return one_hot(x.argmax(axis), x.shape[axis], mg.tensor([0, 1], dtype=x.dtype), axis)


def attention(
    q, k, v, mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, scale=None, is_causal=0, softcap=0.0,
    q_num_heads=None, kv_num_heads=None, softmax_precision=None, qk_matmul_output_mode=0,
    left_window_size=-1, right_window_size=-1,
):  # fmt: skip
    packed = q.ndim == 3  # (B, T, nh·hs), else (B, nh, T, hs)
    if packed:
        heads = (q_num_heads, kv_num_heads, kv_num_heads)
        q, k, v = (x.reshape(*x.shape[:2], nh, -1).transpose(1, 2) for x, nh in zip((q, k, v), heads))
    past = 0
    if past_key is not None:
        past, k, v = past_key.shape[2], mg.cat([past_key, k], 2), mg.cat([past_value, v], 2)
    present, group = (k, v), q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    ours = is_causal and not past and nonpad_kv_seqlen is None  # the causal mask that minigrad has itself
    windows = left_window_size, 0 if is_causal and not ours else right_window_size
    mask = attention_mask(mask, q.shape[2], k.shape[2], past, nonpad_kv_seqlen, *windows)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.mT * scale  # (B, nh, T, S)
    capped = softcap * (scores / softcap).tanh() if softcap else scores
    precision = softmax_precision or q.dtype
    added = mask.to(precision) if mask is not None and mask.is_floating_point() else mask
    pattern = F.attention_pattern(capped.to(precision), added, ours).to(q.dtype)
    if softcap or softmax_precision:
        y = pattern @ v
    else:
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=ours, scale=scale)
    y = y.transpose(1, 2).flatten(2) if packed else y
    if qk_matmul_output_mode == 2:
        biased = capped.masked_fill(~mask, -math.inf) if mask.dtype == mg.bool_ else capped + mask
        return y, *present, biased
    return y, *present, {0: scores, 1: capped, 3: pattern}[qk_matmul_output_mode]


def attention_mask(mask, T, S, past, lengths, left, right):
    """The mask, bool or float, further limited to the first keys, and to those near the query on either side."""
    lengths = None if lengths is None else lengths.reshape(-1, 1, 1, 1)  # (B, 1, 1, 1)
    ahead = mg.arange(S) - mg.arange(T).reshape(-1, 1) - (past if lengths is None else lengths - T)
    limits = [ahead >= -left] if left >= 0 else []
    limits += [ahead <= right] if right >= 0 else []
    limits += [] if lengths is None else [mg.arange(S) < lengths]
    visible = functools.reduce(mg.logical_and, limits) if limits else None
    if mask is None:
        return visible
    hidden = False if mask.dtype == mg.bool_ else -math.inf
    mask = F.pad(mask, (0, S - mask.shape[-1]), value=hidden)
    return mask if visible is None else mg.where(visible, mask, hidden)


_ZERO = np.zeros(1, np.float32)

OPS = {
    # making tensors
    "Constant": lambda **value: mg.tensor(*value.values()),
    "ConstantOfShape": lambda shape, value=_ZERO: mg.full(ints(shape), value.item(), value.dtype),
    "Range": lambda *ends, stash_type=None: mg.arange(*(x.item() for x in ends), dtype=ends[0].dtype),
    "EyeLike": eye_like, "Identity": mg.clone, "Size": lambda x: mg.tensor(x.numel()),
    "Shape": lambda x, start=0, end=None: mg.tensor(x.shape[start:end], dtype=mg.int64),
    "Cast": lambda x, to, saturate=1: x.to(to), "CastLike": lambda x, like, saturate=1: x.to(like.dtype),
    # elementwise
    "Abs": mg.abs, "Neg": mg.neg, "Sign": mg.sign, "Floor": mg.floor, "Ceil": lambda x: -(-x).floor(),
    "Round": round_half_even, "Reciprocal": lambda x: 1 / x, "Sqrt": mg.sqrt, "Exp": mg.exp, "Log": mg.log,
    "Erf": mg.erf, "Sin": mg.sin, "Cos": mg.cos, "Tan": lambda x: x.sin() / x.cos(), "Tanh": mg.tanh,
    "Sinh": lambda x: (x.exp() - (-x).exp()) / 2, "Cosh": lambda x: (x.exp() + (-x).exp()) / 2,
    "Asinh": lambda x: (x + (x * x + 1).sqrt()).log(), "Acosh": lambda x: (x + (x * x - 1).sqrt()).log(),
    "Atanh": lambda x: ((1 + x) / (1 - x)).log() / 2,
    "Add": mg.add, "Sub": mg.sub, "Mul": mg.mul, "Div": div, "Mod": mod, "Pow": lambda x, y: (x**y).to(x.dtype),
    "Max": variadic(mg.maximum), "Min": variadic(mg.minimum), "Sum": variadic(mg.add),
    "Mean": lambda *xs: sum(xs) / len(xs), "Clip": clip,
    "Equal": mg.eq, "Greater": mg.gt, "GreaterOrEqual": mg.ge, "Less": mg.lt, "LessOrEqual": mg.le,
    "And": mg.logical_and, "Or": mg.logical_or, "Xor": mg.logical_xor, "Not": mg.logical_not,
    "IsNaN": mg.isnan, "IsInf": isinf, "Where": mg.where,
    "Binarizer": lambda x, threshold=0.0: (x > threshold).to(x.dtype),
    # activations
    "Relu": mg.relu, "Sigmoid": mg.sigmoid, "Gelu": F.gelu, "Swish": swish, "Softplus": softplus, "Elu": elu,
    "SwiGLU": lambda a, b, alpha=1.0: swish(a, alpha) * b, "Mish": lambda x: x * softplus(x).tanh(),
    "Celu": lambda x, alpha=1.0: alpha * elu(x / alpha), "Softsign": lambda x: x / (1 + x.abs()),
    "Selu": lambda x, alpha=1.6732632, gamma=1.0507010: gamma * elu(x, alpha),
    "LeakyRelu": lambda x, alpha=0.01: mg.where(x < 0, alpha * x, x),
    "PRelu": lambda x, slope: mg.where(x < 0, slope * x, x),
    "ThresholdedRelu": lambda x, alpha=1.0: mg.where(x > alpha, x, 0.0),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: (alpha * x + beta).clamp(0.0, 1.0),
    "HardSwish": lambda x: x * (x / 6 + 0.5).clamp(0.0, 1.0), "Dropout": dropout,
    "Shrink": lambda x, bias=0.0, lambd=0.5: mg.where(x.abs() > lambd, x - x.sign() * bias, 0.0),
    # reductions and orderings
    "ReduceSum": reduction(mg.sum), "ReduceMean": reduction(mg.mean), "ReduceProd": reduction(mg.prod),
    "ReduceMax": reduction(mg.amax), "ReduceMin": reduction(mg.amin), "ReduceLogSumExp": reduction(mg.logsumexp),
    "ReduceLogSum": reduction(lambda x, *over: x.sum(*over).log()),
    "ReduceL1": reduction(lambda x, *over: x.abs().sum(*over)),
    "ReduceL2": reduction(lambda x, *over: (x * x).sum(*over).sqrt()),
    "ReduceSumSquare": reduction(lambda x, *over: (x * x).sum(*over)),
    "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    "ArgMax": arg(mg.argmax), "ArgMin": arg(mg.argmin), "CumSum": cumsum, "Hardmax": hardmax,
    "TopK": lambda x, k, axis=-1, largest=1, sorted=1: x.topk(int(k), axis, bool(largest)),
    # softmax, losses, norms
    "Softmax": mg.softmax, "LogSoftmax": mg.log_softmax,
    "SoftmaxCrossEntropyLoss": cross_entropy, "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": lambda x, w, axis=-1, epsilon=1e-5, stash_type=None: F.rms_norm(x, x.shape[axis:], w, epsilon),
    "BatchNormalization": batch_normalization, "GroupNormalization": group_normalization,
    "InstanceNormalization": lambda x, *wb, epsilon=1e-5: group_normalization(x, *wb, x.shape[1], epsilon),
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": lambda x, axes=(0, 2, 3): (
        (x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True, correction=0)
    ),
    # products and attention
    "MatMul": mg.matmul, "Einsum": lambda *xs, equation: mg.einsum(equation, *xs), "Attention": attention,
    "MatMulInteger": lambda a, b, a_zero, b_zero: (a.int() - a_zero.int()) @ (b.int() - b_zero.int()),
    "Gemm": lambda a, b, c=0.0, alpha=1.0, beta=1.0, transA=0, transB=0: (
        alpha * ((a.T if transA else a) @ (b.T if transB else b)) + beta * c
    ),
    # movements
    "Reshape": reshape, "Flatten": lambda x, axis=1: x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),
    "Squeeze": lambda x, axes=None: x.squeeze(ints(axes)), "Unsqueeze": unsqueeze,
    "Transpose": lambda x, perm=None: x.T if perm is None else x.permute(perm),
    "Expand": lambda x, shape: x.expand(np.broadcast_shapes(x.shape, ints(shape))),
    "Tile": lambda x, repeats: x.repeat(ints(repeats)), "Concat": lambda *xs, axis: mg.cat(xs, axis),
    "Split": split, "Slice": slice_, "Pad": pad,
    # indexing
    "Gather": lambda x, index, axis=0: along(x, axis, index), "GatherElements": gather_elements, "GatherND": gather_nd,
    "Scatter": scatter_elements, "ScatterElements": scatter_elements, "ScatterND": scatter_nd,
    "ArrayFeatureExtractor": lambda x, index: x[..., index.reshape(-1)], "Compress": compress, "OneHot": one_hot,
    "Trilu": lambda x, k=0, upper=1: (mg.triu if upper else mg.tril)(x, int(k)),
}  # fmt: skip
