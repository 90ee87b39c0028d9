"""load_state_dict of an optimizer: a state that does not fit is refused and changes nothing."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim

from .leaves import leaf


def stepped(cls=optim.Adam, **options):
    """Return (parameters, optimizer) of two groups after a step."""
    a, b = leaf(2), leaf(3)
    optimizer = cls([{"params": [a]}, {"params": [b]}], **options)
    for p in (a, b):
        p.grad = mg.ones(*p.shape, dtype=p.dtype)
    optimizer.step()
    return (a, b), optimizer


def entry(*path):
    """Return a function that sets one entry of a state_dict, or deletes it."""

    def spoil(state, value):
        for key in path[:-1]:
            state = state[key]
        if isinstance(value, str) and value == "gone":
            del state[path[-1]]
        else:
            state[path[-1]] = value

    return spoil


@pytest.mark.parametrize("path, values, words", [
    (["state"], [[], None, "x", 3], "no attribute 'items'"),
    (["state"], ["gone"], "there is no 'state'"),
    (["param_groups"], [{}, None, "ab", [[], 3]], ""),
    (["param_groups", 0], [{"params": [0]}], "there is no 'lr'"),
    (["param_groups", 0, "params"], [3, "a", [0, 1], [], [1], ["x"], [[]], [-1]], ""),
    (["param_groups", 0, "params"], [[0, 1]], r"as \[\[0, 1\], \[1\]\], where there are \[\[0\], \[1\]\]"),
    (["param_groups", 1, "lr"], ["gone"], "there is no 'lr'"),
    (["param_groups", 1, "lr"], ["0.1", None, [], True, float("nan"), float("inf"), 10**400], "option lr cannot be"),
    (["param_groups", 1, "betas"], [0.9, [0.9], [0.9, 1.0], [0.9, "x"], [-1, 0.9], [0.9, float("nan")]], "betas"),
    (["state", "x"], [{}], "'x'"),
    (["state", -1], [{}], "a state -1, where there are 2 parameters"),
    (["state", 2], [{}], "a state 2, where there are 2 parameters"),
    (["state", 1], [[], 3, None], ""),
    (["state", 1, "m"], ["gone"], r"state 1 has \['step', 'v'\], not step and \('m', 'v'\)"),
    (["state", 1, "momentum_buffer"], [3], r"state 1 has .*momentum_buffer"),
    (["state", 1, "step"], [1.5, "1", None, [1]], "as an integer"),
    (["state", 1, "m"], [3.0, [1, 2, 3], "x", None], "for m, not an array of floats"),
    (["state", 1, "m"], [np.zeros(3, "i4"), np.zeros(3, bool)], "for m, not an array of floats"),
    (["state", 1, "m"], [np.zeros(4), np.zeros((3, 1)), np.zeros(())], r"for m, not an array .* shape \(3,\)"),
])  # fmt: skip
def test_a_wrong_state_raises_and_changes_nothing(path, values, words):
    _, optimizer = stepped()
    before = copy.deepcopy(optimizer.state_dict())
    for value in values:
        state = copy.deepcopy(before)
        entry(*path)(state, value)
        with pytest.raises(ValueError, match=f"^Adam: the state does not fit: .*{words}") as error:
            optimizer.load_state_dict(state)
        assert len(str(error.value)) < 300
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"] and after["state"].keys() == before["state"].keys()
    for i, state in after["state"].items():
        assert all((np.asarray(x) == np.asarray(before["state"][i][name])).all() for name, x in state.items())


def test_another_optimizers_state():
    for cls, other in ((optim.Adam, optim.SGD), (optim.SGD, optim.Adam)):
        _, given = stepped(cls)
        with pytest.raises(ValueError, match=r"there is no .(betas|momentum)."):
            stepped(other)[1].load_state_dict(given.state_dict())
