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
    """The folder of a run, which does not exist yet."""
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def short(monkeypatch, request):
    """Leave out what a run prints after its last step: it is slow, and has a test of its own."""
    if "leaves_all" not in request.node.name:
        monkeypatch.setattr(train, "finish", lambda run, out: None)
