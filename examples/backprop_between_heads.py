"""The gradients that flow between the heads of two layers, found by hand, by study.flow and by finite differences.

    python examples/backprop_between_heads.py

Two layers of two heads read C A B C A, and B should come next, as it did after the first A. The weights are set by
hand, and HEADS says what each head does. The residual stream has one coordinate for each token, one for each position,
and one for each token that stood `before`. The logits are computed from the last kind.

A part u of the model writes into the stream, and a reader v.p reads it: q, k or v of a head, or the logits. Multiply
what u sends to v.p, and to no other reader, by a factor: the edge u → v.p is the derivative of the loss by this factor.

    by hand       Σ ⟨what u writes, the gradient at v.p's own copy of the stream⟩, by the formulas of one head in NumPy
    study.flow    the same for the model as a Module, from one backward
    differences   (L(1 + h) - L(1 - h)) / 2h, where the factor 1 ± h is on what u sends to v.p

The edges of a head add up to ⟨z, dz⟩, the gradient of a gate on the head, which trace.table() has too.
"""

import argparse

import numpy as np

import minigrad as mg
from minigrad import study

NAMES, TOKENS, NEXT = "ABC", np.array([2, 0, 1, 2, 0]), 1
V, T, C = len(NAMES), len(TOKENS), 12
# (V, C), (T, C), (V, C); one coordinate is unused
token, position, before, _ = np.split(np.eye(C), [V, V + T, 2 * V + T])
LAYERS = "blocks.0.attn", "blocks.1.attn"
PREVIOUS, MEAN, INDUCTION, OTHER = ((path, h) for path in LAYERS for h in (0, 1))
HEADS = {  # W_Q (C, d_k), W_K (C, d_k), W_V (C, d_v), W_O (d_v, C); d_k = T in the first layer, all others are V
    # attends to the previous position, and writes the token there
    PREVIOUS: (4 * position.T @ np.eye(T, k=-1), position.T, token.T, before),
    # attends to all positions equally, and writes half of the mean of their tokens
    MEAN: (0 * position.T, position.T, token.T, token / 2),
    # attends to positions after a copy of the current token, and writes their token
    INDUCTION: (4 * token.T, before.T, token.T + before.T / 2, 2 * before),
    # attends to copies of the previous token, and writes half of that token
    OTHER: (before.T, token.T, token.T, before / 2),
}
W_U = 2 * before.T  # (C, V)
READERS = [(head, p) for head in HEADS for p in "qkv"] + [("logits", "")]


def name_of(head):
    """ "head 0.1" for head 1 of layer 0."""
    return f"head {LAYERS.index(head[0])}.{head[1]}"


def heads_of(path):
    return [head for head in HEADS if head[0] == path]


def forward(factors=None):
    """Return (loss, probabilities (V,), {part: what it writes (T, C)}, {head: its q, k, v, P and z}).

    factors: {(part, reader): a factor on what the part sends to that reader}; 1 where there is none."""
    writes, values = {"tokens": token[TOKENS], "positions": position}, {}

    def stream(*reader):  # (T, C)
        return sum((factors or {}).get((u, reader), 1) * write for u, write in writes.items())

    for path in LAYERS:
        new = {}
        for head in heads_of(path):
            W_Q, W_K, W_V, W_O = HEADS[head]
            q, k, v = stream(head, "q") @ W_Q, stream(head, "k") @ W_K, stream(head, "v") @ W_V
            exp = np.exp(q @ k.T) * np.tri(T)  # (T, T): no key after the query
            P = exp / exp.sum(1, keepdims=True)
            values[head] = q, k, v, P, P @ v
            new[head] = P @ v @ W_O
        writes |= new
    exp = np.exp(stream("logits", "")[-1] @ W_U)
    return -np.log(exp[NEXT] / exp.sum()), exp / exp.sum(), writes, values


def backward(probabilities, values):
    """Return ({reader: the gradient at its copy of the stream (T, C)}, {head: dz (T, d_v)}, {head: dS (T, T)})."""
    dlogits = np.zeros((T, V))
    dlogits[-1] = probabilities - np.eye(V)[NEXT]  # only the last prediction counts
    dx = dlogits @ W_U.T  # (T, C): of the stream after the last layer
    G, dzs, dSs = {("logits", ""): dx}, {}, {}
    for path in reversed(LAYERS):
        for head in heads_of(path):
            (W_Q, W_K, W_V, W_O), (q, k, v, P, _) = HEADS[head], values[head]
            dzs[head] = dz = dx @ W_O.T
            dP = dz @ v.T
            dSs[head] = dS = P * (dP - (P * dP).sum(1, keepdims=True))
            G |= {(head, "q"): dS @ k @ W_Q.T, (head, "k"): dS.T @ q @ W_K.T, (head, "v"): P.T @ dz @ W_V.T}
        dx = dx + sum(G[head, p] for head in heads_of(path) for p in "qkv")  # of the stream before this layer
    return G, dzs, dSs


