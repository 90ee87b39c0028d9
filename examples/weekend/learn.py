"""Write your own engine, step by step, and have it checked.

    minigrad learn start DIR     copy the files of all steps to a folder of your own
    minigrad learn               in that folder: which steps are done, and what is next
    minigrad learn 2             check step 2
    minigrad learn 2 --hint      one more sentence
    minigrad learn 2 --solution  the lines that were left out

Each step is a file with a few places marked "your turn", where a line of dots waits for your code. It runs by itself
(python step2_value.py) and draws a picture. The check runs your code, never ours, and compares its slopes with
differences. Where they disagree it says where, by how much, and which line of yours to look at.
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
TURN, END, UNFINISHED = re.compile(r" *# your turn: "), re.compile(r" *# end$"), re.compile(r" *# ~")


# ------------------------------------------------------------------------------------------------------- the exercises


def skeleton(text):
    """The text of a step with `...` where the reader's code goes, or the wrong code that comes with an exercise."""
    lines, inside = [], False
    for line in text.splitlines():
        if TURN.match(line):
            lines.append(line)
            inside, given = True, False
        elif inside and UNFINISHED.match(line):
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
    """What stands between the marks, with them."""
    shown, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        inside = inside or bool(TURN.match(line))
        if inside and not UNFINISHED.match(line):
            shown.append(f"{number:4} {line}")
        inside = inside and not END.match(line)
    return "\n".join(shown)


class NotYet(Exception):
    """What is wrong with a step, in a sentence for the reader."""


def written(file):
    """Raise NotYet if a line of dots is left in a file, or in a step that it imports, or if it is not there."""
    if not file.exists():
        raise NotYet(f"no {file.name} in {file.parent.resolve()}: `minigrad learn start DIR` copies all steps to DIR")
    text, wanted = file.read_text(encoding="utf-8"), ""
    for name in re.findall(r"^from (step\d+_\w+) import", text, re.M):
        written(file.with_name(f"{name}.py"))
    for number, line in enumerate(text.splitlines(), 1):
        if TURN.match(line):
            wanted = TURN.sub("", line)
        if line.strip() == "...":
            raise NotYet(f"{file.name}:{number} waits for your code: {wanted}")


def module_of(file):
    """The reader's step as a module, and those that it imports from the same folder, all read anew."""
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
    """Where the reader wrote it."""
    code = inspect.unwrap(function).__code__
    return f"look at {code.co_name}, {Path(code.co_filename).name}:{code.co_firstlineno}"


def require(right, said, function):
    """Raise NotYet unless something is right; said: what is wrong with the function then."""
    if not right:
        raise NotYet(f"{said}. {look_at(function)}")


def near(found, expected, tolerance, what, function):
    """Raise NotYet unless a number or an array is what it should be, up to rounding."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    shapes = f"{what} has shape {found.shape}; it should be {expected.shape}"
    require(found.shape == expected.shape, shapes, function)
    apart = np.where(np.isfinite(found), abs(found - expected), np.inf)
    if apart.size:
        at = np.unravel_index(apart.argmax(), apart.shape)
        place = f"{what}[{', '.join(map(str, at))}]" if at else what
        said = f"{place} is {found[at]:.6g}; it should be {expected[at]:.6g}"
        require(apart.max() <= tolerance * max(1.0, abs(expected).max()), said, function)


def same(found, expected, what, function):
    near(found, expected, 1e-12, what, function)


def slopes(what, f, *inputs, blame):
    """Raise NotYet unless the slopes of f, by the reader's backward(), are those that differences give."""

    def run(arrays):
        xs = [type(x)(a if a.ndim else float(a)) for x, a in zip(inputs, arrays)]
        return f(*xs), xs

    def vjp(dy, *arrays):
        y, xs = run(arrays)
        y.backward(*[dy] * bool(dy.ndim))  # a number starts with a slope of 1
        return tuple(np.asarray(x.grad) * (1 if dy.ndim else dy) for x in xs)

    values = wraps(f)(lambda *arrays: np.asarray(run(arrays)[0].data, float))
    try:
        report = gradcheck(values, *(np.array(x.data, float) for x in inputs), vjp=vjp, probes=(), raise_on_fail=False)
    except Exception as error:
        raise NotYet(f"{what}: {type(error).__name__}: {error}. {look_at(blame)}") from None
    if report:
        return
    worst = report.worst
    place = worst.place.removesuffix("[]")
    output = f" (from output {worst.output.removesuffix('[]')})" if worst.output not in ("", "[]") else ""
    hint = f" ({worst.hints[0]})" if worst.hints else ""
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
        near(m.slope(f, x, h=h), expected, 1e-8, what, m.slope)
        yield f"{what} = {expected:.6g}"
    near(m.slope(abs, 0.0), 0.0, 1e-12, "slope(abs, 0), which has the same on both sides,", m.slope)
    said = f"best_h() is {m.best_h():g}, whose error is not the smallest of all"
    require(1e-7 < m.best_h() < 1e-4, said, m.best_h)
    yield f"the best h is {m.best_h():g}: where the formula's error meets that of rounding"


