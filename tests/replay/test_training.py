"""Captured training steps give every loss and every weight with the bits of uncaptured steps."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim

from .steps import same, supported

pytestmark = supported
OPTIMIZERS = {
    "SGD": lambda groups: optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda groups: optim.Adam(groups, lr=1e-2, weight_decay=0.1),
    "AdamW": lambda groups: optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.99)),
}


def train(captured, optimizer, steps=5, clip=1.0, dtype=mg.float32, **config):
    """Losses, gradient norms, weights, gradients and moments of a small GPT after some steps."""
    mg.manual_seed(1)
    sizes = dict(block_size=8, n_layer=2, n_head=2, n_embd=8, dropout=0.2) | config
    model = nn.GPT(nn.GPTConfig(11, **sizes)).to(dtype)
    chosen = OPTIMIZERS[optimizer](model.parameter_groups(0.1))

    def step(x, y):
        _, loss = model(x, y)
        chosen.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        chosen.step()
        return loss, norm

    run = mg.capture(step) if captured else step
    rng, seen = np.random.default_rng(0), []
    for i in range(steps):
        for group in chosen.param_groups:
            group["lr"] = optim.warmup_cosine(i, lr=1e-2, min_lr=1e-3, warmup=2, total=steps)
        tokens = rng.integers(0, 11, (2, 9))
        seen += [x.detach().clone() for x in run(mg.tensor(tokens[:, :-1].copy()), mg.tensor(tokens[:, 1:].copy()))]
    state = chosen.state_dict()["state"]
    moments = [x for each in state.values() for x in each.values() if isinstance(x, mg.Tensor)]
    assert not state or {each["step"] for each in state.values()} == {steps}
    return seen, [*model.parameters(), *(p.grad for p in model.parameters()), *moments], mg.default_generator.state


def assert_equal(a, b):
    (seen, tensors, state), (seen_too, tensors_too, state_too) = a, b
    assert [same(x, y) for x, y in zip(seen, seen_too, strict=True)] == [True] * len(seen)
    assert all(same(x, y) for x, y in zip(tensors, tensors_too, strict=True)) and state == state_too


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_has_the_same_bits(kernels, optimizer):
    assert_equal(train(True, optimizer), train(False, optimizer))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_all_kinds_of_positions(kernels, positions):
    config = dict(positions=positions, n_layer=1, n_kv_head=1, bias=False, steps=3)
    assert_equal(train(True, "AdamW", **config), train(False, "AdamW", **config))


@pytest.mark.parametrize("impl", ["batched", "per_head"])
def test_all_forms_of_attention(kernels, impl):
    assert_equal(
        train(True, "AdamW", impl=impl, n_layer=1, steps=3), train(False, "AdamW", impl=impl, n_layer=1, steps=3)
    )


def test_float64_no_clipping_and_clipping_of_everything(kernels):
    for change in (dict(dtype=mg.float64), dict(clip=float("inf")), dict(clip=1e-9)):
        assert_equal(train(True, "AdamW", steps=2, **change), train(False, "AdamW", steps=2, **change))


def test_clipping_reads_nothing_on_the_host(kernels, monkeypatch):
    """Clipping gives NaN for NaN; only error_if_nonfinite=True needs the value of the norm."""
    p = mg.ones(2).requires_grad_()

    def clipped(**options):
        p.grad = mg.tensor([np.nan, 1.0])
        return nn.utils.clip_grad_norm_(p, 1.0, **options)

    clip = mg.capture(clipped)
    with pytest.raises(ArithmeticError, match="the norm of the gradients is nan"):
        clip(error_if_nonfinite=True)
    with monkeypatch.context() as patch:
        patch.setattr(mg.Tensor, "_host", None)
        norms = clip(), clip()
    assert all(norm.isnan().item() for norm in norms) and p.grad.isnan().all()


def test_a_real_size_with_several_threads():
    """The step that char_lm runs, on the backend that a user gets."""
    sizes = dict(block_size=64, n_layer=2, n_head=4, n_embd=128, dropout=0.1, bias=False, steps=3)
    assert_equal(train(True, "AdamW", **sizes), train(False, "AdamW", **sizes))


def test_memory_is_planned(kernels):
    """A chain of additions needs memory for two results at a time, and not for all."""

    def chain(x):
        for _ in range(50):
            x = x + 1
        return x

    run = mg.capture(chain)
    x = mg.zeros(1000)
    assert run(x).tolist() == [50.0] * 1000
    (tree,) = run._trees.values()
    (program,) = tree.programs.values()
    assert program._arena.size < 3 * 4096


# ------------------------------------------------------------------------------- what happens to an optimizer meanwhile

KINDS = {
    "SGD": lambda groups: optim.SGD(groups, lr=0.1, momentum=0.9),
    "Adam": lambda groups: optim.Adam(groups, lr=0.1),
    "AdamW": lambda groups: optim.AdamW(groups, lr=0.1),
}


def option(name, value):
    return lambda o, extra: o.param_groups[-1].update({name: value} if name in o.defaults else {"lr": 0.2})


CHANGES = {
    "another group": lambda o, extra: o.param_groups.__setitem__(0, dict(o.param_groups[0])),
    "a parameter less": lambda o, extra: o.param_groups[0]["params"].pop(),
    "a parameter more": lambda o, extra: o.param_groups[1]["params"].append(extra),
    "a group more": lambda o, extra: o.add_param_group({"params": extra, "lr": 0.3}),
    "groups in another order": lambda o, extra: o.param_groups.reverse(),
    "loaded": lambda o, extra: o.load_state_dict(o.state_dict()),
    "no state": lambda o, extra: o.state.clear(),
    "a step of one": lambda o, extra: next(iter(o.state.values())).update(step=7),
    "another buffer": lambda o, extra: next(iter(o.state.values())).update({o.buffers[-1]: mg.ones(2)}),
    "a buffer of another dtype": lambda o, extra: next(iter(o.state.values())).update(
        {o.buffers[0]: mg.ones(2, dtype=mg.float64)}
    ),
    "lr": option("lr", 0.5),
    "weight_decay": option("weight_decay", 0.25),
    "momentum": option("momentum", 0.5),
    "nesterov": option("nesterov", True),
    "betas": option("betas", (0.5, 0.9)),
    "eps": option("eps", 1e-2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_optimizer_that_changes_between_calls(kernels, kind, change):
    def run(captured):
        w, extra = [mg.full((2,), 1.0 + i).requires_grad_() for i in range(3)], mg.ones(2).requires_grad_()
        optimizer = KINDS[kind]([{"params": w[:2]}, {"params": w[2:], "weight_decay": 0.1}])

        def step(x):
            optimizer.zero_grad()
            extra.grad = None
            sum(((p * x) ** 2).sum() for p in [*w, extra]).backward()
            optimizer.step()

        take, seen = mg.capture(step) if captured else step, []
        for i in range(6):
            if i == 3:
                CHANGES[change](optimizer, extra)
            take(mg.full((2,), 0.5 + 0.1 * i))
            buffers = [state[name] for state in optimizer.state.values() for name in optimizer.buffers]
            seen += [x.detach().clone() for x in (*w, extra, *buffers)]
            seen += [mg.tensor(state["step"]) for state in optimizer.state.values()]
        return seen

    assert [same(a, b) for a, b in zip(run(True), run(False), strict=True)].count(False) == 0
