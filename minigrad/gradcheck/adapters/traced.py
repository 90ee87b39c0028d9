"""What JAX and HIPS autograd have in common: pure functions, whose vjp is a function to be differentiated again."""

import contextlib


class Traced:
    """A function of a list of arrays that returns a list of them. See Foreign.

    derived: (function of a tuple, the tuple) -> (ys, pullback); array: NumPy's array -> the framework's; host: the
    opposite; zeros: the framework's zeros_like; within: makes a context in which all of it runs; lazy: trace the
    derivative only once it is asked for, which is cheaper, and not every gradient has one."""

    def __init__(self, call, label, derived, array, host, zeros, within=contextlib.nullcontext, lazy=False):
        self.call, self.label = call, label
        self.lazy = lazy
        self.parts = derived, array, host, zeros, within

    def _derivative(self, xs, chosen):
        """(ys, pullback) with respect to the xs of these numbers."""
        derived, _, _, zeros, _ = self.parts

        def of_chosen(values):
            full = list(xs)
            for i, value in zip(chosen, values):
                full[i] = value
            return tuple(self.call(full))

        ys, pull = derived(of_chosen, tuple(xs[i] for i in chosen))
        return ys, lambda dys: pull(tuple(zeros(y) if dy is None else dy for y, dy in zip(ys, dys)))

    def vjp(self, arrays, needs):
        _, array, host, _, within = self.parts
        chosen = [i for i, need in enumerate(needs) if need]
        with within():
            xs = [a if a is None else array(a) for a in arrays]
            traced = None if self.lazy or not chosen else self._derivative(xs, chosen)
            ys = self.call(xs) if traced is None else traced[0]

        def pullback(dys, wanted):
            with within():
                pull = (traced or self._derivative(xs, chosen))[1]
                found = pull([dy if dy is None else array(dy) for dy in dys])
            return [host(g).astype(arrays[i].dtype, copy=False) for i, g in zip(chosen, found) if wanted[i]]

        return [host(y) for y in ys], pullback

    def gradient(self, n, wanted, label):
        def call(arrays):
            return self._derivative(arrays[:n], [i for i, want in enumerate(wanted) if want])[1](arrays[n:])

        return Traced(call, label, *self.parts, lazy=True)
