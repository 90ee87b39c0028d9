"""Seconds for the 1,000 steps of examples/microgpt.py: minigrad, PyTorch, and plain Python with an autograd of scalars.

    python tests/benchmarks/microgpt.py [--only minigrad torch] [--rounds 3] [--json FILE]

One layer, 16 wide, 4 heads, a word a step, Adam. All begin with the same weights and read the same words, so their
first losses must agree. "plain Python" is what a reader could write without a library: a node for each number. Each has
a process of its own, and their turns are interleaved (see workers.py). A turn has fewer steps, and what 1,000 take is
reckoned from them.
"""

import itertools
import math
import time

import numpy as np
from workers import environment, interleaved, machine, parser, serve, spread, write

STEPS = {"minigrad": 500, "minigrad eager": 200, "torch": 200, "plain Python": 5}  # of a turn
LR, BETAS, EPS = 0.01, (0.85, 0.99), 1e-8
C, NH, T = 16, 4, 16


def task():
    """(kinds of letters, the words as arrays of ids, minigrad's first weights)."""
    import minigrad as mg
    from minigrad import nn
    from minigrad.training import text

    mg.manual_seed(42)
    words = sorted({w for w in text.read_corpus().lower().split() if w.isalpha() and len(w) < T})
    words = [words[i] for i in mg.randperm(len(words)).tolist()]
    vocab = text.CharVocab("\n".join(["", *words]))
    model = nn.GPT(nn.GPTConfig(len(vocab), block_size=T, n_layer=1, n_head=NH, n_embd=C))
    return [vocab.encode(f"\n{word}\n") for word in words], model


def minigrad(captured=True):
    import minigrad as mg
    from minigrad import optim

    words, model = task()
    optimizer = optim.Adam(model.parameters(), lr=LR, betas=BETAS, eps=EPS)

    def step(ids):
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = mg.capture(step) if captured else step
    return words, lambda ids: step(mg.tensor(ids[None])).item()


def torch():
    import torch
    from contenders import Sizes, plain_name, torch_model

    words, model = task()
    weights = {plain_name(name): w.numpy() for name, w in model.state_dict().items()}
    model = torch_model(Sizes(L=1, NH=NH, C=C, T=T, B=1, V=len(weights["wte.weight"])), weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, eps=EPS)

    def step(ids):
        ids = torch.from_numpy(ids)[None]
        loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return words, step


class Value:
    """A number that knows what it was computed from: its parents, and its derivative by each of them."""

    __slots__ = "data", "edges", "grad"

    def __init__(self, data, edges=()):
        self.data, self.edges, self.grad = data, edges, 0.0

    def __add__(self, other):
        return Value(self.data + other.data, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other):
        return Value(self.data * other.data, ((self, other.data), (other, self.data)))

    def of(self, y, slope):
        """A function's value y at this number, where its derivative is `slope`."""
        return Value(y, ((self, slope),))

    def backward(self):
        order, seen, stack = [], set(), [(self, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack += [(parent, False) for parent, _ in node.edges]
        self.grad = 1.0
        for node in reversed(order):
            for parent, slope in node.edges:
                parent.grad += slope * node.grad


def total(values):
    return Value(math.fsum(x.data for x in values), tuple((x, 1.0) for x in values))


def dot(xs, ys):
    edges = [(x, y.data) for x, y in zip(xs, ys)] + [(y, x.data) for x, y in zip(xs, ys)]
    return Value(sum(x.data * y.data for x, y in zip(xs, ys)), edges)


def linear(matrix, x):
    return [dot(row, x) for row in matrix]


def scaled(x, factor):
    return x.of(x.data * factor, factor)


def norm(x, weight):
    mean = scaled(total(x), -1 / len(x))
    centred = [v + mean for v in x]
    variance = scaled(total([v * v for v in centred]), 1 / len(x))
    rate = (variance.data + 1e-5) ** -0.5
    rate = variance.of(rate, -0.5 * rate**3)
    return [v * rate * w for v, w in zip(centred, weight)]


def gelu(x):
    v = x.data
    t = math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))
    slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * v * v)
    return x.of(0.5 * v * (1 + t), slope)


