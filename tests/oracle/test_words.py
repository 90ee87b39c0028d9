"""Our functions take PyTorch's names of arguments. words.py says how they are found."""

import pytest

from minigrad.base.missing import refused_argument

from .words import refused

pytestmark = pytest.mark.oracle

# {word: why functions refuse it}, beside those whose error says what to use
REFUSED = {
    "path": "einsum goes from left to right",
    "tensors": "einsum's are positional in PyTorch too",
    "copy": "from_dlpack copies nothing",
    "device": "from_dlpack moves nothing, and pin_memory is for the one GPU",
    "ext_tensor": "from_dlpack: nobody names it",
    **dict.fromkeys(("f", "mmap", "pickle_module", "pickle_protocol"), "save and load write and read no pickles"),
    **dict.fromkeys(("_disable_byteorder_record", "_use_new_zipfile_serialization"), "of PyTorch's own files"),
    "b": "a schema's name of add_'s other",
    "other": "copy_'s is src, as in PyTorch's documents; to(other) is positional",
    **dict.fromkeys(("from", "to"), "uniform_'s bounds: nobody can name the first, a word of Python's"),
    "implicit": "expand: not meant for users",
    "wrap": "fill_diagonal_: a diagonal that begins anew in a tall matrix",
    "dtype": "view: the same bytes as another dtype",
}


def test_words(torch):
    found, n = refused(torch)
    assert {word for word in found if not refused_argument("f", word)} == {*REFUSED}
    assert sum(map(len, found.values())) <= 56 and n > 1000
