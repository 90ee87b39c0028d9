"""Wrong because something is changed or kept that is not the op's own: its inputs, the cotangent, a buffer."""

import numpy as np

import minigrad as mg
from minigrad import Op, case

from .report import Report, mistake


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swiglu(a, b):
    return a * sigmoid(a) * b


def swiglu_backward(dy, a, b, in_place=False):
    s = sigmoid(a)
    da, db = dy * b * (s + a * s * (1 - s)), dy * a * s
    if in_place:
        a[...], b[...] = da, db
    return da, db


def scale_in_place(dy, x, slope):
    dy *= slope(x)
    return dy.copy()


class Shared(Op, abstract=True):
    """x³, keeping what it needs at `here`, a place that other calls use too."""

    here: dict = {}

    def forward(self, x):
        self.here["x"] = x.copy()
        self.save_inputs(x)
        return x**3

    def backward(self, dy):
        return mg.from_numpy(3 * dy.detach().numpy() * self.here["x"] ** 2) if self.fits(dy) else dy * 0

    def fits(self, dy):
        return self.here["x"].shape == dy.shape


class OnTheClass(Shared):
    """What the forward saw is kept on the class: the last call's."""

    name = "on_the_class"
    here = {}


class Cached(Op):
    """The first gradient for each shape is kept for good."""

    name = "cached_adjoint"
    adjoints: dict = {}

    def forward(self, x):
        self.save_inputs(x)
        return np.sin(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        slope = self.adjoints.setdefault(x.shape, np.cos(x.detach().numpy()))
        return mg.from_numpy(dy.detach().numpy() * slope)


class ReusedBuffer(Op):
    """The backward works in the buffer that the forward saved."""

    name = "reused_buffer"

    def forward(self, x):
        self.save_inputs(x)
        self.probabilities = sigmoid(x)
        return np.log1p(np.exp(x))

    def backward(self, dy):
        p = self.probabilities
        p *= dy.detach().numpy()
        return mg.from_numpy(p.copy())


class EveryOther(Op):
    """x[:, ::2], whose gradient is written into memory that is not zeroed first."""

    name = "not_zeroed"
    memory: dict = {}  # as an allocator keeps it, by size

    def forward(self, x):
        self.save_inputs(x)
        return x[:, ::2].copy()

    def backward(self, dy):
        (x,) = self.saved_inputs()
        dx = self.memory.pop(x.shape, np.zeros(x.shape))
        dx[:, ::2] = dy.detach().numpy()
        self.memory[x.shape] = dx + 1.0  # freed, and used by others since
        return mg.from_numpy(dx.copy())


class EvaluatedNorm(Op):
    """Batch norm in evaluation, whose backward reads and writes the buffers of the statistics of a batch."""

    name = "evaluated_norm"
    saved_deviation: float = 2.0  # equal to the running one at first

    def forward(self, x):
        self.save_inputs(x)
        return (x - 0.1) / 2.0

    def backward(self, dy):
        (x,) = self.saved_inputs()
        dx = dy / type(self).saved_deviation
        type(self).saved_deviation = 1.0 + float(np.abs(x.detach().numpy()).sum())
        return dx


class InPlaceRope(Op):
    """Rotates pairs in place, and returns what it was given."""

    name = "in_place_rope"

    def forward(self, x):
        x[..., 0::2] *= -1
        return x.copy()

    def backward(self, dy):
        sign = np.ones(dy.shape)
        sign[..., 0::2] = -1
        return dy * dy.constant(sign)


def rope(x):
    sign = np.ones(x.shape)
    sign[..., 0::2] = -1
    return x * x.constant(sign)


def deviation_as_at_first():
    EvaluatedNorm.saved_deviation = 2.0


REPORTS = [
    mistake("SwiGLU that writes its gradients over its inputs", "linkedin/Liger-Kernel#254",
            "the backward reuses the inputs' memory, which another op has saved", swiglu,
            lambda dy, a, b: swiglu_backward(dy, a, b, in_place=True), swiglu_backward, case((3, 4), (3, 4))),
    mistake("gradient scaled in place", "NVIDIA/apex#1430",
            "the backward multiplies the gradient that it was given, which others use too", np.sin,
            lambda dy, x: scale_in_place(dy, x, np.cos), lambda dy, x: dy * np.cos(x), case((3, 4))),
    Report("context on the class", "pytorch/pytorch#16947",
           "what the forward keeps belongs to the function, not to the call: a second call overwrites it",
           OnTheClass.apply, lambda x: x * x * x, case((3, 4))),
    Report("adjoint cached at the first call", "bshillingford/autobw.torch#7",
           "right the first time it is evaluated, stale every time after", Cached.apply, mg.sin, case((3, 4)),
           forget=Cached.adjoints.clear),
    Report("backward in the saved buffer", "Dao-AILab/quack#209",
           "the saved probabilities are multiplied in place: a second walk finds the first one's result",
           ReusedBuffer.apply, lambda x: (x.exp() + 1).log(), case((3, 4))),
    Report("gradient of a slice in memory that is not zeroed", "deeplearning4j/deeplearning4j#7591",
           "what was not sliced gets whatever the memory held", EveryOther.apply, lambda x: x[:, ::2], case((3, 4)),
           forget=EveryOther.memory.clear),
    Report("batch norm in evaluation, the second time", "pytorch/pytorch#586",
           "the backward keeps statistics for itself: the gradient changes though nothing else does",
           EvaluatedNorm.apply, lambda x: (x - 0.1) / 2.0, case((3, 4)), forget=deviation_as_at_first),
    Report("rotation in place", "pytorch/pytorch#184113", "the forward changes its input, which others use too",
           InPlaceRope.apply, rope, case((3, 4))),
]  # fmt: skip
