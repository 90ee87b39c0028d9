"""Find out which gradient teaches a head: cut one in training, and see whether the head still forms.

    python examples/which_gradient_teaches.py                    three seeds, about seven minutes
    python examples/which_gradient_teaches.py --seeds 10         ten: longer than twenty
    python examples/which_gradient_teaches.py --out teaches.png  also draws the curves: a panel for each training

The model and the task are those of induction_heads.py. There a head of the first layer learns to attend to the
previous token, and study.flow shows that its gradient comes through the keys of the second layer. But a large edge need
not be a cause. So this script trains with study.cut_gradient, which stops the gradient that goes from the second
layer's Q, K or V to the first layer. The forward pass stays as it is.

There are four controls. A random vector of the same length as the gradient through K is subtracted from it. The first
layer's W_K is frozen. The cut lasts for a part of the training only. And the model is given a previous-token head: the
pattern of one head is held on the previous token (as Singh et al. 2024, arXiv 2404.07129, hold parts of a circuit to
find which part waits for which).

With K's gradient cut, no previous-token head forms. With Q's or V's gradient cut, or with a random vector subtracted,
one forms. So the head learns from the gradient through the keys of its readers. Most predictions are right at the end
in all cases: with K's gradient cut, the first layer writes to each token the position of its earlier copy, and the
second layer finds this position by Q. With both cut, no such circuit forms. We found no earlier work that cuts
gradients in training to explain a head. The nearest, Gradient Routing (arXiv 2410.04332), cuts them to decide where a
model learns.
"""

import argparse
import math
from contextlib import ExitStack

import induction_heads as task
import numpy as np

import minigrad as mg
from minigrad import study

FIRST, SECOND = "blocks.0.attn", "blocks.1.attn"
STEPS, EVERY = 1600, 100
FORMED = 0.3  # a previous-token head is a head whose score is larger


def disturb(model):
    """At each position, subtract a random vector from the gradient through K that is as long as that gradient."""
    written = {}

    def add_noise(dy):
        noise = mg.randn(*dy.shape)
        return dy - noise * (dy.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True))

    def read(layer, x):
        own = written["y"] * 1.0  # the same values, with a gradient of their own
        if own.requires_grad:
            own.register_hook(add_noise)
        return x - written["y"] + own

    model.blocks[0].attn.register_head_hook("y", lambda layer, y: written.update(y=y))
    model.blocks[1].attn.register_head_hook("x_k", read)


def give_head(model):
    """Hold the pattern of the first layer's head 0 on the previous token."""
    before = np.eye(task.T, k=-1, dtype=np.float32)
    before[0, 0] = 1

    def hook(layer, pattern):
        nh, T = pattern.shape[1:3]
        return mg.where(mg.arange(nh).reshape(nh, 1, 1) == 0, mg.tensor(before[:T, :T]), pattern)

    model.blocks[0].attn.register_head_hook("pattern", hook)


class Training:
    """The options of one training.

    cut: the inputs of the second layer whose gradient is cut, such as "kq". begin, end: the steps between which it is
    cut. frozen: freeze the first layer's W_K. prepare: a function that is called with the new model."""

    def __init__(self, cut="", begin=0, end=math.inf, frozen=False, prepare=None):
        self.cut, self.begin, self.end, self.frozen, self.prepare = cut, begin, end, frozen, prepare

    def run(self, seed, steps):
        """Return (the trained model, its previous-token scores, one for each EVERY steps)."""
        model, scores = task.new_model(seed), []
        if self.prepare is not None:
            self.prepare(model)
        layer = model.blocks[0].attn
        W_K, C = layer.in_proj_weight, layer.embed_dim
        kept = W_K.detach()[C : 2 * C].clone()

        def watch(step, loss):
            if self.frozen:
                with mg.no_grad():
                    W_K[C : 2 * C] = kept
            if step % EVERY == 0:
                scores.append(previous(model))

        with ExitStack() as cuts:
            for p in self.cut:
                factor = lambda step: float(not self.begin <= step < self.end)  # noqa: E731
                cuts.enter_context(study.cut_gradient(model, FIRST, SECOND, p, factor))
            task.train(model, seed, steps=steps, watch=watch)
        return model, scores


TRAININGS = {
    "nothing": Training(),
    "Q": Training("q"),
    "K": Training("k"),
    "V": Training("v"),
    "K and Q": Training("kq"),
    "as much, at random": Training(prepare=disturb),
    "nothing; W_K frozen": Training(frozen=True),
    "K; W_K frozen": Training("k", frozen=True),
    "K, until step 400": Training("k", end=400),
    "K, from step 200 on": Training("k", begin=200),
    "K; the head is given": Training("k", prepare=give_head),
}


def previous(model):
    """Return the largest previous-token score of a head of the first layer, from 0 to 1."""
    return float(study.head_scores(model, ["previous"], [task.UNSEEN])["previous"][FIRST].max())


def spread(numbers):
    return f"{np.mean(numbers):.2f} ± {np.std(numbers):.2f}"


def draw(panels, path):
    """Draw {title: (steps, scores)}, a panel each: a thin line for each seed, a thick one for their mean, and in grey
    the mean of the first panel."""
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(8.8, 5.8), dpi=120, layout="constrained")
    plots = figure.subplots(3, 4, sharex=True, sharey=True).ravel()
    first = next(iter(panels.values()))
    for axes, (title, (steps, runs)) in zip(plots, panels.items()):
        axes.plot(first[0], first[1].mean(0), color="0.6", linewidth=1)
        axes.plot(steps, runs.T, color="#0072b2", linewidth=0.6, alpha=0.5)
        axes.plot(steps, runs.mean(0), color="#0072b2", linewidth=2)
        axes.set_title(title, fontsize=9, loc="left")
        axes.grid(alpha=0.3)
    for axes in plots[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("step", fontsize=10)
    figure.supylabel("previous-token score", fontsize=10)
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", metavar="PNG", help="draw the curves")
    args = parser.parse_args(argv)

    series = {}
    print(f"{'gradient cut':22}{'previous-token':>18}{'':>12}{'right on':>20}")
    print(f"{'into the second layer':22}{'score':>18}{'formed':>12}{f'period {task.UNSEEN}':>20}", flush=True)
    for name, training in TRAININGS.items():
        trained = [training.run(seed, args.steps) for seed in range(args.seeds)]
        models = [model for model, _ in trained]
        right, ends = [task.accuracy(model, task.UNSEEN) for model in models], [previous(model) for model in models]
        formed = f"{sum(end > FORMED for end in ends)} of {len(ends)}"
        print(f"{name:22}{spread(ends):>18}{formed:>12}{spread(right):>20}", flush=True)
        series[name] = np.array([scores for _, scores in trained])
    if args.out:
        steps = np.arange(EVERY, args.steps + 1, EVERY)
        panels = {f"cut: {name}": (steps, runs) for name, runs in series.items() if "is given" not in name}
        draw(panels, args.out)
        print("wrote", args.out)


if __name__ == "__main__":
    main()
