"""The table of ops as Markdown, made from their declarations."""

from .. import cli
from .table import table


@cli.command("ops")
def main(argv=()):
    cli.Parser("minigrad ops", description=__doc__).parse_args(argv)
    print(table())
    return 0


if __name__ == "__main__":
    cli.run(main)
