"""The numbers of a report as text: those of the cells that some head sees, as float16 or bytes, deflated and in base64.

A chunk holds a layer in a snapshot, so that the page need not unpack what is not looked at. In it stand

    1. a bit for each of the (B, T, S) cells, 1 if any head gives it a weight; of the other cells nothing is kept
    2. the numbers of these cells, for each kind (pattern, dS, …) and each head: B sequences one after the other
    3. the numbers by token, as float16, for each kind (dz, dq, …) and each head: (B, T or S)

All are fractions of the largest of their head. A byte holds the root of a fraction, so that small ones keep some
digits, with a number of levels; the fewer, the better it compresses. page/numbers.js unpacks them."""

import base64
import itertools
import zlib

import numpy as np

TOP = 2.0**15  # as float16 the largest number is stored as this, so that it keeps 11 bits down to 2e-9 of it
NOT_FINITE = -128  # in bytes
ROWS = 16  # of a layer's patterns, by which its size is estimated
THUMB = 32  # thumbnails have at most as many cells on a side


def seen_cells(pattern):
    """(B, T, S) bool: the cells to which any head gives a weight; pattern (B, nh, T, S). The others are hidden by the
    mask, or their weights are rounded to 0 in all heads."""
    return (pattern > 0).any(1)


def peaks(x, seen=None):
    """(nh,) float64: the largest finite size of each head's numbers, at the cells that are seen; 0 if there is none."""
    where = np.isfinite(x) if seen is None else np.isfinite(x) & seen[:, None]
    over = tuple(axis for axis in range(x.ndim) if axis != 1)
    return np.max(np.abs(x), axis=over, where=where, initial=0).astype(np.float64)


def chunks(frames, seen, tops, by_token, steps, limit):
    """The texts of all snapshots, for each the thumbnails and then its layers; None if they take more than `limit`
    characters. frames, by_token: [snapshot][layer] -> {name: array (B, nh, T, S) or (B, nh, T or S)}. tops: likewise
    -> {name: peaks}. steps: of a byte (None: float16)."""
    found, room = [], limit
    for frame, cells, top, sizes in zip(frames, seen, tops, by_token):
        of_layers = (_layer(*each, steps) for each in zip(frame, cells, top, sizes))
        for text in itertools.chain([thumbnails([kinds["pattern"] for kinds in frame])], of_layers):
            room -= len(text)
            if room < 0:
                return None
            found.append(text)
    return found


def estimate(frames, seen, tops, steps):
    """About how many characters chunks() would take, from a few rows of each layer: up to a third more than that, since
    they compress less well than all rows together."""
    size = 0.0
    for frame, of_frame, of_tops in zip(frames, seen, tops):
        for kinds, cells, peak in zip(frame, of_frame, of_tops):
            B, T, _ = cells.shape
            b, t = np.unravel_index(np.linspace(0, B * T - 1, min(B * T, ROWS)).astype(int), (B, T))
            some = cells[b, t]  # (ROWS, S)
            for name, x in kinds.items():
                heads = x[b, :, t].swapaxes(0, 1)  # (nh, ROWS, S)
                text = deflated(b"".join(_coded(head[some], top, steps) for head, top in zip(heads, peak[name])))
                size += len(text) * cells.sum() / max(some.sum(), 1)
    return size


def _layer(kinds, seen, tops, by_token, steps):
    parts = [np.packbits(seen, axis=None, bitorder="little").tobytes()]
    for name, x in kinds.items():
        parts += [_coded(head[seen], peak, steps) for head, peak in zip(x.swapaxes(0, 1), tops[name])]
    for x in by_token.values():
        parts += [_coded(head, peak, None) for head, peak in zip(x.swapaxes(0, 1), peaks(x))]
    return deflated(b"".join(parts))


def thumbnails(patterns):
    """The text of small pictures of all heads: of each pattern (B, nh, T, S), the roots of the largest fractions."""
    parts = []
    for pattern in patterns:
        for axis in (2, 3):
            n = pattern.shape[axis]
            pattern = np.maximum.reduceat(pattern, np.arange(min(n, THUMB)) * n // min(n, THUMB), axis)
        top = pattern.max((2, 3), keepdims=True)
        parts.append(np.rint(255 * np.sqrt(pattern / np.where(top > 0, top, 1))).astype(np.uint8).tobytes())
    return deflated(b"".join(parts))


def deflated(data):
    packer = zlib.compressobj(wbits=-15)  # the bare format, as the page's DecompressionStream reads it
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


def _coded(x, peak, steps):
    """Fractions of the peak, as bytes. NaN and infinity stay what they are in float16."""
    part = x.astype(np.float64) / max(peak, np.finfo(np.float64).tiny)
    if steps is None:
        return (part * TOP).astype("<f2").tobytes()
    finite = np.isfinite(part)
    part = np.where(finite, part, 0)
    return np.where(finite, np.rint(np.sign(part) * np.sqrt(np.abs(part)) * steps), NOT_FINITE).astype("i1").tobytes()
