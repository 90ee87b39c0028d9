"""Losses. cross_entropy of class indices is an op; the others are composites.

reduction: 'none' returns the loss of each element, or of each target; 'sum' and 'mean' return a Tensor without dims.
For all of them, another reduction or shapes that do not fit raise ValueError, and an input that holds no floats
TypeError."""

from ..autograd import FormulaOp, Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import Fixed, apart, case, integers, normal, positive, uniform
from ..typing import T
from .args import require_float, require_tensor
from .elementwise import absolute, exp, log, log1p
from .index import Gather, check_index, embedding_unchecked
from .movement import reshape_if_needed
from .select import where
from .softmax import log_softmax

__all__ = [
    "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
]  # fmt: skip

REDUCTIONS = "none", "mean", "sum"


def _check_reduction(name, reduction):
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")


def _reduce(loss, reduction):
    """Return the loss, its sum or its mean."""
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def _check_pair(name, input, target, reduction):
    """Raise unless input and target are Tensors of one shape. Broadcasting (N, 1) beside (N,) would give N² losses."""
    _check_reduction(name, reduction)
    require_float(name, input)
    _check_target(name, target, input, input.shape)


def _check_target(name, target, input, shape):
    if require_tensor(name, target, "target").shape != shape:
        raise ValueError(f"{name}: input of shape {input.shape} needs a target of shape {shape}, got {target.shape}")


# ------------------------------------------------------------------------------------------- numbers and probabilities


@composite(case((3, 4), (3, 4)), case((3, 4), (3, 4), reduction="none"))
def mse_loss(input: T, target: T, *, reduction: str = "mean") -> T:
    """Return (input - target)² of two Tensors of one shape: their 'mean' or 'sum', (), or with 'none' all of them.

    Raises TypeError unless input holds floats, and ValueError for different shapes or another reduction."""
    _check_pair("mse_loss", input, target, reduction)
    difference = input - target
    return _reduce(difference * difference, reduction)


@composite(case(apart((3, 4)), normal((3, 4))))
def l1_loss(input: T, target: T, *, reduction: str = "mean") -> T:
    """Return |input - target|. Shapes, reductions and errors are those of mse_loss."""
    _check_pair("l1_loss", input, target, reduction)
    return _reduce(absolute(input - target), reduction)


@composite(case(apart((3, 4)), normal((3, 4))), case(apart((3, 4)), normal((3, 4)), reduction="sum", beta=0.3))
def smooth_l1_loss(input: T, target: T, *, reduction: str = "mean", beta: float = 1.0) -> T:
    """Return d² / (2 beta) where d = |input - target| < beta, else d - beta/2. The rest is as in mse_loss.

    Raises ValueError unless beta > 0. Source: Girshick, "Fast R-CNN", 2015."""
    _check_pair("smooth_l1_loss", input, target, reduction)
    if not beta > 0:
        raise ValueError(f"smooth_l1_loss: beta must be positive, got {beta}; l1_loss is its limit 0")
    d = absolute(input - target)
    return _reduce(where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta), reduction)


_PROBABILITIES = uniform((3, 4), 0.05, 0.95)


@composite(case((3, 4), _PROBABILITIES), case((3, 4), (3, 4), reduction="batchmean", log_target=True))
def kl_div(input: T, target: T, *, reduction: str = "mean", log_target: bool = False) -> T:
    """Return q (ln q - x), the terms of the divergence of q from e^x: 0 where q is 0.

    input: x, log-probabilities. target: q, of the same shape, or its logarithm with log_target. reduction: as in
    mse_loss, or 'batchmean', the sum divided by the size of dim 0. Raises TypeError unless input holds floats, and
    ValueError for different shapes or another reduction."""
    _check_pair("kl_div", input, target, "sum" if reduction == "batchmean" else reduction)
    q, log_q = (exp(target), target) if log_target else (target, log(where(target > 0, target, 1.0)))
    terms = where(q > 0, q * (log_q - input), 0.0)
    return terms.sum() / max(1, input.shape[0]) if reduction == "batchmean" else _reduce(terms, reduction)


