"""Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

Block i of a stream is a pure function of (key, i). So every device gets the same numbers, in any order of computation,
and the state of a generator is two integers.
"""

from typing import Any, NamedTuple

import numpy as np

from ..base.capturing import refuse_within

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
AT_ONCE = 1 << 14  # blocks, or numbers made of them, that are computed at a time: they fit into a core's cache


class Draw(NamedTuple):
    """The position in a stream at which a primitive's random words begin."""

    key: int  # the number of the stream
    offset: int  # the number of the first block of four words
    again: Any = None  # a function that reserves as many words again, and returns their Draw


def blocks(key, counter):
    """Philox with a 64-bit key of a counter, given as four uint64 arrays of 32-bit words: four such arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = p1 >> _SHIFT, p0 >> _SHIFT  # the lines below work in place, which saves a sixth of the time
        c0 ^= c1
        c2 ^= c3
        c0 ^= np.uint64(k0)
        c2 ^= np.uint64(k1)
        p1 &= _LOW
        p0 &= _LOW
        c1, c3 = p1, p0
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(draw, n):
    """The first n words of a Draw: (n,), uint32. A block has four words."""
    refuse_within("drawing random numbers on the host")
    y = np.empty((-(-n // 4), 4), np.uint32)
    for first in range(0, len(y), AT_ONCE):
        some = y[first : first + AT_ONCE]
        for k, word in enumerate(_blocks_of(draw, first, len(some))):
            some[:, k] = word
    return y.reshape(-1)[:n]


def doubles(draw, first, n):
    """Numbers first … first + n - 1 of the float64 numbers in [0, 1) of a Draw: (n,). Each takes 53 bits of two
    words."""
    refuse_within("drawing random numbers on the host")
    block, skipped = divmod(first, 2)
    w = _blocks_of(draw, block, -(-(skipped + n) // 2))
    y = np.empty((len(w[0]), 2))
    for k in range(2):  # nothing is rounded
        y[:, k] = w[2 * k] * 2.0**-32 + (w[2 * k + 1] >> np.uint64(11)) * 2.0**-53
    return y.reshape(-1)[skipped : skipped + n]


def _blocks_of(draw, first, n):
    """Blocks first … first + n - 1 of a Draw, as blocks() returns them."""
    index = np.arange(n, dtype=np.uint64) + np.uint64(draw.offset + first)
    zero = np.zeros_like(index)
    return blocks(draw.key, (index & _LOW, index >> _SHIFT, zero, zero))
