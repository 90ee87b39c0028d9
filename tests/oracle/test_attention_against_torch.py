"""Attention layers and transformers against PyTorch's, and GPT-2 against Hugging Face's: outputs and gradients."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import checkpoint, nn

pytestmark = pytest.mark.oracle
B, T, S, C, NH = 2, 5, 7, 12, 3
PADDING = np.array([[False] * 7, [False, False, True, False, False, True, True]])
HIDDEN = np.random.default_rng(0).random((T, S)) < 0.3
PER_HEAD = np.random.default_rng(1).random((B * NH, T, S)) < 0.3
ADDED = np.random.default_rng(2).standard_normal((T, S))


def pair(torch, ours, theirs):
    """The two modules with the same weights."""
    state = {name: p.numpy() for name, p in ours.state_dict().items()}
    assert {name: tuple(p.shape) for name, p in theirs.state_dict().items()} == {k: v.shape for k, v in state.items()}
    theirs.load_state_dict({name: torch.tensor(x) for name, x in state.items()})


def compare(torch, ours, theirs, inputs, call):
    """Outputs and gradients of call(module, tensor maker, *inputs) for both."""
    pair(torch, ours, theirs)
    found = []
    for module, library in ((ours, mg), (theirs, torch)):
        xs = [library.tensor(x, requires_grad=True) for x in inputs]
        ys = call(library, module, *xs)
        ys = [y for y in (ys if isinstance(ys, tuple) else (ys,)) if y is not None]
        weights = [np.random.default_rng(i).standard_normal(tuple(y.shape)) for i, y in enumerate(ys)]
        sum((y * library.tensor(w)).sum() for y, w in zip(ys, weights)).backward()
        gradients = {name: p.grad for name, p in module.named_parameters()}
        found.append([*(y.detach().numpy() for y in ys), *(x.grad.numpy() for x in xs)]
                     + [gradients[name].numpy() for name in sorted(gradients)])  # fmt: skip
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def arrays(*shapes):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) for shape in shapes]


CALLS = {
    "plain": {}, "padding": dict(key_padding_mask=PADDING), "mask": dict(attn_mask=HIDDEN),
    "mask for each head": dict(attn_mask=PER_HEAD), "added": dict(attn_mask=ADDED),
    "weights of each head": dict(need_weights=True, average_attn_weights=False), "weights": dict(need_weights=True),
}  # fmt: skip


@pytest.mark.parametrize("form", ["per_head", "batched", "fused"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("made", [{}, dict(bias=False), dict(kdim=5, vdim=4)], ids=str)
def test_multihead_attention(torch, name, form, made):
    if "need_weights" in CALLS[name] and form == "fused":
        form = "batched"
    options = {"need_weights": False} | CALLS[name]

    def call(library, module, *xs):
        return module(*xs, **{k: library.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})

    ours = nn.MultiheadAttention(C, NH, dtype=mg.float64, impl=form, **made)
    theirs = torch.nn.MultiheadAttention(C, NH, batch_first=True, dtype=torch.float64, **made)
    inputs = arrays((B, T, C), (B, S, made.get("kdim", C)), (B, S, made.get("vdim", C)))
    compare(torch, ours, theirs, inputs, call)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("nkv", [1, 2, 4])
def test_grouped_attention(torch, nkv, causal):
    inputs = arrays((B, 4, T, 6), (B, nkv, T, 6), (B, nkv, T, 5))
    found = []
    for library in (mg, torch):
        xs = [library.tensor(x, requires_grad=True) for x in inputs]
        attend = library.nn.functional.scaled_dot_product_attention
        y = attend(*xs, is_causal=causal, enable_gqa=True)
        (y * y).sum().backward()
        found.append([y.detach().numpy(), *(x.grad.numpy() for x in xs)])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers(torch, norm_first, activation, bias):
    options = dict(dim_feedforward=16, dropout=0.0, activation=activation, norm_first=norm_first, bias=bias)

    def made(kind):
        return getattr(nn, kind)(C, NH, dtype=mg.float64, **options), getattr(torch.nn, kind)(
            C, NH, batch_first=True, dtype=torch.float64, **options
        )

    def encode(library, module, x):
        return module(x, src_mask=library.tensor(~np.tri(S, dtype=bool)), src_key_padding_mask=library.tensor(PADDING))

    def decode(library, module, x, memory):
        future, padding = library.tensor(~np.tri(T, dtype=bool)), library.tensor(PADDING)
        return module(x, memory, tgt_mask=future, memory_mask=library.tensor(HIDDEN), memory_key_padding_mask=padding)

    compare(torch, *made("TransformerEncoderLayer"), arrays((B, S, C)), encode)
    compare(torch, *made("TransformerDecoderLayer"), arrays((B, T, C), (B, S, C)), decode)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch of its own encoder
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer(torch, norm_first):
    options = dict(dim_feedforward=16, dropout=0.0, norm_first=norm_first)
    ours = nn.Transformer(C, NH, 2, 3, dtype=mg.float64, **options)
    theirs = torch.nn.Transformer(C, NH, 2, 3, batch_first=True, dtype=torch.float64, **options)

    def call(library, module, src, tgt):
        padding = library.tensor(PADDING)
        return module(src, tgt, tgt_mask=library.tensor(~np.tri(T, dtype=bool)), src_key_padding_mask=padding,
                      memory_key_padding_mask=padding)  # fmt: skip

    compare(torch, ours, theirs, arrays((B, S, C), (B, T, C)), call)


def test_gpt_2_from_hugging_face(torch, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=41, n_positions=16, n_embd=24, n_layer=3, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_(std=0.3)
    state = {name: x.clone().contiguous() for name, x in theirs.state_dict().items() if name != "lm_head.weight"}
    save_file(state, tmp_path / "model.safetensors")
    ours = nn.GPT.from_state_dict(checkpoint.load_tensors(tmp_path / "model.safetensors"), n_head=3)

    rng = np.random.default_rng(0)
    idx, targets = rng.integers(0, 41, (2, 16)), rng.integers(0, 41, (2, 16))
    logits, loss = ours(mg.tensor(idx), mg.tensor(targets))
    expected = theirs(torch.tensor(idx)).logits
    their_loss = torch.nn.functional.cross_entropy(expected.reshape(-1, 41), torch.tensor(targets).reshape(-1))
    np.testing.assert_allclose(logits.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-12)
    loss.backward()
    their_loss.backward()
    gradients = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    given = nn.GPT.from_state_dict(gradients, n_head=3).state_dict()
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), given[name].numpy(), rtol=1e-9, atol=1e-11)

    prompt = torch.tensor(idx[:1, :4])
    written = theirs.generate(prompt, max_new_tokens=10, do_sample=False, pad_token_id=0)
    assert ours.generate(mg.tensor(idx[:1, :4]), 10, temperature=0).tolist() == written.tolist()
