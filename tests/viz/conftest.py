import pytest


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that are written."""
    pytest.importorskip("matplotlib")
    from minigrad.viz import canvas

    written, write = [], canvas.save
    monkeypatch.setattr(canvas, "save", lambda figure, path: (written.append(figure), write(figure, path))[1])
    return written
