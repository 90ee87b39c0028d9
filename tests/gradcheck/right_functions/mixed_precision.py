"""float32 and float16 inside float64 programs, and as inputs.

A cast inside rounds its result to 1e-7 or 1e-3, so a difference sees steps: INCONCLUSIVE is deserved there, FAIL never:
the gradient is that of the function without the rounding. Inputs of a low precision are a matter of form only."""

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

from .material import Right, constant, normal, pick, size, tensor, uniform

LOW = [(mg.float32, "float32 inside"), (mg.float16, "float16 inside")]


def low(rng):
    return pick(rng, LOW)


def float32_input(rng):
    x = tensor(rng.standard_normal((2, size(rng, 1, 4))).astype(np.float32), rng)
    return Right(pick(rng, [mg.tanh, mg.exp, lambda x: x.softmax(-1), lambda x: (x * x).sum(), lambda x: x @ x.mT]), x)


def float16_input(rng):
    x = tensor(rng.standard_normal((2, 3)).astype(np.float16), rng)
    return Right(pick(rng, [mg.tanh, mg.sin, lambda x: x.log_softmax(-1), lambda x: x.mean(0), lambda x: x * 3 + 1]), x)


def inputs_of_three_dtypes(rng):
    a, b, c = (tensor(rng.standard_normal(3).astype(d)) for d in (np.float16, np.float32, np.float64))
    return Right(lambda a, b, c: a * b + (b * c).sin() - c, a, b, c)


def there_and_back(rng):
    dtype, reason = low(rng)
    f = pick(
        rng,
        [
            lambda x: x.to(dtype).double(),
            lambda x: x.sin().to(dtype).double() * x,
            lambda x: (x * 3).to(dtype).double().tanh(),
        ],
    )
    return Right(f, normal(rng, 3), coarse=reason)


def low_matmul(rng):
    dtype, reason = low(rng)
    return Right(lambda a, b: (a.to(dtype) @ b.to(dtype)).double(), normal(rng, 2, 3), normal(rng, 3, 2), coarse=reason)


def low_residual(rng):
    """A small correction in low precision beside something large and exact."""
    dtype, reason = low(rng)
    scale = pick(rng, [1e-3, 1e-9, 1e-15])
    return Right(lambda x: x * x + scale * x.to(dtype).sin().double(), normal(rng, 3), coarse=reason)


def exact_casts(rng):
    """Casts of what float16 holds exactly, and only scaled by powers of two: yet a step beside it is rounded."""
    dtype, reason = low(rng)
    return Right(lambda x: x.to(dtype).double() * 0.25, tensor(rng.integers(-8, 8, 4) / 4), coarse=reason)


def up_casts_only(rng):
    """float32 constants, in float64 by promotion: nothing is rounded."""
    w = constant(rng.standard_normal((3, 2)).astype(np.float32))
    return Right(lambda x: x @ w.double(), normal(rng, 2, 3))


def master_weights(rng):
    """float64 weights, of which a float16 copy computes; the loss in float32."""
    x, y = rng.standard_normal((4, 2)), rng.standard_normal((4, 1))

    def loss(w, b):
        out = constant(x).half() @ w.half() + b.half()
        return ((out.float() - constant(y).float()) ** 2).mean()

    return Right(loss, normal(rng, 2, 1), normal(rng, 1), coarse="float16 inside")


def loss_scaling(rng):
    def loss(w):
        return (w.float() * 1024.0).sum() / 1024.0

    return Right(loss, normal(rng, 3), coarse="float32 inside")


def float32_output(rng):
    return Right(lambda x: (x * x).float(), normal(rng, 3), coarse="float32 outputs")


def float32_accumulator(rng):
    def total(x):
        s = x[0].float() * 0
        for value in x.unbind(0):
            s = s + value.float()
        return s.double()

    return Right(total, tensor(rng.standard_normal(4) * 10 ** rng.uniform(-3, 3, 4)), coarse="float32 inside")


def float32_norm(rng):
    """As in models: the norm in float32 or float64, the rest in the input's dtype."""
    dtype = pick(rng, [mg.float32, mg.float64])

    def norm(x, weight):
        h = x.to(dtype)
        return (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight

    return Right(norm, normal(rng, 2, 3), normal(rng, 3), coarse="float32 inside" if dtype == mg.float32 else "")


def upcast_softmax(rng):
    x = tensor(rng.standard_normal((2, 3)).astype(np.float16))
    return Right(lambda x: x.double().softmax(-1), x)


def float16_of_large_numbers(rng):
    """Near the end of float16, whose largest is 65504."""
    return Right(lambda x: x.half().double() / 1024, uniform(rng, 3e4, 6e4, 3), coarse="float16 inside")


def mixed_embedding(rng):
    index = constant(rng.integers(0, 4, (2, 2)))
    table = tensor(rng.standard_normal((4, 2)).astype(np.float32))
    return Right(lambda table, w: F.embedding(index, table).double() @ w, table, normal(rng, 2, 2))


def one_low_branch(rng):
    """Two outputs, of which only one is rounded."""
    dtype, reason = low(rng)
    return Right(lambda x: (x.exp(), x.to(dtype).double()), normal(rng, 3), coarse=reason)


def chain_of_casts(rng):
    return Right(lambda x: x.float().double().half().double().float().double(), normal(rng, 2), coarse="float16 inside")


def parameters_in_float32(rng):
    """What most users have: everything in float32."""
    x, w, b = (tensor(rng.standard_normal(s).astype(np.float32)) for s in ((2, 3), (4, 3), (4,)))
    return Right(lambda x, w, b: F.layer_norm(F.gelu(F.linear(x, w, b)), 4), x, w, b)


def promoted_with_numbers(rng):
    x = tensor(rng.standard_normal(4).astype(pick(rng, [np.float16, np.float32])))
    return Right(lambda x: 2 * x**3 - x / 7 + 1e-3, x)


MAKERS = [
    float32_input, float16_input, inputs_of_three_dtypes, there_and_back, low_matmul, low_residual, exact_casts,
    up_casts_only, master_weights, loss_scaling, float32_output, float32_accumulator, float32_norm, upcast_softmax,
    float16_of_large_numbers, mixed_embedding, one_low_branch, chain_of_casts, parameters_in_float32,
    promoted_with_numbers,
]  # fmt: skip
