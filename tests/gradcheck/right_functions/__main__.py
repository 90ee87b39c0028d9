"""python -m tests.gradcheck.right_functions: what gradcheck says of thousands of functions that are right.

Prints a table of verdicts by kind, and what it said of the first that did not deserve it. Exit status 1 if the demand
of judge.py is broken. To replay one: --seed 1234 --count 1 (and the --kind, if it was given)."""

import argparse
import sys
from collections import Counter

from . import FAMILIES
from .judge import tally


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.gradcheck.right_functions")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--kind", choices=list(FAMILIES))
    parser.add_argument("--probes", choices=["all", "none"], default="all")
    parser.add_argument("--show", type=int, default=10, help="how many reports to print in full")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.count)
    result = tally(seeds, args.kind, "all" if args.probes == "all" else ())
    broken = result.broken()
    print(result.table())
    print(f"{args.count} right functions, {len(result.offenders)} answers not deserved")
    for (name, verdict), n in Counter((a.name, a.verdict) for a in result.offenders).most_common():
        seeds = [a.seed for a in result.offenders if (a.name, a.verdict) == (name, verdict)]
        print(f"  {n:4} × {verdict:12} {name}: seeds {', '.join(map(str, seeds[:6]))}")
    shown = {(a.name, a.verdict): a for a in reversed(broken)}  # the first of each name
    for a in sorted(shown.values(), key=lambda a: a.seed)[: args.show]:
        print(f"\n{a}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
