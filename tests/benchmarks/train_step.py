"""Milliseconds per training step of nanoGPT's model: minigrad, and PyTorch if it is here.

    python tests/benchmarks/train_step.py [--config nanogpt-cpu] [--only minigrad torch] [--compile]
    python tests/benchmarks/train_step.py --device cuda --config gpt2 [--precision high]  # on a GPU

float32, AdamW with clipping, 65 kinds of tokens; the models are in contenders.py. Both start from the same weights and
see the same random batches, so their first losses must agree. "minigrad" is the step captured, "minigrad eager" the
same function called as it is.

Each has a process of its own, and their turns are interleaved: see workers.py. Ratios are medians over rounds. MiB is
the memory that training adds at its peak to the libraries and the weights, not given for a GPU. The FLOPs are those of
the matrix products: backward takes twice those of forward, and a causal mask saves nothing.

On two cores of an AMD EPYC with AVX-512, beside PyTorch 2.13, eager:

| --config | minigrad, captured | minigrad, eager | PyTorch | ÷ PyTorch | MiB (PyTorch) |
|---|---|---|---|---|---|
| nanogpt-cpu: 4 layers, 128 wide, T = 64, B = 12 | 27.9 ms | 33.3 ms | 39.8 ms | 0.70 | 42 (65) |
| tiny: 1 layer, 16 wide, T = 16, B = 4 | 0.66 ms | 1.8 ms | 1.3 ms | 0.53 | 8 (13) |
| batch: B = 64 | 161 ms | 170 ms | 204 ms | 0.78 | 160 (234) |
| long: T = 2048, B = 1 | 184 ms | 208 ms | 246 ms | 0.74 | 93 (133) |

On an H200, the loss read at each step, in milliseconds (in the rows of medium, PyTorch uses TF32):

| --config | captured | eager | PyTorch | captured ÷ PyTorch |
|---|---|---|---|---|
| nanogpt-gpu: 6 layers, 384 wide, T = 256, B = 64 | 35.0 | 32.6 | 31.7 | 1.10 |
| the same with --precision high | 17.6 | 32.8 | 16.7 | 1.04 |
| the same with --precision medium | 14.7 | 32.8 | 14.2 | 1.02 |
| gpt2: 12 layers, 768 wide, T = 1024, B = 8 | 173.1 | 168.7 | 159.1 | 1.09 |
| the same with --precision high | 67.1 | 63.8 | 56.3 | 1.18 |
"""

import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import time

import numpy as np
from contenders import CONTENDERS, Sizes
from workers import environment, interleaved, machine, parser, peak_memory, ratio, serve, spread

CONFIGS = {
    "nanogpt-cpu": Sizes(),
    "tiny": Sizes(L=1, NH=2, C=16, T=16, B=4),
    "long": Sizes(T=2048, B=1),
    "batch": Sizes(B=64),
    "nanogpt-gpu": Sizes(L=6, NH=6, C=384, T=256, B=64),
    "gpt2": Sizes(L=12, NH=12, C=768, T=1024, B=8, V=50304),
}
AGREE = 1e-3  # the largest difference between two first losses
FIRST, UNTIMED, TURN = 5, 2, 3.0  # steps compared; steps to warm up with; longest turn, in seconds


def work(name, sizes, args):
    """-> (version and first losses, a function of a number of steps: their times in ms, and the peak of memory that
    training has taken so far, in MiB)."""
    make, package = CONTENDERS[name]
    if args.device == "cuda":
        importlib.import_module(package).set_float32_matmul_precision(args.precision)
    step = make(sizes, dict(np.load(args.weights)), *([] if args.device == "cpu" else [args.device]))
    before = peak_memory()  # the libraries, the weights
    tokens = np.random.default_rng(0).integers(0, sizes.V, (64, sizes.B, sizes.T + 1))
    batches = [(np.ascontiguousarray(t[:, :-1]), np.ascontiguousarray(t[:, 1:])) for t in tokens]
    version = getattr(sys.modules[package], "__version__", None) or importlib.metadata.version(package)
    done = 0

    def timed():
        nonlocal done
        x, y = batches[done % len(batches)]
        done += 1
        start = time.perf_counter()
        loss = step(x, y)
        return (time.perf_counter() - start) * 1e3, loss

    def turn(steps):
        end, times = time.monotonic() + TURN, []
        for i in range(steps + UNTIMED):
            times.append(timed()[0])
            if i >= UNTIMED and time.monotonic() > end:  # a slow one does fewer
                break
        return times[UNTIMED:], peak_memory() - before if args.device == "cpu" else None

    return (version, [timed()[1] for _ in range(FIRST)]), turn


