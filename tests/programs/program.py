"""Random programs, as text that runs under minigrad and, with another import, under PyTorch.

`drawn(seed)` is the same Program for the same seed: 5 to 40 ops on a few leaves, some of them not contiguous, some of
small whole numbers, so that they tie; with views, indexing, sharing, parts without gradients, and hooks. It is drawn
while it runs, on the NumPy reference, in float64 and float32: a step is taken only where its values are finite and
moderate, and where float32's rounding, as measured, cannot change what it chooses, such as the larger of two."""

import contextlib
import copy
import zlib
from dataclasses import dataclass, field

import numpy as np

import minigrad as mg
from minigrad import backend
from minigrad.backend import reference

from .draw import Draw, words
from .steps import STEPS

MOST, LARGEST = 600, 1e3  # elements of a value, and their size


@dataclass
class Step:
    """A statement that sets `names`. picks: gradients with respect to its values may be compared. whole: the values are
    small whole numbers, exact in any precision."""

    names: list
    source: str
    picks: bool = True
    whole: bool = False

    def text(self):
        return f"{', '.join(self.names)}{',' if len(self.names) > 1 else ''} = {self.source}"


@dataclass
class Program:
    seed: int
    leaves: dict = field(default_factory=dict)  # name: float64 array; a leaf that needs a gradient
    constants: dict = field(default_factory=dict)  # name: array of floats, ints or bools
    orders: dict = field(default_factory=dict)  # leaf: the order of its dims in memory
    steps: list = field(default_factory=list)
    without: set = field(default_factory=set)  # names of values computed under no_grad
    hooks: dict = field(default_factory=dict)  # name: what its gradient is multiplied by on the way
    picks: list = field(default_factory=list)  # intermediate values whose gradients are asked for
    outputs: list = field(default_factory=list)
    shapes: dict = field(default_factory=dict)  # name: shape of that value

    def source(self, shaken=False):
        """Return the statements, for a namespace with m, the leaves and the constants, and `shake` if shaken."""
        lines = []
        for step in self.steps:
            text = step.text()
            lines += [f"with m.no_grad():\n    {text}"] if self.without.intersection(step.names) else [text]
            if shaken and not step.whole:
                lines += [f"{name} = shake({name})" for name in step.names]
            for name in step.names:
                if name in self.hooks:
                    lines.append(f"{name}.register_hook(lambda g: None if g is None else g * {self.hooks[name]})")
        return "\n".join(lines)

    def __str__(self):
        """Return the program as text that runs; under PyTorch if its first line is changed."""
        lines = ["import minigrad as m", "from numpy import array, float64, int64, nan, inf, zeros", ""]
        for name, x in self.leaves.items():
            order = self.orders.get(name)
            stored = x if order is None else x.transpose(np.argsort(order))
            back = "" if order is None else f".permute({tuple(map(int, order))})"
            lines.append(f"{name} = m.tensor({written(stored)}){back}.requires_grad_()")
        lines += [f"{name} = m.tensor({written(x)})" for name, x in self.constants.items()]
        asked = ", ".join([*self.leaves, *self.picks])
        loss = " + ".join(f"(m.tensor({written(self.weight(y))}) * {y}).sum()" for y in self.outputs)
        lines += [self.source(), "", f"loss = {loss}", "grad = getattr(m, 'grad', None) or m.autograd.grad"]
        lines.append(f"print(grad(loss, [{asked}], create_graph=True, allow_unused=True))  # seed {self.seed}")
        return "\n".join(lines)

    def weight(self, name, shape=None):
        """Return the cotangent for an output, or for a first gradient of which a second is taken, by its name."""
        shape = self.shapes[name] if shape is None else shape
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return np.round(rng.standard_normal(shape), 3)

    def run(self, m, dtype="float64", shake=None, second=True):
        """Return {name: array} of all values, gradients and second derivatives under m. Gradients that are None are
        left out.

        shake: a function that changes leaves and intermediate values slightly, to see how far that moves the
        results."""
        names, leaves = self._computed(m, dtype, shake)
        made = [name for step in self.steps for name in step.names]
        results = {f"value {name}": names[name] for name in made}
        outputs = [n for n in self.outputs if names[n].requires_grad]
        asked = leaves | {n: names[n] for n in self.picks if names[n].requires_grad}
        if outputs:
            loss = self._weighted(m, {n: names[n] for n in outputs})
            for x in asked.values():
                x.retain_grad()
            loss.backward(retain_graph=True)
            results |= {f"grad {n}": x.grad.detach().clone() for n, x in asked.items() if x.grad is not None}
            # (PyTorch's grad of a tensor with a hook is taken before the hook or after, as other gradients need it)
            asked = {n: x for n, x in asked.items() if n not in self.hooks}
            second = second and not self.hooks  # a hook sees second derivatives too where an op has saved its output
            firsts = gradients(m, loss, asked, create_graph=second)
            results |= {f"d loss/d {n}": g for n, g in firsts.items()}
            again = {f"d {n}": g for n, g in firsts.items() if g.requires_grad}
            if again:  # with respect to leaves only: others depend on which way a first derivative was written down
                seconds = gradients(m, self._weighted(m, again), leaves)
                results |= {f"d² loss/d {n}": g for n, g in seconds.items()}
        return {what: array_of(m, x) for what, x in results.items()}

    def _computed(self, m, dtype, shake=None):
        """Return ({name: tensor or module}, {name: leaf}) after the last statement."""
        names, leaves = {"m": m, "F": m.nn.functional}, {}
        for name, x in (self.leaves | self.constants).items():
            x = x.astype(dtype) if x.dtype.kind == "f" else x
            order = self.orders.get(name)
            if order is None:
                names[name] = m.tensor(x)
            else:
                names[name] = m.tensor(np.ascontiguousarray(x.transpose(np.argsort(order)))).permute(order)
            if name in self.leaves:
                leaves[name] = names[name].requires_grad_()
            if shake is not None and (x % 1).any():
                names[name] = shake(names[name])
        exec(self.source(shake is not None), names | {"shake": shake} if shake else names, names)
        return names, leaves

    def _weighted(self, m, tensors):
        return sum(
            (t * m.tensor(self.weight(n, tuple(t.shape)).astype(str(t.dtype).removeprefix("torch.")))).sum()
            for n, t in tensors.items()
        )

    def sizes(self, m):
        """Return {"value", "gradient" or "second derivative": the largest number of that kind}, intermediate ones too.

        Rounding errors are compared with it, because large terms may have cancelled."""
        names, leaves = self._computed(m, "float64")
        values = {n: names[n] for step in self.steps for n in step.names} | leaves
        largest = {"value": largest_of(m, values.values()), "gradient": 0.0, "second derivative": 0.0}
        connected = {n: x for n, x in values.items() if x.requires_grad}
        outputs = {n: values[n] for n in self.outputs if values[n].requires_grad}
        if outputs:
            firsts = gradients(m, self._weighted(m, outputs), connected, create_graph=True)
            largest["gradient"] = largest_of(m, firsts.values())
            again = {f"d {n}": g for n, g in firsts.items() if g.requires_grad and n in leaves}
            if again:
                seconds = gradients(m, self._weighted(m, again), connected)
                largest["second derivative"] = largest_of(m, seconds.values())
        return largest


