"""Compare models that differ only in the number of heads: 1, 2, 4, … of the same total width.

    python examples/head_count.py [--steps 400] [--seeds 2]

All have the same number of parameters and of multiplications. More heads give more patterns, each computed from fewer
numbers. They train on little stories. There one head is best after 400 steps: 0.92 nats per character; four heads reach
0.96, eight 0.99.
"""

import argparse

import char_lm

import minigrad as mg
from minigrad import nn

HEADS = 1, 2, 4, 8, 16
SIZES = dict(block_size=char_lm.T, n_layer=2, n_embd=64)


def validation_loss(heads, vocab, train_ids, val_batches, steps, seed):
    """Train a model with this number of heads. Return its mean loss on held-out text, in nats per character."""
    mg.manual_seed(seed)
    model = nn.GPT(nn.GPTConfig(len(vocab), n_head=heads, **SIZES))
    char_lm.train(model, train_ids, steps, seed=seed)  # the same batches for all
    return char_lm.evaluate(model, val_batches)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="for each model (default: 400)")
    parser.add_argument("--seeds", type=int, default=2, help="models for each number of heads (default: 2)")
    args = parser.parse_args(argv)

    data = char_lm.read()
    print("heads  d_k  validation loss, nats per character")
    for heads in HEADS:
        losses = [validation_loss(heads, *data, args.steps, seed) for seed in range(args.seeds)]
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        print(f"{heads:5} {SIZES['n_embd'] // heads:4}  {sum(losses) / args.seeds:.3f} ({each})", flush=True)


if __name__ == "__main__":
    main()
