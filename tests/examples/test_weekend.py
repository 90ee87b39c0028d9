"""examples/weekend/: solutions pass, unfinished steps say so, and learners' mistakes are named."""

import importlib.util
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from minigrad.__main__ import main

from .scripts import EXAMPLES

WEEKEND = EXAMPLES / "weekend"
spec = importlib.util.spec_from_file_location("weekend_learn", WEEKEND / "learn.py")
learn = importlib.util.module_from_spec(spec)
spec.loader.exec_module(learn)
SOLVED = {n: file.read_text(encoding="utf-8") for n, file in enumerate(learn.FILES, 1)}


@pytest.fixture
def mine(tmp_path):
    """A folder with the solutions of all steps."""
    for n, text in SOLVED.items():
        (tmp_path / learn.FILES[n - 1].name).write_text(text, encoding="utf-8")
    return tmp_path


def told(n, folder):
    """Return what the check says is wrong."""
    said = []
    with pytest.raises(learn.NotYet) as error:
        learn.check(n, folder, said.append)
    return str(error.value)


@pytest.mark.parametrize("n", [pytest.param(n, marks=[pytest.mark.slow] * (n in (4, 11))) for n in SOLVED])
def test_solutions_pass(n, mine):
    said = []
    learn.check(n, mine, said.append)
    assert len(said) >= 3 and all(line.startswith("  ok  ") for line in said)


@pytest.mark.parametrize("n", SOLVED)
def test_an_unwritten_step_names_its_first_open_line(n, mine):
    text = learn.skeleton(SOLVED[n])
    assert "..." in text and "# end" not in text and len(text) < len(SOLVED[n])
    (mine / learn.FILES[n - 1].name).write_text(text, encoding="utf-8")
    number = text.splitlines().index(next(line for line in text.splitlines() if line.strip() == "...")) + 1
    assert told(n, mine).startswith(f"{learn.FILES[n - 1].name}:{number} waits for your code: ")


