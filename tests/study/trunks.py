"""Trunks as people write them, with names and structures of their own. Each is called with tokens and targets."""

import math

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

V, T, C = 11, 6, 16


def attention(**options):
    return nn.MultiheadAttention(C, 4, **{"impl": "batched", "batch_first": True, "bias": False} | options)


def mlp(bias=True):
    return nn.Sequential(nn.Linear(C, 32, bias=bias), nn.GELU(), nn.Linear(32, C, bias=bias))


class Model(nn.Module):
    """Embeddings, layers, perhaps a norm, and an unembedding."""

    def __init__(self, block, n_layer=2, norm=nn.LayerNorm):
        self.tok_emb, self.pos_emb = nn.Embedding(V, C), nn.Embedding(T, C)
        self.layers = nn.ModuleList(block() for _ in range(n_layer))
        self.ln_f = norm(C) if norm else None
        self.head = nn.Linear(C, V, bias=False)

    def forward(self, idx, targets=None):
        x = self.tok_emb(idx) + self.pos_emb(mg.arange(idx.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x if self.ln_f is None else self.ln_f(x))
        return loss_of(logits, targets)


def loss_of(logits, targets):
    return logits, None if targets is None else F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))


class GPT2Block(nn.Module):
    def __init__(self):
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(C), attention(bias=True), nn.LayerNorm(C), mlp()

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The names of GPT-2's checkpoints."""

    def __init__(self):
        blocks = nn.ModuleList(GPT2Block() for _ in range(2))
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(V, C), "wpe": nn.Embedding(T, C), "h": blocks, "ln_f": nn.LayerNorm(C)}
        )
        self.lm_head = nn.Linear(C, V, bias=False)

    def forward(self, idx, targets=None):
        x = self.transformer["wte"](idx) + self.transformer["wpe"](mg.arange(idx.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return loss_of(self.lm_head(self.transformer["ln_f"](x)), targets)


class SwiGLU(nn.Module):
    def __init__(self):
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(*size, bias=False) for size in ((C, 24),) * 2 + ((24, C),)
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """RMSNorm, rotary positions, shared keys, SwiGLU."""

    def __init__(self):
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(C), nn.RMSNorm(C)
        self.self_attn, self.mlp = attention(num_kv_heads=2, positions="rotary"), SwiGLU()

    def forward(self, hidden):
        residual = hidden
        hidden = self.self_attn(self.input_layernorm(hidden), is_causal=True)[0]
        hidden = residual + hidden
        residual = hidden
        hidden = self.mlp(self.post_attention_layernorm(hidden))
        return residual + hidden


class Inline(nn.Module):
    """An MLP without a module of its own, dropout on both branches, and the branch in front of the sum."""

    def __init__(self):
        self.norm_a, self.norm_b, self.drop = nn.LayerNorm(C), nn.LayerNorm(C), nn.Dropout(0.1)
        self.mha, self.fc1, self.fc2 = attention(), nn.Linear(C, 32), nn.Linear(32, C)

    def forward(self, x):
        x = self.drop(self.mha(self.norm_a(x), is_causal=True)[0]) + x
        return self.drop(self.fc2(F.relu(self.fc1(self.norm_b(x))))) + x


class Parallel(nn.Module):
    """Attention and MLP beside each other, behind one norm (GPT-J)."""

    def __init__(self):
        self.ln, self.attn, self.ff = nn.LayerNorm(C), attention(), mlp()

    def forward(self, x):
        h = self.ln(x)
        return x + self.attn(h, is_causal=True)[0] + self.ff(h)


class ParallelSum(nn.Module):
    """The same behind norms of their own, added to each other first (GPT-NeoX)."""

    def __init__(self):
        self.ln1, self.attn, self.ln2, self.ff = nn.LayerNorm(C), attention(), nn.LayerNorm(C), mlp()

    def forward(self, x):
        return x + (self.ff(self.ln2(x)) + self.attn(self.ln1(x), is_causal=True)[0])


class PostNorm(nn.Module):
    """The norms of the original transformer, on the stream itself."""

    def __init__(self):
        self.att, self.n1, self.ffn, self.n2 = attention(), nn.LayerNorm(C), mlp(), nn.LayerNorm(C)

    def forward(self, x):
        x = self.n1(x + self.att(x, is_causal=True)[0])
        return self.n2(x + self.ffn(x))


class Scaled(nn.Module):
    """Branches times a constant and times a parameter (CaiT's LayerScale)."""

    def __init__(self):
        self.pre, self.attn, self.mid, self.ff = nn.RMSNorm(C), attention(), nn.RMSNorm(C), mlp()
        self.gamma = nn.Parameter(mg.randn(C))

    def forward(self, x):
        x = x + self.attn(self.pre(x), is_causal=True)[0] * self.gamma
        return x + self.ff(self.mid(x)) / math.sqrt(2)


class Keywords(nn.Module):
    def __init__(self):
        self.ln, self.attention = nn.LayerNorm(C), attention()

    def forward(self, x):
        h = self.ln(x)
        y, _ = self.attention(query=h, key=h, value=h, is_causal=True)
        return mg.add(x, y)


class Wrapped(nn.Module):
    """Attention inside a module of its own."""

    class SelfAttention(nn.Module):
        def __init__(self):
            self.inner, self.drop = attention(), nn.Dropout(0.1)

        def forward(self, x):
            return self.drop(self.inner(x, is_causal=True)[0])

    def __init__(self):
        self.sa, self.ln1, self.ffwd, self.ln2 = self.SelfAttention(), nn.LayerNorm(C), mlp(), nn.LayerNorm(C)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class Residual(nn.Module):
    """x + part(norm(x)): attention and MLPs as layers of the same kind."""

    def __init__(self, part):
        self.norm, self.part = nn.LayerNorm(C), part

    def forward(self, x):
        h = self.norm(x)
        return x + (self.part(h, is_causal=True)[0] if isinstance(self.part, nn.MultiheadAttention) else self.part(h))


def alternating():
    model = Model(None, 0)
    model.layers = nn.ModuleList(Residual(part()) for part in (mlp, attention, mlp, attention, mlp))
    return model


class Summed(nn.Module):
    """A Sequential from tokens to logits."""

    def __init__(self):
        self.net = nn.Sequential(nn.Embedding(V, C), LlamaLayer(), LlamaLayer(), nn.RMSNorm(C), nn.Linear(C, V))

    def forward(self, idx, targets=None):
        return loss_of(self.net(idx), targets)


class NoNorms(nn.Module):
    def __init__(self):
        self.look = attention(bias=True)

    def forward(self, x):
        return x + self.look(x, is_causal=True)[0]


TRUNKS = {
    "GPT-2's names": GPT2,
    "Llama's": lambda: Model(LlamaLayer, norm=nn.RMSNorm),
    "an MLP in the block": lambda: Model(Inline),
    "parallel, one norm": lambda: Model(Parallel),
    "parallel, a sum": lambda: Model(ParallelSum),
    "norms last": lambda: Model(PostNorm, norm=None),
    "scaled": lambda: Model(Scaled, norm=nn.RMSNorm),
    "keywords": lambda: Model(Keywords),
    "attention in a wrapper": lambda: Model(Wrapped),
    "layers of one part": alternating,
    "one Sequential": Summed,
    "no norms": lambda: Model(NoNorms, 3, norm=None),
}
