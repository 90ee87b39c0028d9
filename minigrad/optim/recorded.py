"""What `update` of an optimizer sees of state and options while a step is being recorded: see replay/captured.py.

`update` runs once then, and the numbers that it reads become part of the launches. So each number has to be guarded, or
refused if it changes with every step.
"""

import copy
from collections.abc import MutableMapping

import numpy as np

from ..base import recording
from ..tensor import Tensor


class Options(MutableMapping):
    """A group of options, to be read: with another value of one that was read, the step is recorded anew."""

    def __init__(self, group):
        self._group, self._guarded = group, {"params"}  # which the optimizer guards itself

    def __getitem__(self, name):
        value = self._group[name]
        if name not in self._guarded:
            self._guarded.add(name)
            if isinstance(value, np.ndarray):
                recording.refuse(f"the array in option {name!r} of an optimizer")
            recording.depends_on(lambda: guarded(self._group.get(name)))
        return value

    def __setitem__(self, name, value):
        recording.refuse(f"changing option {name!r} in an optimizer's update")

    def __delitem__(self, name):
        recording.refuse(f"deleting option {name!r} in an optimizer's update")

    def __iter__(self):
        return iter(self._group)

    def __len__(self):
        return len(self._group)


class State(MutableMapping):
    """A parameter's state: its buffers, to be changed in place, and nothing else."""

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        value = self._state[name]
        if not isinstance(value, Tensor):
            recording.refuse(f"reading state[{name!r}], which is no Tensor, in an optimizer's update")
        return value

    def __setitem__(self, name, value):
        if self._state.get(name) is not value:  # it is after state[name] *= 2
            recording.refuse(
                f"giving state[{name!r}] another value, not changing it in place, in an optimizer's update"
            )

    def __delitem__(self, name):
        recording.refuse(f"deleting state[{name!r}] in an optimizer's update")

    def __contains__(self, name):
        return name in self._state

    def __iter__(self):
        return iter(self._state)

    def __len__(self):
        return len(self._state)


def guarded(value):
    """What a number, or a tuple, list or dict of them, is compared by later. A Tensor is read from where it lies."""
    return ("Tensor", id(value)) if isinstance(value, Tensor) else copy.deepcopy(value)
