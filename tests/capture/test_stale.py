"""What users of other captures stumble over: nothing that changes between calls is ever silently stale."""

import gc
import logging
import os
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

from .steps import same, supported

pytestmark = supported


def numbers(*shape, seed=0):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def count_runs(function):
    """The function captured, and a list that grows with each run of it in Python."""
    runs = []

    def counted(*args, **kwargs):
        runs.append(1)
        return function(*args, **kwargs)

    return mg.capture(counted), runs


# ------------------------------------------------------------------------------------------------------------ arguments


def test_the_arguments_of_each_call_are_used(kernels):
    double, runs = count_runs(lambda x: x * 2)
    for seed in range(4):
        x = numbers(3, 4, seed=seed)
        assert same(double(x), x * 2)
    assert len(runs) == 1


def test_another_shape_dtype_or_layout_is_recorded_anew(kernels):
    total, runs = count_runs(lambda x: (x * x).sum(0))
    given = [
        numbers(3, 4),
        numbers(4, 4),
        numbers(3, 4).double(),
        numbers(4, 3).T,
        numbers(3, 8)[:, ::2],
        numbers(3, 4),
    ]
    for x in given:
        assert same(total(x), (x * x).sum(0))
    assert len(runs) <= 5
    before = len(runs)
    for x in given:
        assert same(total(x), (x * x).sum(0))
    assert len(runs) == before


def test_an_argument_is_left_alone_and_may_change_afterwards(kernels):
    f = mg.capture(lambda x: x + 1)
    x = numbers(5)
    before = x.numpy().copy()
    y = f(x)
    x.fill_(7)
    assert (y.numpy() == before + 1).all() and (f(x).numpy() == 8).all()


def test_numbers_and_strings_are_part_of_what_is_recorded(kernels):
    gelu, runs = count_runs(lambda x, scale, how: F.gelu(x, how) * scale)
    x = numbers(4)
    for scale, how in [
        (2.0, "tanh"),
        (3.0, "tanh"),
        (2.0, "none"),
        (0.0, "none"),
        (-0.0, "none"),
        (True, "tanh"),
        (1, "tanh"),
    ]:
        assert same(gelu(x, scale, how), F.gelu(x, how) * scale)
    assert len(runs) == 7


def test_nested_arguments_and_results(kernels):
    f = mg.capture(lambda pair, *, named: {"sum": pair[0] + pair[1], "all": [named["a"] * 2, (None, "text", 3)]})
    a, b, c = (numbers(3, seed=i) for i in range(3))
    for _ in range(2):
        got = f((a, b), named={"a": c})
        assert same(got["sum"], a + b) and same(got["all"][0], c * 2) and got["all"][1] == (None, "text", 3)


# -------------------------------------------------------------------------------------------------------------- results


def test_results_that_are_kept_do_not_change(kernels):
    f = mg.capture(lambda x: (x * 3, x.sum()))
    kept = [f(numbers(4, seed=i)) for i in range(5)]
    for i, (y, total) in enumerate(kept):
        assert same(y, numbers(4, seed=i) * 3) and same(total, numbers(4, seed=i).sum())


def test_arguments_that_come_back_do_not_change(kernels):
    f = mg.capture(lambda x, y: (x, x + y, mg.arange(2) + 0, mg.arange(2)))
    kept = [f(mg.full((2,), float(i)), mg.ones(2)) for i in range(4)]
    for i, (x, y, counted, constant) in enumerate(kept):
        assert x.tolist() == [i, i] and y.tolist() == [i + 1, i + 1] and counted.tolist() == [0, 1]
        constant += 1
        assert constant.tolist() == [1, 2]


def test_results_have_no_graph(kernels):
    w = numbers(3).requires_grad_()
    f = mg.capture(lambda x: (x * w).sum())
    assert not f(numbers(3)).requires_grad


def test_a_result_may_be_an_argument_a_parameter_or_a_view(kernels):
    w = numbers(2, 3)
    f = mg.capture(lambda x: (x, w, x.T, (x * 2)[0], w.T))
    for seed in range(3):
        x = numbers(2, 3, seed=seed)
        y, same_w, turned, row, w_turned = f(x)
        assert same_w is w and same(y, x) and y is not x
        assert same(turned, x.T) and same(row, (x * 2)[0]) and same(w_turned, w.T)


