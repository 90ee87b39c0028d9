"""An encoder and a decoder learn to write words backwards: "attention" -> "noitnetta".

    python examples/reverse_sequence.py                 takes half a minute on two cores
    python examples/reverse_sequence.py --steps 150     is faster, and learns less well

Each letter of the answer has to be looked up at a different place of the word, which is what cross-attention is for.
The pattern printed at the end shows the decoder's letters (rows) reading the encoder's (columns) from the last to the
first. `--out reads.png` draws it, each head by itself.
"""

import argparse
import time

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F
from minigrad.viz import heads_grid

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD, BEGIN, END = 26, 27, 28  # beside the 26 letters
V, LONGEST = 29, 12
STEPS = 600


class Reverser(nn.Module):
    """src (B, S) and tgt (B, T) of tokens -> logits (B, T, V)."""

    def __init__(self, C=64, nh=4, layers=2):
        self.embedding = nn.Embedding(V, C)
        self.positions = nn.Embedding(LONGEST + 2, C)
        self.transformer = nn.Transformer(
            C, nh, layers, layers, dim_feedforward=4 * C, dropout=0.0, activation="gelu", norm_first=True,
            batch_first=True,
        )  # fmt: skip
        self.unembed = nn.Linear(C, V)

    def forward(self, src, tgt):
        memory = self.encode(src)  # (B, S, C)
        return self.decode(tgt, memory, src)

    def encode(self, src):
        return self.transformer.encoder(self._embedded(src), src_key_padding_mask=src == PAD)

    def decode(self, tgt, memory, src):
        x = self.transformer.decoder(
            self._embedded(tgt), memory, tgt_is_causal=True, memory_key_padding_mask=src == PAD
        )  # (B, T, C)
        return self.unembed(x)  # (B, T, V)

    def _embedded(self, tokens):
        return self.embedding(tokens) + self.positions(mg.arange(tokens.shape[1]))  # (B, T, C)


def words(B, generator):
    """B random words of 3 to LONGEST letters, as three tensors of shape (B, LONGEST + 1).

    src is the word and END, padded; answer, likewise, the word reversed; and tgt is BEGIN and then the answer, so that
    tgt[:, t] is what the decoder has read when it is to predict answer[:, t]."""
    at = mg.arange(LONGEST + 1)
    n = mg.randint(3, LONGEST + 1, (B, 1), generator=generator)  # letters of each word
    letters = mg.randint(0, 26, (B, LONGEST + 1), generator=generator)
    src = mg.where(at < n, letters, mg.where(at == n, END, PAD))
    answer = src.gather(1, mg.where(at < n, n - 1 - at, at))
    tgt = mg.cat([mg.full((B, 1), BEGIN), answer[:, :-1]], 1)
    return src, tgt, answer


@mg.no_grad()
def reverse(model, src):
    """The model's answers, taking the likeliest letter each time: (B, LONGEST + 1), PAD after END."""
    memory = model.encode(src)
    tgt = mg.full((src.shape[0], 1), BEGIN)
    for _ in range(LONGEST + 1):
        following = model.decode(tgt, memory, src)[:, -1].argmax(-1, keepdim=True)  # (B, 1)
        tgt = mg.cat([tgt, following], 1)
    answer = tgt[:, 1:]
    ended = (answer == END).to(mg.int64).cumsum(1) - (answer == END).to(mg.int64) > 0
    return answer.masked_fill(ended, PAD)


def train(steps, B=64, lr=2e-3, seed=0):
    mg.manual_seed(seed)
    model, generator = Reverser(), mg.Generator(seed + 1)
    optimizer = optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        src, tgt, answer = words(B, generator)
        loss = F.cross_entropy(model(src, tgt).reshape(-1, V), answer.reshape(-1), ignore_index=PAD)
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(step, lr=lr, min_lr=lr / 20, warmup=50, total=steps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps:
            print(f"step {step}: loss {loss.item():.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return model


def exact(model, n=1000, seed=12345):
    """The share of n new words that the model reverses without a mistake."""
    src, _, answer = words(n, mg.Generator(seed))
    return (reverse(model, src) == answer).all(1).float().mean().item()


def show(model, word, out=None):
    """Print the answer to a word, and what the last layer's cross-attention read for each letter of it. out: draw this
    in a PNG, a panel for each head."""
    ids = [LETTERS.index(letter) for letter in word] + [END]
    src = mg.tensor([ids])
    answer = [i for i in reverse(model, src)[0].tolist() if i < 26]
    tgt = mg.tensor([[BEGIN, *answer]])
    attention, seen = model.transformer.decoder.layers[-1].multihead_attn, []
    with mg.no_grad():
        handle = attention.register_forward_hook(lambda module, args, output: seen.append(args))
        model(src, tgt)
        handle.remove()
        attention.impl = "batched"  # the form that computes the pattern
        _, pattern = attention(*seen[0], need_weights=True, average_attn_weights=False)  # (1, nh, T, S)
    print(f"\n{word} -> {''.join(LETTERS[i] for i in answer)}\n\n   " + "    ".join([*word, "."]))
    for letter, row in zip([*(LETTERS[i] for i in answer), "."], pattern[0].mean(0).tolist()):
        print(letter, " ".join(f"{p:.2f}" for p in row))
    if out:
        tokens = [*(LETTERS[i] for i in answer), "."], [*word, "."]
        heads_grid({"cross-attention": pattern[0]}, out, tokens, f"what each letter of the answer reads in {word!r}")
        print(f"wrote {out}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", metavar="FILE", help="draw the heads' patterns as a PNG")
    args = parser.parse_args(argv)
    model = train(args.steps)
    print(f"{exact(model):.1%} of 1000 new words reversed without a mistake")
    show(model, "attention", args.out)


if __name__ == "__main__":
    main()
