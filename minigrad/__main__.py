"""Train a character model, look into its attention heads, check gradients.

    minigrad train --steps 500                a small GPT, on little stories; --text FILE takes a text of your own
    minigrad sample --prompt "The "           let it write
    minigrad report --text "The list of"      its attention heads and their gradients, as an HTML file
    minigrad check my_ops.py                  check the gradients of your own ops

minigrad COMMAND -h lists a command's options; minigrad --version prints the version. python -m minigrad is the same
program.
"""

import importlib
import sys

from .base import cli, ranks
from .base.errors import unknown
from .version import __version__

MODEL = {  # {name: what the command does}; its main is in the module commands/name.py
    "train": "train a character model, or go on with its training",
    "sample": "have a trained model write",
}
TOOLS = {
    "learn": "write your own engine, step by step, and have it checked",
    "check": "check the gradients of every op, or of the ops in a file, against finite differences",
    "doctor": "list what this machine has for minigrad, and test that it computes correctly",
}


def command(name):
    """Import and return the module of commands/ with this name."""
    return importlib.import_module(f".commands.{name}", __package__)


def studies():
    """Return {name: what the command does} for the commands that study heads, which share commands/study.py."""
    return {name: does for name, (does, *_) in command("study").COMMANDS.items()}


def usage():
    lines = ["usage: minigrad COMMAND ...", "", (__doc__ or "").rstrip()]
    for title, listed in ("a model", MODEL), ("its heads", studies()), ("your engine, gradients, this machine", TOOLS):
        lines += ["", f"{title}:", *(f"  {name:14}{does}" for name, does in listed.items())]
    return "\n".join(lines)


def main(argv=()):
    word, *rest = argv or ["-h"]
    is_command = word in MODEL or word in TOOLS
    with cli.one_line(f"minigrad {word}" if is_command or word in studies() else "minigrad"):
        if is_command:
            return command(word).main(rest)
        if word in studies():
            return command("study").main([word, *rest])
        if word in ("-h", "--help"):
            print(usage())
        elif word == "--version":
            print(f"minigrad {__version__}")
        else:
            raise cli.CommandError(unknown("command", word, [*MODEL, *studies(), *TOOLS]))
        return 0


def run():
    """Run the program `minigrad`, and exit with its status."""
    cli.prepare_output()
    try:
        status = main(sys.argv[1:])
    except SystemExit as stop:
        status = stop.code
    if status and ranks.size > 1:
        from .distributed import end_all

        end_all(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