@composite(case((3, 4), _PROBABILITIES), case((3, 4), _PROBABILITIES, positive((4,)), reduction="sum", pos_weight=2.5))
def binary_cross_entropy_with_logits(
    input: T, target: T, weight: T | None = None, *, reduction: str = "mean", pos_weight: T | None = None
) -> T:
    """Return -(t ln p + (1 - t) ln(1 - p)), t the target and p = sigmoid(input), without overflow for any logit.

    input and target have one shape. weight multiplies the losses, pos_weight their part t ln p: Tensors or numbers,
    broadcast to input. Reductions and errors are those of mse_loss."""
    _check_pair("binary_cross_entropy_with_logits", input, target, reduction)
    ones = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    below = input < 0
    small = log1p(where(below, input, -input).exp())  # ln(1 + e^-|input|)
    loss = where(below, (1 - target) - ones, 1 - target) * input + ones * small
    loss = loss if weight is None else loss * weight
    if loss.shape != input.shape:
        raise ValueError(f"weight and pos_weight must broadcast to input's shape {input.shape}, not to {loss.shape}")
    return _reduce(loss, reduction)


# ------------------------------------------------------------------------------------------------------------- classes


def _classes(name, input, target, weight, ignore_index):
    """Return (input (n, V), target (n,), weight or None), checked, for an input (N, V), (V,) or (N, V, d1, …)."""
    require_float(name, input, weight)
    class_dim = 0 if input.ndim == 1 else 1
    if input.ndim == 0:
        raise ValueError(f"{name}: input must have classes, got shape ()")
    _check_target(name, target, input, input.shape[:class_dim] + input.shape[class_dim + 1 :])
    if target.dtype.kind not in "iu":
        raise TypeError(f"{name}: target holds class indices, ints; got {target.dtype}")
    V = input.shape[class_dim]
    _check_weight(name, weight, V)
    target = check_index(name, target, V, ignore_index)
    if input.ndim != 2:
        input = _classes_last(input, class_dim).reshape(target.numel(), V)
    return input, reshape_if_needed(target, (target.numel(),)), weight


def _classes_last(x, class_dim):
    """Return x with the dim of classes as its last."""
    return x.permute(*(d for d in range(x.ndim) if d != class_dim), class_dim)


def _check_weight(name, weight, V):
    if weight is not None and (not isinstance(weight, Value) or weight.shape != (V,)):
        raise ValueError(f"{name}: weight must be a Tensor of one factor for each of {V} classes, ({V},)")


