"""Text for character models: a vocabulary, a corpus, random batches for training and fixed batches for evaluation.

Texts are str; ids are int64 arrays.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from ..base.errors import TextError
from ..random import Generator
from ..typing import Array, FilePath

__all__ = ["CharVocab", "read_corpus", "split", "Batches", "fixed_batches"]

Text = TypeVar("Text", str, Array)
STORIES = Path(__file__).with_name("stories.txt")


class CharVocab:
    """The characters of a text, sorted, numbered from 0. CharVocab(v.chars) equals v."""

    def __init__(self, text: str) -> None:
        self.chars = "".join(sorted(set(text)))
        self._codes = _code_points(self.chars)  # (V,) uint32, sorted

    @property
    def beginning(self) -> str:
        """The default beginning of a text: a newline, else a blank, else the first character of the vocabulary."""
        return next(c for c in ("\n", " ", self.chars[0]) if c in self.chars)

    def __len__(self) -> int:
        return len(self.chars)

    def __eq__(self, other):
        return isinstance(other, CharVocab) and self.chars == other.chars

    def __hash__(self):
        return hash(self.chars)

    def __repr__(self):
        return f"CharVocab({self.chars!r})"

    def encode(self, text: str) -> Array:
        """Return the ids (n,) int64 of a str of n characters. Raises TextError for one that the vocabulary lacks."""
        if not isinstance(text, str):
            raise TypeError(f"encode takes a str, got {type(text).__name__}")
        if unknown := set(text) - set(self.chars):
            char = min(unknown, key=text.index)
            raise TextError(f"the vocabulary lacks {char!r} (U+{ord(char):04X}), at position {text.index(char)}")
        return np.searchsorted(self._codes, _code_points(text)).astype(np.int64)

    def decode(self, ids: Array | Sequence[int]) -> str:
        """Return the str of n ids, an array or a list of integers. Raises ValueError for an id out of range."""
        ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise ValueError(f"ids must be in [0, {len(self)}), got {ids.min()} to {ids.max()}")
        return self._codes[ids].tobytes().decode("utf-32-le", "surrogatepass")


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def read_corpus(paths: FilePath | Iterable[FilePath] = ()) -> str:
    """Return the text of a file or of several in order, with a newline between two. Without files it is stories.txt.

    Files are UTF-8; a byte order mark is dropped and CR LF becomes LF. Raises OSError for a file that cannot be read,
    and TextError for one that is empty or not UTF-8 (the message says where), and for a text of one character alone."""
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    text = "\n".join(map(_read, paths or [STORIES]))
    if len(set(text)) == 1:
        raise TextError(f"the text only repeats {text[0]!r}: there is nothing to learn from it")
    return text


def _read(path):
    """Return the text of a UTF-8 file. Raises TextError, which names the line, for other files and for an empty one."""
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data[:10_000]:
        raise TextError(f"{path} is no UTF-8 text: it has a byte 0 at offset {data.index(0)}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TextError(f"{path} is not UTF-8: byte 0x{data[error.start]:02x}, line {line} ({error.reason})") from None
    if not text:
        raise TextError(f"{path} is empty")
    return text


def split(ids: Text, fraction: float = 0.9) -> tuple[Text, Text]:
    """Return (training, validation) parts of ids or of a str: the first `fraction`, and the rest. Parts of an array are
    views."""
    if not 0 < fraction < 1:
        raise ValueError(f"the training split's fraction must be between 0 and 1, got {fraction}")
    n = int(fraction * len(ids))
    return ids[:n], ids[n:]


class Batches:
    """Random batches without end: next(batches) is (x, y), both (B, T) int64, where y is x one character later.

    The generator's state is the only state: restore it, and the same batches follow. Raises TextError if the text is
    too short for one block; `name` is the text's name in the message."""

    def __init__(self, ids: Array, block_size: int, batch_size: int, generator: Generator, name: str = "text") -> None:
        self.ids, self.generator = _long_enough(ids, block_size, name), generator
        self.block_size, self.batch_size = block_size, batch_size

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Array, Array]:
        starts = self.generator.integers(0, len(self.ids) - self.block_size, (self.batch_size,))  # (B,)
        return _windows(self.ids, starts, self.block_size)


def fixed_batches(
    ids: Array, block_size: int, batch_size: int, limit: int | None = None, name: str = "text"
) -> list[tuple[Array, Array]]:
    """Return a list of (x, y), each (b, T) int64 with b <= batch_size, which together cover the text once.

    limit: at most this many batches, spread evenly over the text. Nothing is random, so that every evaluation sees the
    same batches. Raises TextError as Batches does."""
    ids = _long_enough(ids, block_size, name)
    starts = np.arange(0, len(ids) - block_size, block_size)
    if limit and len(starts) > limit * batch_size:
        starts = starts[np.linspace(0, len(starts) - 1, limit * batch_size).astype(np.int64)]
    return [_windows(ids, starts[i : i + batch_size], block_size) for i in range(0, len(starts), batch_size)]


def _long_enough(ids, block_size, name):
    if len(ids) < block_size + 1:
        smaller = f" or a block of at most {len(ids) - 1}" * (len(ids) > 1)
        needs = f"but a block of {block_size} needs at least {block_size + 1}: use a longer text{smaller}"
        raise TextError(f"the {name} has {len(ids)} characters, {needs}")
    return np.asarray(ids)


def _windows(ids, starts, block_size):
    windows = ids[starts[:, None] + np.arange(block_size + 1)]  # (B, T + 1)
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])  # (B, T), (B, T)
