"""PyTorch's own sample inputs (torch.testing's OpInfo) for every op that minigrad has under torch's name.

    python -m tests.oracle.opinfo [NAME …]    prints the table: of each op how many samples agree, and what is refused

A sample agrees if values, shapes and dtypes are torch's in float64, and so are the gradients with respect to every
input. It is refused if minigrad raises where torch does not; the error says what is missing. All else is wrong."""

import collections
import inspect
import sys
import warnings

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

RTOL = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-2}  # of the largest: a few samples cancel digits

# What torch's samples draw at random, or leave as it was in memory: only shapes and dtypes are compared.
RANDOM = {
    "bernoulli", "empty", "empty_like", "multinomial", "new_empty", "nn.functional.dropout", "normal", "rand_like",
    "randint", "randn", "randn_like",
}  # fmt: skip
# Whose sample has its arguments in another order than the function.
ADAPTED = {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "einsum": lambda xs, equation: mg.einsum(equation, *xs),
    "nn.functional.embedding": lambda weight, index, **options: F.embedding(index, weight, **options),
    "where": lambda x, condition, other: x.where(condition, other),
}


class Refused(Exception):
    pass


def converted(torch, x):
    """A sample's argument as ours."""
    if isinstance(x, torch.Tensor):
        if x.is_complex() or x.dtype == torch.bfloat16 or x.layout != torch.strided:
            raise Refused(f"{x.dtype}, {x.layout}")
        y = mg.tensor(x.detach().resolve_neg().numpy())
        return y.requires_grad_() if x.requires_grad else y
    if isinstance(x, torch.dtype):
        name = str(x).removeprefix("torch.")
        return getattr(np, name) if hasattr(np, name) and not name.startswith(("complex", "bfloat")) else name
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)(converted(torch, each) for each in x) if type(x) in (list, tuple) else [*x]
    if isinstance(x, dict):  # memory_format asks for an order in memory, which changes no value
        return {key: converted(torch, value) for key, value in x.items() if key != "memory_format"}
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, torch.device):
        return x.type
    return x


def tensors(kind, x):
    """All tensors within x, in order."""
    if isinstance(x, kind):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [y for each in x for y in tensors(kind, each)] if isinstance(x, (list, tuple)) else []


def function(name):
    """Our function of a torch name, or None."""
    if name in ADAPTED:
        return ADAPTED[name]
    if name.startswith("nn.functional."):
        return getattr(F, name.removeprefix("nn.functional."), None)
    if "." in name or name.startswith("_"):
        return getattr(mg.Tensor, name, None) if name.startswith("__") else None
    ours = vars(mg).get(name)  # mg.float is a dtype, and x.float() a method
    return ours if inspect.isroutine(ours) else getattr(mg.Tensor, name, None)


def outcome(torch, op, sample):
    """'right', 'refused: why' or 'wrong: what' of a sample."""
    call = function(op.name)
    try:
        theirs = op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # a sample that torch itself refuses on this machine
        return f"skipped: {error}"
    try:
        ours_in = converted(torch, (sample.input, sample.args, sample.kwargs))
        ours = call(ours_in[0], *ours_in[1], **ours_in[2])
    except Refused as error:
        return f"refused: {error}"
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    return compared(torch, op, sample, theirs, ours_in, ours)


def compared(torch, op, sample, theirs, ours_in, ours):
    a, b = tensors(mg.Tensor, ours), tensors(torch.Tensor, theirs)
    if not b:
        return "right" if ours == (tuple(theirs) if isinstance(theirs, torch.Size) else theirs) else f"wrong: {ours}"
    if len(a) != len(b):
        return f"wrong: {len(a)} results, not {len(b)}"
    for ours_y, theirs_y in zip(a, b):
        wanted = theirs_y.detach().resolve_conj().resolve_neg().numpy()
        got = ours_y.detach().numpy()
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            return f"wrong: {got.dtype} {got.shape}, not {wanted.dtype} {wanted.shape}"
        if not random(op, sample) and not near(got, wanted):
            return f"wrong: values {got.ravel()[:4]}, not {wanted.ravel()[:4]}"
    if random(op, sample):
        return "right"
    return compared_gradients(torch, op, sample, b, ours_in, a)


def random(op, sample):
    return op.name in RANDOM or sample.kwargs.get("dropout_p")


def compared_gradients(torch, op, sample, theirs, ours_in, ours):
    leaves = [x for x in tensors(torch.Tensor, (sample.input, sample.args, sample.kwargs)) if x.requires_grad]
    our_leaves = [x for x in tensors(mg.Tensor, ours_in) if x.requires_grad]
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(tuple(y.shape)) for y in theirs]
    pairs = [(y, w) for y, w in zip(theirs, weights) if y.requires_grad and y.is_floating_point()]
    our_pairs = [(y, w) for y, w in zip(ours, weights) if y.requires_grad]
    wanted, got = [None] * len(leaves), [None] * len(leaves)
    if leaves and pairs:
        try:
            wanted = torch.autograd.grad(
                [y for y, _ in pairs], leaves, [torch.tensor(w).to(y.dtype) for y, w in pairs], allow_unused=True
            )
        except (RuntimeError, NotImplementedError):  # torch has no such derivative
            return "right"
    if leaves and our_pairs:
        got = mg.grad(
            [y for y, _ in our_pairs], our_leaves, [mg.tensor(w).to(y.dtype) for y, w in our_pairs], allow_unused=True
        )
    for i, (g, w) in enumerate(zip(got, wanted)):
        shape = tuple(leaves[i].shape)
        g, w = (np.zeros(shape) if v is None else v.detach().numpy() for v in (g, w))
        if not near(g, w):
            return f"wrong: gradient {i} {g.ravel()[:4]}, not {w.ravel()[:4]}"
    return "right"


def near(got, wanted):
    if got.dtype.kind != "f":
        return np.array_equal(got, wanted)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    rtol = RTOL[wanted.dtype.name]
    return np.allclose(got, wanted, rtol, rtol * largest, equal_nan=True)


def samples(torch, op):
    dtypes = op.supported_dtypes("cpu")
    dtype = next((d for d in (torch.float64, torch.int64, torch.bool) if d in dtypes), torch.float32)
    grad = dtype.is_floating_point and op.supports_autograd
    torch.manual_seed(0)
    return op.sample_inputs("cpu", dtype, requires_grad=grad)


def table(torch, names=()):
    """{op: Counter of 'right', 'refused', 'wrong', 'skipped'}, and {op: {what was said}}."""
    from torch.testing._internal.common_methods_invocations import op_db

    counts: dict = collections.defaultdict(collections.Counter)
    said: dict = collections.defaultdict(collections.Counter)
    for op in op_db:
        if (names and op.name not in names) or function(op.name) is None:
            continue
        for sample in samples(torch, op):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = outcome(torch, op, sample)
            kind, _, why = found.partition(": ")
            counts[op.name][kind] += 1
            if kind != "right":
                said[op.name][f"{kind}: {why.splitlines()[0] if why else why}"] += 1
    return counts, said


def main(names):
    import torch

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        counts, said = table(torch, names)
    for name in sorted(counts):
        c = counts[name]
        print(f"{name:40} {c['right']:5} right {c['refused']:4} refused {c['wrong']:4} wrong")
        for why, n in said[name].most_common(None if names else 6):
            print(f"    {n:3} × {why[:230]}")
    total = sum(counts.values(), collections.Counter())
    print(f"{len(counts)} ops: {dict(total)}")


if __name__ == "__main__":
    main(sys.argv[1:])