# ---------------------------------------------------------------------------------------------- modules and parameters


def trained(model, captured=False):
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return (mg.capture(step) if captured else step), optimizer


def test_train_and_eval_are_recorded_apart(kernels):
    mg.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    f, runs = count_runs(model)
    x = numbers(8, 4)
    dropped = f(x)
    model.eval()
    whole = f(x)
    assert (dropped.numpy() == 0).any() and same(whole, model(x).detach())
    for _ in range(3):
        model.train(), f(x), model.eval()
        assert same(f(x), whole)
    assert len(runs) == 2


def test_values_loaded_into_parameters_are_seen(kernels):
    model = nn.Linear(4, 2)
    f = mg.capture(model)
    x = numbers(3, 4)
    f(x)
    model.load_state_dict({name: numbers(*p.shape, seed=7) for name, p in model.state_dict().items()})
    assert same(f(x), model(x).detach())
    with mg.no_grad():
        model.weight.fill_(1)
    assert same(f(x), model(x).detach())


def test_parameters_that_are_replaced_are_seen(kernels):
    model = nn.Linear(4, 2)
    f = mg.capture(model)
    x = numbers(3, 4)
    f(x)
    model.weight = nn.Parameter(numbers(2, 4, seed=3))
    assert same(f(x), model(x).detach())
    model.weight.data = numbers(2, 4, seed=4)
    assert same(f(x), model(x).detach())
    model.double()
    assert same(f(x.double()), model(x.double()).detach())


def test_pruned_heads_are_seen(kernels):
    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(7, block_size=4, n_layer=1, n_head=2, n_embd=8, dropout=0.0))
    f = mg.capture(lambda idx: model(idx)[0])
    idx = mg.tensor([[1, 2, 3, 4]])
    f(idx)
    model.prune_heads({0: [1]})
    assert same(f(idx), model(idx)[0].detach())


def test_hooks_that_come_and_go_are_seen(kernels):
    model = nn.Linear(3, 3)
    f = mg.capture(model)
    x = numbers(2, 3)
    plain = f(x)
    handle = model.register_forward_hook(lambda module, args, y: y * 2)
    assert same(f(x), plain * 2)
    handle.remove()
    assert same(f(x), plain)


def test_a_frozen_parameter_is_seen(kernels):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    step, _ = trained(model, captured=True)
    step(numbers(2, 3)), step(numbers(2, 3))
    next(model.children()).requires_grad_(False)
    frozen, trained_on = (child.weight.detach() for child in model.children())
    before = frozen.numpy().copy(), trained_on.numpy().copy()
    step(numbers(2, 3, seed=5))
    assert (frozen.numpy() == before[0]).all() and (trained_on.numpy() != before[1]).any()


# --------------------------------------------------------------------------------------------------------- surroundings


def test_a_number_of_the_closure_is_seen(kernels):
    scale = 2.0

    def f(x):
        return x * scale

    g = mg.capture(f)
    x = numbers(3)
    assert same(g(x), x * 2)
    scale = 5.0
    assert same(g(x), x * 5)


def test_a_tensor_of_the_closure_is_seen(kernels):
    w = numbers(3)
    g = mg.capture(lambda x: x * w)
    x = numbers(3, seed=1)
    g(x)
    w.fill_(3)
    assert same(g(x), x * 3)
    w = numbers(3, seed=9)
    assert same(g(x), x * w)


SCALE = 2.0


def test_a_global_is_seen(kernels, monkeypatch):
    g = mg.capture(lambda x: x * SCALE)
    x = numbers(3)
    assert same(g(x), x * 2)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert same(g(x), x * 4)


def test_an_attribute_of_the_object_of_a_method_is_seen(kernels):
    class Scaler:
        by = 1.0

        def __init__(self):
            self.by = 2.0

        @mg.capture
        def __call__(self, x):
            return x * self.by

    scaler, other = Scaler(), Scaler()
    other.by = 3.0
    x = numbers(3)
    for _ in range(2):
        assert same(scaler(x), x * 2) and same(other(x), x * 3)
    scaler.by = 4.0
    assert same(scaler(x), x * 4)


