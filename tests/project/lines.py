"""make lines: how large everything is, in code lines of every language; fails if a total is over its limit, or a limit
over an earlier one.

    python tests/project/lines.py            code lines of each folder, and the totals that are limited
    python tests/project/lines.py --write    today's totals become the limits, in limits.json, where they are lower

A code line has something beside blanks, comments and docstrings. Folders are printed, not limited: only the totals
are, and they never rise. Who adds takes something away.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = Path(__file__).with_name("limits.json")
TOTALS = {"minigrad and kernels": ("minigrad", "kernels"), "tests": ("tests",), "examples": ("examples",)}
WORDS = "words of .md files"
NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}
SLASHES, TAGS, HASHES = r"//.*|/\*[\s\S]*?\*/", r"<!--[\s\S]*?-->", r"^\s*#.*"
COMMENTS = {**dict.fromkeys((".cu", ".cuh", ".cpp", ".h", ".js", ".css"), SLASHES), ".html": TAGS, ".sh": HASHES}


def of_python(text):
    """The number of code lines."""
    docs, lines = set(), set()
    for node in ast.walk(ast.parse(text)):
        first = node.body[0] if isinstance(getattr(node, "body", None), list) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            docs.update(range(first.lineno, first.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in NO_CODE and token.start[0] not in docs:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def code_lines(name, text):
    """The code lines of a file; 0 of one that is no code."""
    if name.endswith(".py"):
        return of_python(text)
    comment = COMMENTS.get(Path(name).suffix)
    return 0 if comment is None else sum(map(bool, map(str.strip, re.sub(comment, "", text, flags=re.M).splitlines())))


def git(*words):
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True)


def counted():
    """({folder: code lines}, {total: its number})."""
    folders, words = Counter(), 0
    for path in (ROOT / name for name in git("ls-files", "-z").split("\0") if name):
        top, *parts = path.relative_to(ROOT).parts
        if path.suffix == ".md" and path.is_file():
            words += len(path.read_text(encoding="utf-8").split())
        elif parts and path.suffix in (".py", *COMMENTS) and path.is_file():
            folder = f"{top}/{parts[0] if len(parts) > 1 else '*'}" if top in ("minigrad", "tests") else top
            folders[folder] += code_lines(path.name, path.read_text(encoding="utf-8"))
    totals = {name: sum(n for folder, n in folders.items() if folder.split("/")[0] in tops)
              for name, tops in TOTALS.items()}  # fmt: skip
    return dict(sorted(folders.items())), totals | {WORDS: words}


def earlier():
    """{total: the lowest limit that it ever had}, by the history of the file."""
    found: dict = {}
    for name, n in re.findall(r'^\+ *"(.*)": (\d+),?$', git("log", "--format=", "-p", "--", str(LIMITS)), re.M):
        found[name] = min(int(n), found.get(name, int(n)))
    return found


def main(argv):
    (folders, totals), limits = counted(), json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if "--write" in argv:
        limits = {name: min(n, limits.get(name, n)) for name, n in totals.items()}
        LIMITS.write_text(json.dumps(limits, indent=1) + "\n")
    for folder, n in folders.items():
        print(f"{folder:24}{n:8,}")
    for name, n in totals.items():
        print(f"{name:24}{n:8,}, at most {limits.get(name, 0):,}")
    wrong = [f"{name}: {n:,}, where {limits.get(name, 0):,} is the limit: take something away"
             for name, n in totals.items() if n > limits.get(name, 0)]  # fmt: skip
    wrong += [f"{name}: the limit was {n:,} once: it never rises"
              for name, n in earlier().items() if limits.get(name, 0) > n]  # fmt: skip
    return "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
