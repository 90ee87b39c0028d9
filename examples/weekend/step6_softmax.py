"""Step 6: the four functions that a transformer needs.

softmax turns scores into shares that sum to 1, P = exp(S) / Σ exp(S). Raise one score, and its share grows while all
others shrink: every share depends on every score. On paper, from dP_i/dS_j = P_i (δ_ij - P_j):

    dS = P ⊙ (dP - Σ P dP)          the sum along the row

This says much about attention. Each row of dS sums to 0: scores compete. And where P is nearly 0 or 1, dS is nearly 0:
a head that is certain no longer learns.

Predict before you run this file: what is the gradient of a cross-entropy with respect to the logits of one row? Three
symbols say it.
"""

import numpy as np
from step5_tensor import Tensor


def softmax(s):
    """Return exp(s) / Σ exp(s), the sum along the last axis."""
    p = np.exp(s.data - s.data.max(-1, keepdims=True))  # minus the largest: exp(1000) is infinite
    p = p / p.sum(-1, keepdims=True)

    def back(dp):
        # your turn: dS, as above
        return (p * (dp - (p * dp).sum(-1, keepdims=True)),)
        # end

    return Tensor(p, (s,), back, "softmax")


def cross_entropy(logits, targets):
    """Return the mean of -ln P(target), for logits (N, V) and targets (N,) of ints."""
    n = len(targets)
    z = logits.data - logits.data.max(-1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)  # (N, V)

    def back(dy):
        onehot = np.eye(p.shape[-1])[targets]  # (N, V)
        # your turn: P minus what would have been right, times dy; and the loss is a mean of n
        return (dy * (p - onehot) / n,)
        # end

    return Tensor(-np.log(p[np.arange(n), targets]).mean(), (logits,), back, "cross_entropy")


def layer_norm(x, w, eps=1e-5):
    """Return x with each row shifted and scaled to mean 0 and variance 1, times w: x (…, C), w (C,)."""
    centred = x.data - x.data.mean(-1, keepdims=True)
    r = ((centred**2).mean(-1, keepdims=True) + eps) ** -0.5
    normed = centred * r

    def back(dy):
        g = dy * w.data  # the slope of `normed`
        # your turn: dx = r (g - mean of g - normed · mean of (g · normed)), means along the row; and dw
        dx = r * (g - g.mean(-1, keepdims=True) - normed * (g * normed).mean(-1, keepdims=True))
        dw = (dy * normed).reshape(-1, dy.shape[-1]).sum(0)
        # end
        return dx, dw

    return Tensor(normed * w.data, (x, w), back, "layer_norm")


def gelu(x):
    """Return x · Φ(x). Φ, of the normal distribution, is approximated by tanh, as in GPT-2."""
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x.data + 0.044715 * x.data**3))

    def back(dy):
        # your turn: this line is written for you, and has a mistake. `minigrad learn 6` says at which numbers it shows
        # ~return (dy * (0.5 * (1 + t) + 0.5 * x.data * (1 - t * t) * c * (1 + 0.044715 * x.data**2)),)
        return (dy * (0.5 * (1 + t) + 0.5 * x.data * (1 - t * t) * c * (1 + 3 * 0.044715 * x.data**2)),)
        # end

    return Tensor(0.5 * x.data * (1 + t), (x,), back, "gelu")


if __name__ == "__main__":
    from pictures import maps, stop_if_unfinished

    stop_if_unfinished()
    jacobians = {}
    for size in (1, 4, 16):
        s = Tensor(np.array([0.0, 0.5, 1.0, -1.0, 0.2]) * size)
        rows = []
        for i in range(5):
            s.grad[:] = 0
            softmax(s).backward(np.eye(5)[i])
            rows.append(s.grad.copy())
        jacobians[f"scores × {size}"] = np.array(rows)
        print(
            f"scores × {size}: largest share {softmax(s).data.max():.3f}, largest slope {abs(np.array(rows)).max():.4f}"
        )
    maps(jacobians, "softmax.png", top=0.25)
    print("softmax.png: how each share (row) moves with each score (column). Once one share is 1, nothing moves.")
    logits, target = Tensor(np.array([[0.5, -1.0, 2.0]])), np.array([0])
    cross_entropy(logits, target).backward()
    P, Y = softmax(logits).data, np.eye(3)[target]
    print(f"The gradient of a cross-entropy is P - Y, Y being 1 at the target: {logits.grad} and {P - Y}")
