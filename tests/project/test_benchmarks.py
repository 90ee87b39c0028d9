"""The benchmarks can be started: what they measure takes too long for a test."""

import os
import subprocess
import sys

import pytest

from .. import ROOT

BENCHMARKS = sorted((ROOT / "tests" / "benchmarks").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_it_says_what_it_does(path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, env=environment, timeout=60)
    assert run.returncode == 0, run.stderr