def test_what_changes_at_each_call_is_right_and_warned_of(kernels, caplog):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    g = mg.capture(f)
    with caplog.at_level(logging.WARNING):
        for i in range(1, 15):
            assert (g(mg.ones(2)).numpy() == i).all()
    assert "what changes each time?" in caplog.text


# ------------------------------------------------------------------------------------------- exceptions, threads, forks


def test_an_exception_while_recording_leaves_everything_as_it_was(kernels):
    model = nn.Linear(3, 3)
    broken = True

    def step(x):
        model.zero_grad()
        (model(x) ** 2).sum().backward()
        if broken:
            raise KeyError("here")
        return model.weight.grad

    (model(numbers(2, 3)) ** 2).sum().backward()
    before = [(p.numpy() if not p.requires_grad else p.detach().numpy()).copy() for p in model.parameters()]
    grads = [p.grad for p in model.parameters()]
    f = mg.capture(step)
    with pytest.raises(KeyError):
        f(numbers(2, 3))
    assert all(p.grad is g for p, g in zip(model.parameters(), grads))
    assert all((p.detach().numpy() == b).all() for p, b in zip(model.parameters(), before))
    broken = False
    got = f(numbers(2, 3))
    assert same(got, step(numbers(2, 3)))


def test_a_wrong_index_raises_before_anything_runs(kernels):
    table = nn.Embedding(5, 3)
    f = mg.capture(lambda idx: table(idx).sum())
    f(mg.tensor([0, 4]))
    for wrong in ([0, 5], [-1, 0]):
        with pytest.raises(IndexError, match="out of range"):
            f(mg.tensor(wrong))
    assert same(f(mg.tensor([1, 2])), table(mg.tensor([1, 2])).sum().detach())


def test_captures_within_captures_are_one(kernels):
    inner, runs = count_runs(lambda x: x * 2)
    outer = mg.capture(lambda x: inner(x) + inner(x + 1))
    for seed in range(3):
        x = numbers(4, seed=seed)
        assert same(outer(x), x * 2 + (x + 1) * 2)
    assert len(runs) == 2
    assert same(inner(numbers(4)), numbers(4) * 2)


def test_a_captured_function_is_not_captured_again():
    f = mg.capture(lambda x: x)
    assert mg.capture(f) is f
    with pytest.raises(TypeError, match="needs a function"):
        mg.capture(3)


def test_threads_share_a_captured_function(kernels):
    f = mg.capture(lambda x: (x * 2 + 1).sum(1))
    wrong = []

    def work(seed):
        for i in range(20):
            x = numbers(4, 5, seed=100 * seed + i)
            if not same(f(x), (x * 2 + 1).sum(1)):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_another_thread_computes_while_one_records(kernels):
    recording, done = threading.Event(), threading.Event()

    def f(x):
        y = x * 2
        recording.set()
        assert done.wait(30)
        return y + 1

    g, got = mg.capture(f), []
    thread = threading.Thread(target=lambda: got.append(g(mg.ones(3))))
    thread.start()
    assert recording.wait(30)
    assert (mg.ones(3) * 5).tolist() == [5, 5, 5]
    done.set()
    thread.join()
    assert got[0].tolist() == [3, 3, 3]


