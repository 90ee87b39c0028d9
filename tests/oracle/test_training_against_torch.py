"""minigrad beside PyTorch: layers, optimizers, and 50 training steps of nanoGPT's CPU configuration."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.training import text

from .compare import assert_layers_agree, twins

pytestmark = pytest.mark.oracle

# --------------------------------------------------------------------------------------------------- layers, optimizers

B, T, C = 3, 5, 12


LAYERS = {
    "Linear": (lambda m: m.nn.Linear(C, 5, dtype=m.float64), (B, T, C)),
    "Linear without bias": (lambda m: m.nn.Linear(C, 5, bias=False, dtype=m.float64), (B, C)),
    "Embedding": (lambda m: m.nn.Embedding(9, C, dtype=m.float64), None),
    "LayerNorm": (lambda m: m.nn.LayerNorm(C, dtype=m.float64), (B, T, C)),
    "LayerNorm of two dims": (lambda m: m.nn.LayerNorm((T, C), eps=0.1, dtype=m.float64), (B, T, C)),
    "LayerNorm without bias": (lambda m: m.nn.LayerNorm(C, bias=False, dtype=m.float64), (B, T, C)),
    "LayerNorm, not affine": (lambda m: m.nn.LayerNorm(C, elementwise_affine=False), (B, T, C)),
    "RMSNorm": (lambda m: m.nn.RMSNorm(C, dtype=m.float64), (B, T, C)),
    "RMSNorm with eps": (lambda m: m.nn.RMSNorm((T, C), eps=0.1, dtype=m.float64), (B, T, C)),
    "Sequential": (
        lambda m: m.nn.Sequential(
            m.nn.Linear(C, 6, dtype=m.float64), m.nn.GELU(), m.nn.LayerNorm(6, dtype=m.float64), m.nn.SiLU(),
            m.nn.GELU("tanh"), m.nn.Tanh(), m.nn.ReLU(), m.nn.Sigmoid(), m.nn.Softmax(-1), m.nn.Dropout(0.0),
            m.nn.Identity(),
        ),
        (B, T, C),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layer(torch, name):
    make, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (B, T)) if shape is None else rng.standard_normal(shape)
    assert_layers_agree(torch, *twins(torch, make), lambda layer, m, x: layer(x), [x])


def test_cross_entropy_loss(torch):
    x, target = np.random.default_rng(0).standard_normal((B, C)), np.array([3, -1, 0])
    assert_layers_agree(
        torch,
        *twins(torch, lambda m: m.nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1)),
        lambda layer, m, x, t: layer(x, t),
        [x, target],
    )


OPTIMIZERS = {
    "SGD": lambda m, ps: m.optim.SGD(ps, lr=0.1),
    "SGD momentum": lambda m, ps: m.optim.SGD(ps, lr=0.1, momentum=0.9),
    "SGD nesterov": lambda m, ps: m.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "SGD decay": lambda m, ps: m.optim.SGD(ps, lr=0.1, momentum=0.5, weight_decay=0.1),
    "Adam": lambda m, ps: m.optim.Adam(ps, lr=0.05),
    "Adam decay": lambda m, ps: m.optim.Adam(ps, lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
    "AdamW": lambda m, ps: m.optim.AdamW(ps, lr=0.05),
    "AdamW groups": lambda m, ps: m.optim.AdamW(
        [{"params": ps[:1], "weight_decay": 0.3}, {"params": ps[1:], "lr": 0.01}], lr=0.05, betas=(0.9, 0.99)
    ),
}


@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(torch, name, max_norm):
    """20 steps on a small problem. From step 10 on, one parameter is left out: it must rest, momentum or not."""

    def run(m):
        rng = np.random.default_rng(0)
        w, b, x, y = (m.tensor(rng.standard_normal(shape)) for shape in ((4, 6), (6,), (16, 4), (16, 6)))
        parameters = [w.requires_grad_(), b.requires_grad_()]
        optimizer = OPTIMIZERS[name](m, parameters)
        path = []
        for step in range(20):
            loss = (((x @ w + (b if step < 10 else b.detach())).tanh() - y) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            norm = math.nan if max_norm is None else float(m.nn.utils.clip_grad_norm_(parameters, max_norm))
            optimizer.step()
            path.append(np.concatenate([w.detach().numpy().ravel(), b.detach().numpy(), [loss.item(), norm]]))
        return np.array(path)

    np.testing.assert_allclose(run(mg), run(torch), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, dict(nesterov=False, weight_decay=0.0), dict(adjust_lr_fn="match_rms_adamw")])
def test_muon(torch, options, monkeypatch):
    """100 steps on three matrices under a schedule. PyTorch's is made to compute in float64 here, as it stores."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)

    def run(m):
        rng = np.random.default_rng(0)
        ps = [m.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((4, 12), (12, 6), (6, 5))]
        optimizer = m.optim.Muon(ps, lr=0.1, **options)
        for step in range(100):
            optimizer.param_groups[0].update(momentum=0.85 + 0.001 * step, lr=0.1 * (1 - step / 100))
            for p in ps:  # drawn, since training would blow up the last bits
                p.grad = m.tensor(rng.standard_normal(tuple(p.shape)))
            optimizer.step()
        return np.concatenate([p.detach().numpy().ravel() for p in ps])

    np.testing.assert_allclose(run(mg), run(torch), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("max_norm", [0.1, 1e3, math.inf])
def test_clip_grad_norm(torch, max_norm):
    def run(m):
        rng = np.random.default_rng(0)
        parameters = [m.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((3, 4), (5,), ())]
        for p in parameters[:2]:  # the third has no gradient
            p.grad = m.tensor(rng.standard_normal(tuple(p.shape)))
        norm = m.nn.utils.clip_grad_norm_(parameters, max_norm)
        return float(norm), [p.grad.numpy() for p in parameters[:2]], parameters[2].grad

    (norm, grads, none), (their_norm, their_grads, _) = run(mg), run(torch)
    np.testing.assert_allclose(norm, their_norm, rtol=1e-14)
    for ours, theirs in zip(grads, their_grads):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert none is None


# ---------------------------------------------------------------------------------------------------- nanoGPT, 50 steps


def gpt_loss(torch, p, idx, targets, n_layer, n_head):
    """GPT's forward as nanoGPT writes it, on {name: tensor} with our names. idx, targets (B, T)."""
    F = torch.nn.functional
    (B, T), C = idx.shape, p["wte.weight"].shape[1]

    def norm(x, name):
        return F.layer_norm(x, (C,), p[f"{name}.weight"])

    x = F.embedding(idx, p["wte.weight"]) + p["wpe.weight"][:T]  # (B, T, C)
    for i in range(n_layer):
        block = f"blocks.{i}"
        qkv = F.linear(norm(x, f"{block}.norm1"), p[f"{block}.attn.in_proj_weight"])  # (B, T, 3C)
        q, k, v = (y.view(B, T, n_head, C // n_head).transpose(1, 2) for y in qkv.split(C, dim=2))  # (B, nh, T, hs)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + F.linear(z, p[f"{block}.attn.out_proj.weight"])
        h = F.gelu(F.linear(norm(x, f"{block}.norm2"), p[f"{block}.mlp.fc.weight"]), approximate="tanh")  # (B, T, 4C)
        x = x + F.linear(h, p[f"{block}.mlp.proj.weight"])
    logits = F.linear(norm(x, "norm"), p["wte.weight"])  # (B, T, V)
    return F.cross_entropy(logits.view(B * T, -1), targets.view(-1))


def test_gpt_trains_like_torch(torch):
    """nanoGPT's CPU configuration in float64, 50 steps of AdamW with clipping, warmup and cosine: the same losses."""
    steps, lr, min_lr, warmup, decay, clip = 50, 1e-3, 1e-4, 10, 0.1, 1.0
    corpus = text.read_corpus()
    vocab = text.CharVocab(corpus)
    batches = text.Batches(vocab.encode(corpus), 64, 12, mg.random.Generator(1))
    batches = [next(batches) for _ in range(steps)]

    config = mg.nn.GPTConfig(len(vocab), block_size=64, n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False)
    model = mg.nn.GPT(config).double()
    weights = {name: torch.tensor(p.numpy(), requires_grad=True) for name, p in model.state_dict().items()}

    optimizer = mg.optim.AdamW(model.parameter_groups(decay), lr=lr, betas=(0.9, 0.99))
    losses = []
    for step, (x, y) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = mg.optim.warmup_cosine(step, lr=lr, min_lr=min_lr, warmup=warmup, total=steps)
        _, loss = model(mg.tensor(x), mg.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        mg.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())

    matrices = [p for p in weights.values() if p.ndim >= 2]
    vectors = [p for p in weights.values() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99)
    )
    expected = []
    for step, (x, y) in enumerate(batches):
        cosine = min_lr + (lr - min_lr) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
        for group in optimizer.param_groups:
            group["lr"] = lr * (step + 1) / (warmup + 1) if step < warmup else cosine
        loss = gpt_loss(torch, weights, torch.tensor(x), torch.tensor(y), config.n_layer, config.n_head)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        optimizer.step()
        expected.append(loss.item())

    assert expected[-1] < expected[0] - 1  # it learnt something
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-9)
    for name, p in model.state_dict().items():
        np.testing.assert_allclose(p.numpy(), weights[name].detach().numpy(), rtol=0, atol=1e-8, err_msg=name)


SCHEDULES = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda t: 0.9**t),
    "a function for each group": lambda L, o: L.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (t + 1)]),
    "StepLR": lambda L, o: L.StepLR(o, 7, gamma=0.5),
    "CosineAnnealingLR, and up again": lambda L, o: L.CosineAnnealingLR(o, 13, eta_min=0.01),
    "LinearLR": lambda L, o: L.LinearLR(o),
    "LinearLR, all options": lambda L, o: L.LinearLR(o, start_factor=0.2, end_factor=0.5, total_iters=11),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, total_iters=5), L.CosineAnnealingLR(o, 20), L.LambdaLR(o, lambda t: 0.5)], [5, 17]
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own step(0) in SequentialLR is deprecated
@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rates(name):
    import torch

    found = []
    for lib in torch, mg:
        a, b = (torch.nn.Parameter(torch.ones(2)) if lib is torch else mg.ones(2, requires_grad=True) for _ in "ab")
        optimizer = lib.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.03}], lr=0.1)
        scheduler, rates = SCHEDULES[name](lib.optim.lr_scheduler, optimizer), []
        for _ in range(40):
            rates.append(scheduler.get_last_lr())
            if lib is torch:
                optimizer.step()  # it warns of the other order
            scheduler.step()
        found.append(rates)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-15)
