"""See in a single backward pass which gradient teaches a head: the lesson of one training step, split by Q, K and V.

    python examples/what_one_step_teaches.py                    four seeds, about 15 seconds
    python examples/what_one_step_teaches.py --seeds 8          eight: half a minute
    python examples/what_one_step_teaches.py --out lesson.png   also draws it: a panel for each seed

The model and the task are those of induction_heads.py, where a head of the first layer becomes a previous-token head.
which_gradient_teaches.py finds the cause by training again and again with one gradient cut: the head forms only if
gradient comes through the keys of the second layer. Here nothing is cut, and each model is trained once.

study.lesson takes the gradient of a head's W_Q and W_K, and gives the change of its scores by one step against it. The
change is a sum: of what comes through the Q, K and V of the second layer's heads, and straight from the logits. The
previous-token band of a summand is how far it moves the head towards the previous token: the mean of its cells just
below the diagonal, divided by the mean size of a cell of the whole change. All bands of a row have this one unit, so
they add up to the last column.

From step 100 on, K's part teaches the previous token, and all others together take it back, at nearly every
measurement. The last line counts them.

What this does not show: which of the four heads will win, since K teaches several heads at first; and the steps of
Adam, which are not steps of gradient descent.
"""

import argparse

import induction_heads as task
import numpy as np

import minigrad as mg
from minigrad import study

LAYER = "blocks.0.attn"
STEPS, EVERY = 600, 100
BATCH = 128


def batch():
    """Return (tokens, targets) of new sequences, with the periods of the training."""
    generator = mg.Generator(99)
    periods = generator.integers(task.SEEN[0], task.SEEN[1] + 1, (BATCH,))
    tokens = study.repeated_tokens(periods, task.V, task.T + 1, generator)
    return tokens[:, :-1], tokens[:, 1:]


def measure(seed, steps):
    """Train a model. Return (number of the head with the largest previous-token score at the end, {step: (that score,
    its Lesson)}, measured every EVERY steps)."""
    model, given, measured = task.new_model(seed), batch(), {}
    heads = [f"0.{h}" for h in range(model.blocks[0].attn.num_heads)]

    def watch(step, loss):
        if step % EVERY == 0:  # which head will win is not known yet: all are measured
            scores = study.head_scores(model, ["previous"], [task.UNSEEN])["previous"][LAYER]
            measured[step] = [*zip(scores, study.lessons(model, given, heads=heads))]

    task.train(model, seed, steps=steps, watch=watch)
    winner = int(np.argmax([score for score, _ in measured[max(measured)]]))
    return winner, {step: each[winner] for step, each in measured.items()}


def bands(lesson):
    """Return {"k", "q", "v", "logits", "others", "all": previous-token band}. "others" is the sum of all but "k"."""
    found = lesson.bands()
    return found | {"others": found["all"] - found["k"]}


def draw(series, path):
    """Draw {title: (steps, scores, bands)}, a panel each."""
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(8.8, 2.6 * -(-len(series) // 4)), dpi=120, layout="constrained")
    plots = figure.subplots(-(-len(series) // 4), 4, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (title, (steps, scores, found)) in zip(plots, series.items()):
        axes.axhline(0, color="0.8", linewidth=1)
        axes.plot(steps, [each["k"] for each in found], color="#0072b2", linewidth=2, label="through K")
        axes.plot(steps, [each["others"] for each in found], color="#d55e00", linewidth=2, label="all others")
        axes.plot(steps, scores, color="0.5", linestyle="--", linewidth=1, label="the head's score")
        axes.set_title(title, fontsize=9, loc="left")
    for axes in plots[len(series) :]:
        axes.set_visible(False)
    lines, labels = plots[0].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=8, ncols=3, loc="outside upper center")
    figure.supxlabel("step", fontsize=10)
    figure.supylabel("previous-token band of a step", fontsize=10)
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="how many (default 4)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", metavar="PNG", help="draw the bands")
    args = parser.parse_args(argv)

    columns, series, counted = ["k", "q", "v", "logits", "others", "all"], {}, []
    print(f"{'':21}{'previous-token':>15}   previous-token band of a step, through")
    print(f"{'seed':>6}{'head':>6}{'step':>9}{'score':>15}   {''.join(f'{name:>9}' for name in columns)}", flush=True)
    for seed in range(args.seeds):
        winner, measured = measure(seed, args.steps)
        found = {step: bands(lesson) for step, (_, lesson) in measured.items()}
        for step, each in found.items():
            row = "".join(f"{each.get(name, 0.0):>+9.2f}" for name in columns)
            print(f"{seed:>6}   0.{winner}{step:>9}{measured[step][0]:>15.2f}   {row}", flush=True)
        counted += found.values()
        series[f"seed {seed}, head 0.{winner}"] = [*found], [score for score, _ in measured.values()], [*found.values()]
    towards, back = sum(each["k"] > 0 for each in counted), sum(each["others"] < 0 for each in counted)
    print(f"\nK's part teaches the previous token in {towards} of {len(counted)} measurements.")
    print(f"All others together take it back in {back}.")
    if args.out:
        draw(series, args.out)
        print("wrote", args.out)


if __name__ == "__main__":
    main()
