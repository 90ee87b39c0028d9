"""Right functions of custom ops: bare, and between other ops."""

import math

import numpy as np

from . import unusual_ops as ops
from .material import Right, apart, constant, normal, pick, size, tensor, uniform


def op_on(op, *draws, **flags):
    """A maker of one op: sometimes bare, sometimes between others."""

    def maker(rng):
        inputs = [draw(rng) for draw in draws]
        form = int(rng.integers(3))
        if form == 0:
            return Right(op.apply, *inputs, **flags)
        if form == 1:
            return Right(lambda *xs: op.apply(*[x * 1.5 for x in xs]), *inputs, **flags)
        return Right(lambda *xs: total(op.apply(*xs)), *inputs, **flags)

    maker.__name__ = op.name
    return maker


def total(y):
    """Of all float outputs."""
    return sum(part.sin().sum() for part in (y if isinstance(y, tuple) else (y,)) if part.is_floating_point())


def vector(rng):
    return normal(rng, size(rng, 1, 5))


def dense(*shape):
    """In row-major memory."""
    return lambda rng: tensor(rng.standard_normal(shape))


MAKERS = [
    op_on(ops.ContiguousSquare, dense(2, 3)), op_on(ops.MadeContiguous, lambda rng: normal(rng, 2, 3)),
    op_on(ops.Float64Only, vector), op_on(ops.MatrixOnly, lambda rng: normal(rng, 2, 3)),
    op_on(ops.SquareOnly, lambda rng: normal(rng, 3, 3)), op_on(ops.FixedSize, lambda rng: normal(rng, 3)),
    op_on(ops.TotalByExpand, lambda rng: normal(rng, 2, 2)), op_on(ops.Reversed, vector),
    op_on(ops.Transposed, lambda rng: normal(rng, 2, 3)), op_on(ops.Passed, vector),
    op_on(ops.Doubled, lambda rng: normal(rng, 3), lambda rng: normal(rng, 3)),
    op_on(ops.OnlyNeeded, *[lambda rng: normal(rng, 3)] * 3), op_on(ops.SinCos, vector),
    op_on(ops.MomentsAndShape, vector), op_on(ops.ValueAndIndex, lambda rng: apart(rng, 4)),
    op_on(ops.InNumPy, vector, orders=(1,)),
    op_on(ops.Cumulated, lambda rng: uniform(rng, 0.5, 2, 4)),
    op_on(ops.Log1p, lambda rng: tensor(10 ** rng.uniform(-15, 3, 4))),
    op_on(ops.Expm1, lambda rng: tensor(10 ** rng.uniform(-15, 0.5, 4))),
    op_on(ops.Arctan2, lambda rng: uniform(rng, 0.2, 2, 3), lambda rng: normal(rng, 3)),
    op_on(ops.Inverse, lambda rng: tensor(rng.standard_normal((2, 2)) + 3 * np.eye(2))),
    op_on(ops.ImplicitRoot, vector),
]  # fmt: skip


def gate(rng):
    mask = constant(rng.random(4))
    return Right(lambda x: ops.Gate.apply(x, mask), normal(rng, 4))


def number_as_input(rng):
    return Right(lambda x: ops.OnlyNeeded.apply(x, 2.0, x * x), normal(rng, 3))


def with_a_parameter(rng):
    c = pick(rng, [0.0, -2.0, 1e8, 1e-12, math.pi])
    return Right(lambda x: ops.Scaled.apply(x, c=c), normal(rng, 3))


def one_output_of_two(rng):
    return Right(lambda x: ops.SinCos.apply(x)[int(x.shape[0] > 3)], normal(rng, 5))


def op_class_itself(rng):
    return Right(pick(rng, [ops.Passed, ops.MadeContiguous, ops.TotalByExpand, ops.Expm1]), normal(rng, 2, 2))


def on_nothing(rng):
    return Right(
        pick(rng, [ops.Passed.apply, ops.TotalByExpand.apply, ops.MadeContiguous.apply, ops.SinCos.apply]),
        tensor(np.zeros(pick(rng, [(0,), (2, 0)]))),
    )


def one_element_0d(rng):
    return Right(
        pick(
            rng,
            [ops.Passed.apply, ops.TotalByExpand.apply, ops.MadeContiguous.apply, ops.SinCos.apply, ops.Log1p.apply],
        ),
        tensor(rng.uniform(0.5, 2)),
    )


def same_view_in_both(rng):
    """A view of x and x itself meet in one op."""
    return Right(lambda x: ops.Doubled.apply(ops.Reversed.apply(x), x) * x, normal(rng, 3))


MAKERS += [
    gate, number_as_input, with_a_parameter, one_output_of_two, op_class_itself, on_nothing, one_element_0d,
    same_view_in_both,
]  # fmt: skip
