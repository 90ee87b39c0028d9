"""Softmax, its logarithm, and cross-entropy. A slice with nothing in it gives zeros, never NaN."""

from ..autograd import FormulaOp, Op
from ..autograd.cases import Fixed, case, integers
from .args import float_dim, in_dtype, numpy_names
from .select import where

_INF = float("inf")


class Softmax(Op):
    """y = exp(x - max x) / Σ exp(x - max x) along dim;   dx = y (dy - Σ dy y)

    A slice that is all -∞ gives zeros, and zero gradients."""

    cases = [
        case((3, 5), dim=1),
        case((2, 4, 3), dim=1),
        case((2, 1), dim=1),
        case(Fixed([[0.3, -_INF, 1.1], [-_INF, -_INF, -_INF]]), dim=1),
    ]
    analytic = True

    def forward(self, x, dim):
        return self.save_output(self.backend.softmax(x, dim))

    def backward(self, dy):
        return SoftmaxBackward.apply(dy, self.saved_output(), dim=self.dim)


class SoftmaxBackward(FormulaOp):
    """dx = y (dy - Σ dy y) along dim, y the softmax"""

    cases = [case((3, 5), (3, 5), dim=1), case((2, 4, 3), (2, 4, 3), dim=1)]
    analytic = True

    def forward(self, dy, y, dim):
        self.save_inputs(dy, y)
        return self.backend.softmax_backward(dy, y, dim)

    @staticmethod
    def formula(dy, y, dim):
        return y * (dy - (dy * y).sum(dim, keepdim=True))


@numpy_names
def softmax(x, dim=-1, dtype=None):
    """Positive numbers that sum to 1 along dim, in proportion to e^x. Of x's shape and dtype, or of x in `dtype`.
    Raises TypeError unless that is a float, and IndexError for a dim that x does not have."""
    x = x if dtype is None else in_dtype(x, dtype)
    dim = float_dim("softmax", x, dim)
    return Softmax.apply(x, dim=dim) if x.ndim else (x * 0.0).exp()


class LogSoftmax(Op):
    """y = x - ln Σ e^x along dim;   dx = dy - e^y Σ dy"""

    cases = [case((3, 5), dim=1), case((2, 4, 3), dim=1)]
    rounds_as = 1.0  # ln Σ e^(x - max) is ln 1 where one x is far above the others
    analytic = True

    def forward(self, x, dim):
        return self.save_output(self.backend.log_softmax(x, dim))

    def backward(self, dy):
        return dy - self.saved_output().exp() * dy.sum(self.dim, keepdim=True)


@numpy_names
def log_softmax(x, dim=-1, dtype=None):
    """The logarithm of softmax along dim, without underflow. Of x's shape and dtype, or of x in `dtype`. Raises
    TypeError unless that is a float, and IndexError for a dim that x does not have."""
    x = x if dtype is None else in_dtype(x, dtype)
    dim = float_dim("log_softmax", x, dim)
    return LogSoftmax.apply(x, dim=dim) if x.ndim else x * 0.0


# -------------------------------------------------------------------------------------------------------- cross-entropy


class CrossEntropy(Op):
    """loss_i = -Σ_c q_ic ln p_ic, p = softmax(logits), q = (1 - ε) onehot(target) + ε/V;   dlogits = (p - q) dloss

    logits (N, V), target (N,) -> (N,); 0 where target is ignore_index."""

    cases = [
        case((4, 5), integers((4,), 5), ignore_index=-100, label_smoothing=0.0),
        case((4, 5), Fixed([2, -100, 0, 4]), ignore_index=-100, label_smoothing=0.1),
    ]
    rounds_as = 1.0  # as log_softmax
    analytic = True

    def forward(self, logits, target, ignore_index, label_smoothing):
        loss, p = self.backend.cross_entropy(logits, target, ignore_index, label_smoothing)
        self.save_inputs(logits, target)
        self.save(p)
        return loss

    def backward(self, dloss):
        logits, target = self.saved_inputs()
        (p,) = self.saved()
        return CrossEntropyBackward.apply(dloss, logits, target, p, **self.params), None


class CrossEntropyBackward(FormulaOp):
    """dlogits = (p - q) dloss. p = softmax(logits) comes from the forward; None: computed again."""

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
