"""Functions of PyTorch that gradcheck checks through its adapter.

python -m tests.oracle.foreign_functions      a table with the verdict on each

A row: (framework, name, function, inputs, the highest order, the verdicts that are right). Inputs are NumPy arrays or
constants, made anew for each check."""

import os
import time

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from minigrad.gradcheck import FAIL, KINK, PASS, gradcheck

FINE = (PASS,)
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape)


def positive(*shape):
    return rng.uniform(0.5, 2.5, shape)


def square(n):
    return normal(n, n) + 4 * np.eye(n)


def torch_functions():
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * dy

    class SplitSum(torch.autograd.Function):
        """Two inputs, two outputs; what autograd does not need is not computed."""

        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w, (x + w).sum()

        @staticmethod
        def backward(ctx, dy, dz):
            x, w = ctx.saved_tensors
            dx = dy * w + dz if ctx.needs_input_grad[0] else None
            return dx, dy * x + dz if ctx.needs_input_grad[1] else None

    index = torch.tensor([0, 2, 2, 1])
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    return [
        ("sin", torch.sin, (normal(2, 3),), 2, FINE),
        ("exp, log1p", lambda x: torch.log1p(x.exp()), (normal(4),), 2, FINE),
        ("pow", torch.pow, (positive(3), normal(3)), 2, FINE),
        ("atan2", torch.atan2, (normal(3), positive(3)), 2, FINE),
        ("relu", torch.relu, (normal(5),), 2, FINE),
        ("relu at 0", torch.relu, (np.zeros(3),), 1, (KINK,)),
        ("abs at 0", torch.abs, (np.array([0.0, 1.0]),), 1, (KINK,)),
        ("gelu", F.gelu, (normal(4),), 2, FINE),
        ("softmax", lambda x: F.softmax(x, -1), (normal(2, 3),), 2, FINE),
        ("log_softmax", lambda x: F.log_softmax(x, 0), (normal(3, 2),), 2, FINE),
        ("logsumexp", lambda x: torch.logsumexp(x, 1), (normal(2, 3),), 2, FINE),
        ("matmul", torch.matmul, (normal(2, 3, 2), normal(2, 2)), 2, FINE),
        ("bmm", torch.bmm, (normal(2, 2, 3), normal(2, 3, 2)), 2, FINE),
        ("einsum", lambda x, y: torch.einsum("ij,kj->ik", x, y), (normal(2, 3), normal(2, 3)), 2, FINE),
        ("linalg.inv", torch.linalg.inv, (square(3),), 2, (*FINE, FAIL)),  # 0 where it is singular
        ("linalg.solve", torch.linalg.solve, (square(3), normal(3, 2)), 2, FINE),
        ("linalg.det", torch.linalg.det, (square(3),), 2, (*FINE, FAIL)),  # 0 where it is singular
        ("cholesky", lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), (normal(3, 3),), 2, FINE),
        ("eigvalsh", lambda x: torch.linalg.eigvalsh(x + x.mT), (normal(3, 3),), 2, FINE),
        ("svdvals", torch.linalg.svdvals, (square(3),), 2, (*FINE, FAIL)),  # 0 where it is singular
        ("conv2d", F.conv2d, (normal(1, 2, 4, 4), normal(2, 2, 3, 3), normal(2)), 2, FINE),
        ("conv_transpose1d", F.conv_transpose1d, (normal(1, 2, 3), normal(2, 2, 2)), 2, FINE),
        ("max_pool2d", lambda x: F.max_pool2d(x, 2), (normal(1, 1, 4, 4),), 2, FINE),
        ("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), (normal(2, 4), normal(4), normal(4)), 2, FINE),
        ("group_norm", lambda x: F.group_norm(x, 2), (normal(2, 4, 3),), 2, FINE),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), (normal(4, 3),), 2, FINE),
        ("cross_entropy", F.cross_entropy, (normal(4, 3), np.array([0, 2, 1, 1])), 2, FINE),
        ("mse_loss", F.mse_loss, (normal(3), normal(3)), 2, FINE),
        ("nll through sigmoid", F.binary_cross_entropy_with_logits, (normal(3), positive(3) / 3), 2, FINE),
        ("index_add", lambda x, y: x.index_add(0, index % len(x), y), (normal(3, 2), normal(4, 2)), 2, FINE),
        ("gather", lambda x: x.gather(0, index[:, None].expand(4, 2)), (normal(3, 2),), 2, FINE),
        ("embedding", lambda w: F.embedding(index, w), (normal(3, 2),), 2, FINE),
        ("sort", lambda x: torch.sort(x, -1), (normal(2, 4),), 2, FINE),
        ("topk", lambda x: torch.topk(x, 2), (normal(5),), 2, FINE),
        ("amax of ties", lambda x: x.amax(), (np.ones(3),), 1, (KINK,)),
        ("cumprod", lambda x: torch.cumprod(x, -1), (normal(2, 3),), 2, FINE),
        ("cumsum, flip", lambda x: x.flip(0).cumsum(0), (normal(4),), 2, FINE),
        ("prod with a zero", lambda x: x.prod(), (np.array([0.0, 2.0, 3.0]),), 2, FINE),
        ("rfft, real part", lambda x: torch.fft.rfft(x).real, (normal(6),), 2, FINE),
        ("fft, modulus", lambda x: torch.fft.fft(x).abs(), (normal(5),), 1, FINE),
        ("grid_sample", lambda x, g: F.grid_sample(x, g / 4, align_corners=False),
         (normal(1, 1, 4, 4), normal(1, 2, 2, 2)), 1, FINE),
        ("interpolate", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (normal(1, 1, 3, 3),), 2, FINE),
        ("scaled_dot_product_attention", F.scaled_dot_product_attention,
         (normal(1, 2, 3), normal(1, 2, 3), normal(1, 2, 3)), 1, FINE),
        ("dropout", lambda x: F.dropout(x, 0.4), (normal(6),), 2, FINE),
        ("where", lambda x, y: torch.where(x > 0, x * y, y), (normal(4), normal(4)), 2, FINE),
        ("Function Cube", Cube, (normal(4),), 2, FINE),
        ("Function of two outputs", SplitSum.apply, (normal(3), normal(3)), 2, FINE),
        ("MultiheadAttention", lambda m, x: m(x, x, x)[0], (attention, normal(1, 3, 4)), 1, FINE),
        ("LSTMCell", nn.LSTMCell(3, 2), (normal(2, 3),), 1, FINE),
        ("Linear, tied", nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), (normal(2, 3),), 1, FINE),
    ]  # fmt: skip


def there(x):
    """A NumPy array as PyTorch's, in trees too."""
    if isinstance(x, dict):
        return {key: there(value) for key, value in x.items()}
    if isinstance(x, list):
        return [there(value) for value in x]
    if not isinstance(x, np.ndarray):
        return x
    import torch

    return torch.from_numpy(x).requires_grad_() if x.dtype == np.float64 else torch.from_numpy(x)


def checked(functions):
    """(name, order, report, verdicts that are right, seconds) of each function at each order."""
    for name, fn, inputs, most, right in functions:
        for order in range(1, most + 1):
            given, began = tuple(there(x) for x in inputs), time.perf_counter()
            report = gradcheck(fn, given, order=order, raise_on_fail=False)
            yield name, order, report, right, time.perf_counter() - began


def main():
    print("| function | order | verdict | checks | seconds |\n|---|---|---|---|---|")
    for name, order, report, right, seconds in checked(torch_functions()):
        wrong = "" if report.verdict in right else f" ({report.worst.check}: {report.worst.note[:90]})"
        cells = name, order, report.verdict + wrong, len(report.findings), f"{seconds:.1f}"
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
