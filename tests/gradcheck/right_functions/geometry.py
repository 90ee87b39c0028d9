"""Rotations, angles and distances; signals: transforms, filters and convolutions."""

import math

import numpy as np

import minigrad as mg

from .material import Right, constant, normal, pick, size, tensor, uniform


def multiplied(p, q):
    """Of quaternions (w, x, y, z)."""
    a, b, c, d = p.unbind(-1)
    e, f, g, h = q.unbind(-1)
    parts = [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g]
    parts += [a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e]
    return mg.stack(parts, -1)


def quaternion_product(rng):
    return Right(multiplied, normal(rng, 2, 4), normal(rng, 2, 4))


def quaternion_rotation(rng):
    def rotated(q, v):
        q = q / (q * q).sum().sqrt()
        inverse = q * constant([1.0, -1.0, -1.0, -1.0])
        return multiplied(multiplied(q, mg.cat([v[:1] * 0, v])), inverse)[1:]

    return Right(rotated, normal(rng, 4), normal(rng, 3))


def crossed(a, b):
    return mg.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def cross_product(rng):
    return Right(crossed, normal(rng, 3), normal(rng, 3))


def rodrigues(rng):
    """Of an axis times an angle, that may be small: 1e-3 to 1."""
    scale = 10 ** rng.uniform(-3, 0)

    def rotated(r, v):
        angle = (r * r).sum().sqrt()
        k = r / angle
        return v * angle.cos() + crossed(k, v) * angle.sin() + k * (k * v).sum() * (1 - angle.cos())

    return Right(rotated, normal(rng, 3, scale=scale), normal(rng, 3))


def arctan(x, terms=24):
    """Two halvings of the angle, then the series."""
    for _ in range(2):
        x = x / (1 + (1 + x * x).sqrt())
    total, power = 0 * x, x
    for k in range(terms):
        total = total + (-1) ** k * power / (2 * k + 1)
        power = power * x * x
    return 4 * total


def atan2(rng):
    """By quadrants, at points away from the axes."""
    quadrant = rng.choice([-1.0, 1.0], (2, 3))

    def angle(y, x):
        turn = constant(np.where(quadrant[1] < 0, math.pi, 0.0) * quadrant[0])
        return arctan(y / x) + turn

    y, x = rng.uniform(0.3, 2, (2, 3)) * quadrant
    return Right(angle, tensor(y), tensor(x))


def half_angle_atan2(rng):
    def angle(y, x):
        return 2 * arctan(y / ((x * x + y * y).sqrt() + x))

    return Right(angle, normal(rng, 3), uniform(rng, 0.1, 2, 3))


def distances(rng):
    eps = pick(rng, [1e-12, 1e-8, 1e-3])

    def pairwise(x, y):
        d = x.unsqueeze(1) - y.unsqueeze(0)
        return ((d * d).sum(-1) + eps).sqrt()

    return Right(pairwise, normal(rng, 3, 2), normal(rng, 2, 2))


def distances_of_equal_points(rng):
    """A diagonal of zeros under the square root: eps is all that is there."""
    eps = pick(rng, [1e-3, 1e-2, 1.0])

    def pairwise(x):
        d = x.unsqueeze(1) - x.unsqueeze(0)
        return ((d * d).sum(-1) + eps).sqrt()

    return Right(pairwise, normal(rng, 3, 2))


def expanded_distances(rng):
    """x² + y² - 2 x y, as libraries compute it."""
    offset = pick(rng, [0.0, 10.0, 1e3])

    def pairwise(x, y):
        return (x * x).sum(-1, keepdim=True) + (y * y).sum(-1) - 2 * x @ y.mT

    return Right(pairwise, tensor(offset + rng.standard_normal((2, 2))), tensor(offset + rng.standard_normal((3, 2))))


def cosine_similarity(rng):
    scale = pick(rng, [1e-6, 1.0, 1e6])

    def similarity(x, y):
        return (x * y).sum(-1) / ((x * x).sum(-1) * (y * y).sum(-1)).sqrt()

    return Right(similarity, normal(rng, 2, 3, scale=scale), normal(rng, 2, 3))


def spherical(rng):
    def position(r, theta, phi):
        return mg.stack([r * theta.sin() * phi.cos(), r * theta.sin() * phi.sin(), r * theta.cos()])

    return Right(position, *(uniform(rng, 0.2, 3, 2) for _ in range(3)))


def triangle_area(rng):
    """Heron's formula, also of thin triangles."""
    height = pick(rng, [1.0, 1e-2, 1e-3])

    def area(p):
        a, b, c = (((p[i] - p[j]) ** 2).sum().sqrt() for i, j in ((0, 1), (1, 2), (2, 0)))
        s = (a + b + c) / 2
        return (s * (s - a) * (s - b) * (s - c)).sqrt()

    return Right(area, tensor([[0.0, 0.0], [1.0, rng.uniform(0, 0.1) * height], [rng.uniform(0.3, 0.7), height]]))


def perspective(rng):
    def project(x, f):
        return f * x[:, :2] / x[:, 2:]

    return Right(project, tensor(rng.standard_normal((3, 3)) + np.array([0, 0, 4])), uniform(rng, 0.5, 2))


