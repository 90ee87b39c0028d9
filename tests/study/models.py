"""Small models, traces of them, and the data of a report."""

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
    """Attention within x, in a decoder also to `memory`, and a network; each is added to x, and a norm follows."""

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


def designed_head(kind, vocab_size=32, block_size=32, sharpness=20.0):
    """(model, path, head): an AttentionOnly with weights set by hand, and the place of the head that attends as `kind`
    says: to the "previous" token, to earlier copies of its token ("duplicate"), or to the tokens that followed such
    copies ("induction"). It is the only head of the last layer, and as wide as the residual stream x (T, C):

        scores = x W_QK xᵀ,  z W_O = pattern x W_OV,  W_QK = W_Q, W_OV = W_O, W_K = W_V = I, scale 1
        x = [token | position | written | read],  C = V + T + V + V

    token and position are one-hot, and the other two parts are 0 at first. "previous" copies the token that it attends
    to into `written`, and "induction" into `read`, which the unembedding, β times the identity, reads. β = sharpness:

        previous    score_ij = β [j = i - 1]
        duplicate   score_ij = β [t_j = t_i] - β [j = i]
        induction   score_ij = β [written_j = t_i] - β [j = 0], in the layer after "previous", which has written the
                    token before j at j; at position 0, which has none before it, it wrote token 0 itself, and the
                    second term makes up for that

    An unwanted position gets at most exp(-β) times the attention of a wanted one. Where no position is wanted, those of
    score 0 share the attention."""
    V, T = vocab_size, block_size
    C = 3 * V + T
    token, position, written, read = np.split(np.eye(C), [V, V + T, 2 * V + T])  # (V, C), (T, C), (V, C), (V, C)
    previous = position.T @ np.eye(T, k=-1) @ position, token.T @ written  # W_QK / β and W_OV
    duplicate = token.T @ token - position.T @ position, np.zeros((C, C))
    induction = token.T @ written - np.outer(position.sum(0), position[0]), token.T @ read
    layers = {"previous": [previous], "duplicate": [duplicate], "induction": [previous, induction]}[kind]

    with nn.init.skipped():
        model = study.AttentionOnly(V, T, n_layer=len(layers), n_head=1, n_embd=C)
    for module, weight in (model.wte, token), (model.wpe, position), (model.lm_head, sharpness * read):
        module.weight.detach().copy_(mg.tensor(weight))
    for block, (W_QK, W_OV) in zip(model.blocks, layers):
        block.attn.scale = 1.0
        block.attn.load_from_heads([sharpness * W_QK], [np.eye(C)], [np.eye(C)], W_OV)
    return model, f"blocks.{len(layers) - 1}.attn", 0
