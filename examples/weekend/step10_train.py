"""Step 10: train it.

Batches and Adam are there from step 7, the GPT from step 9. What is left is the loop, and writing: take the scores of
the last position, apply softmax, draw a letter, append it, and repeat.

    python step10_train.py              on minigrad's little stories
    python step10_train.py mine.txt     on a text of yours

The picture has two curves: the losses of your engine, and the losses of minigrad (dashed) from the same weights on the
same batches.

Predict before you run this file: how far apart will the two be after 500 steps?
"""

import numpy as np
from step6_softmax import softmax
from step7_bigram import Adam, Letters, batch, corpus
from step9_gpt import logits_of, loss_of, new_weights


def train(p, ids, steps, B, T, n_layer, nh, rng, lr=1e-2, say=None):
    """Train the weights p for some steps. Return the losses."""
    adam, losses = Adam(list(p.values()), lr), []
    for i in range(steps):
        x, y = batch(ids, B, T, rng)
        # your turn: the loss of this batch, all slopes set to 0, backward, and a step of Adam
        loss = loss_of(p, x, y, n_layer, nh)
        adam.zero_grad()
        loss.backward()
        adam.step()
        # end
        losses.append(float(loss.data))
        if say and i % 50 == 0:
            say(f"step {i}: loss {losses[-1]:.3f}")
    return losses


def write(p, ids, n, T, n_layer, nh, rng, temperature=0.8):
    """Return ids and n letters more. Scores are divided by the temperature: a lower one is more cautious."""
    ids = list(ids)
    for _ in range(n):
        logits = logits_of(p, np.array([ids[-T:]]), n_layer, nh)  # (1, up to T, V)
        # your turn: P (V,), the softmax of the last position's logits times 1 / temperature, as an array
        P = softmax(logits * (1 / temperature)).data[0, -1]
        # end
        ids.append(int(rng.choice(len(P), p=P)))
    return ids


def minigrads_losses(p, ids, steps, B, T, n_layer, nh, rng, lr=1e-2):
    """Train minigrad's GPT in the same way, from the weights that p has now. Return the losses."""
    import minigrad as mg
    from minigrad import nn, optim

    V, C = p["wte.weight"].shape
    model = nn.GPT(nn.GPTConfig(V, block_size=T, n_layer=n_layer, n_head=nh, n_embd=C, bias=False)).to(mg.float64)
    model.load_state_dict({name: mg.tensor(w.data) for name, w in p.items()})
    adam, losses = optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.99)), []
    for _ in range(steps):
        _, loss = model(*map(mg.tensor, batch(ids, B, T, rng)))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    from pictures import curves, stop_if_unfinished

    stop_if_unfinished()
    letters = Letters(text := corpus())
    sizes = dict(B=8, T=32, n_layer=2, nh=4)
    p = new_weights(len(letters.all), 32, 32, 2, np.random.default_rng(0))
    ids = letters.encode(text)
    theirs = minigrads_losses(p, ids, 500, **sizes, rng=np.random.default_rng(1))
    mine = train(p, ids, 500, **sizes, rng=np.random.default_rng(1), say=print)
    apart = max(abs(a - b) for a, b in zip(mine, theirs))
    print(f"loss {mine[0]:.3f} at first, {np.mean(mine[-20:]):.3f} at last; minigrad's differ by at most {apart:.1e}")
    print("it writes:", letters.decode(write(p, ids[:1], 200, 32, 2, 4, np.random.default_rng(2))))
    curves({"your engine": mine, "minigrad": theirs}, "train.png", "step", "loss, nats per letter")
