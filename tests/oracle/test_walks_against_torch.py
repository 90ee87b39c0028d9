"""Random graphs and random walks through them give what PyTorch gives, plain and captured, errors included."""

import functools

import numpy as np
import pytest

import minigrad as mg

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:Using backward:UserWarning")]
SHAPE = 2, 3
PROGRAMS, CALLS = 600, 3

OPS = {  # name: (number of operands, function); each gives SHAPE, and is written alike in both libraries
    "add": (2, lambda lib, x, y: x + y),
    "sub": (2, lambda lib, x, y: x - y),
    "mul": (2, lambda lib, x, y: x * y),
    "tanh": (1, lambda lib, x: x.tanh()),
    "exp": (1, lambda lib, x: (x - x.detach().sum()).exp()),
    "plus": (1, lambda lib, x: x + 1.5),
    "neg": (1, lambda lib, x: -x),
    "view": (1, lambda lib, x: x.reshape(3, 2).reshape(2, 3)),
    "turn": (1, lambda lib, x: x.reshape(3, 2).transpose(0, 1)),
    "cat": (2, lambda lib, x, y: lib.cat([x[:1], y[1:]], 0)),
    "cast": (1, lambda lib, x: x.to(lib.float32).to(lib.float64)),
    "sum": (1, lambda lib, x: x.sum(0, keepdim=True) + x),
    "softmax": (1, lambda lib, x: x.softmax(1)),
    "matmul": (2, lambda lib, x, y: (x @ y.transpose(0, 1)) @ x),
    "max": (1, lambda lib, x: x.amax(1, keepdim=True) + x.detach()),
    "detach": (1, lambda lib, x: x.detach() + x),
}


def program(seed):
    """A list of steps: (name of an op, numbers of its operands) and walks, drawn so that both libraries can follow."""
    rng = np.random.default_rng(seed)
    steps, count = [], 3  # values 0 and 1 are leaves, 2 is data
    for _ in range(rng.integers(4, 14)):
        kind = rng.random()
        if kind < 0.65:
            name = str(rng.choice([*OPS]))
            steps.append((name, [int(rng.integers(0, count)) for _ in range(OPS[name][0])]))
            count += 1
        else:
            root, inputs = int(rng.integers(0, count)), [int(i) for i in rng.integers(0, count, rng.integers(1, 3))]
            options = dict(retain_graph=[None, True, False][rng.integers(3)], create_graph=bool(rng.random() < 0.25))
            way = str(rng.choice(["grad", "backward", "backward to inputs"]))
            steps.append((way, root, inputs, options))
            count += way == "grad"  # its first gradient, or the root if there is none
    return steps


def run(lib, steps, leaves, data):
    """Every value, .grad and kind of error of a program, as Tensors of the library and words."""
    values, seen = [*leaves, data], []
    for leaf in leaves:
        leaf.grad = None
    for name, *rest in steps:
        if name in OPS:
            values.append(OPS[name][1](lib, *[values[i] for i in rest[0]]))
            continue
        root, inputs, options = values[rest[0]], [values[i] for i in rest[1]], rest[2]
        if not root.requires_grad or not all(x.requires_grad for x in inputs):
            values += [root] * (name == "grad")
            continue
        try:
            if name == "grad":
                found = lib.autograd.grad(root.sum(), inputs, allow_unused=True, **options)
                seen += [g for g in found if g is not None]
                values.append(found[0] if found[0] is not None else root)
            elif name == "backward":
                root.sum().backward(**options)
            else:
                root.sum().backward(inputs=[x for x in inputs if x.is_leaf] or [leaves[0]], **options)
        except (mg.GraphError, RuntimeError) as error:
            assert "retain_graph=True" in str(error) or "does not require" in str(error), error
            return ["error", *seen, *values], []  # what a walk has added before its error may differ
    return seen + values, [leaf.grad for leaf in leaves]


def plain(x):
    return x if x is None or isinstance(x, str) else x.detach().numpy()


def compare(ours, theirs, where):
    for kind, (a, b) in zip(("values", "gradients"), zip(ours, theirs)):
        assert len(a) == len(b), (where, kind)
        for i, (x, y) in enumerate(zip(map(plain, a), map(plain, b))):
            if x is None or y is None or isinstance(x, str) or isinstance(y, str):
                assert type(x) is type(y), (where, kind, i, x, y)
            else:
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7, err_msg=f"{where} {kind} {i}")


@pytest.mark.parametrize("part", range(4))
def test_random_walks(part, torch):
    for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS):
        steps, rng = program(seed), np.random.default_rng(seed)
        ours = functools.partial(run, mg, steps)
        captured = mg.capture(ours)
        for call in range(CALLS):
            arrays = [rng.standard_normal(SHAPE) for _ in range(3)]
            *leaves, data = (torch.tensor(a) for a in arrays)
            theirs = run(torch, steps, [x.requires_grad_() for x in leaves], data)
            for how, function in (("plain", ours), ("captured", captured)):
                *leaves, data = (mg.tensor(a) for a in arrays)
                found = function([x.requires_grad_() for x in leaves], data)
                compare(found, theirs, f"program {seed}, call {call}, {how}: {steps}")