def value(m):
    V = m.Value
    a, b = V(0.7), V(-1.3)
    once = V(2.0)
    once.backward()
    near(once.grad, 1.0, 0.0, "after y.backward(), the slope of y itself", V.backward)
    yield "a number's own slope is 1"
    slopes("a + b", lambda a, b: a + b, a, b, blame=V.backward)
    slopes("a * b", lambda a, b: a * b, a, b, blame=V.__mul__)
    slopes("a * b * 2, where a slope of 2 arrives at a * b", lambda a, b: a * b * 2, a, b, blame=V.__mul__)
    for n in (2, 3, -1):
        slopes(f"a ** {n} * 2", lambda a, n=n: a**n * 2, a, blame=V.__pow__)
    slopes("tanh(a) * 2", lambda a: a.tanh() * 2, a, blame=V.tanh)
    yield "sums, products, powers, tanh"
    slopes("a + a", lambda a: a + a, a, blame=V.backward)
    slopes("a * a * a", lambda a: a * a * a, a, blame=V.backward)
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
            said = f"ordered(y) lacks {parent.op or 'a leaf'}, or has it after what was made of it"
            require(places.get(id(parent), len(found)) < places[id(node)], said, m.ordered)
    require(found and found[-1] is y, "ordered(y) must end with y", m.ordered)
    yield "parents come first, and each once"
    slopes("b = 3a, y = b + 2b", lambda a: (a * 3) + (a * 3) * 2, V(0.5), blame=m.walk)
    slopes("one b, used twice: b = 3a, y = b + 2b", shared, V(0.5), blame=m.walk)
    yield "a node that is used twice waits for both"
    y.backward()
    before = a.grad
    y.backward()
    near(a.grad, 2 * before, 1e-12, "after a second backward(), the slope of a", m.walk)
    yield "a second backward() adds as much again at the leaves"
    rng = random.Random(0)
    for size in (3, 8, 15, 30):
        seed = rng.random()
        f = lambda *xs, seed=seed, size=size: drawn(xs, random.Random(seed), size)  # noqa: E731
        slopes(f"a random graph of {size} nodes", f, *(V(rng.uniform(-1, 1)) for _ in range(3)), blame=m.walk)
    yield "random graphs of up to 30 nodes"
    x = y = V(1.0)
    for _ in range(60):
        y = y + y
    began = time.perf_counter()
    y.backward()
    near(x.grad, 2.0**60, 0.0, "the slope of 60 doublings", m.walk)
    yield f"60 doublings in {time.perf_counter() - began:.3f} s, where step 2 would walk for 30,000 years"


def shared(a):
    b = a * 3
    return b + b * 2


