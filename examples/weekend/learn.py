"""Write your own engine, step by step, and have it checked.

    minigrad learn start DIR     copy the files of all steps to a folder of your own
    minigrad learn               in that folder: which steps are done, and what is next
    minigrad learn 2             check step 2
    minigrad learn 2 --hint      print one more sentence
    minigrad learn 2 --solution  print the lines that were left out

Each step is a file with a few places marked "your turn", where you replace a line of dots by your code. (Steps 4 and 6
have code with a mistake in such a place.) The file runs by itself, python step2_value.py, and draws a picture. The
check runs your code and compares its slopes with finite differences. Where they disagree it prints the place, both
numbers, and the line of yours to look at.
"""

import importlib
import inspect
import math
import random
import re
import sys
import time
from functools import wraps
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.base import cli
from minigrad.gradcheck import gradcheck

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("step*.py"), key=lambda file: int(re.findall(r"\d+", file.name)[0]))
TURN = re.compile(r" *# your turn: ")  # begins a place where the reader writes
END = re.compile(r" *# end$")  # ends it
GIVEN = re.compile(r" *# ~")  # a line of code with a mistake, which the reader gets instead of dots


# ------------------------------------------------------------------------------------------------------- the exercises


def skeleton(text):
    """Return the text of a step without its solutions: with `...` in their place, or the lines marked # ~."""
    lines, inside = [], False
    for line in text.splitlines():
        if TURN.match(line):
            lines.append(line)
            inside, given = True, False
        elif inside and GIVEN.match(line):
            lines.append(line.replace("# ~", "", 1))
            given = True
        elif inside and END.match(line):
            if not given:
                lines.append(line.replace("# end", "..."))
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines) + "\n"


def solution(text):
    """Return the solutions in the text of a step, with their line numbers and marks."""
    shown, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        inside = inside or bool(TURN.match(line))
        if inside and not GIVEN.match(line):
            shown.append(f"{number:4} {line}")
        inside = inside and not END.match(line)
    return "\n".join(shown)


class NotYet(Exception):
    """What is wrong with a step, in a sentence for the reader."""


def require_written(file):
    """Raise NotYet if the file is missing, or if it or a step that it imports still has a line of dots."""
    if not file.exists():
        raise NotYet(f"no {file.name} in {file.parent.resolve()}: `minigrad learn start DIR` copies all steps to DIR")
    text, wanted = file.read_text(encoding="utf-8"), ""
    for name in re.findall(r"^from (step\d+_\w+) import", text, re.M):
        require_written(file.with_name(f"{name}.py"))
    for number, line in enumerate(text.splitlines(), 1):
        if TURN.match(line):
            wanted = TURN.sub("", line)
        if line.strip() == "...":
            raise NotYet(f"{file.name}:{number} waits for your code: {wanted}")


def imported(file):
    """Import the reader's step, and read all steps that it imports from the same folder anew."""
    for name in [name for name in sys.modules if re.match(r"step\d|pictures$", name)]:
        del sys.modules[name]
    importlib.invalidate_caches()
    before = sys.path, sys.dont_write_bytecode  # bytecode would be stale where a file changes twice in one second
    sys.path, sys.dont_write_bytecode = [str(file.parent.resolve()), *sys.path], True
    try:
        return importlib.import_module(file.stem)
    except SyntaxError as error:
        raise NotYet(f"{Path(error.filename or file).name}:{error.lineno} is no Python yet: {error.msg}") from None
    finally:
        sys.path, sys.dont_write_bytecode = before


# ---------------------------------------------------------------------------------------------------------- the checks


def look_at(function):
    """Return "look at NAME, FILE:LINE" for a function of the reader."""
    code = inspect.unwrap(function).__code__
    return f"look at {code.co_name}, {Path(code.co_filename).name}:{code.co_firstlineno}"


def require(right, message, blame):
    """Raise NotYet with this message, and point to the function `blame`, unless `right` is true."""
    if not right:
        raise NotYet(f"{message}{'' if message.endswith('?') else '.'} {look_at(blame)}")


