"""char_lm where only rank 0 has the text and the folder, as on machines that share no disk; and who tells what."""

import pytest

from ..char_lm.runs import SCRIPT, SIZES, WORDS, char_lm, options
from .ranks import run

ELSEWHERE = """
import runpy, sys
from minigrad.base import launched
script, *argv = sys.argv[1:]
if launched.rank:  # another machine, which has neither the text nor the folder
    argv = [word.replace("book.txt", "none.txt").replace("run", "elsewhere") for word in argv]
sys.argv = [script, *argv]
runpy.run_path(script, run_name="__main__")
"""
TINY = options(SIZES | dict(batch_size=8, steps=8, eval_every=4))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    (tmp_path / "book.txt").write_text(WORDS * 50)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.needs("mpiexec")
@pytest.mark.slow
def test_no_shared_disk(folder):
    argv = "elsewhere.py", SCRIPT, "--text", "book.txt", "--out", "run"
    status, out, err, _ = run(2, *argv, *TINY)
    assert (status, err) == (0, "") and out.count("best validation loss") == out.count("characters, ") == 1
    (folder / "book.txt").write_text(WORDS * 50 + WORDS[:20])
    status, out, err, _ = run(2, *argv, "--resume", "--steps", 12)
    assert status == 0 and err.count("the text has changed") == 1
    (folder / "run" / "best.safetensors").unlink()  # which rank 0 alone can find out
    assert run(2, *argv, "--resume", "--steps", 16)[0] == 0
    status, out, err, _ = run(2, "elsewhere.py", SCRIPT, "sample", "--out", "run", "--prompt", "The q", "--tokens", 8)
    assert (status, err) == (0, "") and out.count("The q") == 1
    assert not (folder / "elsewhere").exists()


@pytest.mark.slow
@pytest.mark.needs("mpiexec")
def test_what_is_told_once(folder):
    status, _, err, _ = run(2, SCRIPT, "--resume", "--out", "nowhere")
    assert status == 2 and err.startswith("char_lm: there is no checkpoint") and err.count("\n") == 1
    status, out, err, _ = run(2, SCRIPT, "train", "--help")
    assert (status, err) == (0, "") and out.count("usage: ") == 1


def test_how_many_shards():
    def shards(*argv, processes, saved=()):
        return char_lm.settings_for(char_lm.read_options(argv), dict(saved), processes)["shards"]

    assert shards("--batch-size", "16", processes=16) == 16
    assert shards("--batch-size", "24", processes=2) == 8
    assert shards("--batch-size", "16", "--shards", "2", processes=2) == 2
    began = {"settings": dict(batch_size=16, shards=2), "step": 0}
    assert shards("--resume", processes=2, saved=began) == 2