def comes_later(v, u):
    """True if part v of the model comes after part u."""
    return v == "logits" or u not in HEADS or LAYERS.index(v[0]) > LAYERS.index(u[0])


def by_differences(edges, h=1e-5):
    """Return the derivative of the loss by a common factor on all these edges, pairs of a part and a reader."""
    up, down = (forward(dict.fromkeys(edges, 1 + by))[0] for by in (h, -h))
    return (up - down) / (2 * h)


def as_module():
    """Return a study.AttentionOnly with these weights, in float64."""
    model = study.AttentionOnly(V, T, n_layer=2, n_head=2, n_embd=C).double()
    for module, weight in (model.wte, token), (model.wpe, position), (model.lm_head, W_U.T):
        module.weight.detach().copy_(mg.tensor(weight))
    for path, block in zip(LAYERS, model.blocks):
        W_Q, W_K, W_V, W_O = zip(*(HEADS[head] for head in heads_of(path)))
        block.attn.scale = 1.0
        block.attn.load_from_heads(W_Q, W_K, W_V, np.concatenate(W_O))
    return model


def loss_of(model, idx):
    """Return -ln P(B) after the last token."""
    return -model(idx)[0][0, -1].log_softmax(-1)[NEXT]


def row(name, *numbers):
    print(f"    {name:28}" + "".join(f"{round(number, 4) + 0.0:12.4f}" for number in numbers))  # + 0.0: no -0.0000


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(argv)
    loss, probabilities, writes, values = forward()
    G, dzs, dSs = backward(probabilities, values)
    model, idx = as_module(), mg.tensor(TOKENS[None])
    flow = study.flow(model, (idx,), loss_of)
    with study.trace_heads(model) as trace:
        loss_of(model, idx).backward()
    gates = trace.table()["gate_grad"]

    edges = [(u, reader) for u in writes for reader in READERS if comes_later(reader[0], u)]
    hand = {(u, reader): (writes[u] * G[reader]).sum() for u, reader in edges}
    by_flow = {(u, (v, p)): flow.edge(u, v)[p] for u, (v, p) in edges}
    slopes = {edge: by_differences([edge]) for edge in edges}

    next_token = ", ".join(f"{name} {p:.3f}" for name, p in zip(NAMES, probabilities))
    print(f"{' '.join(NAMES[t] for t in TOKENS)} and then {next_token}. The loss is -ln P({NAMES[NEXT]}) = {loss:.4f}")
    for head in PREVIOUS, MEAN:
        own = [edge for edge in edges if edge[0] == head]
        print(f"\n    {'from ' + name_of(head):28}     by hand  study.flow differences")
        for edge in own:
            v, p = edge[1]
            row(f"to {v}" if v == "logits" else f"to {name_of(v)}, {p}", hand[edge], by_flow[edge], slopes[edge])
        row("all together", sum(hand[e] for e in own), sum(by_flow[e] for e in own), by_differences(own))
        row("⟨z, dz⟩", (values[head][-1] * dzs[head]).sum(), gates[head[0]][head[1]])

    q, k, _, P, _ = values[INDUCTION]
    S, dS = (q @ k.T)[-1], dSs[INDUCTION][-1]  # of the last query; the other queries get no gradient
    keys = "".join(f"{NAMES[t]:>12}" for t in TOKENS)
    print(f"\n    {name_of(INDUCTION) + ' reads':28}{keys}")
    row("P of the last A", *P[-1])
    row("S = q kᵀ", *S)
    row("dS", *dS)
    row("dS S", *(dS * S))
    more = {(PREVIOUS, (INDUCTION, "k")): 1.01}
    none = {(PREVIOUS, reader): 0 for reader in READERS}
    print(f"\nΣ dS S = {(dS * S).sum():.4f}. With 1 % more on the edge to k alone, the loss is {forward(more)[0]:.4f};")
    print(f"without {name_of(PREVIOUS)} it is {forward(none)[0]:.4f}")
    print(f"\n    {name_of(PREVIOUS) + ' reads':28}{keys}")
    row("dS of B", *dSs[PREVIOUS][2])
    row("dS of the last A", *dSs[PREVIOUS][-1])
    worst = max(abs(x[edge] - hand[edge]) for x in (by_flow, slopes) for edge in hand)
    print(f"\nlargest disagreement, of {len(hand)} edges: {worst:.0e}")


if __name__ == "__main__":
    main()
