"""Every public function on a CPU, forward and backward: minigrad's time divided by PyTorch's.

    python tests/benchmarks/functions.py [--shape 1024 1024] [--rounds 10] [--only softmax topk]

Inputs are float32 of --shape. "forward": no gradient is wanted. "with backward": the function, and then the backward of
its first result, from a gradient of that result's shape. The slowest functions, compared with PyTorch, come last. Other
names of the same function are left out (absolute, clip, concat, mm, t). Each library has a process of its own, and
their turns are interleaved: see workers.py.

On two cores of an AMD EPYC, beside PyTorch 2.13, the median of the 292 ratios is 1.1 at (1024, 1024), 1.9 at (256, 256)
and 3.5 at (4, 8). The largest at (1024, 1024), and where the time goes:

| | ÷ PyTorch | |
|---|---|---|
| transpose, permute: backward | 50 | a .grad is compact here, and so a copy; PyTorch's keeps the strides |
| nll_loss | 28 | 13 ops |
| prod | 22 | log2(n) products of halves |
| index_select, scatter | 8 to 20 | NumPy finds the places |
| randperm, randint | 18, 6 | NumPy draws the numbers, which are the same for all devices |
| one_hot, outer, cat, stack | 5 to 12 | NumPy computes, on one core |
| reshape, unsqueeze, squeeze, chunk | 4 to 8 | views: Python takes 5 µs |
| sin, cos, remainder, floor_divide | 4 to 6 | the C library's functions, one number at a time |
"""

import importlib
import importlib.util
import sys

import numpy as np
from small_ops import TURN, microseconds
from workers import environment, interleaved, machine, parser, ratio, serve, spread

UNARY = "abs cos erf erfc exp floor isfinite isinf isnan neg relu round sigmoid sign sin square tanh"
POSITIVE = "log log1p reciprocal rsqrt sqrt"
BINARY = "add div eq ge gt le lt maximum minimum mul ne sub"
REDUCTIONS = "amax amin any all argmax argmin logsumexp max mean min norm prod std sum var"
ACTIVATIONS = "elu gelu leaky_relu silu softplus"
LOSSES = "binary_cross_entropy_with_logits l1_loss mse_loss smooth_l1_loss"
OPTIONAL_DIM = {"amax", "amin", "argmax", "argmin", "any", "all", "mean", "norm", "prod", "std", "sum", "var"}


