"""Linear algebra by hand, number by number or column by column, as in a textbook."""

import math

import numpy as np

import minigrad as mg

from .material import Right, constant, normal, pick, positive_definite, size, tensor, uniform


def well(rng, n):
    """A matrix that is far from singular, and needs no pivots."""
    return tensor(rng.standard_normal((n, n)) * 0.4 + (2 + rng.random()) * np.eye(n), rng)


def cholesky_rows(a):
    """L with a = L Lᵀ, as a list of lists of 0-d Tensors."""
    n, rows = a.shape[0], []
    for i in range(n):
        row = []
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s = s - row[k] * (row[k] if i == j else rows[j][k])
            row.append(s.sqrt() if i == j else s / rows[j][j])
        rows.append(row)
    return rows


def cholesky(rng):
    n = size(rng)
    return Right(lambda a: mg.stack([x for row in cholesky_rows(a) for x in row]), positive_definite(rng, n))


def log_determinant_by_cholesky(rng):
    n = size(rng)
    return Right(lambda a: 2 * sum(row[-1].log() for row in cholesky_rows(a)), positive_definite(rng, n))


def eliminated(a):
    """Doolittle's LU without pivots: the rows of U."""
    rows = list(a.unbind(0))
    for k in range(len(rows)):
        for i in range(k + 1, len(rows)):
            rows[i] = rows[i] - rows[i][k] / rows[k][k] * rows[k]
    return rows


def lu(rng):
    return Right(lambda a: mg.stack(eliminated(a)).triu(), well(rng, size(rng)))


def determinant_by_lu(rng):
    def determinant(a):
        rows = eliminated(a)
        return math.prod([rows[i][i] for i in range(1, len(rows))], start=rows[0][0])

    return Right(determinant, well(rng, size(rng)))


def minor(a, i, j):
    rows = [r for r in range(a.shape[0]) if r != i]
    return mg.stack([mg.cat([a[r, :j], a[r, j + 1 :]]) for r in rows])


def expanded(a):
    if a.shape[0] == 1:
        return a[0, 0]
    return sum((-1) ** j * a[0, j] * expanded(minor(a, 0, j)) for j in range(a.shape[0]))


def determinant_by_expansion(rng):
    n = size(rng, 2, 4)
    return Right(expanded, normal(rng, n, n))


def inverse_by_adjugate(rng):
    def inverse(a):
        n = a.shape[0]
        cofactors = [(-1) ** (i + j) * expanded(minor(a, j, i)) for i in range(n) for j in range(n)]
        return mg.stack(cofactors).reshape(n, n) / expanded(a)

    return Right(inverse, well(rng, size(rng, 2, 3)))


def gram_schmidt(rng):
    def q(a):
        columns = []
        for v in a.unbind(1):
            for u in columns:
                v = v - (u * v).sum() * u
            columns.append(v / (v * v).sum().sqrt())
        return mg.stack(columns, 1)

    n = size(rng)
    return Right(q, tensor(rng.standard_normal((n + 1, n)) + 2 * np.eye(n + 1, n), rng))


def householder(rng):
    def reflected(v, x):
        return x - 2 * v * (v * x).sum() / (v * v).sum()

    n = size(rng, 2, 5)
    return Right(reflected, normal(rng, n), normal(rng, n))


def power_iteration(rng):
    steps = size(rng, 3, 8)

    def eigenvalue(a, v):
        for _ in range(steps):
            v = a @ v
            v = v / (v * v).sum().sqrt()
        return (v * (a @ v)).sum()

    n = size(rng)
    return Right(eigenvalue, positive_definite(rng, n), uniform(rng, 0.5, 1.5, n))


def matrix_exponential(rng):
    terms, halvings = size(rng, 8, 14), size(rng, 0, 3)

    def expm(a):
        a = a / 2**halvings
        term = total = constant(np.eye(a.shape[0]))
        for k in range(1, terms):
            term = term @ a / k
            total = total + term
        for _ in range(halvings):
            total = total @ total
        return total

    n = size(rng, 2, 3)
    return Right(expm, normal(rng, n, n))


def forward_substitution(rng):
    def solve(lower, b):
        x = []
        for i in range(b.shape[0]):
            x.append((b[i] - sum(lower[i, j] * x[j] for j in range(i))) / lower[i, i])
        return mg.stack(x)

    n = size(rng)
    return Right(solve, well(rng, n), normal(rng, n))