def bezier(rng):
    def curve(points, t):
        for _ in range(3):
            points = (1 - t) * points[:-1] + t * points[1:]
        return points[0]

    return Right(curve, normal(rng, 4, 2), uniform(rng, 0.1, 0.9))


def bilinear_interpolation(rng):
    """At places that are inside of their cells."""
    cell = constant(rng.integers(0, 2, (2, 3)))

    def sample(image, inside):
        (i, j), (u, v) = cell.unbind(0), inside.unbind(0)
        rows = (1 - u) * image[i, j] + u * image[i + 1, j], (1 - u) * image[i, j + 1] + u * image[i + 1, j + 1]
        return (1 - v) * rows[0] + v * rows[1]

    return Right(sample, normal(rng, 3, 3), uniform(rng, 0.1, 0.9, 2, 3))


def chamfer_of_apart_points(rng):
    """Distances to the nearest point, where the nearest is clear."""
    x = rng.permutation(4)[:, None] * 5 + rng.uniform(-0.5, 0.5, (4, 2))
    y = x + rng.uniform(-0.5, 0.5, (4, 2))
    return Right(lambda x, y: ((x.unsqueeze(1) - y.unsqueeze(0)) ** 2).sum(-1).amin(1), tensor(x), tensor(y))


# ------------------------------------------------------------------------------------------------------------- signals


def fourier(n):
    angle = 2 * math.pi * np.outer(np.arange(n), np.arange(n)) / n
    return constant(np.cos(angle)), constant(-np.sin(angle))


def power_spectrum(rng):
    n = size(rng, 3, 6)
    re, im = fourier(n)
    return Right(lambda x: (re @ x) ** 2 + (im @ x) ** 2, normal(rng, n))


def log_spectrum(rng):
    n = size(rng, 3, 6)
    re, im = fourier(n)
    return Right(lambda x: ((re @ x) ** 2 + (im @ x) ** 2 + 1e-6).log(), normal(rng, n))


def phase_rotation(rng):
    n = size(rng, 3, 5)
    re, im = fourier(n)

    def shifted(x, shift):
        angle = constant(np.arange(n) * 2 * math.pi / n) * shift
        a, b = re @ x, im @ x
        c, d = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return (re @ c + im @ d) / n

    return Right(shifted, normal(rng, n), uniform(rng, -1, 1))


def conv1d(rng):
    stride, dilation = size(rng, 1, 2), size(rng, 1, 2)

    def convolved(x, w):
        length = (x.shape[-1] - dilation * (w.shape[-1] - 1) - 1) // stride + 1
        taps = [x[:, k * dilation : k * dilation + stride * (length - 1) + 1 : stride] for k in range(w.shape[-1])]
        return mg.einsum("kct,ock->ot", mg.stack(taps), w)

    return Right(convolved, normal(rng, 2, 6), normal(rng, 2, 2, 2))


def conv2d(rng):
    def convolved(image, w):
        n = image.shape[0] - 1
        return sum(image[i : i + n, j : j + n] * w[i, j] for i in range(2) for j in range(2))

    return Right(convolved, normal(rng, 3, 3), normal(rng, 2, 2))


def iir_filter(rng):
    def filtered(x, a, b):
        y1 = y2 = x[0] * 0
        out = []
        for value in x.unbind(0):
            y1, y2 = b * value - a[0] * y1 - a[1] * y2, y1
            out.append(y1)
        return mg.stack(out)

    return Right(filtered, normal(rng, size(rng, 4, 8)), uniform(rng, -0.5, 0.5, 2), normal(rng))


def autocorrelation(rng):
    return Right(lambda x: mg.stack([(x[k:] * x[: x.shape[0] - k]).sum() for k in range(3)]), normal(rng, 5))


def haar_wavelet(rng):
    def transform(x):
        out = []
        while x.shape[0] > 1:
            out.append((x[::2] - x[1::2]) * math.sqrt(0.5))
            x = (x[::2] + x[1::2]) * math.sqrt(0.5)
        return mg.cat([*out, x])

    return Right(transform, normal(rng, 8))


def smoothing(rng):
    def average(x, alpha):
        y, out = x[0], []
        for value in x.unbind(0):
            y = alpha * value + (1 - alpha) * y
            out.append(y)
        return mg.stack(out)

    return Right(average, normal(rng, 5), uniform(rng, 0.1, 0.9))


def chirp(rng):
    t = constant(np.linspace(0, 1, 5))
    return Right(
        lambda f, rate: (2 * math.pi * (f * t + 0.5 * rate * t * t)).sin(), uniform(rng, 1, 50), uniform(rng, 1, 20)
    )


MAKERS = [
    quaternion_product, quaternion_rotation, cross_product, rodrigues, atan2, half_angle_atan2, distances,
    distances_of_equal_points, expanded_distances, cosine_similarity, spherical, triangle_area, perspective, bezier,
    bilinear_interpolation, chamfer_of_apart_points, power_spectrum, log_spectrum, phase_rotation, conv1d, conv2d,
    iir_filter, autocorrelation, haar_wavelet, smoothing, chirp,
]  # fmt: skip