def cases(lib, shape):
    """{name: (function, its Tensors)} for a library, minigrad or torch, which have the same names for everything."""
    rng = np.random.default_rng(0)
    n, m = shape
    F = lib.nn.functional

    def normal(*shape):
        return lib.tensor(rng.standard_normal(shape, np.float32))

    def below(high, *shape):
        return lib.tensor(rng.integers(0, high, shape))

    x, y, row, square, table = normal(n, m), normal(n, m), normal(m), normal(m, m), normal(m, m)
    positive = x.abs() + 0.5
    bools, others = x > 0, y > 0
    column, rows, places = below(m, n), below(n, n), below(min(shape), n, m)
    found = {name: (getattr(lib, name), x) for name in UNARY.split()}
    found |= {name: (getattr(lib, name), positive) for name in POSITIVE.split()}
    found |= {name: (getattr(lib, name), x, y) for name in BINARY.split()}
    found |= {f"{name} with a row": (getattr(lib, name), x, row) for name in ("add", "mul")}
    for name in REDUCTIONS.split():
        function, given = getattr(lib, name), bools if name in ("any", "all") else x
        if name in OPTIONAL_DIM:
            found[name] = function, given
        for dim in (0, 1):
            found[f"{name}, dim {dim}"] = (lambda x, f=function, d=dim: f(x, dim=d)), given
    for dim in (0, 1):
        for name in ("softmax", "log_softmax", "cumsum", "sort", "argsort"):
            function = getattr(lib, name)
            found[f"{name}, dim {dim}"] = (lambda x, f=function, d=dim: f(x, dim=d)), x
        found[f"cat, dim {dim}"] = (lambda x, y, d=dim: lib.cat([x, y], d)), x, y
        found[f"flip, dim {dim}"] = (lambda x, d=dim: lib.flip(x, (d,))), x
        found[f"roll, dim {dim}"] = (lambda x, d=dim: lib.roll(x, 2, d)), x
        found[f"gather, dim {dim}"] = (lambda x, d=dim: lib.gather(x, d, places)), x
        found[f"scatter, dim {dim}"] = (lambda x, y, d=dim: lib.scatter(x, d, places, y)), x, y
        found[f"scatter_add, dim {dim}"] = (lambda x, y, d=dim: lib.scatter_add(x, d, places, y)), x, y
    found |= {name: (getattr(F, name), x) for name in ACTIVATIONS.split()}
    found |= {"gelu, tanh": (lambda x: F.gelu(x, approximate="tanh"), x)}
    found |= {name: (getattr(F, name), x, bools.float() if "entropy" in name else y) for name in LOSSES.split()}
    return found | {
        "logical_and": (lib.logical_and, bools, others),
        "logical_or": (lib.logical_or, bools, others),
        "logical_not": (lib.logical_not, bools),
        "pow, 3": (lambda x: x**3, positive),
        "pow": (lib.pow, positive, y),
        "floor_divide": (lambda: lib.floor_divide(x, positive),),
        "remainder": (lib.remainder, x, positive),
        "clamp": (lambda x: lib.clamp(x, -0.5, 0.5), x),
        "where": (lambda x, y: lib.where(bools, x, y), x, y),
        "masked_fill": (lambda x: x.masked_fill(bools, 0.0), x),
        "equal": (lib.equal, x, x.clone()),
        "allclose": (lib.allclose, x, x.clone()),
        "matmul": (lib.matmul, x, square),
        "bmm": (lib.bmm, normal(8, max(1, n // 4), m), normal(8, m, max(1, n // 4))),
        "einsum": (lambda x, y: lib.einsum("ij,kj->ik", x, y), x, square),
        "outer": (lib.outer, row, normal(n)),
        "clone": (lib.clone, x),
        "contiguous": (lambda x: x.T.contiguous(), x),
        "transpose": (lambda x: lib.transpose(x, 0, 1), x),
        "permute": (lambda x: lib.permute(x, (1, 0)), x),
        "reshape": (lambda x: lib.reshape(x, (m, n)), x),
        "flatten": (lib.flatten, x),
        "squeeze": (lib.squeeze, x),
        "unsqueeze": (lambda x: lib.unsqueeze(x, 1), x),
        "narrow": (lambda x: lib.narrow(x, 1, 1, 2), x),
        "split": (lambda x: lib.split(x, max(1, m // 4), 1), x),
        "chunk": (lambda x: lib.chunk(x, 4, 1), x),
        "unbind": (lib.unbind, x),
        "stack": (lambda x, y: lib.stack([x, y]), x, y),
        "repeat_interleave": (lambda x: lib.repeat_interleave(x, 2, 1), x),
        "diagonal": (lib.diagonal, x),
        "tril": (lib.tril, x),
        "triu": (lib.triu, x),
        "pad": (lambda x: F.pad(x, (1, 1)), x),
        "x[index]": (lambda x: x[rows], x),
        "x[mask]": (lambda x: x[bools], x),
        "x[:, 1:]": (lambda x: x[:, 1:], x),
        "index_select": (lambda x: lib.index_select(x, 1, column), x),
        "nonzero": (lib.nonzero, bools),
        "topk": (lambda x: lib.topk(x, min(8, m)), x),
        "embedding": (lambda table: F.embedding(column, table), table),
        "one_hot": (lambda: F.one_hot(column, m),),
        "linear": (F.linear, x, square, row),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (m,), w, b), x, row, normal(m)),
        "rms_norm": (lambda x, w: F.rms_norm(x, (m,), w), x, row),
        "dropout": (lambda x: F.dropout(x, 0.1), x),
        "cross_entropy": (lambda x: F.cross_entropy(x, column), x),
        "nll_loss": (lambda x: F.nll_loss(x, column), x),
        "attention": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            *(normal(2, 4, max(4, n // 4), 32) for _ in range(3)),
        ),
        "rand": (lambda: lib.rand(n, m),),
        "randn": (lambda: lib.randn(n, m),),
        "randint": (lambda: lib.randint(0, 9, (n, m)),),
        "randperm": (lambda: lib.randperm(n * m),),
        "multinomial": (lambda x: lib.multinomial(x, 1), positive),
        "zeros": (lambda: lib.zeros(n, m),),
        "full": (lambda: lib.full((n, m), 2.0),),
        "arange": (lambda: lib.arange(n * m),),
    }  # fmt: skip


def with_backward(lib, function, *tensors):
    """The function followed by the backward of its first result; None if that has no gradient."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors if x.dtype == lib.float32]

    def run():
        y = function(*leaves)
        return y[0] if isinstance(y, tuple | list) else y

    if len(leaves) < max(1, len(tensors)) or not getattr(run(), "requires_grad", False):
        return None
    dy = run().detach().clone()

    def both():
        run().backward(dy)
        for x in leaves:
            x.grad = None

    return both


def work(name, shape, only):
    """-> (version, a function that measures each case: {case: µs})."""
    lib = importlib.import_module(name)
    functions = {}
    for case, (function, *tensors) in cases(lib, shape).items():
        if case.startswith(only):
            functions[case, "forward"] = lambda f=function, xs=tensors: f(*xs)
            functions[case, "with backward"] = with_backward(lib, function, *tensors)
    functions = {" | ".join(case): f for case, f in functions.items() if f is not None}
    for f in functions.values():  # compile
        f()
    times = {case: max(1, round(TURN * 1e6 / microseconds(f, 2))) for case, f in functions.items()}
    return lib.__version__, lambda _: {case: microseconds(f, times[case]) for case, f in functions.items()}


def main():
    options = parser(__doc__, rounds=10)
    options.add_argument("--shape", type=int, nargs=2, default=(1024, 1024), metavar=("ROWS", "COLUMNS"))
    options.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="cases that begin with one of these")
    args = options.parse_args()
    if args.worker:
        serve(lambda: work(args.worker, args.shape, tuple(args.only)))
        return 0

    about = machine(args)
    given = ["--shape", *map(str, args.shape), "--only", *args.only]
    commands = {name: ([__file__, "--worker", name, *given], None) for name in ("minigrad", "torch")}
    workers = interleaved(commands, environment(args), args.rounds)
    ours, theirs = workers["minigrad"].rounds, workers["torch"].rounds
    print(", ".join(f"{key} {value}" for key, value in about.items()) + f", shape {tuple(args.shape)}\n")
    print(f"{'µs':44}{'minigrad':>12}{'torch':>12}{'÷ torch':>9}")
    found = {}
    for case in ours[0]:
        if case in theirs[0]:
            found[case] = ratio([[turn[case]] for turn in ours], [[turn[case]] for turn in theirs])
    for case in sorted(found, key=found.get):
        times = [spread([[turn[case] for turn in rounds]])["median"] for rounds in (ours, theirs)]
        print(f"{case:44}{times[0]:12.1f}{times[1]:12.1f}{found[case]:9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
