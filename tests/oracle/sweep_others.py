"""gradcheck on the ops of other frameworks: which of their gradients are not the derivatives of their values?

    pip install autograd dezero jax 'mlx[cpu]' paddlepaddle tinygrad      any of them
    python -m tests.oracle.sweep_others                                   all that are installed, some minutes
    python -m tests.oracle.sweep_others --only paddlepaddle --op det      the whole report of one op

gradcheck needs only a pair of NumPy functions of a framework: the values, and the gradient for a cotangent. Each name
in OPS that the framework has is checked in float64; ops that compute in another dtype or have no gradient are left
out. They run in a process of their own, since some crash at sizes that a probe makes up; then the op is checked again
without such probes. Not every finding is a mistake: some are conventions or deliberate limits, so read the report.

In November 2026, of 130 ops:

| | ops | pass | WARN | FAIL or inconclusive |
|---|---|---|---|---|
| HIPS autograd 1.9.1 | 89 | 86 | 3 | 0 |
| DeZero 0.0.13 | 17 | 17 | 0 | 0 |
| JAX 0.10.2 | 120 | 117 | 2 | 1 |
| MLX 0.32.4, whose float64 is float32 within many ops | 86 | 75 | 4 | 7 |
| PaddlePaddle 3.3.1 | 118 | 104 | 8 | 6 |

Differences taken by hand confirm as wrong: JAX's digamma below -8; autograd's kron of three dims; Paddle's
log_softmax, det, norm, selu and mish; MLX's celu at 0.
"""

import argparse
import importlib.metadata
import importlib.util
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import numpy as np

from minigrad.gradcheck import FAIL, KINK, PASS, WARN, gradcheck
from minigrad.gradcheck.probes import PROBES
from minigrad.gradcheck.report import columns

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(2, 3, 4))
P, Q = rng.uniform(0.2, 0.9, (2, 3, 4))
S = rng.normal(size=(3, 3)) / 3 + 2 * np.eye(3)
NEW_SIZES = "sizes", "growth", "parameters", "values", "alone"  # probes that make up sizes
INPUTS = {"x": (X,), "p": (P,), "x, y": (X, Y), "p, q": (P, Q), "x, yᵀ": (X, Y.T), "square": (S,)}
TABLE = """
x: sin cos tan sinh cosh tanh arctan atan arcsinh asinh exp expm1 exp2 square cbrt abs negative reciprocal erf erfc
x: sinc sigmoid logsigmoid log_sigmoid relu relu2 relu6 elu selu celu gelu silu swish mish softplus softsign softmin
x: hardswish hardsigmoid hardtanh hard_tanh tanhshrink softshrink hardshrink leaky_relu glu softmax log_softmax
x: logsumexp cumsum cumprod logcumsumexp cummax sum mean prod max min amax amin var std norm median ptp sort flip
x: fliplr diff ravel flatten squeeze floor ceil fix round trunc sign nan_to_num deg2rad
p: sqrt rsqrt log log2 log10 log1p arcsin asin arccos acos arctanh atanh logit erfinv gammaln lgamma digamma psi i0 i1
x, y: add subtract multiply divide maximum minimum fmax fmin arctan2 atan2 logaddexp logaddexp2 hypot remainder mod fmod
x, y: inner outer kron copysign mse_loss l1_loss smooth_l1_loss huber_loss mean_squared_error cosine_similarity vecdot
x, y: vdot heaviside
p, q: power pow float_power kl_div xlogy
x, yᵀ: matmul dot
square: inv det slogdet trace diag diagonal tril triu matrix_exp matrix_power
"""
LINES = [line.split(": ") for line in TABLE.strip().splitlines()]
OPS = {name: INPUTS[form] for form, names in LINES for name in names.split()}


# Each function: (modules that have ops, a function that makes (values, vjp) of an op)


def of_autograd():
    """HIPS autograd."""
    from autograd import make_vjp
    from autograd import numpy as anp
    from autograd.scipy import special

    def pair(op):
        return op, lambda dy, *xs: make_vjp(lambda xs: op(*xs))(xs)[0](dy)

    return [anp, anp.linalg, special], pair


def of_dezero():
    """DeZero."""
    np.int = int  # which NumPy has no longer
    import dezero

    def pair(op):
        def vjp(dy, *xs):
            inputs = [dezero.Variable(x.copy()) for x in xs]
            y = op(*inputs)
            y.grad = dezero.Variable(np.asarray(dy))
            y.backward()
            return tuple(None if x.grad is None else x.grad.data for x in inputs)

        return lambda *xs: op(*(dezero.Variable(x) for x in xs)).data, vjp

    return [dezero.functions], pair


