"""A fresh clone to the first sample: seconds, stage by stage.

    python tests/benchmarks/first_sample.py [--rounds 3] [--extras train,viz] [--steps 20] [--limit 180] [--json FILE]

Each round clones what this checkout has committed last, makes a virtual environment, installs the clone there, trains
the default model for a few steps and has it write, all with an empty cache of kernels; then it trains and samples once
more, with what has been compiled. How long the installation takes depends on the network and on pip's cache, which
--no-pip-cache leaves out. Exits with 1 if the median of the way to the first characters is above the limit.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workers import ENVIRONMENT, machine, write

ROOT = Path(__file__).resolve().parents[2]
WAY = "clone", "environment", "install", "first step", "other steps, validation, picture", "first characters"
AGAIN = "first step, again", "first characters, again"


def seconds(*command, cwd):
    began = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def watched(*command, until, **options):
    """(seconds until the output of a command had these bytes, seconds from then to its end)."""
    began, found = time.perf_counter(), b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, **options) as process:
        while until not in found and (read := process.stdout.read(1 << 16)):
            found += read
        at = time.perf_counter()
        process.stdout.read()
    if process.returncode or until not in found:
        raise SystemExit(f"{' '.join(map(str, command))} ended with status {process.returncode}: {found.decode()}")
    return at - began, time.perf_counter() - at


def one_round(folder, args):
    """{stage: seconds}."""
    clone, found = folder / "minigrad", {}
    found["clone"] = seconds("git", "clone", "--quiet", ROOT, clone, cwd=folder)
    found["environment"] = seconds(sys.executable, "-m", "venv", "venv", cwd=clone)
    pip = "venv/bin/python", "-m", "pip", "install", "--quiet", *["--no-cache-dir"] * args.no_pip_cache
    found["install"] = seconds(*pip, "--editable", f".[{args.extras}]" if args.extras else ".", cwd=clone)

    environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    options = dict(cwd=clone, env=environment | {"MINIGRAD_CACHE": str(folder / "kernels")})
    program = clone / "venv/bin/minigrad"
    train = program, "train", f"--steps={args.steps}"
    sample = program, "sample", "--prompt=The "
    found[WAY[3]], found[WAY[4]] = watched(*train, until=b"step 1/", **options)
    found[WAY[5]], _ = watched(*sample, until=b"The ", **options)
    found[AGAIN[0]], _ = watched(*train, "--out=runs/again", until=b"step 1/", **options)
    found[AGAIN[1]], _ = watched(*sample, until=b"The ", **options)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--extras", default="train,viz", help="what is installed with it (default: train,viz)")
    parser.add_argument("--no-pip-cache", action="store_true", help="download every package")
    parser.add_argument("--steps", type=int, default=20, help="of the training (default: 20)")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds to the first characters (default: 180)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    args = parser.parse_args()

    about, rounds = machine(), []
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    for i in range(args.rounds):
        print(f"\rround {i + 1}/{args.rounds}", end="", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(Path(folder), args))
    print(file=sys.stderr)
    for stage in (*WAY, *AGAIN):
        print(f"{stage:36}{statistics.median(found[stage] for found in rounds):8.1f} s")
    whole = statistics.median(sum(found[stage] for stage in WAY) for found in rounds)
    print(f"{'from the clone to first characters':36}{whole:8.1f} s (limit {args.limit:.0f})")
    results = {stage: {"seconds": [found[stage] for found in rounds]} for stage in (*WAY, *AGAIN)}
    write(args.json, about, args.rounds, extras=args.extras, pip_cache=not args.no_pip_cache, steps=args.steps,
          results=results)  # fmt: skip
    return int(whole > args.limit)


if __name__ == "__main__":
    sys.exit(main())
