"""Step 11: a head is taught, and you find out by whom.

Some letters are drawn at random, and then they repeat: q d a m q d a m q d … In the first round no letter can be
guessed. From the second round on each can: find where the present letter stood before, and read what came after it. A
head that does so is an *induction head* (Elhage et al. 2021, Olsson et al. 2022). It needs help. A position knows its
own letter, and what came before it only from another head. So a head of the first layer comes to look at the letter
before, and a head of the second layer reads that from its keys: it asks for the position whose letter before is mine.

The model is two layers of your heads without norms, MLPs and biases. It learns this in seconds. Layers read x = e + y,
where e stands for the letters and their positions, and y for what the layers before have written.

Who teaches the first head to look back? Its gradient comes from the second layer, by the inputs of the queries, of the
keys and of the values. Make e + y once for each of the three, and your engine splits the gradient. By hand that is

    dx_q = dq W_q      dx_k = dk W_k      dx_v = dv W_v         for q = x W_qᵀ, k = x W_kᵀ, v = x W_vᵀ

Then cut one of the three. A copy of y that has no parents has the same values and passes nothing back: all outputs stay
as they are, and only what the first layer learns from changes.

Predict before you run this file: without which of the three does the head not form, Q, K or V?
"""

import numpy as np
from step5_tensor import Tensor
from step6_softmax import cross_entropy, softmax
from step7_bigram import Adam
from step8_head import past
from step9_gpt import linear

V, T, C, nh = 24, 24, 32, 2  # letters, positions, width, heads
PERIODS = 4, 11  # letters in a round
LAYERS = "blocks.0.attn", "blocks.1.attn"


def rounds(B, length, rng, periods=PERIODS):
    """Return ids (B, length). Each row repeats some different letters; how many, from periods[0] to periods[1], is
    drawn anew for each row, so that looking back by a fixed distance does not help."""
    counts = rng.integers(periods[0], periods[1] + 1, size=B)
    return np.stack([np.resize(rng.permutation(V)[:count], length) for count in counts])


def new_weights(rng):
    """Return random weights {name: Tensor}, with the names of minigrad's study.AttentionOnly."""
    shapes = {"wte.weight": (V, C, 0.19), "wpe.weight": (T, C, 0.375), "lm_head.weight": (V, C, C**-0.5)}
    for layer in LAYERS:
        shapes |= {
            f"{layer}.in_proj_weight": (3 * C, C, C**-0.5),
            f"{layer}.out_proj.weight": (C, C, (2 * C) ** -0.5),
        }
    return {name: Tensor(rng.normal(size=(rows, columns)) * std) for name, (rows, columns, std) in shapes.items()}


