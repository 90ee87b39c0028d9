"""make lines: how large each folder is; fails if one exceeds its limit.

    python tests/project/lines.py            code lines (those with tokens; no docstrings, no comments) and tokens, of
                                             Python and of kernels; lines of all files, in every language
    python tests/project/lines.py --write    today's numbers become the limits, in lines.json

A change that raises a limit says why in its message.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = Path(__file__).with_name("lines.json")
COUNTED = "minigrad", "tests", "kernels", "examples"
DRAWN = ".svg", ".png"
NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}


def of_python(text):
    """(code lines, tokens)"""
    docs, lines, tokens = set(), set(), 0
    for node in ast.walk(ast.parse(text)):
        first = node.body[0] if isinstance(getattr(node, "body", None), list) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            docs.update(range(first.lineno, first.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in NO_CODE and token.start[0] not in docs:
            lines.update(range(token.start[0], token.end[0] + 1))
            tokens += 1
    return len(lines), tokens


def of_cuda(text):
    """(code lines, tokens)"""
    text = re.sub(r"//.*|/\*[\s\S]*?\*/", "", text)
    return sum(map(bool, map(str.strip, text.splitlines()))), len(re.findall(r"\w+|[^\w\s]", text))


def folders():
    """{folder: [code lines, tokens, lines]}; of each folder in COUNTED, or in minigrad/ and tests/."""
    found: dict = defaultdict(lambda: [0, 0, 0])
    listed = subprocess.check_output(["git", "ls-files", "-z", *COUNTED], cwd=ROOT, text=True).split("\0")
    for path in (ROOT / name for name in listed if name and not name.endswith(DRAWN)):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            of = {".py": of_python, ".cu": of_cuda, ".cuh": of_cuda}.get(path.suffix, lambda text: (0, 0))
            numbers = *of(text), text.count("\n")
            top, *parts = path.relative_to(ROOT).parts
            for folder in (top, f"{top}/{parts[0] if len(parts) > 1 else '*'}")[: 1 + (top in ("minigrad", "tests"))]:
                found[folder] = [a + b for a, b in zip(found[folder], numbers)]
    return dict(sorted(found.items()))


def main(argv):
    found = folders()
    if "--write" in argv:
        body = ",\n".join(f" {json.dumps(folder)}: {json.dumps(numbers)}" for folder, numbers in found.items())
        LIMITS.write_text(f"{{\n{body}\n}}\n", encoding="utf-8")
    limits, names = json.loads(LIMITS.read_text(encoding="utf-8")), ("code lines", "tokens", "lines")
    print(f"{'':24}" + "".join(name.rjust(12) for name in names))
    for folder, numbers in found.items():
        print(folder.ljust(24) + "".join(f"{n:12,}" for n in numbers))
    grown = [f"{folder}: {n:,} {name}, where {most:,} is the limit" for folder, numbers in found.items()
             for name, n, most in zip(names, numbers, limits.get(folder, (0, 0, 0))) if n > most]  # fmt: skip
    return "\n".join(grown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
