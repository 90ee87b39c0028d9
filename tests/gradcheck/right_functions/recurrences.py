"""Loops: recurrent cells, iterations to a fixed point, steps of differential equations, programs in the log domain."""

import math

import numpy as np

import minigrad as mg

from .material import Right, apart, constant, normal, pick, positive_definite, size, tensor, uniform


def rnn(rng):
    n = size(rng, 1, 2)

    def run(x, w, u, b):
        h = constant(np.zeros(n))
        for step in x.unbind(0):
            h = (step @ w + h @ u + b).tanh()
        return h

    return Right(run, normal(rng, size(rng, 2, 6), 2), normal(rng, 2, n), normal(rng, n, n), normal(rng, n))


def lstm(rng):
    n = size(rng, 1, 2)

    def run(x, w, b):
        h, c = constant(np.zeros(n)), constant(np.zeros(n))
        for step in x.unbind(0):
            i, f, g, o = (mg.cat([step, h]) @ w + b).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h, c

    return Right(run, normal(rng, size(rng, 2, 4), 1), normal(rng, 1 + n, 4 * n), normal(rng, 4 * n))


def gru(rng):
    n = size(rng, 1, 2)

    def run(x, w, u):
        h = constant(np.zeros(n))
        for step in x.unbind(0):
            a, b = (step @ w).chunk(3), (h @ u).chunk(3)
            r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
            h = (1 - z) * (a[2] + r * b[2]).tanh() + z * h
        return h

    return Right(run, normal(rng, 3, 2), normal(rng, 2, 3 * n), normal(rng, n, 3 * n))


def newton_root(rng):
    """The k-th root by Newton's iteration, all steps differentiated."""
    k, steps = size(rng, 2, 4), size(rng, 2, 8)

    def root(a):
        x = 1 + (a - 1) / k
        for _ in range(steps):
            x = x - (x**k - a) / (k * x ** (k - 1))
        return x

    return Right(root, uniform(rng, 0.5, 3, 3))


def fixed_point(rng):
    steps = size(rng, 5, 30)

    def settle(w, b):
        x = 0 * b
        for _ in range(steps):
            x = (0.4 * (w @ x) + b).tanh()
        return x

    return Right(settle, normal(rng, 2, 2), normal(rng, 2))


def kepler(rng):
    """E - e sin E = M."""

    def anomaly(m, e):
        x = m
        for _ in range(6):
            x = x - (x - e * x.sin() - m) / (1 - e * x.cos())
        return x

    return Right(anomaly, uniform(rng, 0.5, 2.5, 2), uniform(rng, 0.1, 0.6))


