import pytest

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
