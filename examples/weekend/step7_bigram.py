"""Step 7: letters, and the smallest language model.

A language model guesses the next letter. The smallest one knows only the letter before. It is a table with a row of
scores for each letter: the scores of what comes next. The softmax of a row gives shares P, and the loss is -ln P of the
true next letter.

Two things are new, and every large model has them too. A *batch*: some pieces of the text, drawn at random, stand for
all of it. And *Adam*. A plain step moves a weight by lr times its slope, so the rows of rare letters hardly move. Adam
keeps for each weight a running mean of its slope g and of g², and divides one by the root of the other:

    m ← β₁ m + (1 - β₁) g      v ← β₂ v + (1 - β₂) g²      p ← p - lr m̂ / (√v̂ + ε)

m and v begin at 0, and so are too small at first. After t steps, m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ) put that
right.

Predict before you run this file: the table begins as zeros. What is the loss then? You need only the number of letters.
"""

import sys

import numpy as np
from step5_tensor import Tensor
from step6_softmax import cross_entropy, softmax

from minigrad.training import text


class Letters:
    """The different letters of a text, numbered from 0."""

    def __init__(self, text):
        self.all = sorted(set(text))

    def encode(self, text):
        number = {letter: i for i, letter in enumerate(self.all)}
        return np.array([number[letter] for letter in text])

    def decode(self, ids):
        return "".join(self.all[i] for i in ids)


def batch(ids, B, T, rng):
    """Return x (B, T), B pieces of T letters of the text ids, and y (B, T), the letter that follows each."""
    at = rng.integers(len(ids) - T, size=(B, 1)) + np.arange(T)
    # your turn: return the letters at these places, and those one place later
    return ids[at], ids[at + 1]
    # end


class Adam:
    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-8):
        self.params, self.lr, self.betas, self.eps, self.t = params, lr, betas, eps, 0
        self.m = [np.zeros_like(p.data) for p in params]
        self.v = [np.zeros_like(p.data) for p in params]

    def zero_grad(self):
        for p in self.params:
            p.grad = np.zeros_like(p.data)

    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for i, p in enumerate(self.params):
            # your turn: self.m[i] and self.v[i] from p.grad, then p.data, as above
            self.m[i] = b1 * self.m[i] + (1 - b1) * p.grad
            self.v[i] = b2 * self.v[i] + (1 - b2) * p.grad**2
            m, v = self.m[i] / (1 - b1**self.t), self.v[i] / (1 - b2**self.t)
            p.data = p.data - self.lr * m / (np.sqrt(v) + self.eps)
            # end


def loss_of(table, x, y):
    """Return the mean cost -ln P of the letters y (B, T), each predicted from the letter at its place in x (B, T)."""
    # your turn: return the cross_entropy of the table's rows for x, (B, T, V) reshaped to (B T, V), with y as (B T,)
    return cross_entropy(table.rows(x).reshape(-1, table.shape[-1]), y.reshape(-1))
    # end


def train(table, ids, steps, rng, lr=0.1):
    """Train the table. Return the loss at each step."""
    adam, losses = Adam([table], lr), []
    for _ in range(steps):
        loss = loss_of(table, *batch(ids, 16, 32, rng))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.data))
    return losses


def corpus():
    """Return the text of the files named on the command line, or else of minigrad's little stories, up to a length."""
    return text.read_corpus(sys.argv[1:])[:200_000]


if __name__ == "__main__":
    from pictures import maps, stop_if_unfinished

    stop_if_unfinished()
    rng = np.random.default_rng(0)
    letters = Letters(written := corpus())
    V = len(letters.all)
    table = Tensor(np.zeros((V, V)))
    losses = train(table, letters.encode(written), 400, rng)
    print(f"{V} letters: loss {losses[0]:.3f} at first, {np.mean(losses[-50:]):.3f} after 400 steps")
    print(f"At first all letters have the same share 1/{V}, and the loss is ln {V} = {np.log(V):.3f}.")
    P = softmax(table).data
    ids = [0]
    for _ in range(200):
        ids.append(rng.choice(V, p=P[ids[-1]]))
    print("it writes:", letters.decode(ids[1:]))
    maps({"P of the next letter (column) after a letter (row)": P}, "bigram.png", names=letters.all)