def measure(names, args):
    """{name: Worker}"""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(path := os.path.join(folder, "weights.npz"), **CONFIGS[args.config].initial_weights())
        options = ["--config", args.config, "--weights", path, "--device", args.device, "--precision", args.precision]
        commands = {name: ([__file__, "--worker", name, *options], args.steps) for name in names}
        return interleaved(commands, environment(args), args.rounds)


def summary(worker, base):
    rounds = [times for times, _ in worker.rounds]
    version, losses = worker.ready
    return {
        "version": version,
        "steps": sum(map(len, rounds)),
        **spread(rounds),
        "ratio_to_torch": ratio(rounds, [times for times, _ in base.rounds]) if base else None,
        "peak_mib": worker.rounds[-1][1],
        "first_losses": losses,
    }


def report(results):
    columns = f"{'version':>14}{'steps':>7}{'median ms':>11}{'p10 ms':>9}{'÷ torch':>9}{'MiB':>7}"
    print(f"{'':14}{columns}   first losses")
    for name, r in results.items():
        ratio_to_torch = "" if r["ratio_to_torch"] is None else f"{r['ratio_to_torch']:.2f}"
        losses = " ".join(f"{loss:.5f}" for loss in r["first_losses"])
        mib = "" if r["peak_mib"] is None else f"{r['peak_mib']:.0f}"
        numbers = f"{r['steps']:7}{r['median']:11.2f}{r['p10']:9.2f}{ratio_to_torch:>9}{mib:>7}"
        print(f"{name:14}{r['version']:>14}{numbers}   {losses}")


def main():
    options = parser(__doc__, rounds=20)
    options.add_argument("--config", choices=CONFIGS, default="nanogpt-cpu")
    options.add_argument("--steps", type=int, default=10, help="timed steps in a turn (default: 10)")
    options.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help=", ".join(CONTENDERS))
    options.add_argument("--compile", action="store_true", help="torch.compile too")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: minigrad and PyTorch only")
    options.add_argument("--precision", default="highest", choices=("highest", "high", "medium"),
                         help="on a GPU both may round what they multiply: high, to TF32")  # fmt: skip
    options.add_argument("--weights", help="(of a worker)")
    args = options.parse_args()
    sizes = CONFIGS[args.config]
    if args.worker:
        serve(lambda: work(args.worker, sizes, args))
        return 0

    names = args.only or [name for name in CONTENDERS if name != "torch.compile" or args.compile]
    names = [name for name in names if importlib.util.find_spec(CONTENDERS[name][1])]
    about = machine(args)
    workers = measure(names, args)
    c = sizes.minigrad_config()
    multiplied = 12 * c.n_layer * c.n_embd**2 + c.vocab_size * c.n_embd + 2 * c.n_layer * c.block_size * c.n_embd
    flops = 3 * 2 * sizes.B * c.block_size * multiplied
    results = {name: summary(worker, workers.get("torch")) for name, worker in workers.items()}

    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"{args.config}: {sizes}, {flops / 1e9:.3f} GFLOP a step\n")
    report(results)
    losses = np.array([r["first_losses"] for r in results.values()])
    if len(losses) and (apart := np.ptp(losses, axis=0).max()) > AGREE:
        print(f"\nthe first losses differ by up to {apart:.1e}: these are not the same model", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
