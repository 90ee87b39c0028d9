"""What a step of an optimizer announces while it is being recorded: see minigrad/base/recording.py."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim
from minigrad.backend.launch import recorder as recorders
from minigrad.base import recording
from minigrad.base.recording import CaptureError

from .leaves import leaf


class Recorder(recorders.Recorder):
    """`holds()`: may what was recorded be replayed?"""

    def holds(self):
        return all(value_of() == value for value_of, value in self.guards)


@pytest.fixture
def recorder():
    return Recorder(backend.cpu())


def record(recorder, function):
    recording.thread.recorder = recorder
    try:
        return function()
    finally:
        recording.thread.recorder = None


def recorded(recorder, optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = mg.ones(2, dtype=p.dtype)
    record(recorder, optimizer.step)
    assert recorder.holds()
    return optimizer


KINDS = {
    "SGD": lambda groups: optim.SGD(groups, momentum=0.9),
    "Adam": optim.Adam,
    "AdamW": optim.AdamW,
}


def edit(name, value):
    return lambda o: o.param_groups[1].update({name: value})


STALE = {
    "another group": lambda o: o.param_groups.__setitem__(0, dict(o.param_groups[0])),
    "a parameter less": lambda o: o.param_groups[0]["params"].pop(),
    "a parameter more": lambda o: o.param_groups[1]["params"].append(leaf(2)),
    "groups in another order": lambda o: o.param_groups.reverse(),
    "loaded": lambda o: o.load_state_dict(o.state_dict()),
    "no state": lambda o: o.state.clear(),
    "a step of one": lambda o: next(iter(o.state.values())).update(step=7),
    "another buffer": lambda o: next(iter(o.state.values())).update({o.buffers[-1]: leaf(2)}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", STALE)
def test_what_a_recorded_step_takes_as_given(recorder, kind, change):
    optimizer = recorded(recorder, KINDS[kind]([{"params": [leaf(2), leaf(2)]}, {"params": [leaf(2)]}]))
    STALE[change](optimizer)
    assert not recorder.holds()


@pytest.mark.parametrize("kind, name, value", [
    ("SGD", "momentum", 0.8), ("SGD", "nesterov", True), ("Adam", "betas", (0.9, 0.99)), ("AdamW", "eps", 1e-3),
])  # fmt: skip
def test_options_that_a_launch_holds(recorder, kind, name, value):
    optimizer = recorded(recorder, KINDS[kind]([{"params": [leaf(2)]}, {"params": [leaf(2)]}]))
    edit(name, value)(optimizer)
    assert not recorder.holds()


@pytest.mark.parametrize("kind", KINDS)
def test_rate_decay_and_step_change_without_a_new_recording(recorder, kind, monkeypatch):
    """They are read each time, for each group, even where groups began with the same numbers."""
    optimizer, cells = KINDS[kind]([{"params": [leaf(2)]}, {"params": [leaf(2), leaf(2)]}]), []
    on = type(next(iter(optimizer.param_groups[0]["params"])).storage.backend)
    for name in ("adam_", "sgd_"):
        monkeypatch.setattr(on, name, lambda self, slots, options, *rest: cells.append((slots, options)))
    recorded(recorder, optimizer)
    ((slots, options),) = cells
    assert [slot[-1] for slot in slots] == [0, 1, 1]
    (count,) = recorder.calls
    count()
    before = options()
    edit("lr", 0.5)(optimizer)
    edit("weight_decay", 0.25)(optimizer)
    count()
    assert recorder.holds() and all(state["step"] == 2 for state in optimizer.state.values())
    assert options()[1][:2] == (0.5, 0.25) and options()[0][:2] == before[0][:2]
    if kind != "SGD":
        assert [row[2] for row in before] == [1, 1] and [row[2] for row in options()] == [2, 2]


def test_buffers_are_no_part_of_the_step(recorder, monkeypatch):
    """Else each call would begin with zeros again."""
    seen, zeros_like = [], mg.Tensor.zeros_like
    monkeypatch.setattr(mg.Tensor, "zeros_like", lambda p: seen.append(recording.active()) or zeros_like(p))
    recorded(recorder, optim.Adam([leaf(2)]))
    assert seen == [False, False]


# ------------------------------------------------------------------------------------------------ one's own formula


def own(formula, **options):
    class Own(optim.Optimizer):
        buffers = ("b",)
        rate = 0.1
        update = formula

    return Own([{"params": [leaf(2), leaf(2)]}], {"lr": 0.1, "betas": [0.9, 0.99], "kind": "a", **options})


@pytest.mark.parametrize("read", [
    lambda self, p, g, state, group: p.sub_(group["lr"] * g),
    lambda self, p, g, state, group: p.sub_(group.get("lr") * g),
    lambda self, p, g, state, group: p.sub_({**group}["lr"] * g),
    lambda self, p, g, state, group: p.sub_(dict(group)["lr"] * g),
    lambda self, p, g, state, group: p.sub_(next(v for k, v in group.items() if k == "lr") * g),
])  # fmt: skip
def test_an_option_that_a_formula_reads(recorder, read):
    optimizer = recorded(recorder, own(read))
    optimizer.param_groups[0]["lr"] = 0.2
    assert not recorder.holds()


def test_an_option_that_no_formula_reads_and_one_that_is_changed_in_place(recorder):
    optimizer = recorded(recorder, own(lambda self, p, g, state, group: p.sub_(group["betas"][0] * g)))
    optimizer.param_groups[0]["lr"] = 0.2
    assert recorder.holds()
    optimizer.param_groups[0]["betas"][0] = 0.8
    assert not recorder.holds()


def test_an_attribute_that_a_formula_may_read(recorder):
    optimizer = own(lambda self, p, g, state, group: p.sub_(self.factor * g))
    optimizer.factor = 0.5
    recorded(recorder, optimizer)
    optimizer.factor = 0.25
    assert not recorder.holds()


REFUSED = {
    "the step": (lambda self, p, g, state, group: p.sub_(g / state["step"]), r"reading state\['step'\]"),
    "the step by get": (lambda self, p, g, state, group: p.sub_(g / state.get("step")), r"reading state\['step'\]"),
    "all of it": (lambda self, p, g, state, group: dict(state), r"reading state\['step'\]"),
    "as keywords": (lambda self, p, g, state, group: dict(**state), r"reading state\['step'\]"),
    "a new buffer": (lambda self, p, g, state, group: state.update(b=state["b"] + g), r"giving state\['b'\] another"),
    "a number kept": (lambda self, p, g, state, group: state.setdefault("n", 1), r"giving state\['n'\] another"),
    "one buffer less": (lambda self, p, g, state, group: state.pop("b"), r"deleting state\['b'\]"),
    "an option set": (lambda self, p, g, state, group: group.update(lr=1), "changing option 'lr'"),
    "an option gone": (lambda self, p, g, state, group: group.pop("lr", None), "deleting option 'lr'"),
    "an array": (lambda self, p, g, state, group: group["array"], "the array in option 'array'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_formula_may_not_do(recorder, case):
    formula, message = REFUSED[case]
    optimizer = own(formula, array=np.ones(2))
    with pytest.raises(CaptureError, match=message):
        recorded(recorder, optimizer)
    optimizer = own(formula, array=np.ones(2))
    for p in optimizer.param_groups[0]["params"]:
        p.grad = mg.ones_like(p)
    optimizer.step()  # but otherwise it may


def test_buffers_may_be_changed_in_place(recorder):
    def formula(self, p, g, state, group):
        state["b"] *= 0.9
        state["b"].add_(g)
        assert "b" in state and "c" not in state and set(state) == {"step", "b"} and len(state) == 2
        p.sub_(state["b"] * group["lr"])

    recorded(recorder, own(formula))


def test_a_launch_of_ones_own_is_refused(recorder):
    class Own(optim.Adam):
        def update_all(self, due):
            pass

    with pytest.raises(CaptureError, match="update_all"):
        recorded(recorder, Own([leaf(2)]))


# ----------------------------------------------------------------------------------------------- clipping, seeding


def test_clipping_reads_nothing_on_the_host(recorder, monkeypatch):
    p = leaf(2)
    p.grad = mg.tensor([math.nan, 1.0]).double()
    monkeypatch.setattr(mg.Tensor, "item", None)
    monkeypatch.setattr(mg.Tensor, "numpy", None)
    record(recorder, lambda: nn.utils.clip_grad_norm_(p, 1.0))
    norm = nn.utils.clip_grad_norm_(p, 1.0)
    assert norm.isnan().array and p.grad.isnan().all().array
    with pytest.raises(CaptureError, match="error_if_nonfinite=True"):
        record(recorder, lambda: nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True))


def test_seeding_is_refused(recorder):
    generator = mg.Generator(3)
    state = generator.state
    with pytest.raises(CaptureError, match="seeding a generator"):
        record(recorder, lambda: generator.manual_seed(4))
    with pytest.raises(CaptureError, match="generator"):
        record(recorder, lambda: setattr(generator, "state", {"seed": 1, "offset": 2}))
    assert generator.state == state
