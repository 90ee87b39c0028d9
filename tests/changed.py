"""python -m tests.changed [COMMIT]: the folders of tests that a change since COMMIT (HEAD) is most likely to fail.

`make test FOLDER=changed` runs them. That is a first proof, in seconds, and not the last: `make test` runs all."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = sorted(folder.name for folder in HERE.iterdir() if any(folder.glob("test_*.py")))
BESIDE = {  # a change below such a path is seen in these folders too, beside the one of the package's name
    "kernels": ["backend"],
    "minigrad/backend": ["kernels"],
    "minigrad/backend/launch": ["replay"],
    "minigrad/backend/numpy": ["ops"],
    "minigrad/base": ["project", "tensor"],
    "minigrad/random.py": ["kernels"],
    "minigrad/base/capturing.py": ["replay"],
    "minigrad/tensor": ["autograd"],
    "minigrad/training": ["char_lm"],
    "minigrad/commands": ["char_lm"],
}


def folders(path):
    """Folders of tests for a changed file of the checkout; all of them for one of no package, such as conftest.py."""
    parts = Path(path).parts
    package = parts[0] if parts[0] in ("kernels", "examples") else parts[1] if len(parts) > 2 else ""
    found = {package} & set(ALL)
    if parts[0] == "minigrad" and not found:  # a loose file, which everything uses
        found = {"tensor", "project"}
    for start, others in BESIDE.items():
        if Path(path).is_relative_to(start):
            found |= set(others)
    return {"project"} if path.endswith(".md") else found or set(ALL)


def main(commit="HEAD"):
    git = [["git", "diff", "--name-only", commit], ["git", "ls-files", "--others", "--exclude-standard"]]
    changed = [path for each in git for path in subprocess.check_output(each, text=True, cwd=HERE.parent).splitlines()]
    print(*(f"tests/{folder}" for folder in sorted(set().union(*map(folders, changed)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
