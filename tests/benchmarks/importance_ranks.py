"""Do cheap measures of importance rank heads as ablation does? Asked of 24 small trained models.

    python tests/benchmarks/importance_ranks.py [--seeds 2] [--steps 1.0] [--json FILE]      about four minutes

Three tasks, four sizes each, --seeds times: to continue random tokens that repeat (examples/induction_heads.py), to
reverse words (examples/reverse_sequence.py), and to write characters of Python's own manual. Ablation, the rise of the
loss on new batches without a head, is what the others are compared with, by Spearman's correlation of the ranks
of a model's heads. Then come the heads that a gradient misses: saturated ones, which cost much when they are removed
although the loss hardly changes as their gate begins to close.

The sum of study.flow's edges out of a head is no row, since it is the head's gate gradient.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import workers

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.nn import functional as F
from minigrad.training import text

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples"))
MEASURED = 2, 32  # batches, and sequences in each
AGAIN = "ablate, others"  # ablation on other sequences: no estimate can be expected to agree better
SATURATED = 10  # ablation is that many times what abs_gate_grad says


# ---------------------------------------------------------------------------------------------------------------- tasks


def returned(model, *batch):
    return model(*batch)[1]


def induction(layers, heads):
    """(a new model, its loss, a function of B and a generator that draws a batch, steps, learning rate)"""
    from induction_heads import SEEN, T, V

    def draw(B, generator):
        periods = generator.integers(SEEN[0], SEEN[1] + 1, (B,))
        tokens = study.repeated_tokens(periods, V, T + 1, generator)
        targets = tokens[:, 1:].numpy().copy()
        targets[np.arange(T) < periods[:, None] - 1] = -100  # the first period cannot be predicted
        return tokens[:, :-1], mg.tensor(targets)

    return study.AttentionOnly(V, T, layers, heads), returned, draw, 400, 1e-2


def reversal(layers, heads):
    from reverse_sequence import PAD, Reverser, V, words

    def loss(model, src, tgt, answer):
        return F.cross_entropy(model(src, tgt).reshape(-1, V), answer.reshape(-1), ignore_index=PAD)

    return Reverser(32, heads, layers), loss, words, 400, 5e-3


def characters(layers, heads, T=32):
    corpus = "\n".join(topics[name] for name in sorted(topics))  # Python's own manual
    vocab = text.CharVocab(corpus)
    ids = vocab.encode(corpus[: 1 << 20])

    def draw(B, generator):  # for new batches too: the training is too short to learn the text by heart
        at = generator.integers(0, len(ids) - T, (B, 1)) + np.arange(T + 1)
        return mg.tensor(ids[at[:, :-1]]), mg.tensor(ids[at[:, 1:]])

    return nn.GPT(nn.GPTConfig(len(vocab), T, layers, heads, 64)), returned, draw, 400, 4e-3


TASKS = {
    "induction": (induction, [(2, 4), (2, 8), (3, 4), (4, 4)]),
    "reversal": (reversal, [(1, 4), (1, 8), (2, 4), (2, 8)]),
    "characters": (characters, [(2, 4), (2, 8), (3, 4), (4, 4)]),
}


def trained(task, layers, heads, seed, share):
    """(model, loss, new batches, as many others, the loss on the first)"""
    mg.manual_seed(seed)
    model, loss, draw, steps, lr = task(layers, heads)
    generator, steps = mg.Generator(seed + 1), max(1, round(share * steps))
    optimizer = optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=1e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(step, lr=lr, min_lr=lr / 20, warmup=20, total=steps)
        value = loss(model, *draw(32, generator))
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    generator = mg.Generator(seed + 10**6)
    batches, others = ([draw(MEASURED[1], generator) for _ in range(MEASURED[0])] for _ in range(2))
    return model.eval(), loss, batches, others, study.mean_loss(model, batches, loss)


# ------------------------------------------------------------------------------------------------------------- measures


def gate_grads(model, batches, loss):
    """The gradient of a gate on each head: of the mean loss, with its sign, {path: (nh,)}."""
    layers = study.attention_layers(model)
    for layer in layers.values():
        layer.head_gates = mg.ones(layer.num_heads, requires_grad=True)
    gates = [layer.head_gates for layer in layers.values()]
    found = [mg.grad(loss(model, *batch), gates) for batch in batches]
    for layer in layers.values():
        layer.head_gates = None
    return {path: np.mean([each[i].numpy() for each in found], 0) for i, path in enumerate(layers)}


def mean_ablation(model, batches, loss):
    """The rise of the loss where a head gives its mean, whatever the input."""
    whole, found = study.mean_loss(model, batches, loss), {}
    with mg.no_grad():
        for path, layer in study.attention_layers(model).items():
            found[path] = np.zeros(layer.num_heads)
            for h in range(layer.num_heads):
                with study.ablate_heads(model, {path: h}, mode="mean"):
                    found[path][h] = study.mean_loss(model, batches, loss) - whole
    return found


def written(model, batches, loss):
    """How long a vector each head adds to the residual stream, on average."""
    layers = study.attention_layers(model)
    found = {path: np.zeros(layer.num_heads) for path, layer in layers.items()}
    for batch in batches:
        with mg.no_grad(), study.trace_heads(model, grads=False) as trace:
            loss(model, *batch)
        for path, layer in layers.items():
            for h in range(layer.num_heads):
                W_O = study.head_weights(layer, h)[-1]
                found[path][h] += np.linalg.norm(trace[path].z[:, h] @ W_O, axis=-1).mean() / len(batches)
    return found


def openness(model, batches, loss):
    """1 - Σ_j P_ij², the mean over queries: 0 where each query looks at a single key, and dS is 0 whatever dP is."""
    with mg.no_grad(), study.trace_heads(model, grads=False) as trace:
        loss(model, *batches[0])
    return {path: 1 - (trace[path].pattern ** 2).sum(-1).mean((0, 2)) for path in study.attention_layers(model)}


def importance(method, **options):
    return lambda model, batches, loss: study.head_importance(model, batches, method, loss=loss, **options)


MEASURES = {  # name: (how, forwards and backwards of a batch, where n is the number of heads)
    "ablate": (importance("ablate"), "n + 1, 0"),
    AGAIN: (importance("ablate"), "n + 1, 0"),
    "mean ablation": (mean_ablation, "n + 1, 0"),
    "joint_path": (importance("joint_path"), "20, 20"),
    "joint_path, 5 steps": (importance("joint_path", steps=5), "5, 5"),
    "abs_gate_grad": (importance("abs_gate_grad"), "1, 1"),
    "|gate gradient|": (lambda *a: {path: abs(g) for path, g in gate_grads(*a).items()}, "1, 1"),
    "-gate gradient": (lambda *a: {path: -g for path, g in gate_grads(*a).items()}, "1, 1"),
    "‖what it writes‖": (written, "1, 0"),
}


def ranks(x):
    """The place of each number in order; equal ones share the mean of theirs."""
    below, upto = (x[:, None] > x).sum(1), (x[:, None] >= x).sum(1)
    return (below + upto - 1) / 2


def spearman(x, y):
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=float, default=1.0, metavar="SHARE", help="of the usual training (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    about, began, models = workers.machine() | {"commit": commit.strip()}, time.perf_counter(), []
    for name, (task, sizes) in TASKS.items():
        for layers, heads in sizes:
            for seed in range(args.seeds):
                model, loss, batches, others, value = trained(task, layers, heads, seed, args.steps)
                found = {m: how(model, others if m == AGAIN else batches, loss) for m, (how, _) in MEASURES.items()}
                found["openness"] = openness(model, batches, loss)
                models.append({"task": name, "model": f"{name}, {layers} × {heads} heads, seed {seed}", "loss": value})
                models[-1] |= compared(found)
                print(f"{models[-1]['model']}: loss {value:.3f}, {time.perf_counter() - began:.0f} s", file=sys.stderr)

    print(table(models) + "\n\n" + saturated_table(models))
    workers.write(args.json, about, args.seeds, sequences=MEASURED[0] * MEASURED[1], models=models)
    return 0


def compared(found):
    """{measure: {path: (nh,)}} of a model -> its correlations with ablation, and its saturated heads."""
    names = [f"{path} {h}" for path, scores in found["ablate"].items() for h in range(len(scores))]
    flat = {measure: np.concatenate(list(scores.values())) for measure, scores in found.items()}
    truth = flat["ablate"]
    missed = (truth > SATURATED * flat["abs_gate_grad"]) & (truth > truth.max() / 2)
    shown = "ablate", "joint_path", "abs_gate_grad", "openness"
    return {
        "correlations": {measure: spearman(flat[measure], truth) for measure in MEASURES},
        "first": [measure for measure in MEASURES if flat[measure].argmax() == truth.argmax()],
        "saturated": {
            names[h]: {measure: float(flat[measure][h]) for measure in shown} for h in np.flatnonzero(missed)
        },
    }


def table(models):
    """A row for each measure."""
    lines = [
        f"{'':20}{'passes':>10}{'mean':>8}{'worst':>8}" + "".join(f"{t:>12}" for t in TASKS) + "   first head found"
    ]
    for measure, (_, passes) in MEASURES.items():
        each = [model["correlations"][measure] for model in models]
        means = [np.mean([r for r, model in zip(each, models) if model["task"] == task]) for task in TASKS]
        first = sum(measure in model["first"] for model in models)
        row = f"{measure:20}{passes:>10}{np.mean(each):8.2f}{min(each):8.2f}" + "".join(f"{r:12.2f}" for r in means)
        lines.append(f"{row}   {first} of {len(models)}")
    return "\n".join(lines)


def saturated_table(models):
    """A row for each saturated head."""
    lines = [f"heads that cost more than half of what the first does, and {SATURATED} times what abs_gate_grad says:"]
    for model in models:
        for head, seen in model["saturated"].items():
            said = ", ".join(f"{measure} {value:.3f}" for measure, value in seen.items())
            lines.append(f"  {model['model']} (loss {model['loss']:.3f}): {head}: {said}")
    return "\n".join(lines) if len(lines) > 1 else lines[0] + " none"


if __name__ == "__main__":
    sys.exit(main())
