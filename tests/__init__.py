"""The tests. Most folders test the package of minigrad/ with the same name. The others:

programs/ runs random programs, char_lm/ tests `minigrad train`, and project/ tests the repository as a whole: its
READMEs, packages, defaults and command lines. oracle/ compares with other libraries if they are installed, and
benchmarks/ measures; neither is part of an ordinary run. Modules without test_ in their names are helpers: of their
folder, or here of several folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