MISTAKES = [  # step, what the solution has, what the learner wrote, what the check says
    (1, "(f(x + h) - f(x - h)) / (2 * h)", "(f(x + h) - f(x)) / h", "slope(x², 3, h=1e-05) is 6.00001"),
    (1, "/ (2 * h)", "/ h", "slope(x², 3, h=1e-05) is 12; it should be 6"),
    (1, "/ (2 * h)", "/ 2 * h", "slope(x², 3, h=1e-05) is 6e-10"),
    (1, "return (f(x + h)", "h = 1e-5; return (f(x + h)", "slope(x³, 0, h=1) is 1e-10"),
    (1, "return min(", "return max(", "best_h() is 1e-15"),
    (2, "dy * other.data, dy * self.data", "dy * self.data, dy * other.data", "two inputs are swapped"),
    (2, "dy * other.data, dy * self.data", "other.data, self.data", "the slope that arrives, dy = 1.7, is not in it"),
    (2, "n * self.data ** (n - 1)", "n * self.data ** n", "a ** 3 * 1.7: the slope for a is"),
    (2, "dy * n * self.data ** (n - 1)", "dy * self.data ** (n - 1)", "a ** 3 * 1.7: the slope for a is"),
    (2, "1 - y * y", "1 - self.data * self.data", "tanh(a) * 1.7: the slope for a is"),
    (2, "(dy * (1 - y * y),)", "dy * (1 - y * y)", "tanh(a) * 1.7: TypeError"),
    (2, "self.grad += dy", "self.grad = dy", "a + a: the slope for a is 1 by your backward(), and 2 by differences"),
    (2, "self.grad += dy", "pass", "the slope of y itself is 0; it should be 1"),
    (2, "parent.backward(dx)", "parent.backward(dy)", "a * b: the slope for a is 1 "),
    (2, "self.back(dy)):", "self.back(self.grad)):", "one b, used twice: b = 3a, y = b + 2b: the slope for a is"),
    (2, "parent.backward(dx)", "parent.grad += dx", "a + b + c: the slope for a is 0 by your backward()"),
    (3, "            seen.add(id(node))\n", "", "ordered(y) has"),
    (3, "reversed(nodes)", "nodes", "b = 3a, y = b + 2b: the slope for a is 0"),
    (3, "reversed(nodes)", "queue(end)", "one b, used twice"),
    (3, "parent.grad = parent.grad + dx", "parent.grad = dx", "b = 3a, y = b + 2b: the slope for a is"),
    (3, "for parent in node.parents:\n                visit(parent)\n            found.append(node)",
     "found.append(node)\n            for parent in node.parents:\n                visit(parent)",
     "has it after what was made"),
    (3, "for parent in node.parents:\n                visit(parent)", "visit(node.parents[0])", "IndexError"),
    (4, "sum((w * x for w, x in zip(self.w, xs)), self.b).tanh()", "sum(w * x for w, x in zip(self.w, xs)).tanh()",
     "with a bias of 0.5"),
    (4, ", self.b).tanh()", ", self.b)", "a neuron's output for (0.3, -0.6) is"),
    (4, "    for p in model.parameters():\n        p.grad = 0.0\n    loss.backward()", "    loss.backward()",
     "it adds to what the first left in .grad"),
    (4, "p.grad = 0.0\n    loss", "p.grad = None\n    loss", "sets .grad to None"),
    (4, "    loss.backward()\n", "", "a step changes nothing: all slopes are 0"),
    (4, "p.data -= lr * p.grad\n    # end", "p.data += lr * p.grad", "after a step with lr=0.1, a weight of"),
    (5, "dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))", "dy = dy",
     "unbroadcast(a slope of shape (2, 3, 4), (4,))"),
    (5, ", keepdims=True)\n    # end", ")\n    # end", "(3, 1)) has shape"),
    (5, "unbroadcast(dy * other.data, self.shape), unbroadcast(dy * self.data, other.shape)",
     "dy * other.data, dy * self.data", "(2, 3) * (3,): back gives b, of shape (3,), a slope of shape (2, 3). Sum"),
    (5, "dy @ other.data.swapaxes(-1, -2)", "dy @ other.data", "(2, 3) @ (3, 2): ValueError"),
    (5, "return unbroadcast(dA, self.shape), unbroadcast(dB, other.shape)", "return dA, dB",
     "(2, 2, 3) @ (3, 2): back gives b, of shape (3, 2), a slope of shape (2, 3, 2). Sum"),
    (5, "return unbroadcast(dA, self.shape), unbroadcast(dB", "return dA, unbroadcast(dB",
     "(2, 3) @ (2, 3, 2): back gives a, of shape (2, 3), a slope of shape (2, 2, 3). Sum"),
    (5, "return unbroadcast(dy * other.data, self.shape), unbroadcast(dy * self.data, other.shape)",
     "db = dy * self.data; dy *= other.data; return unbroadcast(dy, self.shape), unbroadcast(db, other.shape)",
     "(2, 3) * (2, 3): back changes dy, which is the slope of the result. Make a new array"),
    (5, "dy.transpose(np.argsort(axes))", "dy.transpose(axes)", "permute(2, 0, 1)"),
    (5, "np.add.at(dx, i, dy)", "dx[i] += dy", "rows [0, 2, 2]: the slope for a[2, "),
    (5, "(np.broadcast_to(dy, self.shape),)", "(dy * self.data.size,)", "sum over axis None"),
    (6, "p * (dp - (p * dp).sum(-1, keepdims=True))", "p * dp", "softmax: the slope for s["),
    (6, "(p * dp).sum(-1, keepdims=True)", "(p * dp).sum(keepdims=True)", "softmax: the slope for s["),
    (6, "(p * dp).sum(-1, keepdims=True)", "(p * dp).sum(1, keepdims=True)", "softmax: the slope for s["),
    (6, "return (p * (dp - (p * dp).sum(-1, keepdims=True)),)", "dp *= p; return (dp - p * dp.sum(-1, keepdims=True),)",
     "softmax: back changes dy, which is the slope of the result. Make a new array"),
    (6, "(dy * (p - onehot) / n,)", "(dy * (p - onehot),)", "cross_entropy: the slope for x["),
    (6, "(g - g.mean(-1, keepdims=True) - normed", "(g - normed", "layer_norm: the slope for x["),
    (6, ".reshape(-1, dy.shape[-1]).sum(0)", "",
     "layer_norm: back gives w, of shape (4,), a slope of shape (2, 1, 4). Sum"),
    (6, "1 + 3 * 0.044715", "1 + 0.044715", "gelu: the slope for x["),
    (7, "return ids[at], ids[at + 1]", "return ids[at], ids[at]", "the letters 0, 1, 2, …, y["),
    (7, "return ids[at], ids[at + 1]", "return ids[at], ids[at[:, -1] + 1]", "y has shape (4,); it should be (4, 5)"),
    (7, "(1 - b2) * p.grad**2", "(1 - b2) * p.grad", "after step 1 of Adam, p["),
    (7, "(np.sqrt(v) + self.eps)", "np.sqrt(v + self.eps)", "(that is with ε under the root)"),
    (7, "self.m[i] / (1 - b1**self.t), self.v[i] / (1 - b2**self.t)", "self.m[i], self.v[i]",
     "(that is p - lr m / (√v + ε): use m̂ and v̂)"),
    (7, "table.rows(x).reshape(-1, table.shape[-1]), y.reshape(-1)",
     "table.rows(y).reshape(-1, table.shape[-1]), x.reshape(-1)", "the loss of a table of random scores"),
    (7, "table.rows(x).reshape(-1, table.shape[-1]), y.reshape(-1)", "table.rows(x[:, -1]), y[:, -1]",
     "the loss of a table of random scores"),
    (7, "p.data - self.lr * m", "p.data + self.lr * m", "after step 1 of Adam, p["),
    (7, "self.m[i] = b1 * self.m[i] + (1 - b1) * p.grad", "self.m[i] = (1 - b1) * p.grad", "after step 2 of Adam, p["),
    (7, ".reshape(-1, table.shape[-1]), y", ", y", "IndexError"),
    (8, " * k.shape[-1] ** -0.5\n    P", "\n    P", "(q kᵀ was not divided by √hs)"),
    (8, "* k.shape[-1] ** -0.5\n    P", "* x.shape[-1] ** -0.5\n    P", "(divided by √C; it should be √hs)"),
    (8, "softmax(S + past(x.shape[0]))", "softmax(S)", "a query sees keys that come later"),
    (8, "softmax(S + past(x.shape[0]))", "softmax(S * np.tri(x.shape[0]))", "a query sees keys that come later"),
    (8, "dv = P.T @ dz", "dv = P @ dz", "dv by hand["),
    (8, "dP = dz @ v.T", "dP = v @ dz.T", "dP by hand["),
    (8, "dq = scale * dS @ k", "dq = dS @ k", "dq by hand["),
    (9, "reshape(B, T, 3, nh, C // nh).permute(2, 0, 3, 1, 4)", "reshape(B, T, nh, 3, C // nh).permute(3, 0, 2, 1, 4)",
     "q (B, nh, T, hs) of a layer alone, ["),
    (9, "reshape(B, T, 3, nh, C // nh).permute(2, 0, 3, 1, 4)", "reshape(3, B, nh, T, C // nh)",
     "q (B, nh, T, hs) of a layer alone, ["),
    (9, "z.permute(0, 2, 1, 3).reshape(B, T, C)", "z.reshape(B, T, C)", "but what attention returns, ["),
    (9, "z.permute(0, 2, 1, 3).reshape(B, T, C)", "z.reshape(B, C, T)", "step9_gpt.py:"),
    (9, "return linear(z", "linear(z", "attention returns nothing"),
    (9, "x = x + attention(", "x = attention(", "q of blocks.1.attn, ["),
    (9, "x = x + linear(gelu", "x = linear(gelu", "q of blocks.1.attn, ["),
    (9, 'linear(layer_norm(x, p["norm.weight"])', "linear(x", "the loss is"),
    (10, "nh)\n        adam.zero_grad()\n", "nh)\n", "the loss of step 2 is"),
    (10, "adam.step()\n        # end", "", "the loss of step 1 is"),
    (10, ".data[0, -1]", ".data[0, 0]", "at a temperature of 0.001, what is written after"),
    (10, "logits * (1 / temperature)", "logits * temperature", "at a temperature of 0.001"),
    (11, "Tensor(y.data) if name in cut else y", "y", "with cut='k', the gradient of y, which is dx_q + dx_v, ["),
    (11, "x = e + (Tensor(y.data) if name in cut else y)", "x = Tensor(e.data + y.data) if name in cut else e + y",
     "with cut='k', the gradient of e, which is never cut, ["),
    (11, "Tensor(y.data) if name in cut else y", "Tensor(y.data)", "with cut='', the gradient of y, which is"),
    (11, "x = e + (Tensor(y.data) if name in cut else y)", "x = seen.setdefault('x', e + y)", "e + y anew for each"),
    (11, "dy.transpose(0, 2, 1, 3).reshape", "dy.reshape", "dx_q by hand, ["),
    (11, "reshape(B, T, C) @ rows", "reshape(B, T, C) @ rows.T", "dx_q by hand, ["),
    (11, "np.diagonal(pattern, -1,", "np.diagonal(pattern, 0,", "looks_at_letter_before(pattern)[0] is 0"),
    (11, "1 - period", "-period", "looks_after_copy(pattern, 4)[1] is 0"),
]  # fmt: skip


