"""What each method of study.head_importance costs, beside one forward and backward of the same model.

    python tests/benchmarks/importance.py [--batches 8] [--rounds 3] [--limit 10] [--json FILE]

The model is the one that minigrad train trains by default, on batches of its size. Its weights are random, which
takes as long. A pass is a forward or a backward of one batch: they are counted. Exits with 1 if all methods together
take longer than the limit.
"""

import argparse
import functools
import sys
import time

import workers

import minigrad as mg
from minigrad import study
from minigrad.training import recipe
from minigrad.training.runner import DEFAULTS as SIZES

V = 96  # characters, about as many as a text in English has


class Counting:
    """A loss that counts how often it is computed, and how often a backward goes through it."""

    def __init__(self):
        self.forwards = self.backwards = 0

    def __call__(self, model, *batch):
        _, loss = model(*batch)
        self.forwards += 1
        if loss.requires_grad:
            loss.register_hook(self._backward)
        return loss

    def _backward(self, grad):
        self.backwards += 1


def seconds(work, rounds):
    """The least of several times."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for all methods (default: 10)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()
    B, T = SIZES["batch_size"], SIZES["block_size"]
    mg.manual_seed(0)
    model = recipe.model(SIZES, V)
    batches = [(mg.randint(0, V, (B, T)), mg.randint(0, V, (B, T))) for _ in range(args.batches)]

    def forward_and_backward():
        for batch in batches:
            model(*batch)[1].backward()

    forward_and_backward()  # compiles kernels
    about, base = workers.machine(), seconds(forward_and_backward, args.rounds)
    print(f"{len(batches)} batches of {B} × {T}, {SIZES['n_layer']} layers of {SIZES['n_head']} heads\n")
    print(f"{'':24}{'forwards':>9}{'backwards':>11}{'seconds':>9}{'÷ first':>9}")
    print(f"{'forward and backward':24}{len(batches):9}{len(batches):11}{base:9.2f}{1:9.1f}")
    results = {"forward and backward": {"forwards": len(batches), "backwards": len(batches), "seconds": base}}
    for method in study.METHODS:
        count = Counting()
        study.head_importance(model, batches, method, loss=count)
        took = seconds(functools.partial(study.head_importance, model, batches, method), args.rounds)
        results[method] = {"forwards": count.forwards, "backwards": count.backwards, "seconds": took}
        print(f"{method:24}{count.forwards:9}{count.backwards:11}{took:9.2f}{took / base:9.1f}")
    total = sum(results[method]["seconds"] for method in study.METHODS)
    print(f"\nall methods: {total:.1f} s (limit {args.limit:g})")
    workers.write(args.json, about, args.rounds, unit="seconds, the least of the rounds", results=results)
    return int(total > args.limit)


if __name__ == "__main__":
    sys.exit(main())
