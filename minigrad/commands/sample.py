"""Let a trained model write.

    minigrad sample runs/book --prompt "The "

What it draws depends on --seed alone.
"""

from ..base import cli
from ..base.errors import printable
from ..random import Generator
from ..tensor import tensor
from ..training import runs


def main(argv=()):
    parser = cli.Parser("minigrad sample", description=__doc__)
    what = f"a file of minigrad train, or a run's folder (default: {runs.FOLDER})"
    parser.add_argument("checkpoint", nargs="?", type=cli.path, default=runs.FOLDER, metavar="CHECKPOINT", help=what)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="how it begins (default: a new line, if possible)")
    parser.add_argument("--tokens", type=cli.COUNT, default=500, metavar="N", help="characters to add (default: 500)")
    heat, share = cli.number(float, at_least=0), cli.number(float, above=0, at_most=1)
    parser.add_argument("--temperature", type=heat, default=0.8, metavar="N", help="0 is greedy (default: 0.8)")
    parser.add_argument("--top-k", type=cli.COUNT, metavar="N", help="choose among the N likeliest (default: all)")
    parser.add_argument("--top-p", type=share, metavar="N", help="choose among this share of them (default: 1)")
    parser.add_argument("--seed", type=cli.SEED, default=1337, metavar="N", help="of random choices (default: 1337)")
    parser.add_argument("--device", **cli.DEVICE)
    args = parser.parse_args(argv)
    file = runs.model_file(args.checkpoint, train=cli.typed("train"))
    if file != args.checkpoint and file.name == runs.LAST:
        cli.note(f"{file} writes, as there is no {runs.BEST} before the first validation of a run")
    model, vocab, _ = runs.load_char_model(file, args.device)
    choice = args.temperature, args.top_k, args.top_p
    with cli.refusing(FloatingPointError):  # weights so large that the logits overflow
        write(model, vocab, args.prompt, args.tokens, args.device, args.seed, *choice)
    return 0


def write(model, vocab, prompt, tokens, device, seed, temperature=0.8, top_k=None, top_p=None):
    """Print the prompt, or for an empty one a new line if the text has any, and what the model adds to it, each
    character as soon as it is drawn. Only the first waits for the second: until then kernels may be compiled, and
    messages about that would run into the text.

    Random numbers come from a separate stream."""
    prompt = prompt or vocab.beginning
    idx = tensor(vocab.encode(prompt)[None], device=device)  # (1, T)
    waiting = [prompt]

    def say(drawn):  # (1,)
        waiting.append(vocab.decode(drawn))
        if len(waiting) != 2:
            print(*map(_shown, waiting), sep="", end="", flush=True)
            waiting.clear()

    generator = Generator(seed + 2 * 2**32)
    try:
        model.generate(idx, tokens, temperature, top_k, top_p, generator, each=say)
    finally:
        if waiting != [prompt]:  # otherwise nothing was drawn
            print(*map(_shown, waiting), sep="")  # what is said next begins a line of its own, also after Ctrl-C


def _shown(text):
    """A text for a terminal, with control characters escaped."""
    return printable(text, but="\n\t")
