"""What the README files and CONTRIBUTING.md say is so: every code block runs or is printed as shown, and the paths,
commands and names that they mention exist. So do paths in comments, and commands in docstrings of files."""

import ast
import importlib.util
import itertools
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad
from minigrad import nn, optim, study, viz
from minigrad.__main__ import main as minigrad_command

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
FOLDERS = "minigrad", "kernels", "tests", "examples"
FILES = [p.relative_to(ROOT).as_posix() for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.is_file()]
FILES += [path.name for path in ROOT.iterdir() if path.is_file()]
DOCS = sorted(name for name in FILES if name.endswith(".md"))
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCS}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
BLOCKS = [(name, *block) for name, text in TEXTS.items() for block in FENCE.findall(text)]
PYTHON = [(name, code) for name, language, code in BLOCKS if language == "python"]
SHOWN = [code for _, language, code in BLOCKS if language == "text"]
PROSE = {name: FENCE.sub("", text) for name, text in TEXTS.items()}
QUOTED = [(name, " ".join(code.split())) for name, prose in PROSE.items() for code in re.findall(r"`([^`]+)`", prose)]
SOURCES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in FILES
    if Path(name).suffix in {".py", ".cu", ".cuh", ".h", ".cpp"}
}
TYPED = [(name, line) for name, language, code in BLOCKS if language == "sh" for line in code.splitlines() if line]


def test_the_files_and_their_blocks():
    assert {"README.md", "CONTRIBUTING.md", "kernels/README.md", "minigrad/README.md"} <= set(DOCS)
    # Those of "cuda" run in ../backend/test_matmul_steps.py.
    assert {language for _, language, _ in BLOCKS} == {"python", "sh", "text", "cuda"}
    assert sum(name == "README.md" for name, _ in PYTHON) >= 3
    assert all("P = softmax" in code or "study.flow diff" in code for code in SHOWN)  # which are compared below


# ------------------------------------------------------------------------------------------- what runs, and is printed


def block(i, name, code):
    long = "for step in range(" in code or "check_op(" in code  # seconds
    return pytest.param(name, code, id=f"{name}-{i}", marks=[pytest.mark.slow] * long)


