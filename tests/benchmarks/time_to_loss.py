"""Seconds of training until a character model's validation loss is what nanoGPT promises.

    python tests/benchmarks/time_to_loss.py tinyshakespeare.txt [--goal 1.88] [--preset fast] [--threads 1]

nanoGPT        its CPU configuration and first weights on PyTorch, eager, until a validation, after each 50 steps,
reaches the goal
minigrad       the recipe of `minigrad train --preset …`, to its last step, since the learning rate falls until then

The loss is the mean over the last tenth of the text, in consecutive windows. The table marks a run that misses the
goal. Only training is timed, from the second step on; each contender runs in its own process, one after the other.

On an AMD EPYC, losses on the whole last tenth of tiny Shakespeare:

| | steps | seconds | loss |
|---|---|---|---|
| nanoGPT's CPU configuration, PyTorch, one core | 2,000 | 132 | 1.91 |
| --preset fast, one core | 280 | 8.3 | 1.84 |
| the defaults, two cores | 2,200 | 137 | 1.53 |
"""

import math
import time

import numpy as np
from contenders import Sizes, torch_model
from workers import environment, interleaved, machine, parser, serve

NANOGPT = dict(lr=1e-3, min_lr=1e-4, warmup=100, total=2000)
EVERY = 50  # steps of nanoGPT's between validations


def splits(path, T, B, seed):
    """(kinds of characters, batches to train on, windows that validate)."""
    import minigrad as mg
    from minigrad.training import text

    corpus = text.read_corpus([path])
    vocab = text.CharVocab(corpus)
    train, held = text.split(vocab.encode(corpus), 0.9)
    return len(vocab), text.Batches(train, T, B, mg.Generator(seed + 2**32)), text.fixed_batches(held, T, 64)


def nanogpt(path, goal, seed, preset):
    import torch

    from minigrad import optim

    sizes = Sizes()
    V, batches, windows = splits(path, sizes.T, sizes.B, seed)
    sizes = sizes._replace(V=V)
    rng = np.random.default_rng(seed)
    weights = {name: w if w.ndim < 2 else rng.normal(0, 0.02, w.shape) for name, w in sizes.initial_weights().items()}
    for name in weights:
        if name.endswith(("out.weight", "proj.weight")):
            weights[name] /= math.sqrt(2 * sizes.L)
    model = torch_model(sizes, {name: w.astype(np.float32) for name, w in weights.items()})
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1}]
    groups += [{"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(i, **NANOGPT)
        loss = model(*map(torch.from_numpy, next(batches)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item()

    def validate():
        with torch.no_grad():
            total = sum(model(*map(torch.from_numpy, window)).item() * window[0].size for window in windows)
        return total / sum(x.size for x, _ in windows)

    return step, validate, NANOGPT["total"], goal


def ours(path, goal, seed, preset):
    from minigrad.training import runner, text

    settings = runner.DEFAULTS | runner.PRESETS.get(preset, {}) | {"seed": seed, "eval_batches": 0}
    run = runner.Run(settings, text.read_corpus([path]))
    return lambda i: run.step()[0], run.validate, settings["steps"], None


CONTENDERS = {"nanoGPT": nanogpt, "minigrad": ours}


def trained(name, path, goal, seed, preset):
    """Train until the goal, or to the last step: what came of it."""
    step, validate, steps, goal = CONTENDERS[name](path, goal, seed, preset)
    seconds, cpu, first = 0.0, 0.0, None
    for i in range(steps):
        before = time.perf_counter(), time.process_time()
        loss = step(i)
        if i:
            seconds, cpu = seconds + time.perf_counter() - before[0], cpu + time.process_time() - before[1]
        first = loss if first is None else first
        if goal and (i + 1) % EVERY == 0 and (reached := validate()) <= goal:
            break
    else:
        reached = validate()
    return dict(seconds=seconds, cpu=cpu, steps=i + 1, first=first, validation=reached)


def main():
    args = parser(__doc__, rounds=1)
    args.add_argument("text", metavar="TEXT")
    args.add_argument("--goal", type=float, default=1.88)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--preset", default="fast", help="of minigrad train; 'default' for its defaults")
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    args = args.parse_args()
    if args.worker:
        how = args.text, args.goal, args.seed, args.preset
        serve(lambda: ("ready", lambda request: trained(args.worker, *how)))
        return
    options = ["--goal", str(args.goal), "--seed", str(args.seed), "--preset", args.preset]
    commands = {name: ([__file__, args.text, *options, "--worker", name], None) for name in args.only}
    about = machine(args) | {"threads": args.threads, "preset": args.preset}
    variables = environment(args) | {"OMP_NUM_THREADS": str(args.threads), "OPENBLAS_NUM_THREADS": str(args.threads)}
    found = {name: worker.rounds[0] for name, worker in interleaved(commands, variables, 1).items()}
    print(f"{about['cpu']}, {args.threads} thread(s), {about['date'][:10]}, preset {args.preset}\n")
    print(f"{'':10} {'seconds':>8} {'CPU':>8} {'steps':>6} {'first loss':>11} {'validation':>11}  × minigrad's seconds")
    for name, r in found.items():
        times = r["seconds"] / found["minigrad"]["seconds"] if "minigrad" in found else math.nan
        missed = "" if r["validation"] <= args.goal else "  missed the goal"
        print(f"{name:10} {r['seconds']:8.1f} {r['cpu']:8.1f} {r['steps']:6} {r['first']:11.4f} {r['validation']:11.4f}"
              f"  {times:.1f}{missed}")  # fmt: skip


if __name__ == "__main__":
    main()
