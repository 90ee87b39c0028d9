"""The character vocabulary, the corpus, the split, and batches that follow from a generator's state."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigrad.random import Generator
from minigrad.training import text

texts = st.text(min_size=1, max_size=200)


@settings(deadline=None)
@given(texts)
def test_decode_undoes_encode(string):
    vocab = text.CharVocab(string)
    ids = vocab.encode(string)
    assert ids.dtype == np.int64 and ids.shape == (len(string),)
    assert vocab.decode(ids) == string
    assert vocab.decode(ids.tolist()) == string


@settings(deadline=None)
@given(texts)
def test_a_vocabulary_goes_through_json(string):
    vocab = text.CharVocab(string)
    again = text.CharVocab(json.loads(json.dumps(vocab.chars)))
    assert again == vocab and hash(again) == hash(vocab)
    assert (again.encode(string) == vocab.encode(string)).all()


@settings(deadline=None)
@given(texts, st.characters(), st.integers(0, 200))
def test_an_unknown_character_is_named_with_its_place(string, char, where):
    vocab = text.CharVocab(string.replace(char, "") or ("a" if char != "a" else "b"))
    known = vocab.chars[0] * min(where, 30)
    with pytest.raises(ValueError) as error:
        vocab.encode(known + char + vocab.chars)
    assert f"{char!r} (U+{ord(char):04X}), at position {len(known)}" in str(error.value)


def test_ids_are_in_the_order_of_the_characters():
    vocab = text.CharVocab("hello ä€😀")
    assert vocab.chars == " ehloä€😀" and len(vocab) == 8
    assert vocab.encode("😀 ").tolist() == [7, 0]
    assert vocab.encode("").shape == (0,) and vocab.decode([]) == ""
    with pytest.raises(TypeError, match="encode takes a str, got list"):
        vocab.encode(["😀"])


@pytest.mark.parametrize("ids", [[-1], [3], [0, 99]])
def test_an_id_out_of_range_is_refused(ids):
    with pytest.raises(ValueError, match=r"ids must be in \[0, 3\)"):
        text.CharVocab("abc").decode(ids)


# --------------------------------------------------------------------------------------------------------- the corpus


def test_without_files_there_are_stories():
    """The validation part of the default text has stories that the training part has not."""
    corpus = text.read_corpus()
    assert text.read_corpus([]) == corpus and len(corpus) == 1_000_000
    train, kept = (set(part.split("\n\n")[1:-1]) for part in text.split(corpus))
    assert len(train) > 3500 and len(kept) > 380 and not train & kept


def test_files_are_joined_in_order(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes("\ufeffone\r\ntwo\r\n".encode())
    b.write_bytes("drei ß".encode())
    assert text.read_corpus([b, a]) == "drei ß\none\ntwo\n" and text.read_corpus(str(b)) == "drei ß"


@pytest.mark.parametrize("data", [b"", "\ufeff".encode()])
def test_an_empty_file_is_refused(tmp_path, data):
    (tmp_path / "full").write_bytes(b"x")
    (tmp_path / "void").write_bytes(data)
    with pytest.raises(ValueError, match="void is empty"):
        text.read_corpus([tmp_path / "full", tmp_path / "void"])


@settings(deadline=None)
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60),
    st.sampled_from([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf0\x9f"]),
)
def test_bytes_that_are_not_utf8_are_found(tmp_path_factory, before, wrong):
    path = tmp_path_factory.mktemp("t") / "text"
    path.write_bytes(before.encode() + wrong)
    line = before.count("\n") + 1
    with pytest.raises(ValueError) as error:
        text.read_corpus([path])
    assert f"text is not UTF-8: byte 0x{wrong[0]:02x}, line {line} " in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"one\ntwo\0three", "text is no UTF-8 text: it has a byte 0 at offset 7"),
        ("one".encode("utf-16"), "text is no UTF-8 text: it has a byte 0 at offset 3"),
        (b"z" * 50, "the text only repeats 'z': there is nothing to learn from it"),
    ],
)
def test_unusable_texts_raise(tmp_path, data, message):
    (tmp_path / "text").write_bytes(data)
    with pytest.raises(text.TextError) as error:
        text.read_corpus([tmp_path / "text"])
    assert message in str(error.value)


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        text.read_corpus([tmp_path / "nothing"])


# ------------------------------------------------------------------------------------------------------------ batches


def test_split_keeps_everything():
    ids = np.arange(101)
    a, b = text.split(ids, 0.9)
    assert len(a) == 90 and np.concatenate([a, b]).tolist() == ids.tolist()
    with pytest.raises(ValueError, match="between 0 and 1"):
        text.split(ids, 1.0)


def test_targets_are_one_character_later():
    x, y = next(text.Batches(np.arange(50), 8, 5, Generator(3)))
    assert x.shape == y.shape == (5, 8) and x.dtype == y.dtype == np.int64
    assert (y == x + 1).all() and (np.diff(x) == 1).all()


def test_every_window_is_drawn_the_last_included():
    batches = text.Batches(np.arange(12), 4, 50, Generator(0))
    assert set(next(batches)[0][:, 0]) == set(range(8))  # 7..11 is the last window of 4 + 1


def test_the_generators_state_is_the_whole_state():
    ids = np.arange(1000)
    batches = text.Batches(ids, 16, 4, Generator(1))
    for _ in range(5):
        next(batches)
    state = batches.generator.state
    expected = [next(batches) for _ in range(3)]
    generator = Generator(99)
    generator.state = json.loads(json.dumps(state))
    again = text.Batches(ids, 16, 4, generator)
    for pair in expected:
        for a, b in zip(pair, next(again), strict=True):
            assert (a == b).all()


def test_too_short_a_text_is_named():
    assert next(text.Batches(np.arange(9), 8, 2, Generator(0)))[0].tolist() == [list(range(8))] * 2
    with pytest.raises(ValueError, match="the validation split has 8 characters, but a block of 8 needs at least 9"):
        text.Batches(np.arange(8), 8, 2, Generator(0), "validation split")
    with pytest.raises(ValueError, match="the text has 0 characters"):
        text.fixed_batches(np.arange(0), 8, 2)


@settings(deadline=None)
@given(st.integers(5, 60), st.integers(1, 4), st.integers(1, 5))
def test_fixed_batches_cover_the_text_once(n, block, size):
    batches = text.fixed_batches(np.arange(n), block, size)
    seen = np.concatenate([x.ravel() for x, _ in batches])
    assert seen.tolist() == list(range((n - 1) // block * block))
    assert all((y == x + 1).all() and len(x) <= size for x, y in batches)


def test_a_limit_spreads_the_windows_evenly():
    batches = text.fixed_batches(np.arange(10_001), 10, 4, limit=5)
    starts = np.concatenate([x[:, 0] for x, _ in batches])
    assert len(batches) == 5 and len(starts) == 20
    assert starts[0] == 0 and starts[-1] == 9_990 and np.ptp(np.diff(starts)) <= 10