@pytest.mark.parametrize("name, code", [block(i, *each) for i, each in enumerate(PYTHON)])
def test_python_block(name, code, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out.splitlines()
    assert set(re.findall(r"^print\(.*\)  # prints (.*)$", code, re.M)) <= set(printed)
    said = [record.getMessage() for record in caplog.records if record.name == "minigrad"]
    unasked = "compiling kernels", "there are no kernels"  # for want of a compiler
    assert not [line for line in said if not any(words in line for words in unasked)]


@pytest.mark.parametrize("example, inside, n", [("through", "P = softmax", 3), ("between", "study.flow diff", 5)])
def test_the_backward_pass_shown_is_the_one_that_is_printed(example, inside, n, capsys, monkeypatch):
    shown = [code for code in SHOWN if inside in code]
    file = ROOT / "examples" / f"backprop_{example}_heads.py"
    monkeypatch.setattr("sys.argv", [file.name])
    runpy.run_path(str(file), run_name="__main__")
    printed = capsys.readouterr().out
    assert shown
    for each in shown:
        parts = each.rstrip("\n").split("\n\n")
        assert len(parts) == n
        for part in parts:
            assert part in printed


# ---------------------------------------------------------------------------------------------------- what is mentioned


def exists(path, doc):
    """Whether `path` is a file or a folder of the repository, seen from a document's folder or the top; or, if it is
    the name or the end of a path alone, one anywhere."""
    if any((folder / path).exists() for folder in (ROOT, (ROOT / doc).parent)):
        return True
    end = f"/{path.rstrip('/')}"
    return any(f"/{file}".endswith(end) or (path.endswith("/") and f"{end}/" in f"/{file}") for file in FILES)


def test_links_lead_somewhere():
    for doc, prose in PROSE.items():
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", prose):
            target = ((ROOT / doc).parent / path).resolve() if path else ROOT / doc
            assert target.exists(), f"{doc}: {path}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
                assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, anchor


def test_paths_exist():
    kinds = r"\.(?:py|cu|cuh|h|cpp|md|toml|json|js|css|html|svg|png)"
    paths = [(doc, code) for doc, code in QUOTED if re.fullmatch(rf"[\w./-]+{kinds}|[\w.-]+/[\w./-]*", code)]
    paths = [(doc, path) for doc, path in paths if path not in WRITTEN]
    assert len(paths) > 40
    missing = [f"{doc}: {path}" for doc, path in paths if not exists(path, doc)]
    assert not missing, "\n".join(missing)


def test_paths_in_comments_exist():
    named = r"(?<![\w./-])(?:minigrad|kernels|tests|examples)/[\w/.-]*\.(?:py|cuh?|h|cpp|md)\b"
    said = [(name, path) for name, text in SOURCES.items() for path in re.findall(named, text)]
    assert len(said) > 30
    assert not [each for each in said if not (ROOT / each[1]).exists() and each[1] not in WRITTEN]


# By programs, by readers.
WRITTEN = ["kernels/any.cu", "tests/a.py", ".gpu-rig/run", "heads.html", "ledger.txt", "backward.svg", "my_ops.py"]


def test_names_exist():
    """Names that are quoted with their module, such as nn.GPT or study.ledger(…), exist in it."""
    modules = {"mg": minigrad, "minigrad": minigrad, "nn": nn, "optim": optim, "study": study, "viz": viz}
    names = [(doc, re.match(r"(mg|minigrad|nn|optim|study|viz)((?:\.\w+)+)", code)) for doc, code in QUOTED]
    names = [(doc, match[1], match[2][1:].split(".")) for doc, match in names if match]
    names = [(doc, module, path) for doc, module, path in names if path[-1] not in ("py", "cu")]
    assert len(names) > 15
    for doc, module, path in names:
        found = modules[module]
        for name in path:
            if not hasattr(found, name) and hasattr(found, "__path__"):  # a module that is not imported yet
                found = importlib.import_module(f"{found.__name__}.{name}")
            else:
                assert hasattr(found, name), f"{doc}: {module}.{'.'.join(path)}"
                found = getattr(found, name)


def test_names_quoted_with_their_file_exist_in_it():
    """`autograd/op.py: Op.apply` and the like: a class, a function, a method or a constant of that file."""
    seen = [(doc, *match.groups()) for doc, code in QUOTED if (match := re.fullmatch(r"([\w/]+\.py): ([\w.]+)", code))]
    assert len(seen) > 20
    for doc, file, name in seen:
        places = [ROOT / doc, ROOT / "minigrad/x", ROOT / "x"]
        path = next((path for place in places if (path := place.parent / file).is_file()), None)
        assert path is not None, f"{doc}: {file}"
        found = ast.parse(path.read_text(encoding="utf-8"))
        for part in name.split("."):
            stored = [each for each in ast.walk(found) if not isinstance(getattr(each, "ctx", None), ast.Load)]
            found = next((each for each in stored if part in (getattr(each, "name", 0), getattr(each, "id", 0))), None)
            assert found is not None, f"{doc}: {file}: {name}"


@pytest.mark.needs("g++")
def test_the_way_of_softmax_is_the_one_of_the_table():
    """The functions of the table in autograd/README.md are called in this order, in these files."""
    rows = re.findall(
        r"^\| `([\w/]+\.py): ([\w.]+)` \|", (ROOT / "minigrad/autograd/README.md").read_text("utf-8"), re.M
    )
    expected = [(file, name.rpartition(".")[2].lstrip("_")) for file, name in rows]
    called = []

    def record(frame, event, _):
        if event == "call":
            file = frame.f_code.co_filename.removeprefix(f"{ROOT / 'minigrad'}/")
            called.append((file, frame.f_code.co_name.lstrip("_")))

    x = minigrad.randn(64, 64)
    x.softmax(1)  # compiles
    sys.setprofile(record)
    try:
        x.softmax(1)
    finally:
        sys.setprofile(None)
    assert len(expected) == 8
    assert [each for each in called if each in expected] == expected


def commands():
    """(document, words) of every command for python, minigrad, pytest or make, in blocks and in the text."""
    for doc, line in [*TYPED, *QUOTED]:
        if re.match(r"(python|pytest|make)\b.|minigrad \w", line):
            yield doc, shlex.split(line, comments=True)
    for name, text in SOURCES.items():
        if name.endswith(".py") and not name.startswith(
            "examples/weekend/step"
        ):  # those are copied to the user's folder
            for line in re.findall(r"^    ((?:python|minigrad) .*)$", ast.get_docstring(ast.parse(text)) or "", re.M):
                yield name, shlex.split(re.sub(r"[\[\]>]|  .*", " ", line), comments=True)


def source_of(words):
    """The text of the program that `python words…` runs, or None for one that is not ours."""
    if words[0] != "-m":
        path = ROOT / words[0]
    else:
        spec = importlib.util.find_spec(words[1])
        assert spec is not None, f"there is no module {words[1]}"
        path = Path(spec.origin)
        path = path.with_name("__main__.py") if path.name == "__init__.py" else path
    return path.read_text(encoding="utf-8") if path.is_relative_to(ROOT) else None


def help_of(word, capsys):
    """What `minigrad word -h` prints."""
    with pytest.raises(SystemExit, match="0"):
        minigrad_command([word, "-h"])
    return capsys.readouterr().out


def test_commands_exist(capsys):
    """Programs and modules, the options that they are given, make's targets, and pytest's markers and files."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^\.PHONY: (.*lint.*)$", makefile, re.M)
    (listed,) = re.findall(r"^markers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    markers = set(re.findall(r'^    "(\w+)', listed, re.M))
    seen = list(commands())
    assert len(seen) > 20
    for doc, (program, *words) in seen:
        said = f"{doc}: {' '.join([program, *words])}"
        if program == "make":
            assert words[0] in targets.split(), said
            assert all(word.split("=")[0] in makefile for word in words[1:]), said
        elif program == "minigrad":
            printed = help_of(words[0], capsys)
            assert all(f"{word} " in printed for word in words if word.startswith("-")), said
        elif program == "pytest" or words[:2] == ["-m", "pytest"]:
            words = words if program == "pytest" else words[2:]
            assert all(b in markers for a, b in itertools.pairwise(words) if a == "-m"), said
            assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), said
        elif source := source_of(words):
            for option in (word.split("=")[0] for word in words if word.startswith("--")):
                name = option[2:].replace("-", "_")
                assert f'"{option}"' in source or f'"{name}"' in source or option in source, f"{said}: no {option}"


# ---------------------------------------------------------------------------------------------------- the shell's lines


def run(command, cwd, **kwargs):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, **kwargs)


def short(line):
    """The line, or a shorter command in its place if it would start this test again or take minutes."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["make", "test"]:
        return "make test PYTEST_ARGS='--collect-only -q'"
    if words[:3] == ["python", "-m", "pytest"]:
        return "python -m pytest --collect-only -q"
    if words[0] == "make" and words[1].startswith("gpu-rig"):  # .ci/run does that, for real
        return f"make --dry-run {shlex.join(words[1:])}"
    if words == ["minigrad", "check"]:  # ../ops/test_every_op.py does that
        return "minigrad check --op softmax --op matmul"
    if words == ["make", "train"]:
        return "make train TRAIN_ARGS='--steps 20'"
    if words[:2] == ["minigrad", "train"]:
        return "minigrad train --steps 20 --out runs/by_hand"
    if words[:2] == ["minigrad", "sample"]:
        return f"{shlex.join(words)} runs/by_hand --tokens 20"
    if words[0] == "python" and words[1].startswith("tests/"):
        return f"python {words[1]} --help"
    return line


@pytest.mark.slow
def test_shell_blocks(tmp_path):
    """Each line as typed, or its stand-in, in a copy of the checkout, `python` being one of a new environment."""
    copy = tmp_path / "minigrad"
    run(["git", "clone", "--quiet", ROOT, copy], tmp_path, check=True)
    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path, check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"
    ran = set()
    for doc, line in sorted(TYPED, key=lambda typed: typed[0] != "README.md"):  # which installs, and trains a model
        if short(line) not in ran:
            ran.add(short(line))
            done = run(["bash", "-c", short(line)], copy, env={"PATH": path, "HOME": str(tmp_path)})
            assert done.returncode == 0, f"{doc}: {line}\n{done.stdout}\n{done.stderr}"
