"""Step 9: a GPT, and the gradients of its heads.

A *layer of heads*: nh heads work side by side, each with hs = C / nh numbers. One product of matrices makes q, k and v
of all heads. What the heads read, z, is put side by side again, and a last matrix, out_proj, mixes it.

A *block* adds two things to its input x: what a layer of heads finds in it, and what two linear layers with a GELU
between them make of each position. Each of the two reads x through a layer_norm:

    x ─┬─ layer_norm ─ heads ─ + ─┬─ layer_norm ─ linear ─ gelu ─ linear ─ + ─ x
       └───────────────────────┘  └────────────────────────────────────────┘

A *GPT*: the letters' and the positions' tables give x, some blocks change it, and a last layer_norm times the letters'
table again gives the scores for the next letter. That is GPT-2.

The weights have the names of minigrad's nn.GPT, so that `minigrad learn 9` can give both the same weights and compare
the loss and the gradient of every head.

Predict before you run this file: suppose that out_proj is 0. Which weights of the layer of heads get a gradient?
"""

import numpy as np
from step5_tensor import Tensor
from step6_softmax import cross_entropy, gelu, layer_norm, softmax
from step8_head import past


def of_block(C):
    """Return {name: shape} of the weights of a block, with minigrad's names."""
    return {
        "norm1.weight": (C,), "attn.in_proj_weight": (3 * C, C), "attn.out_proj.weight": (C, C),
        "norm2.weight": (C,), "mlp.fc.weight": (4 * C, C), "mlp.proj.weight": (C, 4 * C),
    }  # fmt: skip


def new_weights(V, T, C, n_layer, rng):
    """Return random weights {name: Tensor} for V letters, T positions, and n_layer blocks of C numbers."""
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "norm.weight": (C,)}
    for i in range(n_layer):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in of_block(C).items()}
    small = {name: rng.normal(size=shape) * C**-0.5 for name, shape in shapes.items()}
    return {name: Tensor(np.ones(shapes[name]) if "norm" in name else w) for name, w in small.items()}


def linear(x, w):
    """Return x (…, n) times w (m, n), which has a row for each output: (…, m)."""
    return x @ w.permute(1, 0)


def attention(x, w_in, w_out, nh, seen):
    """Return what nh heads make of x (B, T, C): (B, T, C). w_in (3C, C) has the rows of q, then of k, then of v; w_out
    is (C, C). q, k, v, scores, pattern and z of all heads are put into the dict `seen`."""
    B, T, C = x.shape
    # your turn: qkv is linear(x, w_in), reshaped to (B, T, 3, nh, hs), then permuted to (3, B, nh, T, hs)
    qkv = linear(x, w_in).reshape(B, T, 3, nh, C // nh).permute(2, 0, 3, 1, 4)
    # end
    q, k, v = (qkv.rows(i) for i in range(3))  # (B, nh, T, hs)
    S = q @ k.permute(0, 1, 3, 2) * (C // nh) ** -0.5
    P = softmax(S + past(T))
    z = P @ v
    seen.update(q=q, k=k, v=v, scores=S, pattern=P, z=z)
    # your turn: put the heads of z side by side again, (B, T, C), and return linear of that with w_out
    return linear(z.permute(0, 2, 1, 3).reshape(B, T, C), w_out)
    # end


def logits_of(p, idx, n_layer, nh, seen=None):
    """Return scores (B, T, V) for the letter after each of idx (B, T). seen[layer] gets what attention puts there."""
    seen = {} if seen is None else seen
    x = p["wte.weight"].rows(idx) + p["wpe.weight"].rows(np.arange(idx.shape[1]))
    for i in range(n_layer):
        norm1, w_in, w_out, norm2, w_fc, w_proj = (p[f"blocks.{i}.{name}"] for name in of_block(x.shape[-1]))
        heads = seen.setdefault(f"blocks.{i}.attn", {})
        # your turn: add to x attention of its layer_norm (norm1), then linear, gelu, linear of its layer_norm (norm2)
        x = x + attention(layer_norm(x, norm1), w_in, w_out, nh, heads)
        x = x + linear(gelu(linear(layer_norm(x, norm2), w_fc)), w_proj)
        # end
    # your turn: return linear of layer_norm(x, p["norm.weight"]) with the letters' table: your engine adds up both uses
    return linear(layer_norm(x, p["norm.weight"]), p["wte.weight"])
    # end


def loss_of(p, idx, y, n_layer, nh, seen=None):
    """Return the mean cost -ln P of the letters y (B, T), each predicted from idx (B, T) up to its place."""
    logits = logits_of(p, idx, n_layer, nh, seen)
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


if __name__ == "__main__":
    from pictures import maps, stop_if_unfinished

    stop_if_unfinished()
    rng = np.random.default_rng(1)
    p, seen = new_weights(V=9, T=12, C=16, n_layer=2, rng=rng), {}
    ids = rng.integers(9, size=(1, 13))
    loss = loss_of(p, ids[:, :-1], ids[:, 1:], 2, 4, seen)
    loss.backward()
    print(f"loss {loss.data:.3f}, with {sum(w.data.size for w in p.values()):,} weights")
    shown = {}
    for i in range(2):
        layer = seen[f"blocks.{i}.attn"]
        for name, heads in ("P", layer["pattern"].data[0]), ("dS", layer["scores"].grad[0]):
            shown |= {f"{name} of layer {i}, head {h}": head for h, head in enumerate(heads)}
    maps(shown, "gpt.png", names=[str(i) for i in ids[0, :-1]])
    print("gpt.png: each row of dS sums to 0, since a share that grows takes from the others.")
    p = {name: Tensor(w.data * (name != "blocks.0.attn.out_proj.weight")) for name, w in p.items()}
    loss_of(p, ids[:, :-1], ids[:, 1:], 2, 4).backward()
    largest = {name: abs(p[f"blocks.0.attn.{name}"].grad).max() for name in ("in_proj_weight", "out_proj.weight")}
    print("With out_proj = 0, the largest slopes of its layer:", ", ".join(f"{k} {x:.4f}" for k, x in largest.items()))
    print("No gradient comes back through a matrix of zeros: at first only out_proj itself learns.")
