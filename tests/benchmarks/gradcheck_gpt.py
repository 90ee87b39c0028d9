"""gradcheck of a GPT of a million parameters within a budget: what is done, what is left out, and how long it takes.

    python tests/benchmarks/gradcheck_gpt.py [--budget 60] [--wrong]

--wrong plants a gradient that is 1 % too large in one matrix; the check must then fail and name the matrix. Exits with
1 if the verdict is not the expected one."""

import argparse
import time

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck


class OnePercent(mg.Op):
    """y = x;   dx = 1.01 dy, which is wrong"""

    def forward(self, x):
        return self.backend.mul(x, 1.0)

    def backward(self, dy):
        return dy * 1.01


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--wrong", action="store_true")
    args = parser.parse_args()

    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(vocab_size=128, block_size=64, n_layer=5, n_head=4, n_embd=128))
    rng = np.random.default_rng(0)
    tokens, targets = (mg.tensor(rng.integers(0, 128, (2, 64))) for _ in range(2))
    if args.wrong:
        fc = model.blocks[2].mlp.fc
        fc.forward = lambda x: x @ OnePercent.apply(fc.weight).mT

    def loss(model):
        return model(tokens, targets)[1]

    began = time.perf_counter()
    report = gradcheck(loss, model, budget=args.budget, raise_on_fail=False)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters in {len(report.leaves)} arrays, float32 as given")
    print(f"{time.perf_counter() - began:.1f} s: {report.summary()}")
    print("done:    ", ", ".join(dict.fromkeys(f.probe or f.check for f in report.findings)))
    print("left out:", "; ".join(f"{what} ({why})" for what, why in report.left_out.items()) or "nothing")
    if not report:
        print(report.message())
    return int(bool(report) == args.wrong)


if __name__ == "__main__":
    raise SystemExit(main())