@composite(case((4, 5), Fixed([2, -100, 0, 4])), case((2, 3, 4), integers((2, 4), 3), positive((3,)), reduction="none"))
def nll_loss(input: T, target: T, weight: T | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> T:
    """Return -input[target], the loss of log-probabilities (see log_softmax) for class indices.

    Shapes, reductions, ignore_index and errors are those of cross_entropy. weight (V,): factors of the classes; 'mean'
    divides by the sum of the factors of the targets."""
    _check_reduction("nll_loss", reduction)
    shape = target.shape if isinstance(target, Value) else None
    input, target, weight = _classes("nll_loss", input, target, weight, ignore_index)
    loss, factors = _nll(input, target, weight, ignore_index)
    return _reduce_weighted(reshape_if_needed(loss, shape), factors, reduction)


def _nll(log_p, target, weight, ignore_index):
    """Return (losses (n,), factors (n,)) for log_p (n, V). Both are 0 where target is ignore_index."""
    kept = target != ignore_index
    label = where(kept, target, 0)  # 0 is in range too
    (n,) = target.shape
    losses = -Gather.apply(log_p, label.reshape(n, 1), dim=1).reshape(n)
    if weight is None:
        return where(kept, losses, 0.0), kept.to(log_p.dtype)
    factors = where(kept, embedding_unchecked(weight.to(log_p.dtype).reshape(-1, 1), label).reshape(n), 0.0)
    return where(kept, losses, 0.0) * factors, factors


def _reduce_weighted(loss, factors, reduction):
    """Return the reduced loss, whose mean is Σ loss / Σ factors: NaN if the factors are all 0."""
    return loss.sum() / factors.sum() if reduction == "mean" else _reduce(loss, reduction)


class CrossEntropy(Op):
    """loss_i = -Σ_c q_ic ln p_ic, p = softmax(logits), q = (1 - ε) onehot(target) + ε/V;   dlogits = (p - q) dloss

    logits (N, V), target (N,) -> (N,); 0 where target is ignore_index."""

    cases = [
        case((4, 5), integers((4,), 5), ignore_index=-100, label_smoothing=0.0),
        case((4, 5), Fixed([2, -100, 0, 4]), ignore_index=-100, label_smoothing=0.1),
    ]
    rounds_as = 1.0  # the same as log_softmax's

    def forward(self, logits, target, ignore_index, label_smoothing):
        loss, p = self.backend.cross_entropy(logits, target, ignore_index, label_smoothing)
        self.save_inputs(logits, target)
        self.save(p)
        return loss

    def backward(self, dloss: Value):
        logits, target = self.saved_inputs()
        (p,) = self.saved()
        return CrossEntropyBackward.apply(dloss, logits, target, p, **self.params), None


class CrossEntropyBackward(FormulaOp):
    """dlogits = (p - q) dloss. p = softmax(logits) comes from the forward; it is computed again if it is None."""

    cases = [case((4,), (4, 5), Fixed([2, -100, 0, 4]), None, ignore_index=-100, label_smoothing=0.1)]
    from_forward = (3,)

    def forward(self, dloss, logits, target, p, ignore_index, label_smoothing):
        self.save_inputs(dloss, logits, target, p)
        if p is None:
            _, p = self.backend.cross_entropy(logits, target, ignore_index, label_smoothing)
        return self.backend.cross_entropy_backward(dloss, p, target, ignore_index, label_smoothing)

    @staticmethod
    def formula(dloss, logits, target, p, ignore_index, label_smoothing):
        V = logits.shape[1]
        kept = target != ignore_index
        onehot = target.reshape(-1, 1) == target.constant(range(V))
        q = onehot.to(logits.dtype) * (1 - label_smoothing) + label_smoothing / max(V, 1)
        dlogits = (logits.softmax(1) - q) * dloss.reshape(-1, 1)
        return where(kept.reshape(-1, 1), dlogits, 0.0)


@check_arguments
def cross_entropy(
    input: T, target: T, weight: T | None = None, *, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> T:  # fmt: skip
    """Return the cross-entropy of logits against class indices or class probabilities.

    input: logits (N, V), (V,) or (N, V, d1, …), float. target: class indices (N,), () or (N, d1, …), or probabilities:
    floats of input's shape. weight (V,): factors of the classes. label_smoothing: the part of each target that is
    spread over all classes.

    reduction 'none' gives a loss for each target, and 'sum' adds them. 'mean' divides the sum by the number of targets
    other than ignore_index, or by the sum of their weights; NaN if there is none. For probabilities it divides by the
    number of losses. Raises TypeError for other dtypes, ValueError for other shapes or options, and IndexError for a
    class outside of [0, V)."""
    require_float("cross_entropy", input, weight)
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must lie in [0, 1], got {label_smoothing}")
    if isinstance(target, Value) and target.dtype.kind == "f" and target.shape == input.shape and input.ndim:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    shape = target.shape if isinstance(target, Value) else None
    input, target, weight = _classes("cross_entropy", input, target, weight, ignore_index)
    if weight is not None:
        log_p = log_softmax(input, 1)
        loss, factors = _nll(log_p, target, weight, ignore_index)
        if label_smoothing:
            even = where(target != ignore_index, -(log_p * weight).sum(1), 0.0)
            loss = loss * (1 - label_smoothing) + even * (label_smoothing / max(input.shape[1], 1))
        return _reduce_weighted(reshape_if_needed(loss, shape), factors, reduction)
    loss = CrossEntropy.apply(input, target, ignore_index=ignore_index, label_smoothing=label_smoothing)
    if reduction == "none":
        return reshape_if_needed(loss, shape)
    if reduction == "sum":
        return loss.sum()
    if target.device != "cpu":  # the host must not wait for the count; without targets this is 0 times ∞, NaN
        n = (target != ignore_index).sum().double()
        return loss.sum() * (1 / n).to(loss.dtype)
    n = int((target._host() != ignore_index).sum())
    return loss.sum() * (1 / n if n else float("nan"))


def _soft_cross_entropy(input, q, weight, reduction, label_smoothing):
    """Return -Σ_c w_c q_c ln p_c, with q the probabilities, smoothed: (1 - label_smoothing) q + label_smoothing / V."""
    class_dim = 0 if input.ndim == 1 else 1
    V = input.shape[class_dim]
    _check_weight("cross_entropy", weight, V)
    if label_smoothing:
        q = q * (1 - label_smoothing) + label_smoothing / max(V, 1)
    log_p = _classes_last(log_softmax(input, class_dim), class_dim)
    terms = log_p * _classes_last(q, class_dim)
    loss = -(terms if weight is None else terms * weight).sum(-1)
    return _reduce(loss, reduction)