def gradients(m, loss, asked, **options):
    """Return {name: gradient} with respect to those of the named tensors that loss depends on."""
    grad = m.grad if hasattr(m, "grad") else m.autograd.grad
    found = grad(loss, list(asked.values()), allow_unused=True, **options)
    return {n: g for n, g in zip(asked, found) if g is not None}


def array_of(m, x):
    return np.asarray(x.detach().numpy(**({} if m is mg else {"force": True})))  # torch may answer with a lazy zero


def largest_of(m, tensors):
    arrays = [array_of(m, x) for x in tensors]
    return max((float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in arrays), default=0.0)


def written(x):
    x = np.asarray(x)
    return f"array({x.tolist()!r}, dtype={str(x.dtype)!r})" if x.size else f"zeros({x.shape}, dtype={str(x.dtype)!r})"


# -------------------------------------------------------------------------------------------------------------- drawing


def leaf_array(rng):
    """Return (float64 values of a leaf, which float32 holds exactly; True if they are whole numbers)."""
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 3, 4, 5], rng.choice([0, 1, 2, 2, 3, 3, 4])))
    kind = rng.choice(["normal", "normal", "normal", "positive", "whole", "whole", "small", "equal"])
    if kind == "whole":
        return rng.integers(-2, 3, shape).astype(float), True
    if kind == "equal":
        return np.full(shape, float(rng.integers(1, 3))), True
    x = rng.uniform(0.3, 2, shape) if kind == "positive" else rng.standard_normal(shape)
    return (x * (0.01 if kind == "small" else 1)).astype(np.float32).astype(float), False


