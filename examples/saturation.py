"""Scores that are too large keep a head from learning: its gradients, trainings from one start, and a remedy.

    python examples/saturation.py              about five seconds
    python examples/saturation.py --out runs   also draws runs/saturation.png and runs/learning.png

The task is to look things up. A sequence holds 16 pairs of a key and a value; asked for each key, in another order, one
head has to find its pair and to say the value. Which question belongs to which key has to be learned.

First, a head that has half learned it gets W_Q, and so its scores, times 2, 4, … 32. A row P of its pattern is the
softmax of a row S of scores, so that

    dS = P ⊙ (dP - D),   D = Σ_j P_j dP_j.

Where P is 1 at a single key, D is that key's dP: for that key the factor dP - D is 0, and for all others the factor P
is. So dS is 0 whatever dP is, and with it dQ = dS K / √d_k and the gradient of W_Q. Openness, 1 - Σ_j P_j², is 0 in
such a row. The last two columns are medians over the questions that the head gets wrong, of sizes at the key asked for:
dP - D says how the loss would change if the head began to look there, and dS what of this arrives. What is left of |dS|
comes from a few rows that are not so.

Then the model is trained from the same random numbers as usual; with W_Q and W_K 4 times as large, which makes the
scores 16 times as large; and so again, but with each q and k divided by its root mean square. That is the remedy: the
scores then stay within ±√d_k, however large W_Q and W_K are (query-key normalisation: Henry et al. 2020, and Dehghani
et al. 2023 for very large vision transformers). It takes a little longer than the first, since AdamW's steps turn large
weights slowly. The second has weights as large as the third, and differs from it by its scores alone.

What 1/√d_k has to do with this, examples/scale.py shows.
"""

import numpy as np

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.base import cli
from minigrad.nn import functional as F
from minigrad.viz import curves

V, S, C = 64, 16, 64  # questions, keys and values of each kind; pairs of a sequence; numbers of an embedding
FACTORS = 1, 2, 4, 8, 16, 32
HALF, STEPS, EVERY = 30, 300, 25  # steps until the task is half learned; of a training; between two looks at it
WIDTH = 10  # of a column
TRAININGS = {"as usual": (1, False), "scores × 16": (16, False), "× 16, q and k normed": (16, True)}


class Lookup(nn.Module):
    """keys, values (B, S) and the keys asked for (B, T) -> logits of their values (B, T, V), through one head.

    scores: how many times as large as usual the scores are at the start. normed: divide each q and k by its root mean
    square."""

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
    """((keys, values, asked), answer), all (B, S): distinct keys, the same in another order, and their values."""
    keys = study.repeated_tokens([S] * B, V, S, generator)
    values, order = mg.randint(0, V, (B, S), generator=generator), mg.tensor(generator.uniform((B, S)).argsort(-1))
    return (keys, values, keys.gather(1, order)), values.gather(1, order)


def loss_of(logits, answer):
    return F.cross_entropy(logits.reshape(-1, V), answer.reshape(-1))


def train(model, seed, steps, watch=None, B=32, lr=3e-3):
    """Train with AdamW. watch(step), if given, is called before the first step and after each. Returns the model."""
    generator, optimizer = mg.Generator(seed + 1000), optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    for step in range(steps + 1):
        if watch is not None:
            watch(step)
        if step < steps:
            batch, answer = draw(B, generator)
            optimizer.zero_grad()
            loss_of(model(*batch), answer).backward()
            optimizer.step()
    return model


def look(model, seed, B=64):
    """What there is to see on B new sequences, numbers by name. |·| is the square root of a sum of squares."""
    (keys, values, asked), answer = draw(B, mg.Generator(seed + 2000))
    with study.trace_heads(model) as trace:
        logits = model(keys, values, asked)
        loss = loss_of(logits, answer)
        loss.backward()
    dW_Q = model.attn.in_proj_weight.grad.numpy()[:C]
    model.zero_grad()
    P, dP, dS = (x[:, 0] for x in (trace[0].pattern, trace[0].pattern_grad, trace[0].scores_grad))  # (B, T, S) each
    wrong = (logits.argmax(-1) != answer).numpy()  # (B, T)
    there = (asked.unsqueeze(-1) == keys.unsqueeze(1)).numpy() & wrong[..., None]  # (B, T, S): the keys asked for
    return {
        "right": 1 - wrong.mean(),
        "loss": loss.item(),
        "openness": 1 - (P**2).sum(-1).mean(),
        "|dP|": np.linalg.norm(dP),
        "|dS|": np.linalg.norm(dS),
        "|dW_Q|": np.linalg.norm(dW_Q),
        "dP - D": median(dP - (P * dP).sum(-1, keepdims=True), there),
        "dS": median(dS, there),
    }


