"""What study.flow costs beside a step: one forward and one backward, and then the products of all writes and reads.

    python tests/benchmarks/flow.py [--rounds 5]

Prints, for GPTs of growing width and number of heads, the smallest time of each over the rounds, measured in turns."""

import argparse
import time

import minigrad as mg
from minigrad import nn, study

MODELS = [(4, 4, 128, 64, 8), (6, 8, 256, 128, 2), (12, 12, 384, 512, 1)]  # n_layer, n_head, n_embd, T, B


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"{'heads':>5} {'T':>4} {'B':>2}  {'step':>8} {'flow':>8}  ratio")
    for n_layer, n_head, n_embd, T, B in MODELS:
        mg.manual_seed(0)
        model = nn.GPT(nn.GPTConfig(vocab_size=65, block_size=T, n_layer=n_layer, n_head=n_head, n_embd=n_embd))
        batch = mg.randint(0, 65, (B, T)), mg.randint(0, 65, (B, T))

        def step(model=model, batch=batch):
            model(*batch)[1].backward()
            model.zero_grad()

        def flow(model=model, batch=batch):
            study.flow(model, batch)

        times = [(seconds(step), seconds(flow)) for _ in range(args.rounds + 1)][1:]  # the first warms up
        of_step, of_flow = map(min, zip(*times))
        ratio = of_flow / of_step
        print(f"{n_layer * n_head:5} {T:4} {B:2}  {of_step:7.3f}s {of_flow:7.3f}s  {ratio:5.1f}", flush=True)


if __name__ == "__main__":
    main()
