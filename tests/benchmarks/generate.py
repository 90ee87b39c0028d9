"""Tokens per second of generation near position 200 of 256: nanoGPT's CPU model continues one sequence.

    python tests/benchmarks/generate.py [--rounds 20] [--only minigrad torch] [--json FILE]

4 layers, 4 heads, 128 wide, 65 kinds of tokens, float32, random weights, temperature 0.8. "torch" generates as nanoGPT
does: a forward over the whole sequence for each token, with the head at its last position. "torch, cache" keeps keys
and values in arrays that were made beforehand. A token's time is the difference between adding 50 tokens to 170 and
adding 10, divided by 40; so it is that of positions 180 to 220, and what generation does once is not in it.

Each has a process of its own, and their turns are interleaved: see workers.py. All must choose the same tokens where
the likeliest is taken.
"""

import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import time

import numpy as np
from contenders import Sizes, minigrad_model, torch_model
from workers import environment, interleaved, machine, parser, ratio, serve, spread, write

SIZES = Sizes(T=256)
PROMPT, FROM, TO = 170, 180, 220  # tokens
TEMPERATURE = 0.8
TURN = 1.0  # longest turn, in seconds


def weights():
    """Random, with matrices so large that the likeliest token depends on all before it."""
    return {name: 3 * w if w.ndim == 2 else w for name, w in SIZES.initial_weights().items()}


# Each makes a function of (prompt (T,) int64, how many tokens, temperature) -> a list of the tokens added.


def minigrad(weights, use_cache=True):
    import minigrad as mg

    model = minigrad_model(SIZES, weights)

    def generate(prompt, n, temperature):
        tokens = model.generate(mg.tensor(prompt[None]), n, temperature=temperature, use_cache=use_cache)
        return tokens.numpy()[0, len(prompt) :].tolist()

    return generate


def minigrad_without_cache(weights):
    return minigrad(weights, use_cache=False)


def torch(weights, use_cache=False):
    import torch

    model = torch_model(SIZES, weights).eval()

    class Cache:
        """The keys and values of one layer, (1, nh, 256, hs) each, of which the first `length` are known."""

        def __init__(self):
            shape = 1, SIZES.NH, SIZES.T, SIZES.C // SIZES.NH
            self.k, self.v, self.length = torch.empty(shape), torch.empty(shape), 0

        def extended(self, k, v):
            start, self.length = self.length, self.length + k.shape[2]
            self.k[:, :, start : self.length], self.v[:, :, start : self.length] = k, v
            return self.k[:, :, : self.length], self.v[:, :, : self.length]

    caches = [Cache() for _ in range(SIZES.L)] if use_cache else None

    @torch.inference_mode()
    def generate(prompt, n, temperature):
        idx, start = torch.from_numpy(prompt)[None], 0
        for cache in caches or ():
            cache.length = 0
        for _ in range(n):
            logits = model(idx[:, start:], caches=caches, start=start)  # (1, V)
            start = idx.shape[1] if use_cache else 0
            if temperature:
                following = torch.multinomial((logits / temperature).softmax(-1), 1)
            else:
                following = logits.argmax(-1, keepdim=True)
            idx = torch.cat((idx, following), dim=1)
        return idx[0, len(prompt) :].tolist()

    return generate


def torch_cache(weights):
    return torch(weights, use_cache=True)


CONTENDERS = {
    "minigrad": (minigrad, "minigrad"),
    "minigrad, no cache": (minigrad_without_cache, "minigrad"),
    "torch": (torch, "torch"),
    "torch, cache": (torch_cache, "torch"),
}


def work(name, weights):
    """-> (version and the likeliest tokens, a function of how many times to measure: seconds per token)."""
    make, package = CONTENDERS[name]
    generate = make(dict(np.load(weights)))
    prompt = np.random.default_rng(0).integers(0, SIZES.V, PROMPT)

    def seconds(end):
        start = time.perf_counter()
        generate(prompt, end - PROMPT, TEMPERATURE)
        return time.perf_counter() - start

    def turn(times):
        end, found = time.monotonic() + TURN, []
        while len(found) < times and (not found or time.monotonic() < end):  # a slow one does fewer
            found.append((seconds(TO) - seconds(FROM)) / (TO - FROM))
        return found

    likeliest = generate(prompt, TO - PROMPT, 0)
    seconds(FROM), seconds(TO)
    version = getattr(sys.modules[package], "__version__", None) or importlib.metadata.version(package)
    return (version, likeliest), turn


def main():
    options = parser(__doc__, rounds=20)
    options.add_argument("--times", type=int, default=5, help="measurements in a turn (default: 5)")
    options.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help=", ".join(CONTENDERS))
    options.add_argument("--weights", help="(of a worker)")
    args = options.parse_args()
    if args.worker:
        serve(lambda: work(args.worker, args.weights))
        return 0

    about = machine(args)
    names = [name for name in args.only or CONTENDERS if importlib.util.find_spec(CONTENDERS[name][1])]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(path := os.path.join(folder, "weights.npz"), **weights())
        commands = {name: ([__file__, "--worker", name, "--weights", path], args.times) for name in names}
        workers = interleaved(commands, environment(args), args.rounds)

    results = {}
    for name, worker in workers.items():
        version, tokens = worker.ready
        times = spread(worker.rounds)
        base = workers.get("torch")
        results[name] = {
            "version": version,
            "tokens_per_second": 1 / times["median"],
            "seconds_per_token": times,
            "ratio_to_torch": ratio(base.rounds, worker.rounds) if base else None,
            "likeliest": tokens,
        }
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(f"{'':20}{'version':>14}{'tokens/s':>10}{'ms':>8}{'p10 ms':>8}{'× torch':>9}")
    for name, r in results.items():
        times, than = r["seconds_per_token"], r["ratio_to_torch"]
        numbers = f"{r['tokens_per_second']:10,.0f}{1e3 * times['median']:8.3f}{1e3 * times['p10']:8.3f}"
        print(f"{name:20}{r['version']:>14}{numbers}" + ("" if than is None else f"{than:9.2f}"))
    positions = {"prompt": PROMPT, "from": FROM, "to": TO}
    write(args.json, about, args.rounds, sizes=SIZES._asdict(), positions=positions, results=results)
    if len({tuple(r["likeliest"]) for r in results.values()}) > 1:
        print("\nthe likeliest tokens differ: these are not the same model", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
