"""PyTorch's own sample inputs: none is wrong, and what is refused is known. opinfo.py says what that means.

`python -m tests.oracle.opinfo` prints the table, op by op."""

import re

import pytest

from .opinfo import table

pytestmark = pytest.mark.oracle

# {op: (samples refused, what every refusal says)}
REFUSED = {
    "__rand__": (9, "& is for bools, got int64; for truth use logical_and"),
    "__ror__": (9, r"\| is for bools, got int64; for truth use logical_and"),
    "__rxor__": (9, r"\^ is for bools, got int64; for truth use logical_and"),
    "gather": (1, "index of shape .* does not match x of shape"),
    "index_add": (3, "index must be a vector, and x no number"),
    "index_copy": (1, "index must be a vector, and x no number"),
    "index_fill": (2, "index must be a vector, and x no number"),
    "masked_fill": (2, r"shape \(5, 5\) does not broadcast to \(5,\)"),  # the mask is larger than x
    "nn.functional.pad": (9, "is not pairs of sizes ≥ 0"),  # torch's negative sizes cut off; ours do in mode constant
    "norm": (2, "minigrad has no singular values"),
    "normal": (3, "unexpected keyword argument 'layout'|normal of Tensors takes no size, dtype or device"),
    "scatter": (2, "needs as many dims as x"),
    "scatter_add": (1, "needs as many dims as x"),
    "take_along_dim": (1, "index -5 is out of range"),
    "tensordot": (1, "do not fit dims"),  # sizes of 1 that are broadcast
    "zero_": (3, r"in place while its operations are recorded; do it under no_grad\(\)"),
}


@pytest.fixture(scope="module")
def found(torch):
    return table(torch)


def test_no_sample_is_wrong(found):
    counts, said = found
    assert not {name: said[name] for name, c in counts.items() if c["wrong"]}
    assert len(counts) == 230 and sum(c["right"] for c in counts.values()) > 3300


def test_what_is_refused_is_known_and_says_why(found):
    counts, said = found
    assert {name: c["refused"] for name, c in counts.items() if c["refused"]} == {k: n for k, (n, _) in REFUSED.items()}
    for name, (_, words) in REFUSED.items():
        assert all(re.search(words, why) for why in said[name]), (name, said[name])
