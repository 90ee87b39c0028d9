"""Train a character model, look into its attention heads, check gradients.

    minigrad train --steps 500                a small GPT, on Python's own manual; --text FILE takes a text of yours
    minigrad sample --prompt "The "           have it write
    minigrad report --text "The list of"      what its heads do, and their gradients, as an HTML file
    minigrad check my_ops.py                  the gradients of your own ops

minigrad COMMAND -h lists a command's options, and minigrad --version says which one this is. python -m minigrad is the
same program.
"""

import importlib
import importlib.util
from pathlib import Path

from .base import cli
from .version import __version__

MODEL = {
    "train": "train a character model, or go on with its training",
    "sample": "have a trained model write",
}
TOOLS = {  # name: (what it does, the module whose main it is)
    "check": ("the gradients of every op, or of those in a file, against finite differences", "commands.check"),
    "ops": ("the table of ops, each with its derivative", "commands.ops"),
    "doctor": ("what this machine has for minigrad, and whether it computes correctly", "commands.doctor"),
}


def study():
    """The module of the commands that study a model. Only they need it."""
    return importlib.import_module(".commands.study", __package__)


def char_lm():
    """examples/char_lm.py as a module. A wheel carries it inside the package; a checkout, editable install included,
    has it beside the package. Raises CommandError, naming the places searched."""
    package = Path(__file__).resolve().parent
    places = [folder / "examples" / "char_lm.py" for folder in (package, package.parent)]
    for place in places:
        if place.is_file():
            spec = importlib.util.spec_from_file_location("char_lm", place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise cli.CommandError(f"there is neither {places[0]} nor {places[1]}: install minigrad again")


def usage():
    studies = {name: does for name, (does, *_) in study().COMMANDS.items()}
    tools = {name: does for name, (does, _) in TOOLS.items()}
    lines = ["usage: minigrad COMMAND ...", "", (__doc__ or "").rstrip()]
    for title, listed in ("a model", MODEL), ("what its heads do", studies), ("gradients, and this machine", tools):
        lines += ["", f"{title}:", *(f"  {name:14}{does}" for name, does in listed.items())]
    return "\n".join(lines)


@cli.command("minigrad")
def main(argv=()):
    argv = argv[1:] if argv and argv[0] == "study" else argv  # from python -m minigrad.commands.study report
    word, *rest = argv or ["-h"]
    if word == "help" and rest:
        word, rest = rest[0], ["-h"]
    word = "check" if word == "gradcheck" else word  # and from python -m minigrad.commands.check
    if word in ("-h", "--help", "help"):
        print(usage())
        return 0
    if word == "--version":
        print(f"minigrad {__version__}")
        return 0
    if word.startswith("-"):
        raise cli.CommandError(f"a command goes first, then its options, not {word}: minigrad -h lists them")
    with cli.called(f"minigrad {word}"):
        if word in MODEL:
            return char_lm().main([word, *rest])
        if word in TOOLS:
            return importlib.import_module(f".{TOOLS[word][1]}", __package__).main(rest)
        if word in study().COMMANDS:
            return study().main([word, *rest])
    cli.known_command([word], [*MODEL, *study().COMMANDS, *TOOLS])


def run():
    """The program `minigrad`."""
    cli.run(main)


if __name__ == "__main__":
    run()
