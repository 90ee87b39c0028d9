"""The primitives of a GPU for NumPy arrays, so that the tests of kernels are the same on all devices."""

import ctypes

import numpy as np
from numpy.lib.array_utils import byte_bounds

HOSTS = {"getitem": (1,), "setitem": (1,), "getitem_add": (1,), "full": (0, 1, 2)}  # arguments that are the host's


class OnGpu:
    """backend.get("cuda") with primitives that take and return NumPy arrays. What lies in the same memory, and how,
    does so on the GPU: an argument's owner is copied there whole, and back where the primitive has changed it. A result
    has the strides that it has on the GPU."""

    def __init__(self, on):
        self.__dict__["on"] = on

    def __setattr__(self, name, value):  # deterministic, say
        setattr(self.on, name, value)

    def __getattr__(self, name):
        found = getattr(self.on, name)
        if not callable(found):
            return found

        def primitive(*args, **keywords):
            visit = _Visit(self.on)
            args = [x if i in HOSTS.get(name, ()) else visit.there(x) for i, x in enumerate(args)]
            result = found(*args, **{key: visit.there(x) for key, x in keywords.items()})
            visit.end()
            return visit.back(result)

        return primitive


class _Visit:
    """The arrays of one call of a primitive."""

    def __init__(self, on):
        self.on, self.owners = on, {}

    def there(self, x):
        if type(x) in (list, tuple):
            return type(x)(self.there(each) for each in x)
        if not isinstance(x, np.ndarray):
            return x
        if not x.size:
            return self.on.empty(x.shape, x.dtype)
        owner = x
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        first, end = byte_bounds(owner)
        gap = first % 64  # as well aligned there as here
        if first not in self.owners:
            before = np.zeros(gap + end - first, np.uint8)
            before[gap:] = np.frombuffer(ctypes.string_at(first, end - first), np.uint8)
            self.owners[first] = gap, before, self.on.from_numpy(before)
        start = self.owners[first][2].data + (gap + x.ctypes.data - first)
        return self.on.array_type(x.shape, x.dtype, memptr=start, strides=x.strides)

    def end(self):
        for first, (gap, before, there) in self.owners.items():
            after = self.on.to_numpy(there)
            if after.tobytes() != before.tobytes():
                ctypes.memmove(first, after.ctypes.data + gap, after.size - gap)

    def back(self, y):
        if isinstance(y, (list, tuple)):
            return type(y)(self.back(each) for each in y)
        if not isinstance(y, self.on.array_type):
            return y
        values = self.on.to_numpy(y)
        if not y.size:
            return values
        ends = [step * (n - 1) for n, step in zip(y.shape, y.strides)]
        low, high = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
        memory = np.zeros(high - low + y.itemsize, np.uint8)
        laid = np.ndarray(y.shape, y.dtype, memory, -low, y.strides)
        laid[...] = values
        return laid
