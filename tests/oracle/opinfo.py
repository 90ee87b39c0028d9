"""PyTorch's own sample inputs for every op that minigrad has under the same name: an oracle that we did not write.

    python -m tests.oracle.opinfo [NAME …]    how many samples of each op agree

They are compared in values, shapes, dtypes, first and second derivatives.
A sample for which minigrad raises an error that names a missing feature is no mistake. Any other difference is."""

import collections
import inspect
import sys
import warnings

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .compare import assert_same, results

RANDOM = {"empty", "empty_like", "multinomial", "nn.functional.dropout", "randint", "randn", "randn_like"}
OTHER_ORDER = {  # of the arguments than in the function itself
    "einsum": lambda xs, equation: mg.einsum(equation, *xs),
    "nn.functional.embedding": lambda weight, index, **options: F.embedding(index, weight, **options),
    "where": lambda x, condition, other: x.where(condition, other),
}
Place = collections.namedtuple("Place", "number")  # of a tensor among the arrays of a sample


def function(name):
    """Our function of that name, or None."""
    home, _, last = name.rpartition(".")
    places = [F] if home == "nn.functional" else [] if home else [mg, mg.Tensor]
    found = (getattr(place, last, None) for place in places)
    return OTHER_ORDER.get(name) or next(filter(inspect.isroutine, found), None)


def mapped(tree, change):
    if isinstance(tree, dict):
        return {key: mapped(x, change) for key, x in tree.items() if key != "memory_format"}  # changes no value
    return type(tree)(mapped(x, change) for x in tree) if type(tree) in (list, tuple) else change(tree)


def outcome(torch, op, sample):
    """'right', 'refused: why', 'wrong: what', or 'skipped: why' where PyTorch cannot do it."""
    arrays = []

    def noted(x):
        if not isinstance(x, torch.Tensor):
            return x
        arrays.append(x.detach().resolve_neg().numpy())
        return Place(len(arrays) - 1)

    def called(m, *xs):
        def given(x):
            x = xs[x.number] if isinstance(x, Place) else x
            return str(x).removeprefix("torch.") if m is mg and isinstance(x, torch.dtype) else x

        first, args, options = mapped(tree, given)
        return (op if m is torch else function(op.name))(first, *args, **options)

    try:
        tree = mapped((sample.input, sample.args, sample.kwargs), noted)
        theirs = results(torch, called, arrays, 0)
    except Exception as error:
        return f"skipped: {error}"
    try:
        ours = results(mg, called, arrays, 0)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    try:
        assert_same(ours, theirs, 1e-9 if all(x.dtype != np.float32 for x in theirs.values()) else 1e-5)
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())}"
    return "right"


def outcomes(names=()):
    """(op, its outcomes) for each op of PyTorch that minigrad has, or of these names."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.name in RANDOM or function(op.name) is None or (names and op.name not in names):
            continue
        kinds = [d for d in (torch.float64, torch.int64, torch.bool) if d in op.supported_dtypes("cpu")]
        torch.manual_seed(0)
        samples = op.sample_inputs("cpu", (kinds or [torch.float32])[0])
        with np.errstate(all="ignore"), warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            yield op.name, [outcome(torch, op, sample) for sample in samples if not sample.kwargs.get("dropout_p")]


def main(names):
    total: collections.Counter = collections.Counter()
    for name, said in outcomes(names):
        counts = collections.Counter(word.partition(":")[0] for word in said)
        total += counts
        print(f"{name:40} {dict(counts)}", flush=True)
        for word, n in collections.Counter(word[:230] for word in said if word != "right").most_common(4):
            print(f"    {n:3} × {word}")
    print(dict(total))


if __name__ == "__main__":
    main(sys.argv[1:])
