"""Wrong nearly everywhere: signs, factors, the wrong function, a cotangent that is not used."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import positive

from .report import mistake


def power_of_size(dy, x, p):
    size = np.where(x == 0, 1, np.abs(x))
    dx = np.where(x == 0, 0, dy * p * size ** (p - 1) * np.sign(x))
    return dx, dy * np.abs(x) ** p * np.log(size)


REPORTS = [
    mistake("ldexp with exp", "tenstorrent/tt-metal#6533", "e^y for 2^y, ln 2 in the wrong one, and dy not used",
            lambda x, y: x * 2**y, lambda dy, x, y: (np.exp(y) * np.log(2), x * np.exp(y) * np.log(2) ** 2),
            lambda dy, x, y: (dy * 2**y, dy * x * 2**y * np.log(2)), case((3, 4), (3, 4))),
    mistake("power of the other operand", "tenstorrent/tt-metal#55289", "the gradient of x^b instead of b^x",
            lambda x: 3.0**x, lambda dy, x: dy * 3 * x**2, lambda dy, x: dy * np.log(3.0) * 3.0**x, case((3, 4))),
    mistake("power by a logarithm", "tensorflow/tfjs#346",
            "ln of a base that is negative: NaN for the exponent, although the value is defined",
            lambda x, p: np.abs(x) ** p,
            lambda dy, x, p: (dy * p * np.abs(x) ** (p - 1) * np.sign(x), dy * np.abs(x) ** p * np.log(x)),
            lambda dy, x, p: power_of_size(dy, x, p), case(positive((3, 4)), positive((3, 4)))),
]  # fmt: skip
