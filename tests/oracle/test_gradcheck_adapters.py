"""gradcheck on functions of PyTorch: its users' calls, and bugs from their public threads that
their own checkers pass or that they see where there is none."""

import copy
import math
from functools import partial

import numpy as np
import pytest

from minigrad.gradcheck import FAIL, KINK, PASS, GradcheckError, gradcheck, gradgradcheck

from .foreign_functions import checked, torch_functions

pytestmark = pytest.mark.oracle


@pytest.fixture
def x(torch):
    torch.manual_seed(0)
    return torch.randn(3, 2, dtype=torch.float64, requires_grad=True)


def names(report):
    return [leaf[0] for leaf in report.leaves]


def failed(report):
    return {f.check for f in report.findings if f.verdict == FAIL}


# -- a list of functions


def test_functions_of_pytorch(torch):
    found = [(name, order, r.verdict) for name, order, r, right, _ in checked(torch_functions())
             if r.verdict not in right]  # fmt: skip
    assert found == []


# -- PyTorch: in place of torch.autograd.gradcheck


def test_a_call_as_pytorch_has_it(torch, x):
    w = torch.randn(2, 3, dtype=torch.float64)
    report = gradcheck(torch.matmul, (x, w), eps=1e-6, atol=1e-4)
    assert report and names(report) == ["inputs[0]"]  # w requires no gradient
    assert gradcheck(torch.matmul, (x.detach(), w)).leaves[1][0] == "inputs[1]"  # none does: all are checked
    assert gradgradcheck(torch.tanh, x)
    assert names(gradcheck(torch.mul, [x, x[:1]], probes=())) == names(gradcheck(torch.mul, (x, x[:1]), probes=()))
    assert gradcheck(torch.tanh, x.detach().float(), order=3, mode="directional")


def test_attention_that_reads_beyond_its_keys(torch):
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    report = gradcheck(torch.nn.functional.scaled_dot_product_attention, (q, k, v), probes=["sizes", "growth"])
    assert report.verdict == PASS and not report.left_out


