import pytest


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that are written."""
    pytest.importorskip("matplotlib")
    from minigrad.viz import plots

    written, write = [], plots._write
    monkeypatch.setattr(plots, "_write", lambda figure, path: (written.append(figure), write(figure, path))[1])
    return written
