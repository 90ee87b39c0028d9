"""What `import minigrad` costs beyond `import numpy`, in milliseconds of CPU: whole processes, in turn, medians.

    python tests/benchmarks/import_time.py [--rounds 20]

Exits with 1 if it is 50 ms or more.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

LIMIT = 50.0  # ms
STATEMENTS = ("import numpy", "import minigrad")


def milliseconds(statement, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds

    with tempfile.TemporaryDirectory() as folder:  # compiling is not the question: all find bytecode there
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        environment |= {"OPENBLAS_NUM_THREADS": "1"}  # its other threads wait for work in a loop
        for statement in STATEMENTS:
            milliseconds(statement, environment)
        times = [[milliseconds(statement, environment) for statement in STATEMENTS] for _ in range(rounds)]
    for statement, column in zip(STATEMENTS, zip(*times)):
        print(f"{statement:16} {statistics.median(column):6.1f} ms")
    beyond = statistics.median(ours - numpys for numpys, ours in times)
    print(f"{'beyond numpy':16} {beyond:6.1f} ms (limit {LIMIT:.0f})")
    return int(beyond >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