def drawn(seed, least=5, most=40):
    """Return the program of this seed. It is drawn on the NumPy backend, whatever the backend of the CPU is."""
    rng = np.random.default_rng([seed, 14])
    program = Program(seed)
    with on_backend(reference):
        draw = Draw(rng, program)
        for i in range(rng.integers(1, 5)):
            x, whole = leaf_array(rng)
            if x.ndim > 1 and rng.random() < 0.25:
                program.orders[f"x{i}"] = tuple(int(d) for d in rng.permutation(x.ndim))
            table = program.leaves if i == 0 or rng.random() < 0.8 else program.constants
            table[f"x{i}"] = x
            draw.add_input(f"x{i}", x, whole)
        n = int(rng.integers(least, most + 1))
        while len(program.steps) < n:
            take_a_step(draw, rng)
        choose(program, draw, rng)
    return program


def take_a_step(draw, rng):
    for _ in range(100):
        name = STEPS.names[rng.choice(len(STEPS.names), p=STEPS.weights)]
        mark = set(draw.program.constants)
        source = STEPS.functions[name](draw)
        values = source and draw.tried(source, STEPS.keeps_whole(name))
        if values and all(acceptable(v) for v in values.exact):
            quiet = rng.random() < 0.03 and name not in STEPS.may_alias
            names = draw.keep(values, quiet)
            draw.program.steps.append(Step(names, source, name not in STEPS.may_alias, names[0] in draw.whole))
            if quiet:
                draw.program.without.update(names)
            return
        for constant in set(draw.program.constants) - mark:
            del draw.program.constants[constant]
            draw.forget(constant)
    raise RuntimeError(f"seed {draw.program.seed}: no step fits")


def acceptable(x):
    return x.size <= MOST and np.isfinite(x).all() and np.abs(x).max(initial=0) <= LARGEST


def choose(program, draw, rng):
    """Choose the outputs among the values that nothing uses, and picks and hooks among the intermediate values."""
    every = [name for step in program.steps for name in step.names]
    text = program.source()
    unused = [n for n in every if sum(word == n for word in words(text)) == 1]
    rng.shuffle(unused)
    most = len(unused) if rng.random() < 0.7 else int(rng.integers(1, 4))
    program.outputs = unused[:most] + [n for n in every if rng.random() < 0.05]
    program.outputs = sorted(set(program.outputs or every[-1:]), key=every.index)
    program.shapes = {n: draw.exact[n].shape for n in every}
    able = [n for step in program.steps if step.picks for n in step.names if draw.follows(n)]
    rng.shuffle(able)
    program.picks = able[: int(rng.integers(0, 4))]
    for n in able[: int(rng.random() < 0.15)]:
        program.hooks[n] = float(rng.choice([2.0, -0.5]))


@contextlib.contextmanager
def on_backend(on):
    """Use this backend for the CPU in a block."""
    before, backend.cpu = backend.cpu, lambda: on
    try:
        yield
    finally:
        backend.cpu = before


def changed(program, **parts):
    new = copy.deepcopy(program)
    for name, value in parts.items():
        setattr(new, name, copy.deepcopy(value))
    return new
