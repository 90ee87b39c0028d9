"""Milliseconds of checking a gradient: minigrad's gradcheck beside torch.autograd.gradcheck, for the same functions.

    python tests/benchmarks/gradcheck.py [--rounds 20] [--only softmax gelu]

"default" is mg.gradcheck(f, *inputs), whose probes depend on what f runs; "no probes" compares the Jacobian alone, as
PyTorch does; "own op" has the same function as an Op of the user's, for which all probes run. Both libraries have a
process of their own, and their turns are interleaved: see workers.py.

On two cores of an AMD EPYC with AVX-512, as multiples of the time that PyTorch 2.13 takes:

| | swish | softmax | matmul | layer norm | attention | cross entropy | gelu |
|---|---|---|---|---|---|---|---|
| default | 4.0 | 3.7 | 3.8 | 4.1 | 3.5 | 10.8 | 4.2 |
| no probes | 1.8 | 1.6 | 1.8 | 1.9 | 2.0 | 4.7 | 1.8 |
| own op | 11.7 | | | | | | |

A check takes 4 values of the function for each element, and PyTorch's takes 2. cross_entropy is three ops here and one
in PyTorch.
"""

import importlib
import sys
import time

import numpy as np
from workers import beside_torch, machine, parser, ratio, serve, spread

REPEATS = 3  # checks of each function in each turn, of which the best counts


def cases(lib):
    """{name: (function, arrays of its inputs)} for a library, minigrad or torch: here they have the same names."""
    F, rng = lib.nn.functional, np.random.default_rng(0)
    x, a, b = (rng.standard_normal(shape) for shape in ((4, 6), (4, 5), (5, 6)))
    q, k, v = (rng.standard_normal((2, 4, 3)) for _ in range(3))
    targets = lib.tensor([1, 0, 5, 2])

    def attention(q, k, v):
        return (q @ k.transpose(1, 2) / 3**0.5).softmax(-1) @ v

    return {
        "swish": (lambda x: x * x.sigmoid(), [x]),
        "softmax": (lambda x: x.softmax(-1), [x]),
        "matmul": (lambda a, b: a @ b, [a, b]),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), [x, x[0] + 1, x[1]]),
        "attention": (attention, [q, k, v]),
        "cross entropy": (lambda x: F.cross_entropy(x, targets), [x]),
        "gelu": (lambda x: F.gelu(x), [x]),
    }


def ways(name, lib):
    """{way: a function that checks (f, arrays)} of a library."""
    if name == "torch":

        def check(f, arrays):
            inputs = [lib.tensor(array, requires_grad=True) for array in arrays]
            assert lib.autograd.gradcheck(f, inputs)

        return {"torch": check}

    def checked(**options):
        def check(f, arrays):
            assert lib.gradcheck(f, *(lib.tensor(array) for array in arrays), **options)

        return check

    return {"default": checked(), "no probes": checked(probes=())}


def own_op(lib):
    """(function, arrays) of an Op of the user's, swish, which gets all probes."""

    class Swish(lib.Op):
        primitive = True

        def forward(self, x):
            self.save_inputs(x)
            return self.backend.silu(x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            s = x.sigmoid()
            return dy * (s + x * s * (1.0 - s))

    return Swish.apply, cases(lib)["swish"][1]


def work(name, only):
    """-> (version, a function that measures each case in each way: {"case, way": ms})."""
    lib = importlib.import_module(name)
    checks = {
        f"{case}, {way}": (check, *of_case)
        for case, of_case in cases(lib).items()
        for way, check in ways(name, lib).items()
        if case.startswith(only)
    }
    if name == "minigrad":
        checks["swish, own op"] = (ways(name, lib)["default"], *own_op(lib))
    for check, f, arrays in checks.values():  # compile
        check(f, arrays)

    def turn(_):
        return {case: min(milliseconds(*each) for _ in range(REPEATS)) for case, each in checks.items()}

    return lib.__version__, turn


def milliseconds(check, f, arrays):
    start = time.perf_counter()
    check(f, arrays)
    return (time.perf_counter() - start) * 1e3


def main():
    options = parser(__doc__, rounds=20)
    options.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="cases that begin with one of these")
    args = options.parse_args()
    if args.worker:
        serve(lambda: work(args.worker, tuple(args.only)))
        return 0
    workers = beside_torch(__file__, args)
    print(", ".join(f"{key} {value}" for key, value in machine(args).items()) + "\n")
    print(f"{'ms, median':28}{'minigrad':>10}{'torch':>10}{'÷ torch':>10}")
    for case in workers["minigrad"].rounds[0]:
        ours = [[turn[case]] for turn in workers["minigrad"].rounds]
        line = f"{case:28}{spread(ours)['median']:10.2f}"
        if "torch" in workers:
            theirs = [[turn[f"{case.rpartition(', ')[0]}, torch"]] for turn in workers["torch"].rounds]
            line += f"{spread(theirs)['median']:10.2f}{ratio(ours, theirs):10.1f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