@pytest.mark.parametrize("n, right, wrong, phrase", MISTAKES, ids=[f"{m[0]}-{i}" for i, m in enumerate(MISTAKES)])
def test_mistakes_are_named(n, right, wrong, phrase, mine):
    assert SOLVED[n].count(right) == 1
    file = mine / learn.FILES[n - 1].name
    file.write_text(SOLVED[n].replace(right, wrong), encoding="utf-8")
    said = told(n, mine)
    assert phrase in said
    if line := re.search(r"look at \w+, (\w+\.py):(\d+)", said):
        assert "def " in file.with_name(line[1]).read_text(encoding="utf-8").splitlines()[int(line[2]) - 1]


OTHERWISE = [  # step, what the solution has, what is as right
    (2, "dy * other.data, dy * self.data", "[other.data * dy, self.data * dy]"),
    (3, "if id(node) not in seen:", "if node not in found:"),
    (4, "    for p in model.parameters():\n        p.grad = 0.0\n    loss.backward()\n"
     "    for p in model.parameters():\n        p.data -= lr * p.grad\n",
     "    loss.backward()\n    for p in model.parameters():\n        p.data -= lr * p.grad\n        p.grad = 0\n"),
    (5, "np.add.at(dx, i, dy)",
     "for j, row in zip(np.ravel(i), dy.reshape(-1, *dx.shape[1:])):\n                dx[j] += row"),
    (8, "S + past(x.shape[0])", "past(len(x.data)) + S"),
]  # fmt: skip


