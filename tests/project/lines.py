"""make lines: how large each folder is, in code lines of every language.

A code line has something beside blanks, comments and docstrings. Nothing is limited: the numbers are for the reader of
a change.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def main():
    folders, totals = counted()
    for name, n in [*folders.items(), *totals.items()]:
        print(f"{name:24}{n:8,}")


if __name__ == "__main__":
    main()