def softmax(scores):
    largest = max(x.data for x in scores)
    powers = [x.of(math.exp(x.data - largest), math.exp(x.data - largest)) for x in scores]
    whole = total(powers)
    rate = whole.of(1 / whole.data, -1 / whole.data**2)
    return [x * rate for x in powers]


def plain():
    words, model = task()
    w = {name: [[Value(float(x)) for x in row] for row in np.atleast_2d(p.numpy())] for name, p in
         model.state_dict().items()}  # fmt: skip
    parameters = [x for rows in w.values() for row in rows for x in row]
    means, squares, hs = [0.0] * len(parameters), [0.0] * len(parameters), C // NH
    block, done = "blocks.0.", 0

    def step(ids):
        nonlocal done
        done += 1
        keys, values, losses = [], [], []
        for at, (token, target) in enumerate(itertools.pairwise(ids)):
            x = [a + b for a, b in zip(w["wte.weight"][token], w["wpe.weight"][at])]
            qkv = linear(w[block + "attn.in_proj_weight"], norm(x, w[block + "norm1.weight"][0]))
            q, k, v = qkv[:C], qkv[C : 2 * C], qkv[2 * C :]
            keys.append(k), values.append(v)
            z = []
            for head in (slice(i, i + hs) for i in range(0, C, hs)):
                pattern = softmax([scaled(dot(q[head], k[head]), hs**-0.5) for k in keys])
                z += [dot(pattern, column) for column in zip(*(v[head] for v in values))]
            x = [a + b for a, b in zip(x, linear(w[block + "attn.out_proj.weight"], z))]
            hidden = map(gelu, linear(w[block + "mlp.fc.weight"], norm(x, w[block + "norm2.weight"][0])))
            x = [a + b for a, b in zip(x, linear(w[block + "mlp.proj.weight"], list(hidden)))]
            share = softmax(linear(w["wte.weight"], norm(x, w["norm.weight"][0])))[target]
            losses.append(share.of(-math.log(share.data), -1 / share.data))
        loss = scaled(total(losses), 1 / len(losses))
        loss.backward()
        for i, p in enumerate(parameters):
            means[i] = BETAS[0] * means[i] + (1 - BETAS[0]) * p.grad
            squares[i] = BETAS[1] * squares[i] + (1 - BETAS[1]) * p.grad**2
            root = math.sqrt(squares[i] / (1 - BETAS[1] ** done)) + EPS
            p.data -= LR * means[i] / (1 - BETAS[0] ** done) / root
            p.grad = 0.0
        return loss.data

    return words, step


CONTENDERS = {
    "minigrad": minigrad,
    "minigrad eager": lambda: minigrad(captured=False),
    "torch": torch,
    "plain Python": plain,
}


def work(name):
    words, step = CONTENDERS[name]()
    losses = [step(ids) for ids in words[:3]]
    warm = [step(ids) for ids in words[3:60]] if STEPS[name] > 10 else []

    def turn(request):
        done, start = 3 + len(warm), time.perf_counter()
        for i in range(STEPS[name]):
            step(words[(done + i) % len(words)])
        return (time.perf_counter() - start) / STEPS[name]

    return losses, turn


def main():
    args = parser(__doc__, rounds=3)
    args.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    args = args.parse_args()
    if args.worker:
        serve(lambda: work(args.worker))
        return
    commands = {name: ([__file__, "--worker", name], None) for name in args.only}
    workers = interleaved(commands, environment(args), args.rounds)
    about = machine(args)
    print(f"{about['cpu']}, {about['date'][:10]}\n\n{'':16} {'s per 1,000 steps':>18}  first losses")
    found = {}
    for name, worker in workers.items():
        found[name] = spread([[seconds] for seconds in worker.rounds])
        losses = " ".join(f"{loss:.5f}" for loss in worker.ready)
        print(f"{name:16} {found[name]['median'] * 1e3:18.2f}  {losses}")
    write(args.json, about, args.rounds, seconds_per_step=found)


if __name__ == "__main__":
    main()
