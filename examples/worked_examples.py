"""Two small examples of multi-head attention, of the kind often worked by hand, with every step printed.

    python examples/worked_examples.py

1. "Cat sleeps": two tokens and two heads. Each head reads two of the four columns unchanged (Q = K = V).
2. Three tokens and two heads, each with its own W_Q, W_K and W_V.

The numbers are computed step by step from the matrices, and compared with nn.MultiheadAttention, for each impl.
"""

import argparse

import minigrad as mg
from minigrad import nn


def show(name, x):
    lines = ["  ".join(f"{value:7.4f}" for value in row) for row in x.tolist()]
    print(f"  {name:11} " + ("\n" + " " * 14).join(lines))


def heads(x, W_Q, W_K, W_V):
    """Return for each head a dict of its steps, from Q to its output, for x of shape (T, d)."""
    steps = []
    for h in range(len(W_Q)):
        q, k, v = x @ W_Q[h], x @ W_K[h], x @ W_V[h]  # (T, d_k), (T, d_k), (T, d_v)
        scores = q @ k.T / q.shape[1] ** 0.5  # (T, T)
        pattern = scores.softmax(-1)  # (T, T), rows that sum to 1
        steps.append({"Q": q, "K": k, "V": v, "QKᵀ/√d_k": scores, "pattern": pattern, "head = PV": pattern @ v})
    return steps


def worked(title, tokens, x, W_Q, W_K, W_V):
    """Print every step. Return the heads' outputs side by side, (T, nh·d_v)."""
    print(f"{title}: {', '.join(tokens)}\n")
    show("X", x)
    steps = heads(x, W_Q, W_K, W_V)
    for i, head in enumerate(steps, 1):
        print(f"\n head {i}")
        for name, value in head.items():
            show(name, value)
    concat = mg.cat([head["head = PV"] for head in steps], 1)  # (T, nh·d_v)
    print()
    show("concat", concat)

    W_O = mg.eye(concat.shape[1], dtype=mg.float64)
    layer = nn.MultiheadAttention(x.shape[1], len(W_Q), bias=False, dtype=mg.float64, batch_first=True).load_from_heads(
        W_Q, W_K, W_V, W_O
    )
    for layer.impl in ("per_head", "batched", "fused"):
        y, _ = layer(x.unsqueeze(0))  # (1, T, d)
        print(f"  nn.MultiheadAttention, {layer.impl}: largest difference {(y[0] - concat).abs().max().item():.0e}")
    print()
    return concat


def columns(*rows):
    return mg.tensor(rows, dtype=mg.float64)


def cat_sleeps():
    first, last = columns((1, 0), (0, 1), (0, 0), (0, 0)), columns((0, 0), (0, 0), (1, 0), (0, 1))
    x = columns((1, 2, 0, 0), (0, 0, 1, 2))
    return worked('"Cat sleeps"', ("Cat", "sleeps"), x, *[[first, last]] * 3)


def three_tokens():
    x = columns((1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 0, 0))
    W_Q = columns((1, 0), (0, 1), (0, 0), (0, 0)), columns((0, 0), (0, 0), (1, 0), (0, 1))
    W_K = columns((0, 1), (1, 0), (0, 0), (0, 0)), columns((0, 0), (0, 0), (0, 1), (1, 0))
    W_V = columns((1, 0), (0, 0), (1, 0), (0, 0)), columns((0, 1), (0, 1), (0, 0), (0, 0))
    return worked("Three tokens", ("1", "2", "3"), x, W_Q, W_K, W_V)


def main(argv=None):
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args(argv)
    cat_sleeps()
    three_tokens()


if __name__ == "__main__":
    main()
