"""A training step of nanoGPT's model in each framework, as its users would write it, and its matrix products alone.

Each contender takes Sizes and the initial weights, {name: array}, and returns step(x, y) -> loss: one training step on
a batch of NumPy arrays, (B, T) int64, loss included. No dropout, no bias, GELU in its tanh form, AdamW, weight decay on
matrices. Ours and PyTorch's take a device too.
"""

import os
from typing import NamedTuple

import numpy as np

LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.99), 1e-8, 0.1, 1.0


class Sizes(NamedTuple):
    """Of a model and a batch."""

    L: int = 4  # layers
    NH: int = 4  # heads
    C: int = 128  # width
    T: int = 64  # tokens, and the model's block
    B: int = 12  # sequences in a batch
    V: int = 65  # kinds of tokens

    def minigrad_config(self):
        from minigrad import nn

        return nn.GPTConfig(
            self.V, block_size=self.T, n_layer=self.L, n_head=self.NH, n_embd=self.C, dropout=0.0, bias=False
        )

    def initial_weights(self):
        """minigrad's, under plain names: {"blocks.0.qkv.weight": array, …}."""
        import minigrad as mg
        from minigrad import nn

        mg.manual_seed(0)
        return {plain_name(name): w.numpy() for name, w in nn.GPT(self.minigrad_config()).state_dict().items()}


def plain_name(name):
    return name.replace("attn.in_proj_weight", "qkv.weight").replace("attn.out_proj", "out").replace("mlp.", "")


# ------------------------------------------------------------------------------------------------------------ minigrad


def minigrad_model(sizes, weights):
    from minigrad import nn

    model = nn.GPT(sizes.minigrad_config())
    model.load_state_dict({name: weights[plain_name(name)] for name in model.state_dict()})
    return model


def minigrad(sizes, weights, device="cpu", captured=True):
    import minigrad as mg
    from minigrad import nn, optim

    model = minigrad_model(sizes, weights).to(device)
    parameters = list(model.parameters())
    optimizer = optim.AdamW(model.parameter_groups(DECAY), lr=LR, betas=BETAS, eps=EPS)

    def train_step(x, y):
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return loss

    if captured and hasattr(mg, "capture"):  # versions before it can be measured, too
        train_step = mg.capture(train_step)
    return lambda x, y: train_step(mg.tensor(x, device=device), mg.tensor(y, device=device)).item()


def minigrad_eager(sizes, weights, device="cpu"):
    return minigrad(sizes, weights, device, captured=False)


# --------------------------------------------------------------------------------------------------------------- torch