def gauss_jordan(a, b):
    """a⁻¹ b, without pivots."""
    rows = list(mg.cat([a, b], 1).unbind(0))
    for k in range(len(rows)):
        rows[k] = rows[k] / rows[k][k]
        for i in range(len(rows)):
            if i != k:
                rows[i] = rows[i] - rows[i][k] * rows[k]
    return mg.stack(rows)[:, a.shape[0] :]


def linear_solve(rng):
    n = size(rng)
    return Right(gauss_jordan, well(rng, n), normal(rng, n, size(rng, 1, 2)))


def least_squares(rng):
    n, ridge = size(rng, 2, 3), pick(rng, [0.0, 1e-6, 0.1])

    def fit(a, b):
        return gauss_jordan(a.mT @ a + constant(ridge * np.eye(n)), a.mT @ b)

    return Right(fit, tensor(rng.standard_normal((n + 2, n)) + np.eye(n + 2, n), rng), normal(rng, n + 2, 1))


def kalman_filter(rng):
    n, steps = 2, size(rng, 1, 3)
    observed, h = rng.standard_normal((steps, 1)), constant(rng.standard_normal((1, n)))

    def filtered(f, q, r):
        x, p = constant(np.zeros((n, 1))), constant(np.eye(n))
        loss = 0.0
        for z in observed:
            x, p = f @ x, f @ p @ f.mT + q @ q.mT
            s = h @ p @ h.mT + r * r
            innovation = constant(z[:, None]) - h @ x
            gain = p @ h.mT / s
            x, p = x + gain @ innovation, p - gain @ h @ p
            loss = loss + (innovation * innovation / s + s.log()).sum()
        return loss, x

    return Right(filtered, normal(rng, n, n), normal(rng, n, n), uniform(rng, 0.5, 1.5))


def sylvester_by_kronecker(rng):
    """a x + x b = c."""
    n = 2
    eye = constant(np.eye(n))

    def kronecker(a, b):
        return mg.einsum("ij,kl->ikjl", a, b).reshape(n * n, n * n)

    def solve(a, b, c):
        system = kronecker(a, eye) + kronecker(eye, b.mT)
        return gauss_jordan(system, c.reshape(n * n, 1)).reshape(n, n)

    return Right(solve, well(rng, n), well(rng, n), normal(rng, n, n))


def convolution_as_matmul(rng):
    n, k = size(rng, 4, 6), size(rng, 2, 3)
    index = np.arange(n - k + 1)[:, None] + np.arange(k)

    def convolved(x, kernel):
        return x[constant(index)] @ kernel

    return Right(convolved, normal(rng, n), normal(rng, k, 2))


def newton_schulz(rng):
    """The inverse, from its transpose scaled."""
    steps = size(rng, 2, 6)

    def inverse(a):
        x = a.mT / (a * a).sum()
        for _ in range(steps):
            x = 2 * x - x @ a @ x
        return x

    return Right(inverse, well(rng, size(rng, 2, 3)))


def conjugate_gradients(rng):
    n = size(rng, 3, 4)

    def solve(a, b):
        x, r = 0 * b, b
        p, rr = r, (b * b).sum()
        for _ in range(n - 1):
            ap = a @ p
            alpha = rr / (p * ap).sum()
            x, r = x + alpha * p, r - alpha * ap
            before, rr = rr, (r * r).sum()
            p = r + rr / before * p
        return x

    return Right(solve, positive_definite(rng, n), normal(rng, n))


def gaussian_log_likelihood(rng):
    n = size(rng, 2, 3)

    def density(mean, covariance, x):
        rows = cholesky_rows(covariance)
        z = []
        for i in range(n):
            z.append((x[i] - mean[i] - sum(rows[i][j] * z[j] for j in range(i))) / rows[i][i])
        return -0.5 * (mg.stack(z) ** 2).sum() - sum(row[-1].log() for row in rows) - n / 2 * math.log(2 * math.pi)

    return Right(density, normal(rng, n), positive_definite(rng, n), normal(rng, n))


MAKERS = [
    cholesky, log_determinant_by_cholesky, lu, determinant_by_lu, determinant_by_expansion, inverse_by_adjugate,
    gram_schmidt, householder, power_iteration, matrix_exponential, forward_substitution, linear_solve, least_squares,
    kalman_filter, sylvester_by_kronecker, convolution_as_matmul, newton_schulz, conjugate_gradients,
    gaussian_log_likelihood,
]  # fmt: skip
