"""The smallest GPT that does something: one layer, 16 numbers wide, it learns words and makes up new ones.

    python examples/microgpt.py                on the words of the little stories: a second
    python examples/microgpt.py --text FILE    on the words of a text of your own

The task is that of Karpathy's microgpt (2026), 200 lines of plain Python: one word a step, 1,000 steps, Adam with a
rate that falls to 0. Each word is a document: a new line, its letters, and a new line, so the model learns where a word
begins and ends. tests/benchmarks/microgpt.py times it beside PyTorch and plain Python.
"""

import numpy as np

import minigrad as mg
from minigrad import nn, optim
from minigrad.base import cli
from minigrad.training import text

LONGEST = 15  # letters of a word


def words(corpus):
    """The different words of a text, in a random order."""
    found = sorted({word for word in corpus.lower().split() if word.isalpha() and len(word) <= LONGEST})
    return [found[i] for i in mg.randperm(len(found)).tolist()]


@cli.command("microgpt")
def main(argv=()):
    parser = cli.Parser(description=__doc__)
    parser.add_argument("--text", nargs="+", type=cli.path, default=(), metavar="FILE", help="default: little stories")
    parser.add_argument("--steps", type=cli.COUNT, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--no-capture", dest="captured", action="store_false", help="run each step in Python; slower")
    args = parser.parse_args(argv)
    mg.manual_seed(42)
    documents = words(text.read_corpus(args.text))
    if not documents:
        raise text.TextError("the text has no words of letters alone")
    vocab = text.CharVocab("\n".join(["", *documents]))
    model = nn.GPT(nn.GPTConfig(len(vocab), block_size=LONGEST + 1, n_layer=1, n_head=4, n_embd=16))
    optimizer = optim.Adam(model.parameters(), lr=0.01, betas=(0.85, 0.99))
    print(f"{len(documents)} words, {len(vocab)} letters, {model.num_parameters()} parameters")

    def step(ids):
        _, loss = model(ids[:, :-1], ids[:, 1:])  # (1, T, V), ()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = mg.capture(step) if args.captured else step
    losses = []
    for i in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - i / args.steps)
        losses.append(step(mg.tensor(vocab.encode(f"\n{documents[i % len(documents)]}\n")[None])).item())  # (1, T + 1)
        if (i + 1) % 100 == 0 or i + 1 == args.steps:
            print(f"step {i + 1}: mean loss {np.mean(losses[-100:]):.4f} since step {max(0, i - 99)}")

    prompts = mg.tensor([vocab.encode("\n")] * 20)  # (20, 1)
    made_up = [vocab.decode(ids).split("\n")[1] for ids in model.generate(prompts, LONGEST, temperature=0.5).numpy()]
    print(" ".join(made_up))
    return 0


if __name__ == "__main__":
    cli.run(main)
