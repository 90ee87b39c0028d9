"""The line of progress on a terminal."""

import io
import sys

import pytest

from minigrad.base.progress import busy, counted, duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_the_latest_words_and_is_empty_at_the_end(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with busy("one") as say:
        say("two" * 40)
    assert sys.stderr.getvalue() == f"\r\033[Kone\r\033[K{('two' * 40)[:79]}\r\033[K"


def test_a_file_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with busy("one") as say:
        say("two")
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(
    "seconds, words", [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (540, "9 min"), (89 * 60, "89 min"), (9000, "2 h")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_items_are_counted(monkeypatch, caplog):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("minigrad.base.progress.EVERY", 0)
    assert [*counted(range(3), "cutting", "edges", "flow")] == [0, 1, 2] and not caplog.text
    shown = sys.stderr.getvalue()
    assert "cutting edges: 1 of 3, 0 s to go" in shown and shown.endswith("\r\033[K")
    monkeypatch.setattr("minigrad.base.progress.WARN_ABOVE", -1)
    assert len([*counted(range(1000), "cutting", "edges", "flow", "take fewer")]) == 1000
    assert caplog.text.count("flow: cutting 1,000 edges will take about 0 s; take fewer") == 1
    assert [*counted([], "cutting", "edges", "flow")] == []
