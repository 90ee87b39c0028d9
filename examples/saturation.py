"""Why scores are divided by √d_k: scores that are too large saturate the softmax, and the head cannot learn.

    python examples/saturation.py      about five seconds

q · k of unit-normal numbers has a standard deviation of √d_k. A row P of the pattern is the softmax of a row S of
scores, so that

    dS = P ⊙ (dP - D),   D = Σ_j P_j dP_j.

Where P is 1 at a single key, D is that key's dP. For this key the factor dP - D is 0; for all other keys the factor P
is 0. So dS is 0 whatever dP is. The first table shows ‖dS‖, the gradient that reaches the scores, for a unit-normal
gradient of the pattern over 32 keys. Each number is the median over queries.

The second table shows what that does to a head. A sequence holds 16 pairs of a key and a value. One head is asked for
each key, in another order, and has to find the pair and return its value. It is trained three times from the same
random numbers: as usual; with W_Q and W_K 4 times as large, which makes the scores 16 times as large; and so again, but
with each q and k divided by its root mean square. This last is the remedy: the scores then stay within ±√d_k, however
large W_Q and W_K are (query-key normalisation: Henry et al. 2020, and Dehghani et al. 2023 for very large vision
transformers).
"""

import argparse

import numpy as np

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.nn import functional as F

V, S, C = 64, 16, 64  # questions, keys and values of each kind; pairs of a sequence; numbers of an embedding
TRAININGS = {"as usual": (1, False), "scores × 16": (16, False), "× 16, q and k normed": (16, True)}


def gradient_and_top(d_k, scale, queries=500, keys=32):
    """Return the medians over queries of ‖dS‖ and of a pattern's largest weight, for random q and k of size d_k."""
    mg.manual_seed(0)
    q, k = mg.randn(queries, 1, d_k), mg.randn(queries, keys, d_k)
    scores = (q @ k.mT * scale).requires_grad_()  # (queries, 1, keys)
    pattern = scores.softmax(-1)
    pattern.backward(mg.randn(*pattern.shape))
    return np.median(scores.grad.norm(dim=-1).numpy()), np.median(pattern.detach().amax(-1).numpy())


class Lookup(nn.Module):
    """keys, values (B, S) and the keys asked for (B, T) -> logits of their values (B, T, V), through one head.

    scores: a factor on the scores at the start. normed: divide each q and k by its root mean square."""

    def __init__(self, scores=1, normed=False):
        self.keys, self.values, self.questions = (nn.Embedding(V, C) for _ in range(3))
        self.attn = nn.MultiheadAttention(C, 1, bias=False, impl="batched", batch_first=True)
        self.unembed = nn.Linear(C, V, bias=False)
        W_Q, W_K, _ = self.attn.weights()  # (C, C) each
        for W in W_Q, W_K:
            W.detach().mul_(scores**0.5)
        for point in ("q", "k") if normed else ():
            self.attn.register_head_hook(point, lambda layer, x: F.rms_norm(x, (C,)))

    def forward(self, keys, values, asked):
        pairs = self.keys(keys) + self.values(values)  # (B, S, C)
        z, _ = self.attn(self.questions(asked), pairs, pairs)  # (B, T, C)
        return self.unembed(z)


def draw(B, generator):
    """Return ((keys, values, asked), answer), all (B, S): distinct keys and their values, the same keys in another
    order, and the values of those."""
    keys = study.repeated_tokens([S] * B, V, S, generator)
    values, order = mg.randint(0, V, (B, S), generator=generator), mg.tensor(generator.uniform((B, S)).argsort(-1))
    return (keys, values, keys.gather(1, order)), values.gather(1, order)


def learn(model, steps, B=32):
    """Train with AdamW. Return the share of right answers to each batch, (steps,)."""
    generator, optimizer = mg.Generator(1000), optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    right = []
    for _ in range(steps):
        batch, answer = draw(B, generator)
        optimizer.zero_grad()
        logits = model(*batch)
        F.cross_entropy(logits.reshape(-1, V), answer.reshape(-1)).backward()
        optimizer.step()
        right.append((logits.argmax(-1) == answer).float().mean().item())
    return right


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="of each training (default: 300)")
    args = parser.parse_args(argv)

    print(" d_k   ‖dS‖ scaled  not scaled   largest weight scaled  not scaled")
    for d_k in 4, 16, 64, 256, 1024:
        (scaled, top), (unscaled, top_unscaled) = (gradient_and_top(d_k, scale) for scale in (d_k**-0.5, 1))
        print(f"{d_k:4} {scaled:12.3f} {unscaled:11.2g} {top:22.2f} {top_unscaled:11.2f}")

    looks = range(50, args.steps + 1, 50)
    print(f"\n{'right answers at step':24}" + "".join(f"{step:>8}" for step in looks))
    for title, options in TRAININGS.items():
        mg.manual_seed(0)
        right = learn(Lookup(*options), args.steps)
        print(f"{title:24}" + "".join(f"{np.mean(right[step - 10 : step]):8.0%}" for step in looks))


if __name__ == "__main__":
    main()