def of_jax():
    """JAX."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")

    def pair(op):
        return lambda *xs: np.asarray(op(*xs)), lambda dy, *xs: tuple(map(np.asarray, jax.vjp(op, *xs)[1](dy)))

    return [jax.numpy, jax.nn, jax.numpy.linalg, jax.scipy.special], pair


def of_mlx():
    """MLX."""
    import mlx.core as mx
    from mlx import nn

    mx.set_default_device(mx.cpu)

    def given(xs):
        return [mx.array(np.ascontiguousarray(x), dtype=mx.float64 if x.dtype == np.float64 else None) for x in xs]

    def pair(op):
        def vjp(dy, *xs):
            return tuple(map(np.array, mx.vjp(lambda *xs: [op(*xs)], given(xs), given([np.asarray(dy)]))[1]))

        return lambda *xs: np.array(op(*given(xs))), vjp

    return [mx, nn], pair


def of_paddle():
    """PaddlePaddle."""
    import paddle

    def pair(op):
        def vjp(dy, *xs):
            inputs = [paddle.to_tensor(x, stop_gradient=False) for x in xs]
            found = paddle.grad([op(*inputs)], inputs, [paddle.to_tensor(dy)], allow_unused=True)
            return tuple(None if dx is None else dx.numpy() for dx in found)

        return lambda *xs: op(*map(paddle.to_tensor, xs)).numpy(), vjp

    return [paddle, paddle.nn.functional, paddle.linalg], pair


def of_tinygrad():
    """tinygrad, which needs clang on a CPU."""
    from tinygrad import Tensor

    def pair(op):
        def vjp(dy, *xs):
            inputs = [Tensor(x) for x in xs]
            return tuple(dx.numpy() for dx in op(*inputs).gradient(*inputs, gradient=Tensor(np.asarray(dy))))

        return lambda *xs: op(*map(Tensor, xs)).numpy(), vjp

    return [Tensor], pair


FRAMEWORKS = {  # name on PyPI: (module, function)
    "autograd": ("autograd", of_autograd),
    "dezero": ("dezero", of_dezero),
    "jax": ("jax", of_jax),
    "mlx": ("mlx", of_mlx),
    "paddlepaddle": ("paddle", of_paddle),
    "tinygrad": ("tinygrad", of_tinygrad),
}


def check(framework, name, probes, budget):
    """(verdict, report in words) of one op; None if the framework lacks it, or its gradient in float64."""
    warnings.simplefilter("ignore")
    modules, pair = FRAMEWORKS[framework][1]()
    op, inputs = next((getattr(m, name) for m in modules if hasattr(m, name)), None), OPS[name]
    if op is None:
        return None
    values, vjp = pair(op)
    try:
        y = np.asarray(values(*inputs))
        vjp(np.ones_like(y), *inputs)
    except Exception:  # whatever it says of inputs that it does not take
        return None
    if y.dtype != np.float64:
        return None
    report = gradcheck(values, *inputs, vjp=vjp, probes=probes, budget=budget, raise_on_fail=False)
    return report.verdict, report.message()


def sweep(framework, names, budget):
    """Yields (name, verdict, report in words, does it crash at sizes that a probe makes up?)."""
    safe = [probe for probe in PROBES if probe not in NEW_SIZES]
    process = started()
    for name in names:
        for probes in ("all", safe):
            try:
                found = process.submit(check, framework, name, probes, budget).result()
            except BrokenProcessPool:
                process = started()
                continue
            if found:
                yield name, *found, probes != "all"
            break
        else:
            yield name, "crash", "", True
    process.shutdown()


def started():
    return ProcessPoolExecutor(1, get_context("spawn"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=FRAMEWORKS, help="one framework")
    parser.add_argument("--op", choices=OPS, help="one op, with its whole report")
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="seconds for each op (default: 10)")
    args = parser.parse_args()
    here = [name for name, (module, _) in FRAMEWORKS.items() if importlib.util.find_spec(module)]
    rows, findings = [("", "ops", "PASS", "WARN", "FAIL", "other", "crash at some sizes")], []
    for framework in [args.only] if args.only else here:
        done = []
        for name, verdict, words, crashes in sweep(framework, [args.op] if args.op else OPS, args.budget):
            done.append((verdict, crashes))
            if args.op:
                print(f"{framework} {name}\n{words}")
            elif verdict not in (PASS, KINK):
                findings.append((framework, name, *gist(words)))
        counts = Counter(PASS if verdict == KINK else verdict for verdict, _ in done)
        other = len(done) - counts[PASS] - counts[WARN] - counts[FAIL]
        version = f"{framework} {importlib.metadata.version(framework)}"
        rows.append((version, len(done), counts[PASS], counts[WARN], counts[FAIL], other, sum(c for _, c in done)))
    print(*columns([tuple(map(str, row)) for row in rows]), "", sep="\n")
    print(*columns(findings), sep="\n")


def gist(words):
    """(where, analytic, numeric, note) of a report's first finding."""
    where, *rest = [line.strip() for line in words.splitlines()[1:]] or ["it ends the process"]
    values = dict(line.split(None, 1) for line in rest[:6] if " " in line)
    return where[:40], values.get("analytic", ""), values.get("numeric", ""), values.get("note", "")[:60]


if __name__ == "__main__":
    main()