def drawn(xs, rng, size):
    """A random formula of some Values."""
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
    m.step(model, points, labels, lr=0.0)
    m.step(model, points, labels, lr=0.1)
    moved = [p.data for p in model.parameters()] != old
    require(moved, "a step changes nothing: all slopes are 0 when it takes them", m.step)
    for p, x, g in zip(model.parameters(), old, first):
        twice = abs((x - p.data) / 0.1 - 2 * g) < 1e-9 < abs(g)
        require(not twice, "a second step has twice the slopes of the first: what that left in .grad is there", m.step)
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
    for a, b in (((2, 3), (3, 2)), ((1, 3), (3, 1)), ((2, 2, 3), (2, 3, 2)), ((2, 2, 3), (3, 2))):
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
    s = m.Tensor(rng.normal(size=(2, 4)) * 2)
    slopes("softmax", m.softmax, s, blame=m.softmax)
    m.softmax(s).backward(rng.normal(size=(2, 4)))
    near(float(abs(s.grad.sum(-1)).max()), 0.0, 1e-12, "the sum of a row of dS", m.softmax)
    yield "softmax; the slopes of a row of scores sum to 0"
    logits, targets = m.Tensor(rng.normal(size=(3, 4))), np.array([0, 3, 3])
    for by in 1.0, 2.0:
        what = "cross_entropy" if by == 1 else "cross_entropy * 2"
        slopes(what, lambda x, by=by: m.cross_entropy(x, targets) * by, logits, blame=m.cross_entropy)
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
    slopes("loss_of", lambda table: m.loss_of(table, x, y), m.Tensor(rng.normal(size=(V, V))), blame=m.loss_of)
    yield f"a table of zeros costs ln {V}, and its slopes are right"
    mine, theirs = m.Tensor(np.ones((2, 3))), mg.tensor(np.ones((2, 3)), requires_grad=True)
    adam, real = m.Adam([mine], lr=0.1), optim.Adam([theirs], lr=0.1, betas=(0.9, 0.99))
    for t in range(20):
        mine.grad = rng.normal(size=(2, 3))
        theirs.grad = mg.tensor(mine.grad)
        with np.errstate(all="ignore"):
            adam.step()
        real.step()
        same(mine.data, theirs.detach().numpy(), f"after step {t + 1} of Adam, p", m.Adam.step)
    yield "20 steps of Adam are minigrad's"
    losses = m.train(m.Tensor(np.zeros((V, V))), ids, 100, rng)
    require(losses[-1] < 0.8, f"after 100 steps the loss is {losses[-1]:.3f}; it should be below 0.8", m.Adam.step)
    yield f"it learns: loss {losses[0]:.2f}, after 100 steps {losses[-1]:.2f}"


def head(m):
    rng = np.random.default_rng(0)
    x, *weights = (m.Tensor(0.7 * rng.normal(size=size)) for size in ((5, 4), (4, 4), (4, 4), (4, 4)))
    z, mine = m.head(x, *weights)
    P = np.asarray(mine["P"].data)
    require(not np.triu(P, 1).any(), "P is not 0 above its diagonal: a query sees keys that come later", m.head)
    layer = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).to(mg.float64)
    with mg.no_grad():
        layer.in_proj_weight.copy_(mg.tensor(np.concatenate([w.data.T for w in weights])))
        layer.out_proj.weight.copy_(mg.eye(4, dtype=mg.float64))
    dz, given = rng.normal(size=(5, 4)), mg.tensor(x.data[None])
    with study.trace_heads(layer) as trace:
        (layer(given, is_causal=True)[0] * dz).sum().backward()
    seen = trace[""]
    same(np.tril(mine["S"].data), np.tril(seen.scores[0, 0]), "S", m.head)
    same(P, seen.pattern[0, 0], "P", m.head)
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