def attention(e, y, w_in, w_out, seen, cut=""):
    """Step 9's attention of x = e + y (B, T, C), with an x of its own for q, k and v each. The letters of `cut` ("k",
    "qv", …) name those through which no gradient goes back to y. `seen` gets q, k, v, pattern, x_q, x_k, x_v."""
    B, T, C = e.shape
    projected = {}
    for i, name in enumerate("qkv"):
        # your turn: x is e + y; or, if name is in cut, e plus a Tensor that has y's data and no parents
        x = e + (Tensor(y.data) if name in cut else y)
        # end
        seen[f"x_{name}"] = x
        weight = w_in.reshape(3, C, C).rows(i)
        projected[name] = linear(x, weight).reshape(B, T, nh, C // nh).permute(0, 2, 1, 3)  # (B, nh, T, hs)
    q, k, v = projected.values()
    P = softmax(q @ k.permute(0, 1, 3, 2) * (C // nh) ** -0.5 + past(T))
    z = P @ v
    seen.update(q=q, k=k, v=v, pattern=P)
    return linear(z.permute(0, 2, 1, 3).reshape(B, T, C), w_out)


def by_hand(name, seen, w_in):
    """Return dx_q, dx_k or dx_v (B, T, C), as the name "q", "k" or "v" says, from the gradient of q, k or v."""
    i = "qkv".index(name)
    rows = w_in.data[i * C : (i + 1) * C]  # W_q, W_k or W_v, (C, C)
    # your turn: the gradient seen[name].grad (B, nh, T, hs), its heads side by side again (B, T, C), times these rows
    dy = seen[name].grad
    B, _, T, _ = dy.shape
    return dy.transpose(0, 2, 1, 3).reshape(B, T, C) @ rows
    # end


def looks_at_letter_before(pattern):
    """Return for each head (nh,) how much it looks at the position before, from 0 to 1: the mean over all rows of
    pattern (B, nh, T, T) but the first."""
    # your turn: np.diagonal(array, -1, axis1=-2, axis2=-1) is the diagonal below the main one
    return np.diagonal(pattern, -1, axis1=-2, axis2=-1).mean((0, -1))
    # end


def looks_after_copy(pattern, period):
    """Return for each head (nh,) how much it looks at the position after the last copy of the present letter, in text
    that repeats after `period` letters: the mean over all rows of pattern (B, nh, T, T) that have one."""
    # your turn: the copy is `period` positions back; what came after it is one less
    return np.diagonal(pattern, 1 - period, axis1=-2, axis2=-1).mean((0, -1))
    # end


def logits_of(p, ids, cut="", seen=None):
    """Return scores (B, T, V) for the letter after each of ids (B, T). `cut` is made in the second layer only."""
    seen = {} if seen is None else seen
    e = p["wte.weight"].rows(ids) + p["wpe.weight"].rows(np.arange(ids.shape[1]))
    y = Tensor(np.zeros(e.shape))
    for i, layer in enumerate(LAYERS):
        w_in, w_out = p[f"{layer}.in_proj_weight"], p[f"{layer}.out_proj.weight"]
        seen[layer] = {}
        y = y + attention(e, y, w_in, w_out, seen[layer], cut if i == 1 else "")
        seen[layer]["y"] = y
    return linear(e + y, p["lm_head.weight"])


def loss_of(p, ids, cut="", seen=None):
    """Return the mean cost of the letters ids[:, 1:], each predicted from the letters before it."""
    return cross_entropy(logits_of(p, ids[:, :-1], cut, seen).reshape(-1, V), ids[:, 1:].reshape(-1))


def train(p, steps, rng, cut="", watch=None):
    """Train the weights p, with "q", "k", "v" or nothing cut. watch(step, loss) is called at each 25th step."""
    adam = Adam(list(p.values()), lr=2e-2)
    for step in range(1, steps + 1):
        loss = loss_of(p, rounds(32, T + 1, rng), cut)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if watch and step % 25 == 0:
            watch(step, float(loss.data))


def measured(p, period=9):
    """Measure the model on new rounds of `period` letters."""
    ids, seen = rounds(64, T + 1, np.random.default_rng(5), (period, period)), {}
    guessed = logits_of(p, ids[:, :-1], seen=seen).data.argmax(-1)
    first, second = (seen[layer]["pattern"].data for layer in LAYERS)
    return {
        "right from the second round on": float((guessed == ids[:, 1:])[:, period:].mean()),
        "looks at the letter before": float(looks_at_letter_before(first).max()),
        "looks after the copy": float(looks_after_copy(second, period).max()),
    }


def pulls(p):
    """Return {"q": …, "k": …, "v": …}: how the loss changes, to first order, as the second layer reads more of the
    first layer's output by this input. A negative number teaches the first layer to send more of the same."""
    seen = {}
    loss_of(p, rounds(256, T + 1, np.random.default_rng(1)), seen=seen).backward()
    y, second = seen[LAYERS[0]]["y"].data, seen[LAYERS[1]]
    return {name: float((y * by_hand(name, second, p[f"{LAYERS[1]}.in_proj_weight"])).sum()) for name in "qkv"}


def write_page(p, path):
    """Open the heads in minigrad: the same weights in study.AttentionOnly, traced, as a page for a browser."""
    import minigrad as mg
    from minigrad import study

    model = study.AttentionOnly(V, T, n_layer=2, n_head=nh, n_embd=C).double()
    model.load_state_dict({name: mg.tensor(w.data) for name, w in p.items()})
    ids = rounds(1, T + 1, np.random.default_rng(0), (9, 9))
    x, y = mg.tensor(ids[:, :-1]), mg.tensor(ids[:, 1:])
    with study.trace_heads(model) as trace:
        model(x, y)[1].backward()
    letters = ["abcdefghijklmnopqrstuvwxyz"[i] for i in ids[0, :-1]]
    trace.to_html(path, tokens=[letters], flow=study.flow(model, (x, y), method="cut"))
    print("wrote", path)


if __name__ == "__main__":
    from pictures import curves, maps, stop_if_unfinished

    stop_if_unfinished()
    scores, shown = {}, {}

    def watch(step, loss):
        scores[name].append(measured(p)["looks at the letter before"])
        if not cut:
            parts = "  ".join(f"{n.upper()} {pull:+.3f}" for n, pull in pulls(p).items())
            print(f"step {step:3}: loss {loss:.2f}, looks at the letter before {scores[name][-1]:.2f}; pull by {parts}")

    for name, cut in {"nothing cut": "", "Q cut": "q", "K cut": "k", "V cut": "v"}.items():
        p, scores[name], seen = new_weights(np.random.default_rng(0)), [], {}
        train(p, 300, np.random.default_rng(1), cut, watch)
        print(f"{name}:", ", ".join(f"{what} {number:.2f}" for what, number in measured(p).items()))
        logits_of(p, rounds(1, T, np.random.default_rng(0), (9, 9)), seen=seen)
        first, second = (seen[layer]["pattern"].data for layer in LAYERS)
        shown[f"{name}: P in layer 0"] = first[0, looks_at_letter_before(first).argmax()]
        shown[f"{name}: P in layer 1"] = second[0, looks_after_copy(second, 9).argmax()]
        if not cut:
            write_page(p, "heads.html")
    curves(scores, "taught.png", "steps / 25", "a head of layer 0 looks at the letter before")
    maps(shown, "induction.png")
    print("Without K's gradient the head does not form: it is taught through the keys of the heads that read it.")
    print("Open heads.html in a browser: click on a letter, and see where each head looks, and the gradient it gets.")
