"""The default text: the same everywhere, with exact probabilities, and a split with which memory does not help."""

import hashlib
import itertools
import math
import re

import pytest

from minigrad.training import stories, text


def test_it_is_the_same_on_every_python():
    corpus, nats = stories.corpus()
    assert len(corpus) == stories.LENGTH and hashlib.sha256(corpus.encode()).hexdigest()[:16] == "3904184139128f21"
    assert nats == pytest.approx(0.09671, abs=1e-5)


def test_it_is_plain_english():
    corpus, _ = stories.corpus(100_000)
    assert re.fullmatch(r"[A-Za-z \n\"'!?.,]+", corpus)
    assert not re.search(r"  | [.,!?]|\ba [aeiou]|\ban [^aeiou]|\b(\w+) \1\b", corpus.replace("X! X!", ""))
    assert re.findall(r"(?:Mc|O')[A-Z]\w+", corpus) and not re.findall(r"\b(?:[XYZCTUVPQ])\b", corpus)


def readings(target):
    """The nats of each sequence of choices that gives a text: all of them are tried."""
    found, tape = [], []
    while True:
        at = used = 0
        nats = 0.0

        def pick(n):
            nonlocal used, nats
            if used == len(tape):
                tape.append([0, n])
            used, nats = used + 1, nats + math.log(n)
            return tape[used - 1][0]

        def say(said):
            nonlocal at
            if not target.startswith(said, at):
                raise EOFError
            at += len(said)

        try:
            stories.Story(pick, say)
            if at == len(target):
                found.append(nats)
        except EOFError:
            pass
        while tape and tape[-1][0] == tape[-1][1] - 1:
            tape.pop()
        if not tape:
            return found
        tape[-1][0] += 1


def test_a_storys_probability_is_that_of_its_choices():
    """There is one way alone to draw it, so that nothing has to be added."""
    for story, nats, _ in itertools.islice(stories.stories(seed=3), 12):
        assert readings(story) == [pytest.approx(nats, rel=1e-12)]


def test_the_entropy_of_other_stories_is_about_the_same():
    drawn = list(itertools.islice(stories.stories(seed=8), 4000))
    length = sum(len(story) for story, *_ in drawn)
    assert sum(nats for _, nats, _ in drawn) / length == pytest.approx(0.0960, abs=0.0006)
    assert sum(kept for *_, kept in drawn) / len(drawn) == pytest.approx(0.1, abs=0.02)
    assert length / len(drawn) == pytest.approx(255, abs=4)


def test_validation_stories_are_no_training_stories():
    train, kept = text.split(stories.corpus()[0])
    train, kept = (set(part.split("\n\n")[1:-1]) for part in (train, kept))
    assert len(train) > 3500 and len(kept) > 380 and not train & kept
    lines = {line for story in train for line in story.split("\n")}
    of_kept = [line for story in kept for line in story.split("\n")]
    assert sum(line in lines for line in of_kept) < 0.2 * len(of_kept)
