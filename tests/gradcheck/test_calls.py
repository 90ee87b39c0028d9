"""What gradcheck can be called with: forms of inputs and outputs, options of PyTorch's, gradients that are meant, and
pairs of NumPy functions."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import Op
from minigrad.gradcheck import FAIL, PASS, gradcheck

gradcheck = partial(gradcheck, probes=())  # test_probes.py has them

Pair = namedtuple("Pair", "x w")
rng = np.random.default_rng(0)


def data(*shape):
    return mg.tensor(rng.standard_normal(shape))


def array(*shape):
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Output:
    loss: mg.Tensor
    logits: mg.Tensor | None = None
    step: int = 3


class Half(Op, abstract=True):
    """y = x, whose backward returns half of dy."""

    def forward(self, x):
        return x.copy()

    def backward(self, dy):
        return dy * 0.5


wrong = Half.apply


# -- inputs


def test_one_tuple_holds_all_inputs():
    x, w = data(2, 3), data(3, 2)
    report = gradcheck(lambda x, w: x @ w, (x, w))
    assert [leaf[0] for leaf in report.leaves] == ["x", "w"]
    assert gradcheck(mg.exp, (x,)).leaves == gradcheck(mg.exp, x).leaves


def test_trees_among_the_inputs():
    h, c = data(2), data(2)
    report = gradcheck(lambda state: state[0] * state[1].tanh(), ((h, c),))
    assert [leaf[0] for leaf in report.leaves] == ["state[0]", "state[1]"]
    assert len(gradcheck(lambda a, b: a[0] * b, (h, c), data(2)).leaves) == 3  # two inputs, of which one is a tuple
    assert len(gradcheck(lambda pair: pair.x * pair.w, Pair(h, c)).leaves) == 2  # no plain tuple
    report = gradcheck(lambda given: given.loss * given.step, Output(data(3)))
    assert [leaf[0] for leaf in report.leaves] == ["given.loss"]


def test_keyword_arguments_are_inputs():
    x, w = data(2, 3), data(3)
    report = gradcheck(lambda x, *, weight, scale: x * weight * scale, x, kwargs={"weight": w, "scale": 3.0})
    assert [leaf[0] for leaf in report.leaves] == ["x", "weight"]
    assert gradcheck(mg.sum, x, kwargs={"dim": 1})
    report = gradcheck(lambda x, weight: x * wrong(weight), x, kwargs={"weight": w}, raise_on_fail=False)
    assert {f.leaf for f in report.findings if f.check == "Jacobian" and f.verdict == FAIL} == {"weight"}
    assert [leaf[0] for leaf in gradcheck(lambda x, y: x * y, x, kwargs={"y": data(3)}, wrt="y").leaves] == ["y"]


# -- outputs


@pytest.mark.parametrize(
    "packed",
    [Output, lambda y: Pair(y, y), lambda y: [[y], {"more": (y,)}], lambda y: OrderedDict(a=y), lambda y: Output(3, y)],
)
def test_outputs_in_any_tree(packed):
    assert gradcheck(lambda x: packed(x.exp()), data(3))
    assert not gradcheck(lambda x: packed(wrong(x)), data(3), raise_on_fail=False)


@pytest.mark.parametrize(
    "returned, said",
    [
        (lambda x: None, "NoneType"),
        (lambda x: x.sum().item(), "float"),
        (lambda x: x.detach().numpy(), "ndarray of float64"),
        (lambda x: x.argmax(), "Tensor of int64"),
        (lambda x: {"y": 3.0}, "dict"),
        (lambda x: [], "list"),
    ],
)
def test_nothing_to_compare_never_passes(returned, said):
    with pytest.raises(TypeError, match=f"returned no Tensor of floats, but {said}"):
        gradcheck(returned, data(3))


def test_empty_inputs_are_said_to_be():
    assert "every input is empty" in gradcheck(mg.exp, mg.zeros(0, 3)).left_out["Jacobian"]


@pytest.mark.parametrize(
    "options", [{"mode": "directional", "directions": 0}, {"directions": -1}, {"mode": "probes", "probes": iter(())}]
)
def test_options_that_leave_nothing_to_compare(options):
    with pytest.raises(ValueError, match=r"directions must be|probes must be"):
        gradcheck(mg.exp, data(3), **options)


def test_probes_out_of_a_generator():
    report = gradcheck(mg.exp, data(3), probes=(name for name in ("linearity", "modes")))
    assert {f.probe for f in report.findings} == {"", "linearity", "modes"}


def test_a_wrong_option_is_named():
    values = dict(rtol=["1e-3"], atol=[None, -1], eps=["a", 0], probes=[3], seed=[-1, None], wrt=[9])
    for name, value in ((name, value) for name, each in values.items() for value in each):
        with pytest.raises(ValueError, match=f"gradcheck: {name}"):
            gradcheck(mg.exp, data(3), **{name: value})


def test_a_first_argument_that_cannot_be_called_is_refused():
    for fn in (None, 3, data(3)):
        with pytest.raises(TypeError, match="the first argument must be a function"):
            gradcheck(fn, data(3))


# -- options of PyTorch's


def test_atol_and_rtol():
    near = partial(gradcheck, wrong, data(3), raise_on_fail=False, probes=())
    assert not near() and not near(atol=0.49)
    assert near(atol=0.51) and near(rtol=0.6)
    assert gradcheck(mg.exp, data(3), rtol=0)  # the bars remain


def test_eps_is_the_first_step():
    steps = []

    def f(x):
        steps.append(abs(float(x.detach().numpy()[0]) - 1))
        return x.sin()

    gradcheck(f, mg.tensor([1.0], dtype=mg.float64), eps=1e-3, probes=())
    assert max(steps) == 2.0**-10


# -- gradients that are meant


class Round(Op, abstract=True):
    """y = x rounded, whose backward is that of y = x."""

    def forward(self, x):
        return np.round(x)

    def backward(self, dy):
        return dy


def test_mode_probes_takes_no_differences():
    x = data(3, 2)
    assert not gradcheck(Round.apply, x, raise_on_fail=False)
    assert gradcheck(Round.apply, x, mode="probes", probes=["linearity", "layouts"]).verdict == PASS


# -- pairs of NumPy functions


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_vjp(dy, x):
    y = softmax(x)
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def test_a_pair_of_numpy_functions():
    report = gradcheck(softmax, array(2, 3), vjp=softmax_vjp)
    assert report.verdict == PASS and report.label == "softmax"
    assert not gradcheck(softmax, array(2, 3), vjp=lambda dy, x: softmax(x) * dy, raise_on_fail=False)


def test_a_captured_function_is_checked_as_the_function_that_it_runs():
    x = mg.tensor(array(3))
    assert gradcheck(mg.capture(lambda x: x.exp().sum()), x, probes=()).verdict == PASS
    wrong = mg.capture(lambda x: 2 * x.exp().sum() - x.exp().sum().detach())
    assert gradcheck(wrong, x, probes=(), raise_on_fail=False).verdict == FAIL


def test_pairs_of_several_inputs_and_outputs():
    def vjp(dy, x, w, *, b):
        return dy @ w.T, x.T @ dy, {"b": dy.sum(0)}

    inputs = array(4, 3), array(3, 2)
    assert gradcheck(lambda x, w, *, b: x @ w + b, inputs, kwargs={"b": array(2)}, vjp=vjp)
    assert gradcheck(lambda x, n: x**n, array(3), 3, vjp=lambda dy, x, n: (n * x ** (n - 1) * dy, None))
    assert not gradcheck(lambda x, y: x * y, inputs[0], inputs[0] + 1, vjp=lambda dy, x, y: (dy * y, None),
                         raise_on_fail=False)  # fmt: skip
    assert gradcheck(lambda x: float((x**2).sum()), array(3), vjp=lambda dy, x: 2 * x * dy)
    assert gradcheck(lambda x: ((x**2).sum(), x * 2), array(3), vjp=lambda dy, x: 2 * x * dy[0] + 2 * dy[1])


def test_a_pair_that_writes_into_its_cotangent():
    def vjp(dy, x):
        dy *= 2
        return dy

    assert gradcheck(lambda x: 2 * x, array(3), vjp=lambda dy, x: 2 * dy)
    report = gradcheck(lambda x: 2 * x, array(3), vjp=vjp, raise_on_fail=False, probes=("unchanged",))
    assert any("changed in place" in f.note for f in report.findings)


@pytest.mark.parametrize("gradient", [(array(3), array(3)), [array(3)] * 3])
@pytest.mark.parametrize("x", [array(3), [array(3), array(3)], {"a": array(3)}], ids=["array", "list", "dict"])
def test_a_vjp_returns_what_the_inputs_are(x, gradient):
    with pytest.raises((TypeError, RuntimeError), match=r"returned (2 gradients for 1|a gradient)"):
        gradcheck(lambda x: 1.0, x, vjp=lambda dy, x: gradient)


def test_numpy_arrays_without_a_vjp_are_refused():
    with pytest.raises(TypeError, match="checked at order 1 only"):
        gradcheck(softmax, array(3), vjp=softmax_vjp, order=2)
    with pytest.raises(TypeError, match="pass Tensors, or vjp="):
        gradcheck(np.sin, array(3))
    with pytest.raises(TypeError, match="vjp is for functions of NumPy arrays"):
        gradcheck(mg.sin, data(3), vjp=lambda dy, x: dy)
    with pytest.raises(TypeError, match="complex inputs"):
        gradcheck(np.sin, array(3) * 1j, vjp=lambda dy, x: dy)


def test_a_tensor_that_the_function_closes_over_is_named_where_its_dtype_does_not_fit():
    layer, x = mg.nn.Linear(3, 2), mg.randn(4, 3)
    with pytest.raises(TypeError, match="pass the tensors that the function closes over as inputs"):
        gradcheck(lambda layer: layer(x).sum(), layer)
    mg.gradcheck(lambda layer, x: layer(x).sum(), layer, x)  # the module can be called, too


def test_arrays_of_a_pair_are_checked_with_their_strides_too():
    x, wrong = np.random.default_rng(0).standard_normal((3, 15))[:, ::5], lambda x: x.strides == (120, 40)
    how = dict(mode="probes", probes=["layouts"], raise_on_fail=False)
    found = gradcheck(np.sin, x, vjp=lambda dy, x: dy * np.cos(x) * (1 + wrong(x)), **how)
    assert [f.check for f in found.findings if f.verdict == FAIL] == ["layout as given"]