def torch_model(sizes, weights):
    """A Module: (idx, targets) -> loss; (idx) -> logits of the last position. With caches, one a layer, idx begins at
    position `start`, and cache.extended(k, v) gives the keys and values of all positions so far."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    L, NH, C, T, _, V = sizes

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
            self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
            self.fc, self.proj = nn.Linear(C, 4 * C, bias=False), nn.Linear(4 * C, C, bias=False)

        def forward(self, x, cache=None):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)  # (B, T, C)
            q, k, v = (h.view(B, T, NH, C // NH).transpose(1, 2) for h in (q, k, v))  # (B, nh, T, hs)
            if cache is not None:
                k, v = cache.extended(k, v)  # (B, nh, S, hs)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
            x = x + self.out(z.transpose(1, 2).contiguous().view(B, T, C))
            return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks = nn.ModuleList(Block() for _ in range(L))
            self.norm = nn.LayerNorm(C, bias=False)

        def forward(self, idx, targets=None, caches=None, start=0):
            h = self.wte(idx) + self.wpe(torch.arange(start, start + idx.shape[1], device=idx.device))
            for block, cache in zip(self.blocks, caches or [None] * L):
                h = block(h, cache)
            if targets is None:
                return F.linear(self.norm(h[:, -1]), self.wte.weight)  # (B, V)
            logits = F.linear(self.norm(h), self.wte.weight)
            return F.cross_entropy(logits.view(-1, V), targets.view(-1))

    model = GPT()
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    return model


def torch(sizes, weights, device="cpu", compiled=False):
    import torch
    from torch import nn

    model = torch_model(sizes, weights).to(device)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": DECAY}]
    groups += [{"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    forward = torch.compile(model) if compiled else model

    def step(x, y):
        loss = forward(torch.from_numpy(x).to(device), torch.from_numpy(y).to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return loss.item()

    return step


def torch_compile(sizes, weights, device="cpu"):
    if " " in os.environ.get("CXX", ""):
        del os.environ["CXX"]  # it takes no compiler with arguments; ATEN_CPU_CAPABILITY chooses its vectors
    return torch(sizes, weights, device, compiled=True)


# -------------------------------------------------------------------------------------------------------------- others


def jax(sizes, weights):
    import jax
    from jax import numpy as jnp

    L, NH, C, T, B, _ = sizes

    def norm(x, w):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w

    def loss_of(p, x, y):
        h = p["wte.weight"][x] + p["wpe.weight"]  # (B, T, C)
        for i in range(L):
            w = {name: p[f"blocks.{i}.{name}.weight"] for name in ("norm1", "qkv", "out", "norm2", "fc", "proj")}
            qkv = (norm(h, w["norm1"]) @ w["qkv"].T).reshape(B, T, 3, NH, C // NH)
            z = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)  # (B, T, nh, hs)
            h = h + z.reshape(B, T, C) @ w["out"].T
            h = h + jax.nn.gelu(norm(h, w["norm2"]) @ w["fc"].T, approximate=True) @ w["proj"].T
        logits = norm(h, p["norm.weight"]) @ p["wte.weight"].T  # (B, T, V)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()

    def update(state, x, y):
        p, m, v, t = state
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        scale = jnp.minimum(1.0, CLIP / (jnp.sqrt(sum((a**2).sum() for a in g.values())) + 1e-6))
        t = t + 1
        for name, w in p.items():
            a = g[name] * scale
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * a
            v[name] = BETAS[1] * v[name] + (1 - BETAS[1]) * a**2
            root = jnp.sqrt(v[name] / (1 - BETAS[1] ** t)) + EPS
            decayed = w * (1 - LR * DECAY) if w.ndim >= 2 else w
            p[name] = decayed - LR * (m[name] / (1 - BETAS[0] ** t)) / root
        return (p, m, v, t), loss

    update = jax.jit(update, donate_argnums=0)
    zeros = [{name: jnp.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    state = ({name: jnp.array(w) for name, w in weights.items()}, *zeros, jnp.zeros(()))

    def step(x, y):
        nonlocal state
        state, loss = update(state, x.astype(np.int32), y.astype(np.int32))
        jax.block_until_ready(state)
        return float(loss)

    return step


def tinygrad(sizes, weights):
    from tinygrad import Context, Tensor, TinyJit, nn

    L, NH, C, T, B, V = sizes

    p = {name: Tensor(w).realize() for name, w in weights.items()}
    kinds = [(DECAY, [w for w in p.values() if w.ndim >= 2]), (0.0, [w for w in p.values() if w.ndim < 2])]
    optimizers = [nn.optim.AdamW(ws, LR, *BETAS, eps=EPS, weight_decay=decay) for decay, ws in kinds]
    optimizer = nn.optim.OptimizerGroup(*optimizers)

    @TinyJit
    def update(x, y):
        optimizer.zero_grad()
        h = p["wte.weight"][x] + p["wpe.weight"]  # (B, T, C)
        for i in range(L):
            w = {name: p[f"blocks.{i}.{name}.weight"] for name in ("norm1", "qkv", "out", "norm2", "fc", "proj")}
            qkv = (h.layernorm(eps=1e-5) * w["norm1"]) @ w["qkv"].T
            q, k, v = (a.reshape(B, T, NH, C // NH).transpose(1, 2) for a in qkv.split(C, dim=2))  # (B, nh, T, hs)
            z = q.scaled_dot_product_attention(k, v, is_causal=True)
            h = h + z.transpose(1, 2).reshape(B, T, C) @ w["out"].T
            h = h + ((h.layernorm(eps=1e-5) * w["norm2"]) @ w["fc"].T).gelu() @ w["proj"].T
        logits = (h.layernorm(eps=1e-5) * p["norm.weight"]) @ p["wte.weight"].T  # (B, T, V)
        loss = logits.reshape(B * T, V).sparse_categorical_crossentropy(y.reshape(B * T))
        loss.backward()
        norm = sum((w.grad.square().sum() for w in p.values()), Tensor(0.0)).sqrt()
        for w in p.values():
            w.grad = w.grad * (CLIP / (norm + 1e-6)).minimum(1.0)
        return loss.realize(*optimizer.schedule_step())

    def step(x, y):
        with Context(TRAINING=1):
            return update(Tensor(x.astype(np.int32)).realize(), Tensor(y.astype(np.int32)).realize()).item()

    return step


def gemms(sizes, weights):
    L, NH, C, T, B, V = sizes
    rng = np.random.default_rng(0)
    products = []  # (a, b, out), operands of their own for each layer, as in a real step

    def array(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    def linear(n_in, n_out):
        x, w, dy = array(B * T, n_in), array(n_out, n_in), array(B * T, n_out)
        add(x, w.T), add(dy, w), add(dy.T, x)  # y, dx, dw

    def add(a, b):
        products.append((a, b, a @ b))

    for _ in range(L):
        linear(C, 3 * C), linear(C, C), linear(C, 4 * C), linear(4 * C, C)
        q, k, v, dz = (array(B, NH, T, C // NH) for _ in range(4))
        pattern, dscores = array(B, NH, T, T), array(B, NH, T, T)
        add(q, k.mT), add(pattern, v)  # scores, z
        add(dz, v.mT), add(pattern.mT, dz), add(dscores, k), add(dscores.mT, q)  # dpattern, dv, dq, dk
    linear(C, V)

    def step(x, y):
        for a, b, out in products:
            np.matmul(a, b, out=out)

    return step


CONTENDERS = {  # name: (what makes its step, the package it needs)
    "minigrad": (minigrad, "minigrad"),
    "minigrad eager": (minigrad_eager, "minigrad"),
    "torch": (torch, "torch"),
    "torch.compile": (torch_compile, "torch"),
    "jax": (jax, "jax"),
    "tinygrad": (tinygrad, "tinygrad"),
    "GEMMs alone": (gemms, "numpy"),
}