def gpt(m):
    rng = np.random.default_rng(0)
    mg.manual_seed(3)
    model = nn.GPT(nn.GPTConfig(11, block_size=8, n_layer=2, n_head=2, n_embd=8, bias=False)).to(mg.float64)
    x, y = rng.integers(11, size=(3, 8)), rng.integers(11, size=(3, 8))
    with study.trace_heads(model) as trace:
        _, loss = model(mg.tensor(x), mg.tensor(y))
        loss.backward()
    p, mine = {name: m.Tensor(w.numpy()) for name, w in model.state_dict().items()}, {}
    own = m.loss_of(p, x, y, 2, 2, mine)
    for layer in trace:
        for name in ("q", "k", "v", "pattern", "z"):
            same(mine[layer][name].data, getattr(trace[layer], name), f"{name} of {layer}, ", m.attention)
    yield "q, k, v, P and z of all heads are minigrad's"
    near(float(own.data), loss.item(), 1e-12, "the loss", m.logits_of)
    yield f"the loss too, {loss.item():.6f}"
    own.backward()
    for layer in trace:
        for name in ("z", "v", "pattern", "scores", "q", "k"):
            gradient = getattr(trace[layer], f"{name}_grad")
            same(mine[layer][name].grad, gradient, f"the gradient of {name} of {layer}, ", m.attention)
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
    said = f"trained on abcabc…, with a loss of {last:.3f}, it writes {wrote}"
    require(wrote == "abcabcabcabc", said, m.write)
    yield f"trained on abcabc…, it writes {wrote}"


STEPS = {  # the check, and one more sentence
    1: (slope, "The two calls are f(x + h) and f(x - h); they lie 2h apart. min() takes key=error."),
    2: (value, "If one parent alone grows by a bit, by how much does the result grow? Multiply that by dy."),
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
}


def checked(n, folder, say):
    """Run the check of a step in the reader's folder. Raises NotYet."""
    file = folder / FILES[n - 1].name
    written(file)
    try:
        for line in STEPS[n][0](module_of(file)):
            say(f"  ok  {line}")
    except NotYet:
        raise
    except Exception as error:  # of the reader's code
        frames = [f for f in inspect.getinnerframes(error.__traceback__) if Path(f.filename).parent == folder.resolve()]
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
        raise NotYet(f"{at}{type(error).__name__}: {error}") from None


def start(folder):
    folder.mkdir(parents=True, exist_ok=True)
    files = [*FILES, HERE / "pictures.py"]
    if there := [file.name for file in files if (folder / file.name).exists()]:
        raise cli.CommandError(f"{folder} has {', '.join(there)} already: choose another folder")
    for file in files:
        text = file.read_text(encoding="utf-8")
        (folder / file.name).write_text(skeleton(text), encoding="utf-8")
    print(
        f"{len(FILES)} steps are in {folder}. Go there, read {FILES[0].name}, write what is missing: minigrad learn 1"
    )


def status(folder):
    """A line for each step, and what is wrong with the first that is not done; returns whether all are."""
    missing = ""
    for n, file in enumerate(FILES, 1):
        try:
            if not missing:
                checked(n, folder, lambda line: None)
            print(f"  {'    ' if missing else 'done'}  {n}  {file.name}")
        except NotYet as error:
            missing = str(error)
            print(f"  next  {n}  {file.name}: {missing}")
    return not missing


def step(typed):
    """A `type` for add_argument."""
    return typed if typed == "start" else cli.number(int, at_least=1, at_most=len(FILES))(typed)


def main(argv=()):
    parser = cli.Parser("minigrad learn", description=__doc__)
    parser.add_argument("what", nargs="?", type=step, metavar="STEP", help="its number, or start (default: all steps)")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="yours (default: this)")
    parser.add_argument("--hint", action="store_true", help="one more sentence about a step")
    parser.add_argument("--solution", action="store_true", help="the lines that were left out of it")
    args = parser.parse_args(argv)
    if args.what == "start":
        if args.folder == Path():
            parser.error("start DIR: name a folder for your files")
        start(args.folder)
        return 0
    if args.what is None:
        return int(not status(args.folder))
    n = args.what
    if args.hint:
        print(STEPS[n][1])
    if args.solution:
        print(solution(FILES[n - 1].read_text(encoding="utf-8")))
    if args.hint or args.solution:
        return 0
    try:
        checked(n, args.folder, print)
    except NotYet as error:
        print(f"not yet: {error}")
        return 1
    print(f"step {n} is done. python {FILES[n - 1].name} draws its picture")
    return 0
