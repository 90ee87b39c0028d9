"""Programs written for PyTorch, run by both libraries: over 20 steps in float64 their results are the same.

They are ours, in the style of well-known ones. `m` is torch or minigrad, and nothing else differs; the first weights
are torch's."""

import math
from collections import OrderedDict

import numpy as np
import pytest

import minigrad as mg

pytestmark = pytest.mark.oracle
STEPS = 20


def gpt(m):
    """A GPT in nanoGPT's style: one projection for q, k and v, a tied head, a loss that ignores -1."""
    nn, F = m.nn, m.nn.functional
    T, V, C, nh = 16, 37, 32, 4

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(C, 3 * C)
            self.c_proj = nn.Linear(C, C)
            self.drop = nn.Dropout(0.0, inplace=True)
            self.register_buffer("mask", m.tril(m.ones(T, T)).view(1, 1, T, T))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = (y.view(B, T, nh, C // nh).transpose(1, 2) for y in self.c_attn(x).split(C, dim=2))
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            pattern = F.softmax(scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), dim=-1)
            z = (self.drop(pattern) @ v).transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(z)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(C), Attention(), nn.LayerNorm(C)
            self.mlp = nn.ModuleDict(dict(fc=nn.Linear(C, 4 * C), proj=nn.Linear(4 * C, C), act=nn.GELU()))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp.proj(self.mlp.act(self.mlp.fc(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.ModuleDict(dict(
                wte=nn.Embedding(V, C), wpe=nn.Embedding(T, C), h=nn.ModuleList([Block() for _ in range(2)]),
                ln_f=nn.LayerNorm(C),
            ))  # fmt: skip
            self.lm_head = nn.Linear(C, V, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for name, p in self.named_parameters():
                if name.endswith("proj.weight"):
                    nn.init.normal_(p, mean=0.0, std=0.1)

        def _init_weights(self, module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, mean=0.0, std=0.1)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

        def forward(self, idx, targets):
            pos = m.arange(0, idx.size(1), dtype=m.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            logits = self.lm_head(self.transformer.ln_f(x))
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    return Model()


def train_gpt(m, model, rng):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = m.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-6, fused=False)  # eps: keys' biases
    for t in range(STEPS):  # have gradients of rounding alone
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, (t + 1) / 5)
        total = 0.0
        for _ in range(2):  # gradients are accumulated
            tokens = rng.integers(0, 37, (4, 17))
            targets = np.where(rng.random((4, 16)) < 0.1, -1, tokens[:, 1:])
            loss = model(m.tensor(tokens[:, :-1]), m.tensor(targets)) / 2
            loss.backward()
            total += loss.item()
        yield total
        yield m.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def moons_net(m):
    """A classifier of two moons, as micrograd's demo has one, with layers that have names."""
    nn = m.nn
    layers = [("a", nn.Linear(2, 16)), ("b", nn.ReLU(inplace=True)), ("c", nn.Linear(16, 16)), ("d", nn.ReLU())]
    return nn.Sequential(OrderedDict(layers)).append(nn.Linear(16, 1))


def train_moons(m, model, rng):
    angle = rng.uniform(0, np.pi, 100)
    side = np.repeat([1.0, -1.0], 50)
    points = np.stack([np.cos(angle) * side + (side < 0), np.sin(angle) * side + 0.5 * (side < 0)], 1)
    x, y = m.tensor(points + rng.normal(0, 0.1, (100, 2))), m.tensor(side)
    for k in range(STEPS):
        scores = model(x).squeeze(-1)
        data_loss = (1 + -y * scores).relu().mean()  # a hinge
        loss = data_loss + 1e-4 * sum((p * p).sum() for p in model.parameters())
        model.zero_grad()
        loss.backward()
        with m.no_grad():
            for p in model.parameters():
                p -= (1.0 - 0.9 * k / STEPS) * p.grad
        yield loss.item()
        yield ((scores > 0) == (y > 0)).double().mean().item()


def losses_net(m):
    nn = m.nn
    return nn.Sequential(nn.Linear(18, 12), nn.Tanh(), nn.Linear(12, 5))


def train_losses(m, model, rng):
    """A loader, and losses of all kinds."""
    nn, F = m.nn, m.nn.functional
    D = m.utils.data
    x, y = rng.standard_normal((24, 18)), rng.integers(0, 5, 24)
    q = rng.dirichlet(np.ones(5), 24)
    dataset = D.TensorDataset(m.tensor(x), m.tensor(y), m.tensor(q))
    loader = D.DataLoader(dataset, batch_size=10, drop_last=False)
    weight = m.tensor(np.array([0.5, 1.0, 2.0, 1.0, 0.3]))
    criteria = [nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.2)]
    optimizer = m.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(STEPS // 3 + 1):
        for xb, yb, qb in loader:
            logits = model(xb)
            loss = criteria[0](logits, yb) + criteria[1](logits, qb) + F.nll_loss(F.log_softmax(logits, dim=1), yb)
            loss = loss + nn.BCEWithLogitsLoss(pos_weight=weight)(logits, qb) + F.mse_loss(logits.sigmoid(), qb)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            yield nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
            optimizer.step()
            yield loss.item()


PROGRAMS = {"a GPT": (gpt, train_gpt), "two moons": (moons_net, train_moons), "losses": (losses_net, train_losses)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_port(torch, name):
    make, train = PROGRAMS[name]
    torch.manual_seed(0)
    theirs = make(torch).double()
    ours = make(mg).double()
    assert ours.load_state_dict({path: x.numpy() for path, x in theirs.state_dict().items()}) == ([], [])
    seen = [list(train(m, model, np.random.default_rng(1))) for m, model in ((mg, ours), (torch, theirs))]
    assert len(seen[0]) >= 2 * STEPS
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-12, atol=1e-12)
    for path, x in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[path].numpy(), x.numpy(), rtol=0, atol=1e-11, err_msg=path)
