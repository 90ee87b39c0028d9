"""Seconds of training until a character model's validation loss is what nanoGPT promises: engine and recipe apart.

    python tests/benchmarks/time_to_loss.py tinyshakespeare.txt [--goal 1.88] [--preset fast] [--threads 1]

nanoGPT        its CPU configuration and first weights on PyTorch, eager, until a validation after each 50 steps says so
torch          the recipe of `minigrad train --preset …` on PyTorch, eager, with torch.optim.Muon
minigrad       the same recipe, weights and batches

The loss is that of the whole last tenth of the text, in windows side by side. Recipes go to their last step, since the
learning rate falls until then; the table says if one misses the goal. Only training is timed, one after the other in a
process each, from the second step on.

On an AMD EPYC, losses on the whole last tenth of tiny Shakespeare:

| | steps | seconds | loss |
|---|---|---|---|
| nanoGPT's CPU configuration, PyTorch, one core | 2,000 | 132 | 1.91 |
| --preset fast, but on PyTorch, one core | 280 | 10.3 | 1.84 |
| --preset fast, one core | 280 | 8.3 | 1.84 |
| the defaults, two cores | 2,200 | 137 | 1.53 |
"""

import math
import time

import numpy as np
from contenders import Sizes, torch_model
from workers import environment, interleaved, machine, parser, serve, write

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


def validation(loss_of, windows):
    """The mean of loss_of(x, y) over all characters of the windows."""
    return sum(loss_of(x, y) * x.size for x, y in windows) / sum(x.size for x, _ in windows)


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

    return step, torch_validation(model, windows), NANOGPT["total"], goal


def torch_validation(model, windows):
    import torch

    def validate():
        with torch.no_grad():
            return validation(lambda x, y: model(torch.from_numpy(x), torch.from_numpy(y)).item(), windows)

    return validate


def settings_of(preset, seed):
    from minigrad.training import runner

    return runner.DEFAULTS | runner.PRESETS.get(preset, {}) | {"seed": seed, "eval_batches": 0}


def ours(path, goal, seed, preset):
    from minigrad.training import runner, text

    settings = settings_of(preset, seed)
    run = runner.Run(settings, text.read_corpus([path]))
    return lambda i: run.step()[0], run.validate, settings["steps"], None


def recipe_on_torch(path, goal, seed, preset):
    import torch
    from torch import nn
    from torch.nn import functional as F

    import minigrad as mg
    from minigrad.training import recipe

    settings = settings_of(preset, seed)
    C, NH, T = settings["n_embd"], settings["n_head"], settings["block_size"]
    hs = C // NH
    V, batches, windows = splits(path, T, settings["batch_size"], seed)
    mg.manual_seed(seed)
    weights = {name: torch.from_numpy(w.numpy()) for name, w in recipe.model(settings, V).state_dict().items()}
    angles = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, hs, 2) / hs).repeat(2)  # (T, hs)
    cos, sin = angles.cos(), angles.sin() * torch.tensor([-1.0, 1.0]).repeat_interleave(hs // 2)

    def turned(x):
        return x * cos + torch.cat([x[..., hs // 2 :], x[..., : hs // 2]], -1) * sin

    class Block(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
            self.q, self.k, self.v, self.out = (nn.Linear(C, C, bias=False) for _ in range(4))
            self.fc, self.proj = nn.Linear(C, 4 * C, bias=False), nn.Linear(4 * C, C, bias=False)
            parts = zip("qkv", weights["attn.in_proj_weight"].split(C))
            state = {"out.weight": weights["attn.out_proj.weight"]} | {f"{name}.weight": w for name, w in parts}
            self.load_state_dict(
                state | {name.removeprefix("mlp."): w for name, w in weights.items() if "attn" not in name}
            )

        def forward(self, x):
            B, T, _ = x.shape
            y = self.norm1(x)
            q, k, v = (m(y).view(B, T, NH, hs).transpose(1, 2) for m in (self.q, self.k, self.v))  # (B, nh, T, hs)
            z = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            x = x + self.out(z.transpose(1, 2).reshape(B, T, C))
            return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.head = nn.Embedding(V, C), nn.Linear(C, V, bias=False)
            self.norm = nn.LayerNorm(C, bias=False)
            for layer, name in (self.wte, "wte"), (self.head, "lm_head"), (self.norm, "norm"):
                layer.load_state_dict({"weight": weights[f"{name}.weight"]})
            each = [f"blocks.{i}." for i in range(settings["n_layer"])]
            self.blocks = nn.Sequential(
                *(Block({n.removeprefix(b): w for n, w in weights.items() if n.startswith(b)}) for b in each)
            )

        def forward(self, x, y):
            logits = self.head(self.norm(self.blocks(self.wte(x))))
            return F.cross_entropy(logits.view(-1, V), y.view(-1))

    model = GPT()
    inside = [p for p in model.blocks.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim < 2]
    ends = {"betas": (0.5, 0.95)}
    groups = [{"params": model.wte.weight, "lr": 1.0, **ends}, {"params": model.head.weight, **ends}]
    adamw = torch.optim.AdamW(
        [*groups, {"params": norms}], lr=recipe.SHARE_OF_REST, betas=(0.9, 0.99), eps=1e-10, weight_decay=0.0
    )
    muon = torch.optim.Muon(inside, lr=1.0, weight_decay=0.0)
    all_groups = muon.param_groups + adamw.param_groups
    shares = [group["lr"] for group in all_groups]
    first, last, steps = recipe.MOMENTUM

    def step(i):
        rate = recipe.rate(i, settings)
        for group, share in zip(all_groups, shares):
            group["lr"] = rate * share
        muon.param_groups[0]["momentum"] = first + (last - first) * min(1, i / steps)
        loss = model(*map(torch.from_numpy, next(batches)))
        model.zero_grad()
        loss.backward()
        muon.step()
        adamw.step()
        return loss.item()

    return step, torch_validation(model, windows), settings["steps"], None


CONTENDERS = {"nanoGPT": nanogpt, "torch": recipe_on_torch, "minigrad": ours}


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
    write(args.json, about, 1, found=found)


if __name__ == "__main__":
    main()
