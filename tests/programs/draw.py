"""The values that a random program has computed so far, in float64 and in float32, from which its next step is
drawn."""

import math
from types import SimpleNamespace

import numpy as np

import minigrad as mg
from minigrad.nn import functional


class Draw:
    """The values of a program so far, in float64 and in float32."""

    def __init__(self, rng, program):
        self.rng, self.program = rng, program
        self.spaces = [{"m": mg, "F": functional}, {"m": mg, "F": functional}]
        self.exact, self.error, self.whole = {}, {}, set()  # float64 arrays; how far off float32's are, at most
        self.floats = []  # names that steps may work on, in the order of their making

    def add_input(self, name, x, whole):
        for space, dtype in zip(self.spaces, ("float64", "float32")):
            space[name] = mg.tensor(x.astype(dtype), requires_grad=name in self.program.leaves)
        self.exact[name], self.error[name] = x, 0.0
        self.floats.append(name)
        if whole:
            self.whole.add(name)

    def constant(self, x):
        """Add a constant to the program. Returns its name."""
        name = f"c{len(self.program.constants)}_{len(self.program.steps)}"
        x = np.asarray(x)
        x = x.astype(np.float32).astype(float) if x.dtype.kind == "f" else x
        self.program.constants[name] = x
        for space, dtype in zip(self.spaces, ("float64", "float32")):
            space[name] = mg.tensor(x.astype(dtype) if x.dtype.kind == "f" else x)
        return name

    def forget(self, name):
        for space in self.spaces:
            space.pop(name, None)

    def one(self, least=0, most=9, where=lambda x: True):
        """Return the name of a value with that many dims, usually one of the latest; None if there is none."""
        fits = [n for n in self.floats if least <= self.exact[n].ndim <= most and where(self.exact[n])]
        if not fits:
            return None
        late = fits[-3:] if self.rng.random() < 0.6 else fits
        return late[self.rng.integers(len(late))]

    def clear(self, distance, *names):
        """Return True if float32 rounding cannot change the sign of `distance`, an array computed from these values."""
        if all(n in self.whole for n in names):
            return True
        scale = max(np.abs(self.exact[n]).max(initial=0) for n in names)
        return np.abs(distance).min(initial=math.inf) > 100 * sum(self.error[n] for n in names) + 1e-4 * scale

    def tried(self, source, keeps_whole):
        """Return the values of an expression in both precisions, or None if it cannot be computed."""
        with np.errstate(all="ignore"):
            try:
                both = [eval(source, space) for space in self.spaces]
            except (ValueError, IndexError):
                used = set(words(source)).intersection(self.exact)
                assert not all(self.exact[n].size for n in used), source  # there is no largest of nothing
                return None
        both = [list(v) if isinstance(v, (tuple, list)) else [v] for v in both]
        arrays = [[t.detach().numpy() for t in tensors] for tensors in both]
        whole = keeps_whole and all(n in self.whole for n in self.exact if n in words(source))
        return SimpleNamespace(tensors=both, exact=arrays[0], rough=arrays[1], whole=whole)

    def keep(self, values, quiet=False):
        names = []
        for i, x in enumerate(values.exact):
            name = f"t{len(self.program.steps)}" + (f"_{i}" if len(values.exact) > 1 else "")
            for space, tensors in zip(self.spaces, values.tensors):
                space[name] = tensors[i].detach() if quiet else tensors[i]
            self.exact[name], self.error[name] = x, float(np.abs(x - values.rough[i]).max(initial=0))
            if values.whole and not (x % 1).any() and np.abs(x).max(initial=0) < 1000:
                self.whole.add(name)
            self.floats.append(name)
            names.append(name)
        return names

    def follows(self, name):
        return self.spaces[0][name].requires_grad

    def dim(self, x):
        n = self.exact[x].ndim
        return int(self.rng.integers(-n, n))

    def dims(self, x):
        """Return the arguments of a reduction over some dims."""
        n = self.exact[x].ndim
        dims = tuple(int(d) - int(self.rng.choice([0, n])) for d in range(n) if self.rng.random() < 0.6)
        return f"dim={dims or tuple(range(n))}, keepdim={bool(self.rng.integers(2))}"

    def of(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def mask(self, shape, chance=0.6):
        mask = self.rng.random(shape) < chance
        return self.constant(mask)


def words(text):
    """Return the names and numbers in a text, in order."""
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