def near(found, expected, tolerance, what, blame, hint=""):
    """Raise NotYet unless `found`, a number or an array, is `expected` up to rounding. The hint ends the message."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    shapes = f"{what} has shape {found.shape}; it should be {expected.shape}"
    require(found.shape == expected.shape, shapes, blame)
    difference = np.where(np.isfinite(found), abs(found - expected), np.inf)
    if difference.size and difference.max() > tolerance * max(1.0, abs(expected).max()):
        at = np.unravel_index(difference.argmax(), difference.shape)
        place = f"{what}[{', '.join(map(str, at))}]" if at else what
        texts = [(f"{found[at]:.{digits}g}", f"{expected[at]:.{digits}g}") for digits in (6, 9, 17)]
        one, other = next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
        require(False, f"{place} is {one}; it should be {other}{hint}", blame)


def same(found, expected, what, blame, hint=""):
    """Raise NotYet unless `found` is `expected` to 12 digits."""
    near(found, expected, 1e-12, what, blame, hint)


def slopes(what, f, *inputs, blame, arriving=1.0):
    """Raise NotYet unless the reader's backward() gives the slopes of f that finite differences give.

    The result of f is multiplied by `arriving`: that slope then arrives at the last operation of f."""
    if arriving != 1:
        what = f"{what} * {arriving}"
    names = list(inspect.signature(f).parameters)

    def run(arrays):
        xs = [type(x)(a if a.ndim else float(a)) for x, a in zip(inputs, arrays)]
        y = f(*xs)
        return (y * arriving if arriving != 1 else y), xs

    def vjp(dy, *arrays):
        y, xs = run(arrays)
        y.backward(*[dy] * bool(dy.ndim))  # a number starts with a slope of 1
        changed = dy.ndim and not np.array_equal(y.grad, dy)
        require(not changed, f"{what}: back changes dy, which is the slope of the result. Make a new array", blame)
        for name, x in zip(names, xs):
            if np.shape(x.grad) != np.shape(x.data):
                slope_of = f"{what}: back gives {name}, of shape {np.shape(x.data)}, a slope of shape"
                require(False, f"{slope_of} {np.shape(x.grad)}. Sum it over the axes that were repeated", blame)
        return tuple(np.asarray(x.grad) * (1 if dy.ndim else dy) for x in xs)

    values = wraps(f)(lambda *arrays: np.asarray(run(arrays)[0].data, float))
    try:
        report = gradcheck(values, *(np.array(x.data, float) for x in inputs), vjp=vjp, probes=(), raise_on_fail=False)
    except NotYet:
        raise
    except Exception as error:
        raise NotYet(f"{what}: {type(error).__name__}: {error}. {look_at(blame)}") from None
    if report:
        return
    worst = report.worst
    place = worst.place.removesuffix("[]")
    output = f" (from output {worst.output.removesuffix('[]')})" if worst.output not in ("", "[]") else ""
    hint = f" ({worst.hints[0]})" if worst.hints else ""
    if arriving != 1 and math.isclose(arriving * worst.analytic, worst.numeric, rel_tol=1e-6):
        hint = f" (the slope that arrives, dy = {arriving}, is not in it)"
    raise NotYet(
        f"{what}: the slope for {place}{output} is {worst.analytic:.6g} by your backward(), and {worst.numeric:.6g} by "
        f"differences{hint}. {look_at(blame)}"
    )


def slope(m):
    for name, f, x, h, expected in (
        ("x²", lambda x: x * x, 3.0, 1e-5, 6.0),
        ("x³", lambda x: x**3, 0.0, 1.0, 1.0),
        ("exp", math.exp, 1.0, 1e-5, math.e),
    ):
        what = f"slope({name}, {x:g}, h={h:g})"
        found = m.slope(f, x, h=h)
        require(found is not None, f"{what} returns nothing: is there a return?", m.slope)
        near(found, expected, 1e-8, what, m.slope)
        yield f"{what} = {expected:.6g}"
    near(m.slope(abs, 0.0), 0.0, 1e-12, "slope(abs, 0), which has the same value on both sides,", m.slope)
    best = m.best_h()
    require(best is not None, "best_h() returns nothing: is there a return?", m.best_h)
    require(1e-7 < best < 1e-4, f"best_h() is {best:g}, whose error is not the smallest of all", m.best_h)
    yield f"the best h is {best:g}: where the formula's error meets that of rounding"


def value(m):
    V = m.Value
    a, b, c = V(0.7), V(-1.3), V(0.4)
    once = V(2.0)
    once.backward()
    near(once.grad, 1.0, 0.0, "after y.backward(), the slope of y itself", V.backward)
    yield "a number's own slope is 1"
    slopes("a + b", lambda a, b: a + b, a, b, blame=V.backward)
    slopes("a + b + c", lambda a, b, c: a + b + c, a, b, c, blame=V.backward)
    slopes("a * b", lambda a, b: a * b, a, b, blame=V.__mul__)
    slopes("(a * b)", lambda a, b: a * b, a, b, blame=V.__mul__, arriving=1.7)
    for n in (3, -1, 2):
        slopes(f"a ** {n}", lambda a, n=n: a**n, a, blame=V.__pow__, arriving=1.7)
    slopes("tanh(a)", lambda a: a.tanh(), a, blame=V.tanh, arriving=1.7)
    yield "sums, products, powers, tanh"
    slopes("a + a", lambda a: a + a, a, blame=V.backward)
    slopes("a * a * a", lambda a: a * a * a, a, blame=V.backward)
    slopes("one b, used twice: b = 3a, y = b + 2b", used_twice, a, blame=V.backward)
    yield "what is used twice gets both slopes"
    slopes("tanh(a b + a) - a / b", lambda a, b: (a * b + a).tanh() - a / b, a, b, blame=V.backward)
    yield "a longer formula"


def order(m):
    V = m.Value
    a = V(0.5)
    b = a * 3
    y = b + b * 2
    found = m.ordered(y)
    places = {id(node): i for i, node in enumerate(found)}
    require(len(places) == len(found), "ordered(y) has a node more than once", m.ordered)
    for node in found:
        for parent in node.parents:
            wrong = f"ordered(y) lacks {parent.op or 'a leaf'}, or has it after what was made of it"
            require(places.get(id(parent), len(found)) < places[id(node)], wrong, m.ordered)
    require(found and found[-1] is y, "ordered(y) must end with y", m.ordered)
    yield "parents come first, and each once"
    slopes("b = 3a, y = b + 2b", lambda a: (a * 3) + (a * 3) * 2, V(0.5), blame=m.walk)
    slopes("one b, used twice: b = 3a, y = b + 2b", used_twice, V(0.5), blame=m.walk)
    yield "a node that is used twice waits for both"
    y.backward()
    before = a.grad
    y.backward()
    near(a.grad, 2 * before, 1e-12, "after a second backward(), the slope of a", m.walk)
    yield "a second backward() adds as much again at the leaves"
    rng = random.Random(0)
    for size in (3, 8, 15, 30):
        seed = rng.random()
        f = lambda *xs, seed=seed, size=size: random_formula(xs, random.Random(seed), size)  # noqa: E731
        slopes(f"a random graph of {size} nodes", f, *(V(rng.uniform(-1, 1)) for _ in range(3)), blame=m.walk)
    yield "random graphs of up to 30 nodes"
    x = y = V(1.0)
    for _ in range(60):
        y = y + y
    began = time.perf_counter()
    y.backward()
    near(x.grad, 2.0**60, 0.0, "the slope of 60 doublings", m.walk)
    yield f"60 doublings in {time.perf_counter() - began:.3f} s, where step 2 would walk for 30,000 years"


def used_twice(a):
    """y = b + 2b of one node b = 3a."""
    b = a * 3
    return b + b * 2


def random_formula(xs, rng, size):
    """A formula of some Values, drawn at random, with `size` nodes."""
    nodes = list(xs)
    while len(nodes) < size:
        a, b = rng.choice(nodes), rng.choice(nodes)
        nodes.append((a + b, a * b, a.tanh())[rng.randrange(3)])
    return sum(nodes[1:], nodes[0]).tanh()


def neuron(m):
    rng = random.Random(0)
    n = m.Neuron(2, rng)
    expected = math.tanh(n.w[0].data * 0.3 + n.w[1].data * -0.6)
    near(n([0.3, -0.6]).data, expected, 1e-12, "a neuron's output for (0.3, -0.6)", m.Neuron.__call__)
    n.b.data = 0.5
    expected = math.tanh(n.w[0].data * 0.3 + n.w[1].data * -0.6 + 0.5)
    near(n([0.3, -0.6]).data, expected, 1e-12, "a neuron's output with a bias of 0.5", m.Neuron.__call__)
    yield "a neuron is tanh(w x + b)"
    points, labels = [(0.1, 0.4), (-0.3, 0.2)], [1, -1]
    model = m.MLP([2, 2, 1], random.Random(1))
    m.loss_of(model, points, labels).backward()
    first, old = [p.grad for p in model.parameters()], [p.data for p in model.parameters()]
    for p in model.parameters():
        p.grad = 0.0
    try:
        m.step(model, points, labels, lr=0.0)
    finally:  # None + a slope is a TypeError in the walk
        none = "a step sets .grad to None: in this engine slopes start from 0.0"
        require(all(p.grad is not None for p in model.parameters()), none, m.step)
    m.step(model, points, labels, lr=0.1)
    moved = [p.data for p in model.parameters()] != old
    require(moved, "a step changes nothing: all slopes are 0 when it takes them", m.step)
    for p, x, g in zip(model.parameters(), old, first):
        twice = abs((x - p.data) / 0.1 - 2 * g) < 1e-9 < abs(g)
        wrong = "a second step has twice the slopes of the first: it adds to what the first left in .grad"
        require(not twice, wrong, m.step)
        near(p.data, x - 0.1 * g, 1e-12, f"after a step with lr=0.1, a weight of {x:.4g} with slope {g:.4g}", m.step)
    yield "a step starts from 0 slopes, and goes downhill"
    rng = random.Random(1)
    model, (points, labels) = m.MLP([2, 6, 6, 1], rng), m.moons(24, rng)
    losses = [m.step(model, points, labels) for _ in range(41)]
    require(losses[-1] < 0.2, f"after 40 steps the loss is {losses[-1]:.3f}; it should be below 0.2", m.step)
    yield f"it learns the moons: loss {losses[0]:.2f}, after 40 steps {losses[-1]:.2f}"


def tensor(m):
    T, rng = m.Tensor, np.random.default_rng(0)

    def t(*shape):
        return T(rng.normal(size=shape))

    for shape in (4,), (3, 1), (1, 4), (3, 4), (2, 3, 4), (2, 1, 4), ():
        found, what = m.unbroadcast(np.ones((2, 3, 4)), shape), f"unbroadcast(a slope of shape (2, 3, 4), {shape})"
        require(np.shape(found) == shape, f"{what} has shape {np.shape(found)}", m.unbroadcast)
        near(float(np.sum(found)), 24.0, 1e-9, f"the sum of {what}, of ones,", m.unbroadcast)
    yield "unbroadcast sums over what was repeated"
    for a, b in (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 2, 3), (2, 1))):
        slopes(f"{a} * {b}", lambda a, b: a * b, t(*a), t(*b), blame=T.__mul__)
    yield "products, broadcast or not"
    for a, b in (((2, 3), (3, 2)), ((1, 3), (3, 1)), ((2, 2, 3), (2, 3, 2)), ((2, 2, 3), (3, 2)), ((2, 3), (2, 3, 2))):
        slopes(f"{a} @ {b}", lambda a, b: a @ b, t(*a), t(*b), blame=T.__matmul__)
    yield "products of matrices, and of stacks of them"
    for axis in (None, 0, -1):
        slopes(f"sum over axis {axis}", lambda a, axis=axis: a.sum(axis), t(2, 3), blame=T.sum)
    slopes("permute(2, 0, 1)", lambda a: a.permute(2, 0, 1), t(1, 2, 3), blame=T.permute)
    yield "sum, permute"
    slopes("rows [0, 2, 2]", lambda a: a.rows(np.array([0, 2, 2])), t(3, 2), blame=T.rows)
    slopes("rows 1", lambda a: a.rows(1), t(3, 2), blame=T.rows)
    yield "rows, also one that comes twice, and a single one"
    slopes("tanh(a @ b + c) ** 2", lambda a, b, c: (a @ b + c).tanh() ** 2, t(2, 3), t(3, 2), t(2), blame=T.__matmul__)
    yield "a layer"


def softmax(m):
    rng = np.random.default_rng(0)
    s = m.Tensor(rng.normal(size=(2, 3, 4)) * 2)
    slopes("softmax", m.softmax, s, blame=m.softmax)
    m.softmax(s).backward(rng.normal(size=(2, 3, 4)))
    near(float(abs(s.grad.sum(-1)).max()), 0.0, 1e-12, "the sum of a row of dS", m.softmax)
    yield "softmax; the slopes of a row of scores sum to 0"
    logits, targets = m.Tensor(rng.normal(size=(3, 4))), np.array([0, 3, 3])
    for arriving in 1.0, 1.7:
        slopes("cross_entropy", lambda x: m.cross_entropy(x, targets), logits, blame=m.cross_entropy, arriving=arriving)
    yield "cross_entropy"
    x, w = m.Tensor(rng.normal(size=(2, 1, 4))), m.Tensor(rng.normal(size=4))
    slopes("layer_norm", m.layer_norm, x, w, blame=m.layer_norm)
    yield "layer_norm"
    slopes("gelu", m.gelu, m.Tensor(rng.normal(size=4)), blame=m.gelu)
    yield "gelu"


def bigram(m):
    rng, text = np.random.default_rng(0), "to be or not to be "
    letters = m.Letters(text)
    ids, V = letters.encode(text * 20), len(letters.all)
    x, y = m.batch(np.arange(30), 4, 5, rng)
    same(x, x[:, :1] + np.arange(5), "of a text of the letters 0, 1, 2, …, x", m.batch)
    same(y, x + 1, "of a text of the letters 0, 1, 2, …, y", m.batch)
    x, y = m.batch(ids, 4, 5, rng)
    yield "each letter of a batch comes with the next"
    near(float(m.loss_of(m.Tensor(np.zeros((V, V))), x, y).data), math.log(V), 1e-12, "the first loss", m.loss_of)
    scores = rng.normal(size=(V, V))
    mean_cost = (np.log(np.exp(scores).sum(-1))[x] - scores[x, y]).mean()
    what = "the loss of a table of random scores, the mean over all letters y, each in the row of its x,"
    near(float(m.loss_of(m.Tensor(scores), x, y).data), mean_cost, 1e-12, what, m.loss_of)
    slopes("loss_of", lambda table: m.loss_of(table, x, y), m.Tensor(rng.normal(size=(V, V))), blame=m.loss_of)
    yield f"a table of zeros costs ln {V}, and its slopes are right"
    check_adam(m, rng)
    yield "20 steps of Adam are minigrad's"
    losses = m.train(m.Tensor(np.zeros((V, V))), ids, 100, rng)
    require(losses[-1] < 0.8, f"after 100 steps the loss is {losses[-1]:.3f}; it should be below 0.8", m.Adam.step)
    yield f"it learns: loss {losses[0]:.2f}, after 100 steps {losses[-1]:.2f}"


def check_adam(m, rng):
    """Compare 20 steps of the reader's Adam with minigrad's. The betas and eps make each forgotten part visible."""
    options = dict(lr=0.1, betas=(0.8, 0.95), eps=0.1)
    mine, theirs = m.Tensor(np.ones((2, 3))), mg.tensor(np.ones((2, 3)), requires_grad=True)
    adam, real = m.Adam([mine], **options), optim.Adam([theirs], **options)
    for t in range(20):
        g = mine.grad = rng.normal(size=(2, 3))
        theirs.grad = mg.tensor(g)
        with np.errstate(all="ignore"):
            adam.step()
        real.step()
        hint = ""
        if t == 0:
            uncorrected = 1 - 0.1 * 0.2 * g / (np.sqrt(0.05) * abs(g) + 0.1)
            inside = 1 - 0.1 * g / np.sqrt(g**2 + 0.1)
            if np.allclose(mine.data, uncorrected):
                hint = " (that is p - lr m / (√v + ε): use m̂ and v̂)"
            elif np.allclose(mine.data, inside):
                hint = " (that is with ε under the root)"
        same(mine.data, theirs.detach().numpy(), f"after step {t + 1} of Adam, p", m.Adam.step, hint)


def head(m):
    rng = np.random.default_rng(0)
    x, *weights = (m.Tensor(0.7 * rng.normal(size=size)) for size in ((5, 8), (8, 4), (8, 4), (8, 4)))
    z, mine = m.head(x, *weights)
    P = np.asarray(mine["P"].data)
    require(not np.triu(P, 1).any(), "P is not 0 above its diagonal: a query sees keys that come later", m.head)
    # Head 0 of this layer of two has the reader's weights. C = 8 and hs = 4 differ, and so do their roots.
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).to(mg.float64)
    with mg.no_grad():
        layer.in_proj_weight.copy_(mg.tensor(np.concatenate([w.data.T for w in weights for _ in range(2)])))
        layer.out_proj.weight.copy_(mg.eye(8, dtype=mg.float64))
    dz, given = rng.normal(size=(5, 4)), mg.tensor(x.data[None])
    with study.trace_heads(layer) as trace:
        (layer(given, is_causal=True)[0][..., :4] * dz).sum().backward()
    seen = trace[""]
    S, real_S = np.tril(mine["S"].data), np.tril(seen.scores[0, 0])
    hint = " (q kᵀ was not divided by √hs)" if np.allclose(S, 2 * real_S) else ""
    hint = " (divided by √C; it should be √hs)" if np.allclose(S * 8**0.5, real_S * 4**0.5) else hint
    same(S, real_S, "S", m.head, hint)
    sums_wrong = " (each row of P must sum to 1: mask S before the softmax, which runs along the last axis)"
    hint = "" if np.allclose(P.sum(-1), 1) else sums_wrong
    same(P, seen.pattern[0, 0], "P", m.head, hint)
    same(z.data, seen.z[0, 0], "z", m.head)
    yield "q, k, v, S, P and z are those of minigrad's layer"
    z.backward(dz)
    real = {"v": seen.v_grad, "P": seen.pattern_grad, "S": seen.scores_grad, "q": seen.q_grad, "k": seen.k_grad}
    for name, gradient in real.items():
        own = np.tril(mine[name].grad) if name == "S" else mine[name].grad
        same(own, gradient[0, 0], f"your engine's d{name}", m.head)
    yield "their gradients by your engine too"
    found = m.by_hand(*(mine[name].data for name in "qkvP"), dz)
    for name, gradient in real.items():
        same(found[name], gradient[0, 0], f"d{name} by hand", m.by_hand)
    yield "and by hand: dv, dP, dS, dq, dk"


HEAD_PARTS = ("q", "k", "v", "pattern", "z")


def same_heads(own, real, what, blame):
    """Raise NotYet unless two arrays of all heads agree. Says so if the same numbers stand in other places."""
    sorted_alike = own.size == real.size and np.allclose(np.sort(own, None), np.sort(real, None), atol=1e-9)
    hint = " (the numbers are right and stand in other places: see reshape and permute)" if sorted_alike else ""
    same(own, real, what, blame, hint)


def gpt(m):
    rng = np.random.default_rng(0)
    mg.manual_seed(3)
    # B, T, nh, hs = 3, 7, 4, 2 all differ, so that a reshape to the wrong axes cannot give the right shape.
    model = nn.GPT(nn.GPTConfig(11, block_size=7, n_layer=2, n_head=4, n_embd=8, bias=False)).to(mg.float64)
    layer, x, seen = model.blocks[0].attn, rng.normal(size=(3, 7, 8)), {}
    with study.trace_heads(layer, grads=False) as trace, mg.no_grad():
        expected, _ = layer(mg.tensor(x), is_causal=True)
    weights = (m.Tensor(w.detach().numpy()) for w in (layer.in_proj_weight, layer.out_proj.weight))
    found = m.attention(m.Tensor(x), *weights, 4, seen)
    for name in HEAD_PARTS:
        axes = "(B, nh, T, T)" if name == "pattern" else "(B, nh, T, hs)"
        same_heads(seen[name].data, getattr(trace[""], name), f"{name} {axes} of a layer alone, ", m.attention)
    require(found is not None, "attention returns nothing: is there a return?", m.attention)
    what = "q, k, v, P and z are right, but what attention returns, "
    same(found.data, expected.numpy(), what, m.attention)
    yield "a layer of heads, alone"
    x, y = rng.integers(11, size=(3, 7)), rng.integers(11, size=(3, 7))
    with study.trace_heads(model) as trace:
        _, loss = model(mg.tensor(x), mg.tensor(y))
        loss.backward()
    p, mine = {name: m.Tensor(w.numpy()) for name, w in model.state_dict().items()}, {}
    own = m.loss_of(p, x, y, 2, 4, mine)
    for layer in trace:
        for name in HEAD_PARTS:
            what = f"attention is right, but {name} of {layer}, "
            same(mine[layer][name].data, getattr(trace[layer], name), what, m.logits_of)
    yield "q, k, v, P and z of all heads are minigrad's"
    near(float(own.data), loss.item(), 1e-12, "the loss", m.logits_of)
    yield f"the loss too, {loss.item():.6f}"
    own.backward()
    for layer in trace:
        for name in ("z", "v", "pattern", "scores", "q", "k"):
            gradient = getattr(trace[layer], f"{name}_grad")
            same(mine[layer][name].grad, gradient, f"the gradient of {name} of {layer}, ", m.logits_of)
    yield "the gradients of all heads are minigrad's, to 12 digits"
    for name, w in model.named_parameters():
        same(p[name].grad, w.grad.numpy(), f"the gradient of {name}", m.logits_of)
    yield "and those of all weights"


def training(m):
    ids, sizes = m.Letters("abc").encode("abc" * 40), dict(B=4, T=8, n_layer=1, nh=2)
    p = m.new_weights(3, 8, 8, 1, np.random.default_rng(0))
    theirs = m.minigrads_losses(p, ids, 10, **sizes, rng=np.random.default_rng(1))
    mine = m.train(p, ids, 10, **sizes, rng=np.random.default_rng(1))
    for i, (loss, expected) in enumerate(zip(mine, theirs)):
        near(loss, expected, 1e-9, f"the loss of step {i}", m.train)
    yield "ten steps of training are minigrad's"
    new = m.new_weights(3, 8, 8, 1, np.random.default_rng(2))
    for n in range(1, 9):
        likeliest = int(m.logits_of(new, ids[None, :n], 1, 2).data[0, -1].argmax())
        wrote = m.write(new, ids[:n], 1, 8, 1, 2, np.random.default_rng(n), temperature=1e-3)[-1]
        near(wrote, likeliest, 0, f"at a temperature of 0.001, what is written after {n} letters", m.write)
    near(len({*m.write(new, ids[:2], 60, 8, 1, 2, np.random.default_rng(0), temperature=1e3)}), 3, 0,
         "at a temperature of 1000, the number of different letters that are written", m.write)  # fmt: skip
    yield "cold, it writes the likeliest letter; hot, any"
    last = m.train(p, ids, 100, **sizes, rng=np.random.default_rng(1))[-1]
    wrote = "".join("abc"[i] for i in m.write(p, ids[:2], 10, 8, 1, 2, np.random.default_rng(0)))
    require(wrote == "abcabcabcabc", f"trained on abcabc…, with a loss of {last:.3f}, it writes {wrote}", m.write)
    yield f"trained on abcabc…, it writes {wrote}"


def induction(m):
    rng = np.random.default_rng(0)
    e, y, dz = (rng.normal(size=(2, m.T, m.C)) for _ in range(3))
    weights = rng.normal(size=(3 * m.C, m.C)) * m.C**-0.5, rng.normal(size=(m.C, m.C)) * m.C**-0.5
    layer = nn.MultiheadAttention(m.C, m.nh, bias=False, batch_first=True).to(mg.float64)
    with mg.no_grad():
        layer.in_proj_weight.copy_(mg.tensor(weights[0]))
        layer.out_proj.weight.copy_(mg.tensor(weights[1]))
    x = mg.tensor(e + y, requires_grad=True)
    expected, _ = layer(x, is_causal=True)
    (expected * mg.tensor(dz)).sum().backward()
    for cut in "", "k", "qv":
        (own_e, own_y, w_in, w_out), seen, case = map(m.Tensor, (e, y, *weights)), {}, f"with cut={cut!r}, "
        found = m.attention(own_e, own_y, w_in, w_out, seen, cut)
        found.backward(dz)
        same(found.data, expected.detach().numpy(), f"{case}what attention returns, ", m.attention)
        three = len({id(seen[f"x_{name}"]) for name in "qkv"}) == 3
        require(three, f"{case}q, k and v share one x: make e + y anew for each", m.attention)
        kept = [name for name in "qkv" if name not in cut]
        what = f"{case}the gradient of y, which is {' + '.join(f'dx_{name}' for name in kept)}, "
        same(own_y.grad, sum(seen[f"x_{name}"].grad for name in kept), what, m.attention)
        same(own_e.grad, x.grad.numpy(), f"{case}the gradient of e, which is never cut, ", m.attention)
        same(w_in.grad, layer.in_proj_weight.grad.numpy(), f"{case}the gradient of w_in", m.attention)
        if not cut:
            whole = seen, w_in
    yield "a cut changes no output, and takes its own part of y's gradient away"
    for name in "qkv":
        same(m.by_hand(name, *whole), whole[0][f"x_{name}"].grad, f"dx_{name} by hand, ", m.by_hand)
    yield "dx_q, dx_k and dx_v by hand are those of your engine"
    pattern = np.stack([np.eye(10, k=-1), np.eye(10, k=-3)])[None]  # one head looks one back, the other three back
    heads = "for one head that looks one back and one that looks three back, "
    before, after = m.looks_at_letter_before, m.looks_after_copy
    same(before(pattern), [1, 0], f"{heads}looks_at_letter_before(pattern)", before)
    same(after(pattern, 4), [0, 1], f"{heads}looks_after_copy(pattern, 4)", after)
    yield "what a head looks at is measured"
    scores = {}
    for cut in "", "k":
        p = m.new_weights(np.random.default_rng(0))
        m.train(p, 200, np.random.default_rng(1), cut)
        scores[cut] = m.measured(p)
        right, before, _ = scores[cut].values()
        yield f"{'K cut' if cut else 'nothing cut'}: {right:.0%} right, looks at the letter before {before:.2f}"
    right, before, _ = scores[""].values()
    require(right > 0.9 and before > 0.3, "200 steps of training should form the head", m.attention)
    require(scores["k"]["looks at the letter before"] < 0.15, "with K cut the head should not form", m.attention)
    yield "the head forms, and with K's gradient cut it does not"


STEPS = {  # the check of each step, and its hint
    1: (slope, "The two calls are f(x + h) and f(x - h); they lie 2h apart. min() takes key=error."),
    2: (
        value,
        "If one parent alone grows by a bit, by how much does the result grow? Multiply that by dy. In backward(), dy "
        "is what has just arrived, and grad is all that ever arrived: pass on dy.",
    ),
    3: (order, "visit(): if id(node) is new, note it, visit each parent, append node. walk(): reversed(nodes)."),
    4: (neuron, "sum() takes a start: sum(…, self.b). What do grads start with in the second step of a training?"),
    5: (tensor, "Shapes tell most of it: dA has A's, and from dY (n, m) and B (k, m) there is one way to (n, k)."),
    6: (softmax, "Sums along the row need keepdims=True. For gelu, differentiate 0.044715 x³ by hand."),
    7: (bigram, "y is one place further on: at + 1. p.data = p.data - …; g is p.grad, and g² is p.grad**2."),
    8: (head, "k.permute(1, 0) is kᵀ, and hs is k.shape[-1]. Add past(T) to S for P alone. In NumPy Pᵀ is P.T."),
    9: (
        gpt,
        "(B, T, 3, nh, hs) is .reshape(B, T, 3, nh, C // nh); then axis 2 comes first. Back: .permute(0, 2, 1, 3).",
    ),
    10: (training, "Four lines, as in step 7. In writing, of (1, T, V) you need [0, -1]."),
    11: (
        induction,
        "Tensor(y.data) has no parents. Side by side, in NumPy: "
        ".transpose(0, 2, 1, 3).reshape(B, T, C). The copy's successor is period - 1 back.",
    ),
}


def check(n, folder, say):
    """Run the check of step n in the reader's folder, and say() a line for each part that is right. Raises NotYet."""
    file = folder / FILES[n - 1].name
    require_written(file)
    try:
        for line in STEPS[n][0](imported(file)):
            say(f"  ok  {line}")
    except NotYet:
        raise
    except Exception as error:  # of the reader's code
        raise NotYet(f"{place_of(error, file)}{type(error).__name__}: {error}") from None


