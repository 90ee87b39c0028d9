"""Step 9: a GPT, and the gradients of its heads.

Several heads work side by side: q, k and v of all of them are one product of matrices, cut into nh parts of C / nh
numbers. What the heads read is put side by side again, and a last matrix mixes it. A block adds two things to its
input: what the heads found, and what two layers with a GELU between them make of each position. Blocks on top of each
other, letters and places at the bottom, scores for the next letter at the top, by the same table that the letters came
from: that is GPT-2.

The names of the weights are those of minigrad's nn.GPT, so that `minigrad learn 9` can give both the same weights, and
compare the loss and the gradient of every head.

Predict before you run this file: all weights of the last matrix of a layer of heads, out_proj, are 0. Which of the
head's own weights get a gradient?
"""

import numpy as np
from step5_tensor import Tensor
from step6_softmax import cross_entropy, gelu, layer_norm, softmax
from step8_head import past


def of_block(C):
    """{name: shape} of the weights of a block, as minigrad calls them."""
    return {
        "norm1.weight": (C,), "attn.in_proj_weight": (3 * C, C), "attn.out_proj.weight": (C, C),
        "norm2.weight": (C,), "mlp.fc.weight": (4 * C, C), "mlp.proj.weight": (C, 4 * C),
    }  # fmt: skip


def new_weights(V, T, C, n_layer, rng):
    """{name: Tensor} for V letters, T places, and n_layer blocks of C numbers."""
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "norm.weight": (C,)}
    for i in range(n_layer):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in of_block(C).items()}
    small = {name: rng.normal(size=shape) * C**-0.5 for name, shape in shapes.items()}
    return {name: Tensor(np.ones(shapes[name]) if "norm" in name else w) for name, w in small.items()}


def linear(x, w):
    """x (…, n) by w (m, n), which has a row for each output: (…, m)."""
    return x @ w.permute(1, 0)


def attention(x, w_in, w_out, nh, seen):
    """x (B, T, C); w_in (3C, C), the rows of q, then of k, then of v; w_out (C, C). `seen` gets what the heads did."""
    B, T, C = x.shape
    # your turn: qkv is linear(x, w_in), cut into (B, T, 3, nh, hs), its axes then in the order (3, B, nh, T, hs)
    qkv = linear(x, w_in).reshape(B, T, 3, nh, C // nh).permute(2, 0, 3, 1, 4)
    # end
    q, k, v = (qkv.rows(i) for i in range(3))  # (B, nh, T, hs)
    S = q @ k.permute(0, 1, 3, 2) * (C // nh) ** -0.5
    P = softmax(S + past(T))
    z = P @ v
    seen.update(q=q, k=k, v=v, scores=S, pattern=P, z=z)
    # your turn: z with the heads side by side again, (B, T, C); return what w_out makes of it
    return linear(z.permute(0, 2, 1, 3).reshape(B, T, C), w_out)
    # end


def logits_of(p, idx, n_layer, nh, seen=None):
    """Scores for the letter after each of idx (B, T): (B, T, V). `seen` gets what each layer's heads did."""
    seen = {} if seen is None else seen
    x = p["wte.weight"].rows(idx) + p["wpe.weight"].rows(np.arange(idx.shape[1]))
    for i in range(n_layer):
        norm1, w_in, w_out, norm2, w_fc, w_proj = (p[f"blocks.{i}.{name}"] for name in of_block(x.shape[-1]))
        heads = seen.setdefault(f"blocks.{i}.attn", {})
        # your turn: x plus the attention of its layer_norm by norm1; then x plus linear, gelu, linear of that by norm2
        x = x + attention(layer_norm(x, norm1), w_in, w_out, nh, heads)
        x = x + linear(gelu(linear(layer_norm(x, norm2), w_fc)), w_proj)
        # end
    # your turn: return layer_norm(x, p["norm.weight"]), by the table of the letters: using it twice costs you nothing
    return linear(layer_norm(x, p["norm.weight"]), p["wte.weight"])
    # end


def loss_of(p, idx, y, n_layer, nh, seen=None):
    logits = logits_of(p, idx, n_layer, nh, seen)
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


if __name__ == "__main__":
    from pictures import maps

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
    print("Each row of dS sums to 0: who gets more takes it from the others")
