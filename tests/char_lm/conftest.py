import pytest

from minigrad.commands import train

from .runs import WORDS


@pytest.fixture
def book(tmp_path):
    """A text to train on."""
    path = tmp_path / "book.txt"
    path.write_text(WORDS * 20)
    return path


@pytest.fixture
def out(tmp_path):
    """The folder of a run, which is yet to be made."""
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def short(monkeypatch, request):
    """What a run does after its last step is slow, and tested once: leave it out."""
    if "leaves_all" not in request.node.name:
        monkeypatch.setattr(train, "finish", lambda run, out: None)
