"""What each part of the recipe of `minigrad train` is worth: validation losses without it, for several texts and seeds.

    python tests/benchmarks/recipes.py [stories FILE …] [--seeds 3] [--steps 400] [--only NAME …] [--json FILE]

2 layers, 96 wide, blocks of 64 characters, 24 a step: about 17 s of one core for a run of 400 steps. A run learns from
the first 80 % of a text. "chosen on" is its loss on the next 10 %, "reported" that on the last 10 %: recipes are chosen
by the former. Differences to the recipe as it is are means over texts and seeds, each with the same seed; ± is twice
their standard error, and what is smaller is no finding.

Tried with 53 runs of 25 s on tiny Shakespeare alone, and not taken in:
no gain     ReLU², projections that begin at 0, Polar Express' coefficients, four steps of Turbo-Muon, QK-norm
harm        RMSNorm without gains (.03), value embeddings (.01), averaging the last weights (better in 5 of 53)
small       an exact table of bigrams (-.016): it would be another kind of model
unsettled   blocks of 32 for the first 40 % (-.016 with one recipe, +.02 with another)
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys

import numpy as np

SIZES = dict(n_layer=2, n_head=4, n_embd=96, block_size=64, batch_size=24, dropout=0.0, eval_every=10**9)
NANOGPT = dict(muon=0, lr=4e-3, min_lr=1e-4, warmup=100, weight_decay=0.1, clip=1.0)
VARIANTS = {  # name: (settings, {constant of recipe.py: value})
    "as it is": ({}, {}),
    "AdamW, nanoGPT's recipe": (NANOGPT, {}),
    "learned positions": ({}, {"FORM": {"positions": "learned", "tied": False}}),
    "embeddings begin small": ({}, {"EMBEDDED": 0.04}),
    "momentum .95 from the start": ({}, {"MOMENTUM": (0.95, 0.95, 1)}),
    "the rate falls from the start": ({}, {"FALL": 1.0}),
    "clipped at 1": ({"clip": 1.0}, {}),
    "rate × 0.7": ({"lr": 0.014, "min_lr": 7e-4}, {}),
    "rate × 1.4": ({"lr": 0.028, "min_lr": 1.4e-3}, {}),
}


def trained(name, text_name, seed, steps):
    """(loss on what recipes are chosen on, loss on what is reported)."""
    import minigrad as mg
    from minigrad.training import recipe, runner, text

    settings, constants = VARIANTS[name]
    for constant, value in constants.items():
        setattr(recipe, constant, value)
    corpus = text.read_corpus([] if text_name == "stories" else [text_name])
    settings = runner.DEFAULTS | SIZES | dict(steps=steps, seed=seed, eval_batches=1) | settings
    run = runner.Run(settings, corpus)
    rest, last = text.split(run.vocab.encode(corpus), 0.9)
    run.batches.ids, chosen = text.split(rest, 8 / 9)
    for _ in range(steps):
        run.step()
    losses = []
    run.model.eval()
    for part in chosen, last:
        batches = text.fixed_batches(part, settings["block_size"], 64)
        with mg.no_grad():
            sums = [run.model(mg.tensor(x), mg.tensor(y))[1].item() * x.size for x, y in batches]
        losses.append(sum(sums) / sum(x.size for x, _ in batches))
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", default=["stories", "python-help"], metavar="TEXT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, text, seed = args.worker
        print(json.dumps(trained(name, text, int(seed), args.steps)))
        return
    texts, seeds = args.texts, range(1, args.seeds + 1)
    names = list(dict.fromkeys(["as it is", *args.only]))
    jobs = [(name, text, seed) for name in names for text in texts for seed in seeds]

    def run(job):
        command = [sys.executable, __file__, "--steps", str(args.steps), "--worker", *map(str, job)]
        one_core = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        said = subprocess.run(command, env=one_core, check=True, capture_output=True, text=True).stdout
        return json.loads(said.splitlines()[-1])

    with concurrent.futures.ThreadPoolExecutor(args.processes) as pool:
        found = dict(zip(jobs, pool.map(run, jobs)))
    if args.json:
        with open(args.json, "w") as file:
            json.dump([[*job, *losses] for job, losses in found.items()], file, indent=0)
    print("loss on what is reported, a column for each text, and differences to the recipe as it is\n")
    print(f"{'':30} {' '.join(f'{os.path.basename(text)[:12]:>12}' for text in texts)}   chosen on      reported")
    for name in names:
        means = [statistics.mean(found[name, text, seed][1] for seed in seeds) for text in texts]
        row = f"{name:30} {' '.join(f'{mean:12.4f}' for mean in means)}"
        for which in 0, 1:
            by = [found[name, t, s][which] - found["as it is", t, s][which] for t in texts for s in seeds]
            row += f"   {np.mean(by):+.4f} ± {2 * np.std(by, ddof=1) / len(by) ** 0.5:.4f}" if name != names[0] else ""
        print(row)


if __name__ == "__main__":
    main()
