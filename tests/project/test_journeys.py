"""The journeys in the READMEs are those that the program takes: each function is called, and in that order."""

import re
import sys
from pathlib import Path

import pytest

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.gradcheck import gradcheck

from .. import ROOT

PACKAGE = Path(mg.__file__).parent


def steps(readme, title):
    """[(file, name)] of the numbered lines after `title`; the first file and function that each line names."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    section = text[text.index(title) + len(title) :]
    section = re.split(r"\n(?:#|\*\*)", section)[0]
    return re.findall(r"^\d+\. `([\w./]+\.py): ([\w.]+)`", section, re.MULTILINE)


def first_calls(run):
    """[(file, name)] of all functions of the package that run() calls, in the order of their first calls."""
    seen = {}

    def watch(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
            seen.setdefault((str(Path(code.co_filename).relative_to(PACKAGE)), name))

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(seen)


def is_called(step, call):
    """Is the call that of the step? Python 3.10 does not tell the class of a method."""
    (file, name), (called_file, called) = step, call
    if not hasattr(first_calls.__code__, "co_qualname"):
        name = name.split(".")[-1]
    return called_file == file and (f".{called}".endswith(f".{name}") or called.startswith(f"{name}."))


def check_order(journey, calls, room=""):
    assert len(journey) > 4
    at = -1
    for file, name in journey:
        step = (str(Path(room, file)) if not (PACKAGE / file).is_file() else file), name
        found = [i for i, call in enumerate(calls) if is_called(step, call)]
        assert found, f"{step} is not called"
        assert found[0] > at, f"{step} is called before the step above it"
        at = found[0]


@pytest.mark.needs("g++")
def test_softmax():
    x = mg.randn(64, 256, requires_grad=True)
    x.softmax(1)
    journey = steps("minigrad/backend/README.md", "from the call to the kernel and back**")
    check_order(journey, first_calls(lambda: x.softmax(1)))


@pytest.mark.needs("g++")
def test_from_softmax_to_the_kernel_are_twelve_calls_in_five_files():
    x, calls = mg.randn(64, 256, requires_grad=True), []

    def watch(frame, event, argument):
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    x.softmax(1)
    sys.setprofile(watch)
    try:
        x.softmax(1)
    finally:
        sys.setprofile(None)
    run = next(i for i, (_, name) in enumerate(calls) if name == "_run")
    to_the_kernel = calls[: run + 1]
    assert len(to_the_kernel) <= 12 and len({file for file, _ in to_the_kernel}) <= 5, to_the_kernel


@pytest.mark.needs("g++")
def test_a_training_step():
    model = nn.GPT(nn.GPTConfig(vocab_size=65, block_size=64, n_layer=1, n_head=4, n_embd=128))
    optimizer = optim.AdamW(model.parameters())
    x, y = mg.randint(0, 65, (12, 64)), mg.randint(0, 65, (12, 64))

    def step():
        _, loss = model(x, y)
        loss.backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    check_order(steps("minigrad/backend/README.md", "**A training step**"), first_calls(step))


@pytest.mark.slow
def test_gradcheck():
    class Square(mg.Op):
        def forward(self, x):
            self.save_inputs(x)
            return self.backend.mul(x, x)

        def backward(self, dy):
            return 3 * self.saved_inputs()[0] * dy

    journey = steps("minigrad/gradcheck/README.md", "## The journey of gradcheck(op, x)")

    def run():
        with pytest.raises(AssertionError):
            gradcheck(Square, mg.randn(3, 4, dtype=mg.float64))

    check_order(journey, first_calls(run), "gradcheck")


def test_from_a_heads_gradient_to_the_report(tmp_path):
    model = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=16, n_layer=1, n_head=4, n_embd=32))
    x, y = mg.randint(0, 11, (3, 16)), mg.randint(0, 11, (3, 16))

    def run():
        with study.trace_heads(model) as trace:
            model(x, y)[1].backward()
        trace.to_html(tmp_path / "heads.html")

    journey = steps("minigrad/study/README.md", "## From a head's gradient to the report")
    check_order([(file.removeprefix("../"), name) for file, name in journey], first_calls(run), "study")
