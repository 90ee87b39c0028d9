"""A training step of nanoGPT's model in each framework, as its users would write it.

Each contender takes Sizes and the initial weights, {name: array}, and returns step(x, y) -> loss: one training step on
a batch of NumPy arrays, (B, T) int64, loss included. No dropout, no bias, GELU in its tanh form, AdamW, weight decay on
matrices. Ours and PyTorch's take a device too.
"""

from typing import NamedTuple

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

    if captured:
        train_step = mg.capture(train_step)
    return lambda x, y: train_step(mg.tensor(x, device=device), mg.tensor(y, device=device)).item()


def minigrad_eager(sizes, weights, device="cpu"):
    return minigrad(sizes, weights, device, captured=False)


# --------------------------------------------------------------------------------------------------------------- torch


def torch_model(sizes, weights):
    """A Module: (idx, targets) -> loss."""
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

        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)  # (B, T, C)
            q, k, v = (h.view(B, T, NH, C // NH).transpose(1, 2) for h in (q, k, v))  # (B, nh, T, hs)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(z.transpose(1, 2).contiguous().view(B, T, C))
            return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks = nn.ModuleList(Block() for _ in range(L))
            self.norm = nn.LayerNorm(C, bias=False)

        def forward(self, idx, targets):
            h = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
            for block in self.blocks:
                h = block(h)
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
    return torch(sizes, weights, device, compiled=True)


CONTENDERS = {  # name: (what makes its step, the package it needs)
    "minigrad": (minigrad, "minigrad"),
    "minigrad eager": (minigrad_eager, "minigrad"),
    "torch": (torch, "torch"),
    "torch.compile": (torch_compile, "torch"),
}
