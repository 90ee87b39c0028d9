"""Why scores are divided by √d_k: without it, the gradient through the softmax dies as heads grow.

    python examples/scale.py [--out scale.png]

q · k of unit-normal numbers has a standard deviation of √d_k. Large scores saturate the softmax: its pattern comes
close to one-hot, where dS = P ⊙ (dP - Σ P dP) is nearly 0, and learning stops. The table shows ‖dS‖, the gradient that
reaches the scores, given a unit-normal gradient of the pattern, over 32 keys; each number is the median over queries.
"""

import statistics

import minigrad as mg
from minigrad.base import cli
from minigrad.viz import curves

SIZES = 4, 8, 16, 32, 64, 128, 256, 512, 1024


def random_scores(d_k, queries=500, keys=32, seed=0):
    """q · k of unit-normal numbers, (queries, 1, keys), each query with keys of its own."""
    generator = mg.Generator(seed)
    q, k = mg.randn(queries, 1, d_k, generator=generator), mg.randn(queries, keys, d_k, generator=generator)
    return q @ k.mT


def saturation(scores, seed=1):
    """The medians over the queries of ‖dS‖, and of the largest weight of the pattern."""
    scores = scores.detach().requires_grad_()  # (queries, 1, keys)
    pattern = scores.softmax(-1)  # (queries, 1, keys)
    pattern.backward(mg.randn(*pattern.shape, generator=mg.Generator(seed)))
    return median((scores.grad**2).sum(-1).sqrt()), median(pattern.detach().amax(-1))


def median(x):
    return statistics.median(x.flatten().tolist())


@cli.command("scale")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--out", type=cli.picture("scale.png"), metavar="FILE", help="draw the table as a PNG")
    args = parser.parse_args(argv)
    print(" d_k   ‖dS‖ scaled  not scaled   largest weight scaled  not scaled")
    scaled, unscaled = [], []
    for d_k in SIZES:
        scores = random_scores(d_k)
        (with_it, top), (without, top_without) = saturation(scores / d_k**0.5), saturation(scores)
        scaled.append(with_it)
        unscaled.append(without)
        print(f"{d_k:4} {with_it:12.3f} {without:11.2g} {top:22.2f} {top_without:11.2f}")
    if args.out:
        series = {"scores / √d_k": (SIZES, scaled), "scores as they are": (SIZES, unscaled)}
        curves(series, args.out, "d_k", "median ‖dS‖", log="xy")
        print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    cli.run(main)
