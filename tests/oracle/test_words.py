"""Our functions take PyTorch's names of arguments. words.py says how they are found."""

import pytest

from .words import refused

pytestmark = pytest.mark.oracle

REFUSED = {  # {word: why functions refuse it}
    "inplace": "every function of F makes a new Tensor; layers take the word",
    **dict.fromkeys(("size_average", "reduce"), "deprecated in PyTorch: reduction="),
    **dict.fromkeys(("memory_format", "sparse_grad", "sparse", "_stacklevel", "out_dtype"), "of other layouts"),
    **dict.fromkeys(("max_norm", "norm_type", "scale_grad_by_freq"), "embedding reads rows and changes none"),
    "weight": "of mse_loss, l1_loss, huber_loss: multiply the losses",
    **dict.fromkeys(("axis0", "axis1"), "swapaxes is transpose"),
    **dict.fromkeys(("element", "test_element", "split_size"), "one name of two that PyTorch has"),
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
    assert {*found} == {*REFUSED}
    assert sum(map(len, found.values())) <= 89 and n > 930
