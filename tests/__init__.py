"""The tests. Each folder tests a package of minigrad/, or something else:

programs/ has programs made up at random, char_lm/ `minigrad train`, project/ what is true of the whole
repository: its README, packages, defaults and command lines. oracle/ compares with other libraries where they are
installed, and benchmarks/ measures; neither is part of an ordinary run. A module without test_ in its name helps the
tests beside it, those in this folder help several folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