def place_of(error, file):
    """Return where the reader's code failed, "step9_gpt.py:63: " or "": the line of this step's file, if it has one,
    and the line of the earlier step in which that ended."""
    folder = file.parent.resolve()
    frames = [f for f in inspect.getinnerframes(error.__traceback__) if Path(f.filename).resolve().parent == folder]
    if not frames:
        return ""
    own = [f for f in frames if Path(f.filename).name == file.name] or frames
    place, last = (f"{Path(f.filename).name}:{f.lineno}" for f in (own[-1], frames[-1]))
    return f"{place}: " if place == last else f"{place} (in {last}): "


def start(folder):
    folder.mkdir(parents=True, exist_ok=True)
    files = [*FILES, HERE / "pictures.py"]
    if existing := [file.name for file in files if (folder / file.name).exists()]:
        raise cli.CommandError(f"{folder} has {', '.join(existing)} already: choose another folder")
    for file in files:
        text = file.read_text(encoding="utf-8")
        (folder / file.name).write_text(skeleton(text), encoding="utf-8")
    print(
        f"{len(FILES)} steps are in {folder}. Go there, read {FILES[0].name}, write what is missing: minigrad learn 1"
    )


def print_status(folder):
    """Print a line for each step, with the error of the first that is not done. Return True if all are done."""
    missing = ""
    for n, file in enumerate(FILES, 1):
        try:
            if not missing:
                check(n, folder, lambda line: None)
            print(f"  {'    ' if missing else 'done'}  {n}  {file.name}")
        except NotYet as error:
            missing = str(error)
            print(f"  next  {n}  {file.name}: {missing}")
    return not missing


def step(typed):
    """Return the number of a step, or "start": a `type` for add_argument."""
    return typed if typed == "start" else cli.number(int, at_least=1, at_most=len(FILES))(typed)


def main(argv=()):
    parser = cli.Parser("minigrad learn", description=__doc__)
    parser.add_argument("what", nargs="?", type=step, metavar="STEP", help="its number, or start (default: all steps)")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="yours (default: this)")
    parser.add_argument("--hint", action="store_true", help="print one more sentence about a step")
    parser.add_argument("--solution", action="store_true", help="print the lines that were left out of it")
    args = parser.parse_args(argv)
    if args.what == "start":
        if args.folder == Path():
            parser.error("start DIR: name a folder for your files")
        start(args.folder)
        return 0
    if args.what is None:
        return int(not print_status(args.folder))
    n = args.what
    if args.hint:
        print(STEPS[n][1])
    if args.solution:
        print(solution(FILES[n - 1].read_text(encoding="utf-8")))
    if args.hint or args.solution:
        return 0
    try:
        check(n, args.folder, print)
    except NotYet as error:
        print(f"not yet: {error}")
        return 1
    print(f"step {n} is done. python {FILES[n - 1].name} draws its picture")
    return 0
