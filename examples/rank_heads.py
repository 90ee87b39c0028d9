"""Rank the heads of a character model by importance in three ways, and silence the least important ones.

    python examples/rank_heads.py

It trains a small model in about half a minute. On one half of the held-out batches it ranks the heads in the three ways
of study.head_importance: by ablation, by gate gradients, and by the integral of gate gradients as all gates close. On
the other half it measures the loss without the first 0, 1, 2, … heads of each ranking.
"""

import argparse

import char_lm

import minigrad as mg
from minigrad import nn, study

SIZES = dict(block_size=char_lm.T, n_layer=4, n_head=4, n_embd=64)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="of training (default: 600)")
    args = parser.parse_args(argv)

    vocab, train_ids, windows = char_lm.read()
    batches = [(mg.tensor(x), mg.tensor(y)) for x, y in windows[:16]]
    to_rank, to_measure = batches[::2], batches[1::2]
    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(len(vocab), **SIZES))
    char_lm.train(model, train_ids, args.steps)

    importance = {method: study.head_importance(model, to_rank, method) for method in study.METHODS}
    print(f"importance of each head, in nats per character\n{study.HeadTable(importance).sorted('ablate')}")

    losses = {m: study.losses_without(model, to_measure, study.ranked(scores)) for m, scores in importance.items()}
    print(f"\nloss without the k least important heads of {len(losses['ablate']) - 1}, by each ranking")
    rows = [f"{k:3}" + "".join(f"{loss:15.4f}" for loss in row) for k, row in enumerate(zip(*losses.values()))]
    print("  k" + "".join(f"{method:>15}" for method in losses), *rows, sep="\n")


if __name__ == "__main__":
    main()
