"""Peak memory of attention over long texts, forward and backward, on the CPU; with torch beside it, if it is here.

    python tests/benchmarks/attention_memory.py [--length 8192] [--heads 4] [--size 64] [--json FILE]

Causal self-attention of float32 heads, q, k and v requiring gradients. Each contender has a process of its own, whose
peak resident memory is read before and after; "scores" is what one T × T matrix for every head would take.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from workers import machine, peak_memory

MIB = 1 << 20


def minigrad(q, k, v):
    import minigrad as mg

    x = [mg.tensor(a, requires_grad=True) for a in (q, k, v)]
    return lambda: mg.nn.functional.scaled_dot_product_attention(*x, is_causal=True).sum().backward()


def torch(q, k, v):
    import torch

    x = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    return lambda: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True).sum().backward()


def work(name, T, nh, hs):
    """Run a contender in this process and print its numbers as JSON."""
    rng = np.random.default_rng(0)
    make = globals()[name]
    make(*rng.standard_normal((3, 1, nh, 64, hs), np.float32))()  # what a library allocates once does not count
    run = make(*rng.standard_normal((3, 1, nh, T, hs), np.float32))
    before, start = peak_memory(), time.perf_counter()
    run()
    print(json.dumps({"MiB": peak_memory() - before, "seconds": time.perf_counter() - start}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    shape = args.length, args.heads, args.size
    if args.worker:
        return work(args.worker, *shape)
    results = {}
    for name in ("minigrad", "torch"):
        options = ["--length", str(args.length), "--heads", str(args.heads), "--size", str(args.size)]
        run = subprocess.run([sys.executable, __file__, "--worker", name, *options], stdout=subprocess.PIPE, text=True)
        if run.returncode == 0:
            results[name] = json.loads(run.stdout)
    scores = args.heads * args.length**2 * 4 / MIB
    print(f"T = {args.length}, {args.heads} heads of {args.size}: scores {scores:.0f} MiB")
    for name, found in results.items():
        print(f"{name:10} {found['MiB']:8.0f} MiB {found['seconds']:8.2f} s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": machine(), "shape": shape, "scores MiB": scores, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