@pytest.mark.parametrize(
    "n, right, other", [pytest.param(*m, marks=[pytest.mark.slow] * (m[0] == 4)) for m in OTHERWISE]
)
def test_right_code_of_another_kind_passes(n, right, other, mine):
    assert SOLVED[n].count(right) == 1
    (mine / learn.FILES[n - 1].name).write_text(SOLVED[n].replace(right, other), encoding="utf-8")
    learn.check(n, mine, print)


def test_from_the_shell(tmp_path, monkeypatch, capsys):
    assert main(["learn", "start", str(tmp_path / "mine")]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    capsys.readouterr()
    assert main(["learn"]) == 1
    assert "next  1  step1_slope.py: step1_slope.py:" in capsys.readouterr().out
    for file in learn.FILES[:2]:
        (tmp_path / "mine" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["learn", "2"]) == 0 and "step 2 is done" in capsys.readouterr().out
    assert main(["learn"]) == 1
    assert re.search(r"done  1 .*\n  done  2 .*\n  next  3 .*\n        4 ", capsys.readouterr().out)
    assert main(["learn", "3", "--hint", "--solution"]) == 0
    said = capsys.readouterr().out
    assert "reversed(nodes)" in said and "            found.append(node)" in said
    for argv, words in (
        (["start", str(tmp_path / "mine")], "already"),
        (["start"], "name a folder"),
        (["12"], "at most 11"),
        (["x"], "whole"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["learn", *argv])
        assert stop.value.code == 2 and words in capsys.readouterr().err
    (tmp_path / "mine" / "step1_slope.py").write_text("def slope(:\n")
    assert main(["learn", "1"]) == 1 and "step1_slope.py:1 is no Python yet" in capsys.readouterr().out
    (tmp_path / "mine" / "step1_slope.py").write_text(SOLVED[1].replace("key=error", "key=none"), encoding="utf-8")
    assert main(["learn", "1"]) == 1
    assert re.search(r"step1_slope.py:\d+: NameError: name 'none'", capsys.readouterr().out)


ANSWERS = {  # what a run prints about the question that the step's text asks
    1: "slope.png shows a V", 2: "the slope of a is 2", 3: "before 2b", 4: "Without zeroing, a step takes",
    5: "One cell of dY reaches one row of dA", 6: "is P - Y", 7: "the loss is ln", 8: "row of dS is [0. 0. 0. 0. 0.]",
    9: "in_proj_weight 0.0000, out_proj.weight 0.", 10: "minigrad's differ by at most", 11: "the head does not form",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("n", SOLVED)
def test_each_runs_answers_and_draws(n, tmp_path):
    run = subprocess.run(
        [sys.executable, learn.FILES[n - 1]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert ANSWERS[n] in run.stdout
    assert [file for file in tmp_path.iterdir() if file.suffix in (".png", ".svg")]


@pytest.mark.parametrize("n, unfinished", [(2, 2), (5, 3), (7, 7)])
def test_an_unfinished_step_says_so_in_one_line(n, unfinished, mine, tmp_path):
    name, file = learn.FILES[unfinished - 1].name, learn.FILES[n - 1].name
    (mine / name).write_text(learn.skeleton(SOLVED[unfinished]), encoding="utf-8")
    (mine / "pictures.py").write_text((WEEKEND / "pictures.py").read_text(encoding="utf-8"), encoding="utf-8")
    run = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and not run.stdout
    assert re.fullmatch(rf"{name}:\d+ waits for your code; `minigrad learn` says what is next\n", run.stderr)


def test_a_graph_is_drawn_in_layers(tmp_path, mine, monkeypatch):
    monkeypatch.syspath_prepend(str(WEEKEND))
    m = learn.imported(mine / "step2_value.py")
    pictures = importlib.import_module("pictures")
    a, b = m.Value(0.5), m.Value(-2.0)
    y = (a * b + a).tanh()
    rows, edges = pictures.layers_of(y)
    assert [[getattr(node, "op", "bend") for node in row] for row in rows] == [["", ""], ["*", "bend"], ["+"], ["tanh"]]
    assert sorted(len(edge) for edge in edges) == [2, 2, 2, 2, 3]
    pictures.draw(y, tmp_path / "y.svg", orders=[[y, a, b, *y.parents, *y.parents[0].parents]])
    drawn = ElementTree.parse(tmp_path / "y.svg").getroot()
    kinds = [part.tag.split("}")[1] for part in drawn]
    assert kinds.count("rect") == 5 and kinds.count("polyline") == 5