def median(x, there):
    """Of the sizes of some numbers; nan if there are none."""
    return np.median(abs(x[there])) if there.any() else np.nan


def saturate(model, seed):
    """{name: [what look() says, for each factor]} while W_Q, and with it the scores, grows."""
    found = []
    for before, factor in zip((1, *FACTORS), FACTORS):
        model.attn.weights()[0].detach().mul_(factor / before)
        found.append(look(model, seed))
    return {name: [each[name] for each in found] for name in found[0]}


def learn(seed, steps):
    """{training: {name: [what look() says at each of the steps]}}, and "step" beside the names."""
    runs = {}
    for title, options in TRAININGS.items():
        mg.manual_seed(seed)
        model, found = Lookup(*options), []

        def watch(step, model=model, found=found):
            if step % EVERY == 0 or step == steps:
                found.append({"step": step} | look(model, seed))

        train(model, seed, steps, watch)
        runs[title] = {name: [each[name] for each in found] for name in found[0]}
    return runs


def learned(run, share=0.9):
    steps = [step for step, right in zip(run["step"], run["right"]) if right >= share]
    return f"{share:.0%} right at step {steps[0]}" if steps else f"not {share:.0%} right within {run['step'][-1]} steps"


def table(columns):
    """{name: numbers} as lines of text. Where there is no number, nan, there is nothing."""
    rows = [list(columns)]
    for row in zip(*columns.values()):
        rows.append([str(x) if isinstance(x, int) else "" if np.isnan(x) else f"{x:.2g}" for x in row])
    return "\n".join("".join(f"{x:>{WIDTH}}" for x in row) for row in rows)


@cli.command("saturation")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--seed", type=cli.SEED, default=0)
    parser.add_argument("--steps", type=cli.COUNT, default=STEPS, help=f"of each training (default: {STEPS})")
    parser.add_argument("--out", type=cli.path, metavar="FOLDER", help="write saturation.png and learning.png there")
    args = parser.parse_args(argv)
    if args.out:
        cli.needs("matplotlib", "--out")
        cli.folder_to_write(args.out, "--out")

    mg.manual_seed(args.seed)
    model = train(Lookup(), args.seed, HALF)
    found = saturate(model, args.seed)
    print(f"after {HALF} steps of training, the scores multiplied\n\n{table({'scores ×': FACTORS} | found)}\n")
    dP, dS, dW_Q, asks, arrives = (
        f"{found[name][-1] / found[name][0]:.2g} times" for name in ("|dP|", "|dS|", "|dW_Q|", "dP - D", "dS")
    )
    print(f"From × {FACTORS[0]} to × {FACTORS[-1]}, |dP| becomes {dP} what it was, |dS| {dS} and |dW_Q| {dW_Q}.")
    print(f"At the keys that the head should have looked at, dP - D becomes {asks} what it was,")
    print(f"and dS, which is P times that, {arrives}.")

    runs = learn(args.seed, args.steps)
    for title, run in runs.items():
        shown = {name: run[name] for name in ("step", "right", "loss", "openness", "|dS|", "dP - D", "dS")}
        print(f"\n{title}: {learned(run)}\n\n{table(shown)}")
    if args.out:
        names = "|dP|", "|dS|", "|dW_Q|", "openness"
        series = {name: (FACTORS, np.divide(found[name], found[name][0])) for name in names}
        curves(series, args.out / "saturation.png", "scores ×", "times what it is at scores × 1", log="xy")
        series = {title: (run["step"], run["right"]) for title, run in runs.items()}
        curves(series, args.out / "learning.png", "step", "share of right answers")
        print(f"\nwrote {args.out / 'saturation.png'} and {args.out / 'learning.png'}")
    return 0


if __name__ == "__main__":
    cli.run(main)