def test_a_forked_child_goes_on(kernels):
    f = mg.capture(lambda x: x * 2)
    f(mg.ones(3))
    child = os.fork()
    if child == 0:
        os._exit(0 if f(mg.full((3,), 4.0)).tolist() == [8, 8, 8] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert f(mg.ones(3)).tolist() == [2, 2, 2]


def test_recordings_go_when_the_function_goes(kernels):
    import weakref

    f = mg.capture(lambda x: x * 2)
    f(mg.ones(3))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


# -------------------------------------------------------------------------------------------- where nothing is recorded


def test_numpys_backend_runs_the_function_and_says_so_once(monkeypatch, caplog):
    from minigrad import backend

    monkeypatch.setattr(backend, "cpu", lambda: backend.reference)
    f, runs = count_runs(lambda x: x * 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert f(mg.ones(2)).tolist() == [2, 2]
    assert len(runs) == 3 and caplog.text.count("runs as it is") == 1


def test_a_search_for_nan_runs_the_function(kernels):
    f = mg.capture(lambda x: x.log())
    f(mg.ones(2))
    with mg.detect_anomaly(), pytest.raises(mg.AnomalyError):
        f(mg.zeros(2))


# -------------------------------------------------------------------------------- found by those who wanted to break it


def test_gradients_from_outside_are_those_of_the_call(kernels):
    w = mg.ones(3).requires_grad_()
    optimizer = optim.SGD([w], lr=0.1)
    step = mg.capture(lambda: optimizer.step())
    expected = np.ones(3, np.float32)
    for k in (1.0, 2.0, 3.0):
        w.grad = mg.full((3,), k)
        step()
        expected = expected - np.float32(0.1) * np.float32(k)
        np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-6)


def test_an_optimizer_that_takes_the_place_of_another_is_seen(kernels):
    w = mg.ones(3).requires_grad_()
    optimizer = optim.SGD([w], lr=0.0)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    run = mg.capture(step)
    run(mg.ones(3))
    optimizer = optim.SGD([w], lr=1.0)
    run(mg.ones(3))
    assert w.tolist() == [0, 0, 0]


def test_a_module_that_is_not_called_is_seen(kernels):
    layers = nn.ModuleList([nn.Linear(3, 3)])
    model = nn.Linear(3, 3)

    def run(x):
        for layer in layers:
            x = layer(x)
        return F.linear(x, model.weight)

    f, x = mg.capture(run), numbers(2, 3)
    f(x)
    layers.append(nn.Linear(3, 3))
    assert same(f(x), run(x))
    model.weight = nn.Parameter(numbers(3, 3, seed=8))
    assert same(f(x), run(x))


def test_helpers_partials_and_defaults_are_looked_into(kernels, monkeypatch):
    import functools

    def helper(x):
        return x * SCALE

    f = mg.capture(mg.no_grad()(lambda x: helper(x)))
    g = mg.capture(functools.partial(lambda by, x: x * by["n"], {"n": 3.0}))

    def with_default(x, by=2.0):
        return x * by

    h = mg.capture(with_default)
    x = numbers(3)
    assert same(f(x), x * 2) and same(g(x), x * 3) and same(h(x), x * 2)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    g.function.args[0]["n"] = 5.0
    with_default.__defaults__ = (6.0,)
    assert same(f(x), x * 4) and same(h(x), x * 6)


def test_strided_and_expanded_arguments_have_the_bits_of_eager(kernels):
    for x in (
        numbers(300, 300)[:64, :64].T,
        numbers(1, 64).expand(64, 64),
        numbers(64, 64).flip(0),
        numbers(90, 90)[::3],
    ):
        f = mg.capture(lambda x: (x.sum(0), x.sum(), (x * x).sum(1)))
        for _ in range(2):
            assert all(same(a, b) for a, b in zip(f(x), (x.sum(0), x.sum(), (x * x).sum(1))))


def test_objects_are_told_apart_by_identity(kernels):
    class Scaler:
        def __init__(self, by):
            self.by = by

        def __eq__(self, other):
            return True

        @mg.capture
        def run(self, x):
            return x * self.by

    x = numbers(3)
    a, b = Scaler(2.0), Scaler(3.0)
    for _ in range(2):
        assert same(a.run(x), x * 2) and same(b.run(x), x * 3)


def test_no_more_recordings_than_fit(kernels, caplog):
    f = mg.capture(lambda x, by: x * by)
    for i in range(80):
        assert same(f(mg.ones(2), float(i)), mg.ones(2) * float(i))
    assert len(f._recordings) <= 64 and "kinds of arguments" in caplog.text


def test_arrays_and_copies_are_refused(kernels):
    import copy

    a = np.ones(3, np.float32)
    for function in (lambda x: x * a, lambda x: copy.deepcopy(x * 2)):
        with pytest.raises(mg.CaptureError):
            mg.capture(function)(mg.ones(3))
    with pytest.raises(TypeError):
        mg.capture(lambda x: (x for _ in range(2)))(mg.ones(3))
