"""Has a model of the default text learned to copy a name that it has read? Asked of runs of `minigrad train`.

    minigrad train --seed 1 --out runs/one; python tests/benchmarks/names.py runs/one [runs/two …]      a minute each

The first letter of a name follows "Mc" or "O'". Prints, in nats on stories that the run has never seen, what all
characters cost; that letter where the name is new, and where it stands in the window already; and the head that looks
most, from before such a letter, at that letter of the same name. Windows give 32 characters of context and more.

Then, for the head of the last layer that does so most: between random characters, how much it looks from the second of
two Mc or O' at what followed the first, and the same of other pairs, with its induction score, a mean over all tokens.
"""

import argparse

import numpy as np

import minigrad as mg
from minigrad import study
from minigrad.gradcheck.report import aligned
from minigrad.training import runs, stories

SEED, MANY = 12345, 300  # stories


def marked():
    """(text, {where the first letter of a name is: (story, name)})"""
    parts, found, size = [], {}, 0
    draw = stories._generator(SEED)
    while len(parts) < MANY:
        said, here = [], {}

        class Marked(stories.Story):
            def form(self, slot, form, said=said, here=here):
                at = sum(map(len, said))
                super().form(slot, form)
                if stories.SLOTS.get(slot) == "person" and form in ("", "s"):
                    here[at + 2] = said[-1].removesuffix("'s")

        story = Marked(draw, said.append)
        if stories._kept(story.world):
            found |= {size + at: (len(parts), name) for at, name in here.items()}
            parts.append("".join(said))
            size += len(parts[-1])
    return "".join(parts), found


def measured(path, text, names):
    model, vocab, meta = runs.load_char_model(path)
    T, ids = meta["config"]["block_size"], vocab.encode(text)
    model.eval()
    costs, looks = {"all": [], "new": [], "again": []}, {}
    for start in range(0, len(ids) - T - 1, T // 2):
        x = mg.tensor(ids[start : start + T][None])
        with mg.no_grad(), study.trace_heads(model, grads=False) as trace:
            logits = model(x)[0].numpy()[0].astype(np.float64)
        losses = -(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(T), ids[start + 1 : start + T + 1]]
        costs["all"] += losses[T // 2 :].tolist()
        for at in (at for at in range(start + T // 2 + 1, start + T + 1) if at in names):
            earlier = [k for k in range(start, at - 1) if names.get(k) == names[at]]
            written = any(names[k] == names[at] for k in names if k < at)
            if earlier or not written:
                costs["again" if earlier else "new"].append(losses[at - 1 - start])
            if earlier:
                for layer in trace:
                    for head, P in enumerate(trace[layer].pattern[0][:, at - 1 - start]):
                        looks.setdefault((layer, head), []).append(P[np.array(earlier) - start].sum())
    best = max(looks, key=lambda head: np.mean(looks[head]))
    shown = [f"{np.mean(costs[kind]):.3f}" for kind in costs]
    return [str(path), *shown, f"{best[0]} head {best[1]}: {np.mean(looks[best]):.2f}"]


def among_noise(path):
    """[the head, its attention after Mc or O', that after other pairs, its induction score]"""
    model, vocab, meta = runs.load_char_model(path)
    T, generator, found = meta["config"]["block_size"], np.random.default_rng(0), {}
    letters = [c for c in vocab.chars if c.islower()]
    for pair in ("Mc", "O'", "ac", "bd", "te", "xg"):
        rows, places = [], np.stack([generator.integers(2, T // 3, 64), generator.integers(T // 2, T - 2, 64)], 1)
        for i, j in places:
            row = list(generator.choice(letters, T))
            row[i : i + 3], row[j : j + 2] = [*pair, generator.choice([*"ABDHKT"])], pair
            rows.append(vocab.encode("".join(row)))
        with mg.no_grad(), study.trace_heads(model.eval(), grads=False) as trace:
            model(mg.tensor(np.stack(rows)))
        path = list(trace)[-1]
        found[pair] = trace[path].pattern[np.arange(64), :, places[:, 1] + 1, places[:, 0] + 2].mean(0)  # (nh,)
    names, others = (
        np.maximum(found["Mc"], found["O'"]),
        np.mean([found[pair] for pair in found if pair[0].islower()], 0),
    )
    head, scores = int(names.argmax()), study.head_scores(model, ["induction"], n=16)["induction"][path]
    return [f"{path} head {head}", *(f"{x[head]:.2f}" for x in (names, others, scores))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    args = parser.parse_args()
    text, names = marked()
    rows = [("", "all", "new name", "name again", "looks at it"), *(measured(run, text, names) for run in args.runs)]
    print(*aligned(rows), "", sep="\n")
    rows = [("", "the head", "after Mc or O'", "after other pairs", "induction")]
    print(*aligned([*rows, *([str(run), *among_noise(run)] for run in args.runs)]), sep="\n")


if __name__ == "__main__":
    main()
