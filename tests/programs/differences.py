"""The comparison of two runs of a random program.

What may differ, in float64 and in float32:

- rounding: values, gradients and second derivatives by 64 ulp of the largest of their kind in the program, and by 64
  times as much as the other side's own results move when leaves and all that is computed on the way (under PyTorch
  also within ops, and on the way back) move by an ulp; and by its own rounding as measured between its float32 and its
  float64: 16 times that in float32, and 64 times in float64, in ulp. It is the numbers that say how much, not a
  tolerance;
- infinities and NaN: they stand at the same places, but may be of another kind."""

import contextlib

import numpy as np

import minigrad as mg

LARGEST = 1e30  # beyond, float32 has no room for what is computed on the way


def kind(what):
    return "value" if what.startswith("value") else "second derivative" if what.startswith("d²") else "gradient"


def distance(a, b):
    """Return the largest difference of finite elements."""
    a, b = a.astype(float), b.astype(float)
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[both] - b[both]).max(initial=0))


def spread(m, program, dtype, want):
    """Return {name: how far it moves} under m if leaves and intermediate values move by up to an ulp.

    Whole numbers do not move, so that ties remain ties."""
    moves = dict.fromkeys(want, 0.0)
    for i in range(8):
        rng = np.random.default_rng([program.seed, i])

        def shake(x, rng=rng):
            noise = 1 + np.finfo(dtype).eps * rng.uniform(-1, 1, tuple(x.shape))
            return x * m.tensor(noise.astype(dtype))

        with _all_shaken(m, shake):
            results = program.run(m, dtype, shake)
        for what, y in results.items():
            moves[what] = max(moves.get(what, 0.0), distance(y, want.get(what, np.zeros_like(y))))
    return moves


COPIES = {"_to_copy", "cat", "clone", "constant_pad_nd", "copy", "embedding", "flip", "gather", "index", "index_select"}
COPIES |= {"masked_fill", "repeat", "scatter", "select_backward", "slice_backward", "sort", "stack", "topk", "where"}


def _all_shaken(m, shake):
    """A mode of PyTorch in which all numbers move that its autograd computes, not only those that the program names.

    Where p is nearly 1, the slope p - p² of a softmax is nothing but the rounding of p."""
    if m is mg:
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    def moved(x):
        if not x.is_floating_point() or x._is_zerotensor() or x.is_meta:  # the last two have no numbers in memory
            return x
        return m.where(x == x.round(), x, shake(x))

    class Shaken(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            result = op(*args, **(kwargs or {}))
            computes = not (op.is_view or op._schema.is_mutable or op.overloadpacket.__name__ in COPIES)
            return tree_map_only(m.Tensor, moved, result) if computes else result

    return Shaken()


def differences(program, ours, m, dtypes=("float64", "float32")):
    """Return [(name, difference)] between ours(dtype) and the run under m, taken as right, that no rule explains."""
    exact, found, sizes = program.run(m), [], None
    for dtype in dtypes:
        got, want = ours(dtype), exact if dtype == "float64" else program.run(m, dtype)
        suspects, eps = [], np.finfo(dtype).eps
        for what in sorted(got.keys() | want.keys()):
            a, b = got.get(what), want.get(what)
            if (a is None or b is None) and what.startswith("value"):
                found.append((what, f"{dtype}: only {'the other' if a is None else 'ours'} has it"))
                continue
            a, b = np.zeros_like(b) if a is None else a, np.zeros_like(a) if b is None else b  # nothing depends on it
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                found.append((what, f"{a.shape} {a.dtype}, not {b.shape} {b.dtype}"))
                continue
            true = exact.get(what, np.zeros_like(b)).astype(float)
            fits = np.abs(true) < LARGEST if dtype == "float32" else np.full(true.shape, True)
            if not np.array_equal(np.isfinite(a)[fits], np.isfinite(b)[fits]):
                found.append((what, f"{dtype}: not finite in one alone:\n{a}\n{b}"))
                continue
            error = distance(a[fits], true[fits])
            allowed = 64 * eps * np.abs(true[fits & np.isfinite(true)]).max(initial=0)
            allowed += 16 * distance(b[fits], true[fits]) if dtype == "float32" else 0
            if error > allowed:
                suspects.append((what, error, allowed, f"{dtype}:\n{a}\nnot\n{true}"))
        if suspects:  # the rest of what rounding may do costs more to find out
            sizes = sizes or program.sizes(m)
            suspects = [s for s in suspects if s[1] > s[2] + 64 * eps * sizes[kind(s[0])]]
        moves = spread(m, program, dtype, want) if suspects else {}
        if suspects and dtype == "float64":  # what cancels within an op shows in float32's own error
            rough, share = program.run(m, "float32"), eps / np.finfo("float32").eps
            for what in rough.keys() & want.keys():
                moves[what] = moves.get(what, 0.0) + share * distance(rough[what], want[what])
        for what, error, allowed, how in suspects:
            allowed += 64 * (eps * sizes[kind(what)] + moves.get(what, 0.0))
            if error > allowed:
                found.append((what, f"off by {error:.2g}, allowed {allowed:.2g}; {how}"))
    return found


def report(program, compare):
    """Return the text of a program and the differences that compare() finds in it; None if there are none."""
    with np.errstate(all="ignore"):
        found = compare(program)
    lines = "\n".join(f"{what} {how}" for what, how in found)
    return f"seed {program.seed}\n\n{program}\n\n{lines}" if found else None
