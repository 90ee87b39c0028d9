"""`minigrad train` where only rank 0 has the text and the folder, as on machines that share no disk."""

import pytest

from minigrad.training import runner

from ..char_lm.runs import SIZES, TRAIN, WORDS, options
from .ranks import run

ELSEWHERE = """
import runpy, sys
from minigrad.base import launched
argv = sys.argv[1:]
if launched.rank:  # another machine, which has neither the text nor the folder
    argv = [word.replace("book.txt", "none.txt").replace("run", "elsewhere") for word in argv]
sys.argv = ["minigrad", *argv]
runpy.run_module("minigrad", run_name="__main__", alter_sys=True)
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
    argv = "elsewhere.py", "train", "--text", "book.txt", "--out", "run"
    status, out, err, _ = run(2, *argv, *TINY)
    assert (status, err) == (0, "") and out.count("best validation loss") == out.count("characters, ") == 1
    (folder / "book.txt").write_text(WORDS * 50 + WORDS[:20])
    status, out, err, _ = run(2, *argv, "--resume", "--steps", 12)
    assert status == 0 and err.count("the text has changed") == 1
    (folder / "run" / "best.safetensors").unlink()  # which rank 0 alone can find out
    assert run(2, *argv, "--resume", "--steps", 16)[0] == 0
    assert not (folder / "elsewhere").exists()


@pytest.mark.slow
@pytest.mark.needs("mpiexec")
def test_what_is_told_once(folder):
    status, _, err, _ = run(2, *TRAIN, "--resume", "--out", "nowhere")
    assert status == 2 and err.startswith("minigrad train: there is no checkpoint") and err.count("\n") == 1


def test_how_many_shards():
    def shards(processes, saved=None, **typed):
        return runner.settings_for(None, typed, None, (), saved or {}, processes)["shards"]

    assert shards(16, batch_size=16) == 16
    assert shards(2, batch_size=24) == 8
    assert shards(2, batch_size=16, shards=2) == 2
    assert shards(2, {"settings": dict(batch_size=16, shards=2), "step": 0}) == 2
