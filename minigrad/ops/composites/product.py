"""Products along dims, whose values and gradients hold where a part of a product is too large for the dtype.

There 0 times a part that has become ∞ would be NaN. So factors are first scaled, each by a power of two, such that the
product of any stretch of them lies between 1/2 and 2. The result is scaled back, and so are gradients."""

import math

from ...autograd import Op, composite
from ...autograd.cases import Fixed, case, positive
from ...dtypes import float16, float32, float64
from ...typing import Dims, DTypeLike, T
from ..args import in_dtype, many_dims, numpy_names, one_dim
from ..elementwise import abs, floor, log
from ..movement import cat, copied, pad, shaped
from ..reduce import amax, amin, cumsum
from ..select import maximum, minimum, where

__all__ = ["cumprod", "prod"]

_BITS = {float16: 24, float32: 149, float64: 1074}  # the smallest number is 2^-bits, the largest nearer to 1


class Rescale(Op, abstract=True):
    """y = x 2^there;   dx = dy 2^back, whose derivative is scaled by 2^there again

    For both ends of a computation whose gradients are kept smaller than they are, by some 2^c: at its beginning
    back = there + c, at its end back = there - c. So it is no op to be checked alone: the products are."""

    def forward(self, x, there, back):
        self.save_inputs(None, there, back)
        on = self.backend
        k = on.clamp(there, -3000.0, 3000.0)
        third = on.floor(on.add(on.mul(k, 1 / 3), 0.5))
        r = on.sub(k, on.mul(third, 3.0))  # -1, 0 or 1, of which 2^r = 1 + r (r + 3) / 4
        power, rest = on.pow(2.0, third), on.add(on.mul(on.mul(r, on.add(r, 3.0)), 0.25), 1.0)
        for factor in (power, rest, power, power):  # not at once: 2^1024 is ∞, and 0 times that NaN
            x = on.mul(x, factor)
        return x

    def backward(self, dy):
        _, there, back = self.saved_inputs()
        return Rescale.apply(dy, back, there), None, None


class Halves(Op, abstract=True):
    """y = a b for the two halves of x along its last dim;   dx = (dy b, dy a)"""

    def forward(self, x):
        self.save_inputs(x)
        half, at = x.shape[-1] // 2, self.backend.getitem
        return self.backend.mul(at(x, (..., slice(0, half))), at(x, (..., slice(half, None))))

    def backward(self, dy):
        (x,) = self.saved_inputs()
        half = dy.shape[-1]
        return cat([dy * x[..., half:], dy * x[..., :half]], -1)


def _powers(x, dim, bits):
    """The e of the 2^e that each factor is divided by, and their sums up to each; None if there are too few factors, of
    2^-bits at least, for a part of the product to be too large. bits None: of integers, and of longdouble."""
    n = x.shape[dim]
    if bits is None or n <= 2 or n * bits < 1022:
        return None
    size = abs(x.detach())
    if _in_range(size, n):
        return None
    sums = floor(cumsum(log(where((size > 0) & (size < math.inf), size, 1.0)), dim) * (1 / math.log(2)) + 0.5)
    before = (slice(None),) * dim
    return sums - pad(sums[(*before, slice(0, n - 1))], [0, 0] * (x.ndim - 1 - dim) + [1, 0]), sums


def _in_range(size, n):
    """Can no product of up to n of these leave float64? Scaling would then change no bit, and takes a while."""
    if not size.numel():
        return True
    low, high = amin(size).item(), amax(size).item()
    return low > 0 and n * max(-math.log2(low), math.log2(high)) < 1000


def _wide(x):
    """x in what products are computed in: float64, as part of one may be too large when the whole is not, or int64."""
    if x.dtype.kind != "f":
        return x.long()
    return x.double() if x.dtype in (float16, float32) else x


def running(x, dim, combine, neutral):
    """y_i = x_0 ∘ … ∘ x_i along dim, in steps that each look twice as far back."""
    n, step = x.shape[dim], 1
    before = (slice(None),) * dim
    while step < n:
        widths = [0, 0] * (x.ndim - 1 - dim) + [step, 0]
        x = combine(x, pad(x[(*before, slice(0, n - step))], widths, value=neutral))
        step *= 2
    return x


@numpy_names
@composite(case((3, 4)), case((2, 5), dim=1), case(positive((2, 3, 2)), dim=(0, 2), keepdim=True), case((0, 3), dim=0))
def prod(input: T, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> T:
    """y = Π x over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype, or of x in
    `dtype`; integers and bools give int64. A tree of products, in float64, so the gradient is right where factors are
    0."""
    input = input if dtype is None else in_dtype(input, dtype)
    dims = many_dims("prod", input, dim)
    rest = tuple(d for d in range(input.ndim) if d not in dims)
    n = math.prod(input.shape[d] for d in dims)
    y = _wide(input)
    y = shaped(y.permute(rest + dims), (*(input.shape[d] for d in rest), n))
    powers = _powers(y, y.ndim - 1, _BITS.get(input.dtype))
    if powers is not None:
        e, whole = powers[0], powers[1][..., -1:]
        y = Rescale.apply(y, -e, whole - e)
    while y.shape[-1] != 1:
        odd = y.shape[-1] % 2 or y.shape[-1] == 0
        y = pad(y, (0, 1), value=1) if odd else Halves.apply(y)
    if powers is not None:
        y = Rescale.apply(y, whole, whole * 0.0)
    y = shaped(y, tuple(1 if d in dims else k for d, k in enumerate(input.shape)) if keepdim else y.shape[:-1])
    return copied(input, y.to(input.dtype) if input.dtype.kind == "f" else y)


@numpy_names
@composite(case((3, 4), dim=1), case(Fixed([[2.0, 0.0, 3.0], [0.0, 0.0, 1.0]]), dim=1))
def cumprod(input: T, dim: int, dtype: DTypeLike | None = None) -> T:
    """y_i = Π_{j ≤ i} x_j along dim; the gradient is right where factors are 0

    Of x's shape and dtype, or of x in `dtype`; integers and bools give int64."""
    input = input if dtype is None else in_dtype(input, dtype)
    dim = one_dim("cumprod", input, dim)
    if input.ndim == 0:
        return copied(input, input if input.dtype.kind == "f" else input.long())
    y = _wide(input)
    powers = _powers(y, dim, _BITS.get(input.dtype))
    if powers is not None:  # c keeps gradients within 2^±900 inside, if their range allows it
        e, sums = powers
        c = maximum(minimum(amin(sums, dim, keepdim=True) + 900.0, 0.0), amax(sums, dim, keepdim=True) - 900.0)
        y = Rescale.apply(y, -e, c - e)
    y = running(y, dim, lambda a, b: a * b, 1)
    if powers is not None:
        y = Rescale.apply(y, sums, sums - c)
    return copied(input, y.to(input.dtype) if input.dtype.kind == "f" else y)
