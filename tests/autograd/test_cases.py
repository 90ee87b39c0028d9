"""Declarations of ops: the inputs that cases draw, and the names of ops."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.autograd import declaration_of, registry
from minigrad.autograd.cases import Fixed, apart, booleans, case, integers, normal, positive, uniform


def draw(sample, dtype=np.float64, seed=0):
    return sample.draw(np.random.default_rng(seed), dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 12, 25])
def test_apart_is_apart_from_itself_and_from_0(size):
    x = draw(apart((size,)))
    away = np.sort(np.abs(x))
    assert away[0] > 1 / 8 and np.diff(away).min(initial=1) >= 1 / 8 - 1e-12
    assert size < 2 or {-1, 1} == set(np.sign(x))
    assert size < 12 or (np.sort(x) != x).any()  # in no order


def test_drawn_inputs_have_the_declared_distribution():
    x = draw(normal((50, 40)))
    assert abs(x.mean()) < 0.1 and abs(x.std() - 1) < 0.1
    x = draw(uniform((1000,), -3, 5))
    assert -3 <= x.min() < -2.9 and 4.9 < x.max() <= 5
    x = draw(positive((1000,)))
    assert 0.5 <= x.min() < 0.6 and 2.4 < x.max() <= 2.5
    x = draw(integers((1000,), 3, low=-1))
    assert x.dtype == np.int64 and set(x.tolist()) == {-1, 0, 1, 2}
    assert set(draw(integers((1000,), 3)).tolist()) == {0, 1, 2}
    x = draw(booleans((1000,)))
    assert x.dtype == bool and 0.5 < x.mean() < 0.7  # both, and not as often: sides that are exchanged would show
    for sample in (normal((2, 3)), uniform((2, 3), 0, 1), apart((2, 3))):
        assert draw(sample, np.float32).dtype == np.float32 and draw(sample).shape == (2, 3)
        assert (draw(sample) == draw(sample)).all() and (draw(sample) != draw(sample, seed=1)).any()


def test_inputs_that_are_given():
    assert draw(Fixed([1.0, 2.0]), np.float32).dtype == np.float32
    assert draw(Fixed([1, 2]), np.float32).dtype == np.int64 and draw(Fixed([True]), np.float32).dtype == bool
    made = case((2, 3), [(2,), Fixed([1])], 2.0, None, dim=1)
    x, (y, z), number, nothing = made.draw(np.random.default_rng(0), np.float32)
    assert x.shape == (2, 3) and y.shape == (2,) and x.dtype == y.dtype == np.float32 and z.tolist() == [1]
    assert number == 2.0 and nothing is None and made.params == {"dim": 1}
    assert repr(case((2, 3), uniform((2,), 0.5, 1), 2.0, dim=1)) == "case((2, 3), uniform 0.5…1 (2,), 2.0, dim=1)"
    assert repr(integers((2,), 3)) == "integers 0…3 (2,)" and repr(apart((2,))) == "apart (2,)"


@pytest.fixture
def unregistered():
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


def test_an_op_of_ones_own_may_reuse_a_name_of_ours(unregistered):
    ours = registry["softmax"]

    class Softmax(mg.Op):
        def forward(self, x):
            return x * 1

    assert registry["softmax"] is ours and registry[f"{__name__}.softmax"].source is Softmax
    assert not registry[f"{__name__}.softmax"].builtin
    assert ours.builtin

    first = Softmax

    class Softmax(mg.Op):  # one's own of that name is replaced
        def forward(self, x):
            return x * 2

    assert registry[f"{__name__}.softmax"].source is Softmax is not first


@pytest.mark.parametrize("name", ["params", "backend", "line", "release", "backward", "describe", "name", "_saved"])
def test_a_parameter_hides_nothing_of_an_op(name):
    with pytest.raises(TypeError, match=rf"the engine uses the name of forward's parameter \['{name}'\]"):
        type("Scaled", (mg.Op,), {"forward": eval(f"lambda self, x, {name}=1: x")})


def test_a_declaration_is_found_by_its_name_class_or_function():
    softmax = registry["softmax"]
    assert declaration_of("softmax") is declaration_of(softmax.source) is softmax
    assert declaration_of(mg.std) is declaration_of("std") and declaration_of(mg.einsum) is declaration_of("einsum")
    for unknown in ("sofmax", print):
        with pytest.raises(ValueError, match=r"no op called '(sofmax|print)' is declared"):
            declaration_of(unknown)


def test_an_op_of_a_user_is_primitive_only_if_it_says_so():
    """An op of a user is taken to compute in NumPy, unless it declares that it only calls primitives."""

    class Twice(mg.Op):
        def forward(self, x):
            return self.backend.add(x, x)

    class TwicePrimitive(Twice):
        primitive = True

    assert (Twice.primitive, TwicePrimitive.primitive, registry["exp"].source.primitive) == (False, True, True)
    assert (Twice.name, TwicePrimitive.name) == ("twice", "twice_primitive")


@pytest.mark.needs("g++")
def test_a_users_op_that_only_calls_primitives_is_captured():
    class Squared(mg.Op):
        primitive = True

        def forward(self, x):
            self.save_inputs(x)
            return self.backend.mul(x, x)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            return 2.0 * x * dy

    @mg.capture
    def step(x):
        Squared.apply(x).sum().backward()
        return x.grad

    for seed in range(3):
        x = mg.randn(5, generator=mg.Generator(seed)).requires_grad_()
        np.testing.assert_array_equal(step(x), 2 * x.detach())
