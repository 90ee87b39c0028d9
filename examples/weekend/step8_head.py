"""Step 8: a head, forward and backward.

A bigram cannot look further back than one letter. A head can. Each position has a query q, what it looks for; a key k,
what it offers; and a value v, what is read from it. Where a query agrees with a key, its position reads that value.

    q = x W_q      k = x W_k      v = x W_v                     (T, hs) each, for x of (T, C)
    S = q kᵀ / √hs, and no score where the key lies in the future
    P = softmax(S), each row the shares of one query             z = P v

Your engine finds the gradients by itself. Find them by hand once, from the end to the beginning, and you know what a
head learns from:

    dv = Pᵀ dz                    a value gets the dz of all positions that read it, by how much they read
    dP = dz vᵀ                    how the loss rises if a position reads a value more
    dS = P ⊙ (dP - Σ P dP)        step 6: only differences from the row's mean count
    dq = dS k / √hs               a query moves along the keys that it should have found
    dk = dSᵀ q / √hs              and a key along the queries

Predict before you run this file: the first position can only look at itself. What is its row of dS?
"""

import numpy as np
from step1_slope import slope
from step5_tensor import Tensor
from step6_softmax import softmax


def past(T):
    """Return (T, T) to be added to scores: -1e30 where the key (column) comes after the query (row), else 0."""
    return np.where(np.tri(T) == 1, 0.0, -1e30)


def head(x, w_q, w_k, w_v):
    """Return z (T, hs) for x (T, C) and weights (C, hs), and {"q": …, "k": …, "v": …, "S": …, "P": …}."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    # your turn: S; then P, with past(T) added to S; then z
    S = q @ k.permute(1, 0) * k.shape[-1] ** -0.5
    P = softmax(S + past(x.shape[0]))
    z = P @ v
    # end
    return z, {"q": q, "k": k, "v": v, "S": S, "P": P}


def by_hand(q, k, v, P, dz):
    """Return {"v": dv, "P": dP, "S": dS, "q": dq, "k": dk} from arrays of one head and the slope dz (T, hs) of z."""
    scale = k.shape[-1] ** -0.5
    # your turn: the five lines from above, in NumPy
    dv = P.T @ dz
    dP = dz @ v.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    dq = scale * dS @ k
    dk = scale * dS.T @ q
    # end
    return {"v": dv, "P": dP, "S": dS, "q": dq, "k": dk}


if __name__ == "__main__":
    from pictures import maps, stop_if_unfinished

    stop_if_unfinished()
    rng = np.random.default_rng(3)
    x, *weights = (Tensor(0.7 * rng.normal(size=size)) for size in ((5, 4), (4, 3), (4, 3), (4, 3)))
    dz = rng.normal(size=(5, 3))
    z, seen = head(x, *weights)
    z.backward(dz)
    q, k, v, S, P = (seen[name].data for name in ("q", "k", "v", "S", "P"))
    mine = by_hand(q, k, v, P, dz)["S"]

    def loss(nudge, i, j):
        nudged = S + past(5)
        nudged[i, j] += nudge
        return (dz * (softmax(Tensor(nudged)).data @ v)).sum()

    differences = np.array([[slope(lambda h, i=i, j=j: loss(h, i, j), 0.0) for j in range(5)] for i in range(5)])
    for name, dS in {"by your engine": seen["S"].grad, "by differences": differences}.items():
        print(f"dS by hand and {name} differ by at most {abs(mine - dS).max():.1e}")
    print(f"The first position's row of dS is {mine[0].round(4) + 0.0}: its only share is 1, whatever its score is.")
    maps({"dS by hand": mine, "by your engine": seen["S"].grad, "by differences": differences}, "head.png")
