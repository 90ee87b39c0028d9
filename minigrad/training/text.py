"""Text for character models: a vocabulary, a corpus, random batches to train on and fixed ones to evaluate on.

Everything is on the host: texts are str, ids are int64 arrays.
"""

import errno
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

import numpy as np

from ..base.errors import TextError
from ..random import Generator
from ..typing import Array, FilePath
from . import stories

__all__ = ["CharVocab", "read_corpus", "memory", "split", "Batches", "fixed_batches"]

Text = TypeVar("Text", str, Array)
MOST_PACKED = 10**6  # characters of a split, since more would take long
PER_BYTE = 20  # bytes of memory that a byte of text takes while it is encoded: str, code points, ids and their masks


class CharVocab:
    """The characters of a text, sorted, numbered from 0. CharVocab(v.chars) equals v."""

    def __init__(self, text: str) -> None:
        self.chars = "".join(sorted(set(text)))
        self._codes = _code_points(self.chars)  # (V,) uint32, sorted

    @property
    def beginning(self) -> str:
        """The default beginning of a text: a newline if there is one, or a blank, or any character."""
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
        """str of n characters -> (n,) int64. Raises TextError for a character that the vocabulary lacks."""
        codes = _code_points(text)
        ids = np.searchsorted(self._codes, codes).astype(np.int64)
        known = ids < len(self)
        known[known] = self._codes[ids[known]] == codes[known]
        if not known.all():
            where = int(np.argmin(known))
            char, shown = text[where], repr(text) if len(text) <= 40 else "the text"
            raise TextError(f"the vocabulary lacks {char!r} (U+{ord(char):04X}), at position {where} of {shown}")
        return ids

    def check_same(self, other: "CharVocab") -> None:
        """Raise TextError, naming up to ten of the characters, if `other` has different ones."""
        if self != other:
            news = [f"{len(other)} characters, not {len(self)}"]
            for name, a, b in (("new", other.chars, self.chars), ("gone", self.chars, other.chars)):
                if extra := sorted(set(a) - set(b)):
                    news.append(f"{name}: {' '.join(map(repr, extra[:10]))}{' ...' * (len(extra) > 10)}")
            raise TextError(f"the text has another vocabulary: {'; '.join(news)}")

    def decode(self, ids: Array | Sequence[int]) -> str:
        """(n,) integers, an array or a list -> str of n characters. Raises ValueError for an id out of range."""
        ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise ValueError(f"ids must be in [0, {len(self)}), got {ids.min()} to {ids.max()}")
        return self._codes[ids].tobytes().decode("utf-32-le", "surrogatepass")


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def read_corpus(paths: Iterable[FilePath] = ()) -> str:
    """The text of the files, in order, with a newline between two; without files, the stories of stories.py.

    Files are UTF-8; a byte order mark is dropped and CR LF becomes LF. Raises OSError for a file that cannot be read.
    Raises TextError for a file that is empty, binary, not UTF-8 (the message says where) or no ordinary file, for more
    text than memory holds, and for a text that repeats one character.
    """
    paths = list(paths)
    if not paths:
        return stories.corpus()[0]
    size = sum(map(_size, paths))
    if size * PER_BYTE > memory():
        raise TextError(
            f"the text has {size / 1e9:.1f} GB, which takes about {size * PER_BYTE / 1e9:.0f} GB of memory; this "
            f"machine has {memory() / 1e9:.0f}: give a part of it"
        )
    text = "\n".join(map(_read, paths))
    if text == text[0] * len(text):
        raise TextError(f"the text only repeats {text[0]!r}: there is nothing to learn from it")
    return text


def memory() -> float:
    """Bytes of memory of this machine, a float; infinite if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _size(path):
    """The size of a file in bytes. A pipe or a device is refused: some have no end, and none can be read again."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise TextError(f"{path} is a pipe or a device: write the text to a file, and give that")
    return status.st_size


def _read(path):
    try:
        with open(path, "rb") as file:
            data = file.read(2**16)
            if b"\0" not in data:  # otherwise it is not text, and may be huge
                file.seek(0)
                data = file.read()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None  # read() does not name the file
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TextError(f"{path} is UTF-16: save it as UTF-8")
    if b"\0" in data:
        raise TextError(f"{path} is not text: it has a byte 0 at offset {data.index(0)}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TextError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}, line {line} ({error.reason})"
        ) from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text:
        raise TextError(f"{path} is empty")
    return text


def split(ids: Text, fraction: float = 0.9) -> tuple[Text, Text]:
    """(training, validation) ids, or parts of a str: the first `fraction`, and the rest. Those of ids are views."""
    if not 0 < fraction < 1:
        raise ValueError(f"the training split's fraction must be between 0 and 1, got {fraction}")
    n = int(fraction * len(ids))
    return ids[:n], ids[n:]


def packed(corpus: str) -> dict[str, float]:
    """{"gzip", "xz": bits per character of the validation split, packed after the training split}, for at most a
    million characters of each."""
    train, held = split(corpus)
    read, rest = train[-MOST_PACKED:], held[:MOST_PACKED]
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": zlib.compress, "xz": lzma.compress}
    sizes = {name: [len(pack(text.encode())) for text in (read, read + rest)] for name, pack in packers.items()}
    return {name: 8 * (both - first) / len(rest) for name, (first, both) in sizes.items()}


class Batches:
    """Endless random batches: next(batches) is (x, y), both (B, T) int64, where y is x one character later.

    The generator's state is the only state: restore it, and the same batches follow. Raises TextError if the text is
    too short for one block; `name` is the text's name in the message.
    """

    def __init__(self, ids: Array, block_size: int, batch_size: int, generator: Generator, name: str = "text") -> None:
        _check_length(ids, block_size, name)
        self.ids, self.generator = ids, generator
        self.block_size, self.batch_size = block_size, batch_size

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Array, Array]:
        starts = self.generator.integers(0, len(self.ids) - self.block_size, (self.batch_size,))  # (B,)
        return _windows_at(self.ids, starts, self.block_size)


def fixed_batches(
    ids: Array, block_size: int, batch_size: int, limit: int | None = None, name: str = "text"
) -> list[tuple[Array, Array]]:
    """A list of (x, y), each (b, T) int64 with b <= batch_size: side by side, they cover the text once.

    With `limit`, at most that many batches, spread evenly over the text. Nothing is random: every evaluation sees the
    same batches. Raises TextError like Batches.
    """
    _check_length(ids, block_size, name)
    starts = np.arange(0, len(ids) - block_size, block_size)
    if limit and len(starts) > limit * batch_size:
        starts = starts[np.linspace(0, len(starts) - 1, limit * batch_size).astype(np.int64)]
    return [_windows_at(ids, starts[i : i + batch_size], block_size) for i in range(0, len(starts), batch_size)]


def _check_length(ids, block_size, name):
    if len(ids) < block_size + 1:
        smaller = f" or a block of at most {len(ids) - 1}" * (len(ids) > 1)
        needs = f"but a block of {block_size} needs at least {block_size + 1}: use a longer text{smaller}"
        raise TextError(f"the {name} has {len(ids)} characters, {needs}")


def _windows_at(ids, starts, block_size):
    windows = ids[starts[:, None] + np.arange(block_size + 1)]  # (B, T + 1)
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])  # (B, T), (B, T)
