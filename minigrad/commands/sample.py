"""Have a trained model write.

    minigrad sample runs/book --prompt "The "

The same --seed gives the same text.
"""

from pathlib import Path

from ..base import cli
from ..base.errors import printable
from ..random import Generator
from ..tensor import tensor
from ..training import runs


def main(argv=()):
    parser = cli.Parser("minigrad sample", description=__doc__)
    what = f"a file of minigrad train, or a run's folder (default: {runs.FOLDER})"
    parser.add_argument("checkpoint", nargs="?", type=Path, default=runs.FOLDER, metavar="CHECKPOINT", help=what)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="the beginning (default: a new line, if possible)")
    parser.add_argument("--tokens", type=cli.COUNT, default=500, metavar="N", help="characters to add (default: 500)")
    heat, share = cli.number(float, at_least=0), cli.number(float, above=0, at_most=1)
    parser.add_argument("--temperature", type=heat, default=0.8, metavar="N", help="0 is greedy (default: 0.8)")
    parser.add_argument("--top-k", type=cli.COUNT, metavar="N", help="choose among the N likeliest (default: all)")
    parser.add_argument("--top-p", type=share, metavar="N", help="choose among this share of them (default: 1)")
    parser.add_argument("--seed", type=cli.SEED, default=1337, metavar="N", help="of random choices (default: 1337)")
    parser.add_argument("--device", **cli.DEVICE)
    args = parser.parse_args(argv)
    model, vocab, _ = runs.load_char_model(args.checkpoint, args.device)
    choice = args.temperature, args.top_k, args.top_p
    with cli.as_command_errors(FloatingPointError):
        write(model, vocab, args.prompt, args.tokens, args.device, args.seed, *choice)
    return 0


def write(model, vocab, prompt, tokens, device, seed, temperature=0.8, top_k=None, top_p=None):
    """Print the prompt and what the model adds to it, each character as soon as it is drawn.

    An empty prompt is replaced by a new line, if the vocabulary has one. Training draws from another stream of random
    numbers. Raises FloatingPointError for weights so large that the logits overflow."""
    prompt = prompt or vocab.beginning
    idx = tensor(vocab.encode(prompt)[None], device=device)  # (1, T)

    def say(text):
        print(printable(text, but="\n\t"), end="", flush=True)

    say(prompt)
    try:
        draws = Generator(seed + 2 * 2**32)
        model.generate(idx, tokens, temperature, top_k, top_p, draws, each=lambda ids: say(vocab.decode(ids)))
    finally:
        print()  # the next message begins on a new line
