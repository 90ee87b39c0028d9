"""mypy --strict on programs of users of an installed minigrad."""

import os
import re
import subprocess
import sys

import pytest

from .. import ROOT

FOLDER = ROOT / "tests/types"
ERROR = re.compile(r"  # error: (.*)$")


def errors(path, cache):
    """Return {line: [message]} of mypy --strict, without the settings of this repo. It reports no errors in minigrad's
    own sources, as in those of any installed package."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    env = os.environ | {"MYPYPATH": str(ROOT)}
    run = subprocess.run([*command, "--cache-dir", cache, path], cwd=cache, env=env, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = {}
    for line, message in re.findall(r"^[^:\n]+:(\d+): error: (.*)$", run.stdout, re.M):
        found.setdefault(int(line), []).append(message)
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_a_program_without_mistakes_has_no_errors(cache):
    assert errors(FOLDER / "client.py", cache) == {}


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_each_mistake_is_an_error_on_its_line(cache):
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    expected = {i: said[1] for i, line in enumerate(lines, 1) if (said := ERROR.search(line))}
    found = errors(FOLDER / "mistakes.py", cache)
    assert len(expected) > 50
    assert found.keys() == expected.keys(), {i: lines[i - 1] for i in found.keys() ^ expected.keys()}
    for i, words in expected.items():
        assert any(words in message for message in found[i]), (lines[i - 1], found[i])


@pytest.mark.slow
def test_the_program_runs():
    """It runs in a process of its own, because other tests declare ops of the same names."""
    run = subprocess.run([sys.executable, "-m", "tests.types.client"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "PASS" in run.stdout and "heads.html" in run.stdout