def runge_kutta(rng):
    steps, h = size(rng, 1, 4), pick(rng, [0.01, 0.1, 0.3])

    def pendulum(state, damping):
        def slope(s):
            return mg.stack([s[1], -s[0].sin() - damping * s[1]])

        for _ in range(steps):
            k1 = slope(state)
            k2 = slope(state + h / 2 * k1)
            k3 = slope(state + h / 2 * k2)
            k4 = slope(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state

    return Right(pendulum, normal(rng, 2), uniform(rng, 0, 1))


def leapfrog(rng):
    def orbit(q, p):
        for _ in range(3):
            p = p - 0.05 * q / ((q * q).sum() + 0.1) ** 1.5
            q = q + 0.1 * p
        return q, p

    return Right(orbit, uniform(rng, 0.5, 1.5, 2), normal(rng, 2))


def logistic_map(rng):
    """Chaotic: the gradient grows with each step."""
    steps = pick(rng, [3, 10, 20])

    def run(x, r):
        for _ in range(steps):
            x = r * x * (1 - x)
        return x

    return Right(run, uniform(rng, 0.2, 0.8), uniform(rng, 3.0, 3.9))


def gradient_descent_by_hand(rng):
    """A step size, differentiated through its training."""

    def trained(w, rate, x, y):
        for _ in range(3):
            w = w - rate * (x.mT @ (x @ w - y)) / 3
        return ((x @ w - y) ** 2).mean()

    return Right(trained, normal(rng, 2), uniform(rng, 0.05, 0.3), normal(rng, 3, 2), normal(rng, 3))


def momentum(rng):
    def trained(w, rate, beta):
        v = 0 * w
        for _ in range(4):
            v = beta * v + w**3 - w
            w = w - rate * v
        return w

    return Right(trained, normal(rng, 2), uniform(rng, 0.01, 0.2), uniform(rng, 0.5, 0.9))


def hidden_markov_forward(rng):
    n, observed = size(rng, 2, 3), rng.integers(0, 2, size(rng, 2, 5))

    def log_likelihood(start, transition, emission):
        alpha = start.log_softmax(0) + emission.log_softmax(1)[:, int(observed[0])]
        move = transition.log_softmax(1)
        for o in observed[1:]:
            alpha = (alpha.unsqueeze(1) + move).logsumexp(0) + emission.log_softmax(1)[:, int(o)]
        return alpha.logsumexp(0)

    return Right(log_likelihood, normal(rng, n), normal(rng, n, n), normal(rng, n, 2))


def ctc(rng):
    """Graves et al., "Connectionist temporal classification", 2006: all alignments of one label sequence."""
    t, labels = size(rng, 3, 4), [1, 2] if rng.integers(2) else [1]
    extended = [0]
    for label in labels:
        extended += [label, 0]

    def loss(logits):
        logp = logits.log_softmax(-1)
        dead = constant(-math.inf)
        alpha = [logp[0, extended[s]] if s < 2 else dead for s in range(len(extended))]
        for step in range(1, logits.shape[0]):
            after = []
            for s, label in enumerate(extended):
                sources = alpha[max(s - 1, 0) : s + 1]
                if s > 1 and label and label != extended[s - 2]:
                    sources = [*sources, alpha[s - 2]]
                after.append(mg.stack(sources).logsumexp(0) + logp[step, label])
            alpha = after
        return -mg.stack(alpha[-2:]).logsumexp(0)

    return Right(loss, normal(rng, t, 3))


def viterbi(rng):
    """The score of the best path, from numbers whose paths are apart."""

    def best(emission, transition):
        score = emission[0]
        for e in emission[1:].unbind(0):
            score = (score.unsqueeze(1) + transition).amax(0) + e
        return score.amax(0)

    return Right(best, apart(rng, 3, 2) * math.pi, apart(rng, 2, 2) * math.e)


def crf(rng):
    tags = rng.integers(0, 2, 4)

    def loss(emission, transition):
        alpha, path = emission[0], emission[0, int(tags[0])]
        for t in range(1, 4):
            alpha = (alpha.unsqueeze(1) + transition).logsumexp(0) + emission[t]
            path = path + transition[int(tags[t - 1]), int(tags[t])] + emission[t, int(tags[t])]
        return alpha.logsumexp(0) - path

    return Right(loss, normal(rng, 4, 2), normal(rng, 2, 2))


def soft_dtw(rng):
    """Cuturi and Blondel, "Soft-DTW", 2017."""
    gamma = pick(rng, [0.1, 1.0])

    def distance(x, y):
        cost = (x.unsqueeze(1) - y.unsqueeze(0)) ** 2
        dead = constant(math.inf)
        above = [constant(0.0)] + [dead] * y.shape[0]
        for i in range(x.shape[0]):
            row = [dead]
            for j in range(y.shape[0]):
                least = -gamma * (mg.stack([above[j], above[j + 1], row[j]]) / -gamma).logsumexp(0)
                row.append(cost[i, j] + least)
            above = row
        return above[-1]

    return Right(distance, normal(rng, 3), normal(rng, size(rng, 2, 3)))


def linear_scan(rng):
    def scan(a, b):
        h, out = b[0] * 0, []
        for i in range(a.shape[0]):
            h = a[i] * h + b[i]
            out.append(h)
        return mg.stack(out)

    n = size(rng, 3, 8)
    return Right(scan, uniform(rng, -1, 1, n), normal(rng, n))


def sinkhorn(rng):
    steps = size(rng, 2, 5)

    def plan(cost):
        logp = -cost
        for _ in range(steps):
            logp = logp.log_softmax(0).log_softmax(1)
        return logp.exp()

    return Right(plan, normal(rng, 3, 3, scale=pick(rng, [1.0, 10.0])))


def inverse_square_root(rng):
    """Denman and Beavers' iteration with a 2 × 2 inverse by hand."""

    def inverse(a):
        adjugate = mg.stack([mg.stack([a[1, 1], -a[0, 1]]), mg.stack([-a[1, 0], a[0, 0]])])
        return adjugate / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])

    def root(a):
        y, z = a, constant(np.eye(2))
        for _ in range(5):
            y, z = 0.5 * (y + inverse(z)), 0.5 * (z + inverse(y))
        return y

    return Right(root, positive_definite(rng, 2))


def arithmetic_geometric_mean(rng):
    def agm(a, b):
        for _ in range(5):
            a, b = 0.5 * (a + b), (a * b).sqrt()
        return a

    return Right(agm, tensor(10 ** rng.uniform(-3, 3, 2)), uniform(rng, 0.5, 2, 2))


MAKERS = [
    rnn, lstm, gru, newton_root, fixed_point, kepler, runge_kutta, leapfrog, logistic_map, gradient_descent_by_hand,
    momentum, hidden_markov_forward, ctc, viterbi, crf, soft_dtw, linear_scan, sinkhorn, inverse_square_root,
    arithmetic_geometric_mean,
]  # fmt: skip
