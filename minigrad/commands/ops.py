"""The table of ops as Markdown, made from their declarations.

    minigrad ops > ops.md

A row says what the op computes, and its derivative.
"""

import sys

from ..base import cli
from ..ops.table import table


def main(argv=()):
    cli.Parser("minigrad ops", description=__doc__).parse_args(argv)
    if sys.flags.optimize > 1:
        raise cli.CommandError("the formulas are docstrings, which python -OO leaves out: start Python without it")
    print(table())
    return 0
