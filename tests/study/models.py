"""Small models, traced, and what a report of them says."""

import json
import re

import numpy as np

import minigrad as mg
from minigrad import nn, study
from minigrad.nn import functional as F

V, T, B = 11, 6, 3
ATTN = "blocks.1.attn"


def gpt(dtype=mg.float64, **changes):
    mg.manual_seed(1)
    config = nn.GPTConfig(V, T, **dict(n_layer=2, n_head=4, n_embd=16, impl="batched", bias=True) | changes)
    return nn.GPT(config).to(dtype=dtype)


def tokens(seed=2):
    generator = mg.Generator(seed)
    return mg.randint(0, V, (B, T), generator=generator), mg.randint(0, V, (B, T), generator=generator)


def traced(model, **options):
    with study.trace_heads(model, **options) as trace:
        model(*tokens())[1].backward()
    return trace


def wild_gpt(positions="learned", **changes):
    """Another GPT, in float64, whose weights are all random, norms and biases too."""
    sizes = dict(vocab_size=13, block_size=12, n_layer=2, n_head=4, n_embd=16, bias=True, positions=positions)
    return randomised(nn.GPT(nn.GPTConfig(**sizes | changes)))


def randomised(model):
    model = model.double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model


class Layer(nn.Module):
    """Attention within x, in a decoder also to `memory`, a network, and a norm after each sum."""

    def __init__(self, of_decoder):
        self.self_attn = nn.MultiheadAttention(16, 4, batch_first=True)
        self.multihead_attn = nn.MultiheadAttention(16, 4, batch_first=True) if of_decoder else None
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))

    def forward(self, x, memory, padding):
        own = dict(key_padding_mask=padding) if memory is None else dict(is_causal=True)
        x = self.norms[0](x + self.self_attn(x, **own)[0])
        if memory is not None:
            x = self.norms[1](x + self.multihead_attn(x, memory, key_padding_mask=padding)[0])
        return self.norms[2](x + self.mlp(x))


class EncoderDecoder(nn.Module):
    """Reads one sequence, writes another, and returns the loss."""

    def __init__(self):
        self.source, self.target, self.head = nn.Embedding(V, 16), nn.Embedding(V, 16), nn.Linear(16, V)
        self.encoder, self.decoder = Layer(False), nn.ModuleList(Layer(True) for _ in range(2))

    def forward(self, src, tgt):
        padding = mg.tensor(np.arange(src.shape[1]) >= np.array([[4], [6], [6]]))  # (B, S): the first is shorter
        memory, x = self.encoder(self.source(src), None, padding), self.target(tgt)
        for layer in self.decoder:
            x = layer(x, memory, padding)
        return F.cross_entropy(self.head(x).reshape(-1, V), tgt.reshape(-1))


def page_data(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1])
