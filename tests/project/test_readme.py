"""Every code block of the README runs, and its table of ops is the one the declarations give."""

import re
import runpy
import shlex
import subprocess
import sys

import pytest

from minigrad.ops.table import table

from .. import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
PYTHON = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines() if line.strip()]


def test_blocks_are_python_or_sh():
    assert {language for language, _ in BLOCKS} == {"python", "sh", "text"} and len(PYTHON) >= 4


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_block(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


def test_the_failure_shown_is_the_one_that_happens(capsys):
    """Numbers may differ in their last digits from machine to machine; labels, places and ops may not."""
    (shown,) = (code for language, code in BLOCKS if language == "text" and code.startswith("FAIL"))
    with pytest.raises(SystemExit, match="0"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["check_gradients.py"])
        runpy.run_path(str(ROOT / "examples" / "check_gradients.py"), run_name="__main__")
    printed = capsys.readouterr().out.replace(f"{ROOT}/", "").split("\n\n")[1]

    def gist(text):
        return re.sub(r"-?\d+\.[\d.e+-]+|\d+ evaluations", "#", text).strip()

    assert gist(shown) == gist(printed)


def test_the_backward_pass_shown_is_the_one_that_is_printed(capsys):
    (shown,) = (code for language, code in BLOCKS if language == "text" and not code.startswith("FAIL"))
    with pytest.raises(SystemExit), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["backprop_through_heads.py"])
        runpy.run_path(str(ROOT / "examples" / "backprop_through_heads.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert len(shown.split("\n\n")) == 3
    for part in shown.rstrip("\n").split("\n\n"):
        assert part in printed


def test_first_example_is_short_and_learns(tmp_path, capsys):
    assert len(PYTHON[0].splitlines()) <= 22
    exec(PYTHON[0], {})
    assert "100% correct" in capsys.readouterr().out


def test_table_of_ops():
    assert table() in README, "README's table of ops is stale: python -m minigrad.ops"


def test_links_and_folders_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    for path in links + re.findall(r"`((?:minigrad|examples|tests|kernels)/[\w/.]*)`", README):
        assert (ROOT / path).exists(), path


def run(command, cwd, **kwargs):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, **kwargs)


@pytest.mark.slow
def test_shell_blocks(tmp_path):
    """Each line as typed, in a copy of the checkout, `python` being one of a new environment. `make test` and the
    test run itself stand in for what would start this test again; training is cut short."""
    copy = tmp_path / "minigrad"
    run(["git", "clone", "--quiet", ROOT, copy], tmp_path, check=True)
    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path, check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"
    for line in COMMANDS:
        words = shlex.split(line, comments=True)
        if words == ["make", "test"]:
            line = "make test PYTEST_ARGS='--collect-only -q'"
        elif words == ["python", "-m", "pytest"]:
            line = "python -m pytest --collect-only -q"
        elif words == ["make", "train"]:
            line = "make train TRAIN_ARGS='--steps 20'"
        elif words[:2] == ["python", "examples/char_lm.py"] and "--steps" in words:
            line = "python examples/char_lm.py --steps 20 --out runs/by_hand"
        elif words[:3] == ["python", "examples/char_lm.py", "sample"]:
            line += " --out runs/by_hand --tokens 20"
        done = run(["bash", "-c", line], copy, env={"PATH": path, "HOME": str(tmp_path)})
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
