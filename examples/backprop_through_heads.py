"""Every number of backprop through attention heads: by hand, by autograd, and by finite differences.

    python examples/backprop_through_heads.py [--out runs/backprop.svg]

The layer is small but has every part: three tokens of width 4, two heads of size 2, and the loss ½ ‖y - y*‖². For each
head, backward goes from dz to dq, dk and dv, and on to the head's weights. Each gradient is computed three times:

    by hand       by the formula beside it, in NumPy, from the gradients above it
    autograd      as study.trace_heads records it
    differences   (L(x + h) - L(x - h)) / 2h, where a hook adds h to a single number x in the middle of the forward

--out draws this backward pass as a graph, which needs the Python package graphviz.
"""

import argparse

import numpy as np

import minigrad as mg
from minigrad import nn, study, viz

X = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]  # (T, C)
TARGET = [[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]]  # (T, C): y*
W_Q = [[[1, 0], [0, 1], [0, 0], [0, 0]], [[0, 0], [0, 0], [1, 0], [0, 1]]]  # (C, d_k) of each head
W_K = [[[0, 1], [1, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 1], [1, 0]]]
W_V = [[[1, 0], [0, 0], [1, 0], [0, 0]], [[0, 1], [0, 1], [0, 0], [0, 0]]]
W_O = [[[1, 0, 0, 1], [0, 1, 0, 0]], [[0, 0, 1, 0], [1, 0, 0, 1]]]  # (d_v, C)
x, target, W_Q, W_K, W_V, W_O = (np.array(numbers, np.float64) for numbers in (X, TARGET, W_Q, W_K, W_V, W_O))
s = 1 / np.sqrt(W_Q.shape[2])  # the scale of scores


def by_hand():
    """Return for each head its pattern, and a list of (name, formula, gradient) in the order of the backward pass."""
    q, k, v = x @ W_Q, x @ W_K, x @ W_V  # (nh, T, d)
    exp = np.exp(s * q @ k.swapaxes(1, 2))  # (nh, T, T)
    P = exp / exp.sum(-1, keepdims=True)
    z = P @ v  # (nh, T, d_v)
    y = (z @ W_O).sum(0)  # (T, C): the sum of what the heads write
    dy = y - target
    heads = []
    for h in range(len(W_Q)):
        dz = dy @ W_O[h].T
        dv = P[h].T @ dz
        dP = dz @ v[h].T
        dS = P[h] * (dP - (P[h] * dP).sum(1, keepdims=True))
        dq, dk = s * dS @ k[h], s * dS.T @ q[h]
        gradients = [
            ("z", "dz = dy W_Oᵀ", dz),
            ("v", "dv = Pᵀ dz", dv),
            ("pattern", "dP = dz vᵀ", dP),
            ("scores", "dS = P ⊙ (dP - D), D_i = Σ_j P_ij dP_ij", dS),
            ("q", "dq = s dS k", dq),
            ("k", "dk = s dSᵀ q", dk),
            ("W_O", "dW_O = zᵀ dy", z[h].T @ dy),
            ("W_V", "dW_V = xᵀ dv", x.T @ dv),
            ("W_Q", "dW_Q = xᵀ dq", x.T @ dq),
            ("W_K", "dW_K = xᵀ dk", x.T @ dk),
        ]
        heads.append((P[h], gradients))
    return heads


class TwoHeads(nn.Module):
    """The layer with its loss."""

    def __init__(self):
        self.attn = nn.MultiheadAttention(4, 2, bias=False, impl="batched", dtype=mg.float64, batch_first=True)
        self.attn.load_from_heads(W_Q, W_K, W_V, W_O.reshape(4, 4))

    def forward(self, x, target):
        y, _ = self.attn(x)  # (1, T, C)
        return ((y - target) ** 2).sum() * 0.5

    def part(self, name, h):
        """Return the parameter that holds a head's matrix, and the index of the matrix's transpose in it."""
        if name == "W_O":
            return self.attn.out_proj.weight, np.s_[:, 2 * h : 2 * h + 2]
        start = 4 * ("W_Q", "W_K", "W_V").index(name) + 2 * h
        return self.attn.in_proj_weight, np.s_[start : start + 2]


def by_autograd(model, trace, name, h):
    if name in ("W_O", "W_Q", "W_K", "W_V"):
        parameter, where = model.part(name, h)
        return parameter.grad.numpy()[where].T
    return getattr(trace["attn"], f"{name}_grad")[0, h]


def by_differences(model, loss, name, h, shape, step=1e-5):
    slopes = np.zeros(shape)
    for i in np.ndindex(shape):
        up, down = (moved_loss(model, loss, name, h, i, by) for by in (step, -step))
        slopes[i] = (up - down) / (2 * step)
    return slopes


def moved_loss(model, loss, name, h, i, by):
    """Return the loss after `by` is added to element i of the value or weight `name` of head h."""
    if name in ("W_O", "W_Q", "W_K", "W_V"):
        parameter, where = model.part(name, h)
        array = parameter.array[where].T  # a view: writing there changes the parameter, and no version counter
        before = array[i]
        array[i] = before + by
        moved = loss().item()
        array[i] = before
        return moved

    def move(layer, x):
        change = np.zeros(x.shape)
        change[0, h][i] = by / s if name == "scores" else by
        return x + mg.tensor(change)

    point = "qk" if name == "scores" else name  # the hook sees q kᵀ before it is scaled: hence by / s
    handle = model.attn.register_head_hook(point, move)
    moved = loss().item()
    handle.remove()
    return moved


def show(columns):
    """Print matrices side by side, each under its title."""
    blocks = [["  ".join(f"{number:8.4f}" for number in row) for row in matrix] for matrix in columns.values()]
    widths = [max(len(title), len(block[0])) for title, block in zip(columns, blocks)]
    for row in (list(columns), *zip(*blocks)):
        print("      " + "    ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="draw the backward pass: .svg, .png or .dot")
    args = parser.parse_args(argv)

    model = TwoHeads()
    batch = mg.tensor(x[None]), mg.tensor(target[None])  # (1, T, C) each
    with study.trace_heads(model) as trace:
        loss = model(*batch)
        loss.backward(retain_graph=True)  # kept for the picture
    print(f"loss ½ ‖y - y*‖² = {loss.item():.4f}")
    worst = 0.0
    for h, (pattern, gradients) in enumerate(by_hand()):
        print(f"\nhead {h}\n\n    P = softmax(s q kᵀ), s = 1/√d_k")
        show({"by hand": pattern, "forward": trace["attn"].pattern[0, h]})
        for name, formula, hand in gradients:
            found = by_autograd(model, trace, name, h)
            slopes = by_differences(model, lambda: model(*batch), name, h, hand.shape)
            print(f"\n    {formula}")
            show({"by hand": hand, "autograd": found, "differences": slopes})
            worst = max(worst, np.abs(hand - found).max(), np.abs(hand - slopes).max())
    print(f"\nlargest disagreement: {worst:.0e}")
    if args.out:
        picture = viz.graph(loss, names=model, direction="backward", show=("shape", "grad_norm"))
        print("wrote", *picture.save(args.out))


if __name__ == "__main__":
    main()