def test_a_mistake_of_pytorch_is_found(torch):
    """batch_norm's backward on a CPU takes the weight for contiguous: dx is NaN, without an error."""
    x, w = torch.randn(6, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    report = gradcheck(
        lambda x, w: torch.nn.functional.batch_norm(x, None, None, w, training=True), (x, w), raise_on_fail=False
    )
    assert failed(report) == {"layout strided, mixed"}
    wide = torch.full((8,), math.nan, dtype=torch.float64)
    wide[::2] = w
    y = torch.nn.functional.batch_norm(x.requires_grad_(), None, None, wide[::2], training=True)
    assert y.isfinite().all() and torch.autograd.grad(y, x, torch.ones(6, 4, dtype=torch.float64))[0].isnan().any()


def test_modules(torch):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    before = copy.deepcopy(net.state_dict())
    report = gradcheck(net, torch.randn(5, 3))
    assert report.verdict == PASS
    assert names(report) == ["input", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(before.values(), net.state_dict().values()))
    assert all(p.grad is None for p in net.parameters())
    report = gradcheck(lambda net, x: net(x).square().mean(), net, torch.randn(5, 3), wrt="net.0", mode="directional")
    assert names(report) == ["net.0.weight", "net.0.bias"]
    net[2].register_full_backward_hook(lambda module, given, dys: (2 * given[0],))
    assert failed(gradcheck(net, torch.randn(5, 3), raise_on_fail=False))


def test_frozen_parameters_are_constants(torch):
    linear = torch.nn.Linear(3, 2)
    linear.weight.requires_grad_(False)
    assert names(gradcheck(linear, torch.randn(2, 3))) == ["input", "bias"]


def test_random_numbers_are_the_same_at_each_call(torch, x):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert gradcheck(torch.nn.functional.dropout, x).verdict == PASS
    assert torch.equal(state, torch.get_rng_state())


def test_grad_modes_of_the_caller_do_not_matter(torch, x):
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert gradcheck(torch.sin, x)


def test_outputs_that_require_no_gradient_are_left_out_and_named(torch, x):
    report = gradcheck(lambda x: (x * 2, x.detach().exp()), x)
    assert "float outputs [1]" in report.left_out["other outputs"]
    with pytest.raises(GradcheckError, match="no gradient arrives"):
        gradcheck(lambda x: x.detach() * 2, x)


def test_what_cannot_be_checked_is_refused(torch, x):
    for returned, said in ((lambda x: x.sum().item(), "float"), (torch.argmax, "Tensor of torch.int64")):
        with pytest.raises(TypeError, match=f"no torch.Tensor of floats, but {said}"):
            gradcheck(returned, x)
    with pytest.raises(TypeError, match="complex inputs are not checked"):
        gradcheck(torch.abs, torch.randn(3, dtype=torch.complex128))
    with pytest.raises(TypeError, match=r"returned a complex tensor; return torch.view_as_real"):
        gradcheck(torch.fft.fft, x)
    with pytest.raises(TypeError, match=r"dense and on the cpu; one is torch.sparse_coo"):
        gradcheck(torch.sparse.sum, x.detach().to_sparse())


def test_points_where_right_functions_are_not_finite_or_kink(torch, x):
    """Whatever a probe finds there, an op that hides others may do, as they may: y is infinite, or all are tied."""
    for fn in (lambda x: torch.log1p(x.exp()), lambda x: torch.topk(x, 2), torch.nn.functional.gelu):
        assert gradcheck(fn, x[:, 0].detach(), probes=("values",))


# -- PyTorch: what its own checker does not see


def cases(torch):
    class Kernel(torch.autograd.Function):
        """pytorch#194719: the backward reads its cotangent as if it lay in memory as x does; cat() hands it a view."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return torch.as_strided(dy, x.shape, x.contiguous().stride()) * x.cos()

    class Overwriting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 3 * x

        @staticmethod
        def backward(ctx, dy):
            return dy.mul_(3)

    class Buffered(torch.autograd.Function):
        buffer = torch.zeros(3, 2, dtype=torch.float64)

        @staticmethod
        def forward(ctx, x):
            if x.shape == Buffered.buffer.shape and x.dtype == torch.float64:
                ctx.saved = Buffered.buffer.copy_(x)
            else:
                ctx.saved = x
            return x.sin()

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved.cos()

    class Second(torch.autograd.Function):
        """A backward that is right, and is cut off from the graph."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved_tensors[0].detach().cos()

    class Capped(torch.autograd.Function):
        """Whose backward ignores an option that is 0 as a rule, and is wrong in a window that its code names."""

        @staticmethod
        def forward(ctx, x, cap=0.0):
            ctx.save_for_backward(x)
            return x * x + cap * x

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return 2 * dy * torch.where((x > 7.5) & (x < 7.6), 0, x), None

    return {"Kernel": Kernel, "Overwriting": Overwriting, "Buffered": Buffered, "Second": Second, "Capped": Capped}


@pytest.mark.parametrize(
    "name, check", [("Kernel", "cotangent strided"), ("Overwriting", "unchanged"), ("Buffered", "interleaved")]
)
def test_what_differences_cannot_see(torch, x, name, check):
    fn = cases(torch)[name]
    assert torch.autograd.gradcheck(fn.apply, (x,))
    assert check in failed(gradcheck(fn, x, raise_on_fail=False))


def test_an_output_that_is_not_used_has_no_cotangent(torch, x):
    """yastn#53: a backward that asked for None where nothing comes, and cannot take it, or takes it wrongly."""

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.sin(), x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * ctx.saved_tensors[0].cos() + b * 3

    class Wrong(Two):
        @staticmethod
        def backward(ctx, a, b):
            return torch.zeros_like(x) if a is None or b is None else Two.backward(ctx, a, b)

    class Right(Two):
        @staticmethod
        def backward(ctx, a, b):
            x, zero = ctx.saved_tensors[0], torch.zeros_like(ctx.saved_tensors[0])
            return Two.backward(ctx, zero if a is None else a, zero if b is None else b) + 0 * x

    assert gradcheck(Right, x).verdict == PASS
    for fn in (Two, Wrong):
        assert failed(gradcheck(fn, x, raise_on_fail=False)) == {"linearity"}


def test_hooks_and_sparse_gradients(torch, x):
    """A hook cannot be put on what requires no gradient, as nothing does while differences are taken."""

    def hooked(factor):
        def fn(x, w):
            y = x * w
            y.retain_grad()
            y.register_hook(lambda g: g * factor)
            return y.sin()

        return fn

    w = torch.ones_like(x)
    assert gradcheck(hooked(1), x, w) and not gradcheck(hooked(2), x, w, raise_on_fail=False)
    rows = torch.tensor([0, 1, 1])
    assert gradcheck(lambda x: torch.nn.functional.embedding(rows, x, sparse=True), x)


def test_options_and_thresholds_in_all_forms_of_a_call(torch, x):
    apply = cases(torch)["Capped"].apply

    def wrapped(x, cap=0.0):
        return apply(x, cap)

    for fn, given, kwargs in [
        (apply, (x,), {}), (apply, (x, 0.0), {}), (wrapped, (x,), {}), (wrapped, (x,), {"cap": 0.0}),
        (partial(wrapped, cap=0.0), (x,), {}),
    ]:  # fmt: skip
        report = gradcheck(fn, given, kwargs=kwargs, probes=["parameters", "values"], raise_on_fail=False)
        assert failed(report) == {"cap=1.0"}, report
    report = gradcheck(apply, x, probes=["values"], raise_on_fail=False)
    assert failed(report) & {"values near 7.5", "values near 7.6"}, report


def test_fast_mode_and_slow_mode_agree_on_sort(torch):
    """pytorch#57166: among many numbers, two lie closer than the step 1e-6. Slow mode fails the right gradient; fast
    mode passes it, as it passes a wrong one."""

    class Sort(torch.autograd.Function):
        """Its gradient is that of sort(), but for one element."""

        @staticmethod
        def forward(ctx, x):
            y, ctx.index = x.sort()
            return y

        @staticmethod
        def backward(ctx, dy):
            dx = torch.zeros_like(dy).scatter(0, ctx.index, dy)
            return torch.cat([dx[:7], 1.5 * dx[7:8], dx[8:]])

    x = torch.linspace(-3, 3, 3000, dtype=torch.float64)[torch.randperm(3000)]
    x[1] = x[0] + 4e-7
    x.requires_grad_()
    theirs = torch.autograd.gradcheck
    assert theirs(lambda x: x.sort()[0], (x,), fast_mode=True)
    assert theirs(Sort.apply, (x,), fast_mode=True)
    assert not theirs(lambda x: x[:40].sort()[0], (x[:40].detach().requires_grad_(),), raise_exception=False)
    assert gradcheck(lambda x: x.sort()[0], x[:40].detach()).verdict in (PASS, KINK)
    assert gradcheck(lambda x: x.sort()[0], x, probes=()).verdict in (PASS, KINK)
    assert gradcheck(Sort, x, probes=(), raise_on_fail=False).verdict == FAIL


def test_jax_as_a_pair_of_numpy_functions():
    """As gradcheck's README has it."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    x = np.array([0.5, 1.25, -0.75])

    def f(x):
        return np.asarray(jax.numpy.tanh(x))

    def vjp(dy, x):
        return tuple(map(np.asarray, jax.vjp(jax.numpy.tanh, x)[1](dy)))

    assert gradcheck(f, x, vjp=vjp).verdict == PASS
    assert gradcheck(f, x, vjp=lambda dy, x: vjp(dy, x)[0] * 1.001, raise_on_fail=False).verdict == FAIL
    with pytest.raises(TypeError, match="Pass vjp="):
        gradcheck(jax.numpy.tanh, x)
